"""The request of a tool, read from its keys: address, parameters, headers, body, auth; and what its
arguments are where it says nothing of them.

Checked here: that every name in a template is an argument, that no header or parameter takes the
place of what `auth` sets, and that no secret stands in the file where a header or a query looks as
if it held one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, cast

from ferrule.permissions.child_environment import looks_secret
from ferrule.storage.settings.yaml_tree import Node

from .auth import KINDS as AUTH_KINDS
from .auth import Auth
from .auth import Kind as AuthKind
from .bodies import KINDS as BODY_KINDS
from .bodies import Body, Kind, json_template, shape_template
from .fields import Fields, Problems, plain
from .parameters import PLACES, STYLES, Parameter, Place
from .requests import settable
from .secrets import reference_of
from .spec import MAX_BYTES, METHODS, MOST_BYTES, Endpoint, Method
from .templates import Hole, Template, Unfit, parse_template
from .url_templates import Address, parse_address

AUTH = ("kind", "secret", "header", "query", "cookie", "username", "prefix")
PARAMETER = ("name", "in", "from", "style", "explode")
_NEEDS = {
    "api_key": ("header", "query"),
    "cookie": ("cookie",),
    "basic": ("username",),
    "bearer": (),
}
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LITERAL = re.compile(r"[\x20-\x7e]*")

Schema = Mapping[str, Any]


def read_auth(name: str, fields: Fields) -> Auth | None:
    """An entry of the auth section; None where it cannot be used, which is a problem then. Raises
    Unfit.
    """
    kind: AuthKind = fields.choice("kind", AUTH_KINDS, "bearer")
    secret = fields.text("secret", needed=True)
    if not fields.text("kind", needed=True) or not secret:
        return None
    reference = reference_of(secret)
    if reference is None:
        # It may be a secret: it is not shown.
        raise Unfit(
            f"the secret of `{name}` is written out; name where it is: `${{NAME}}` or "
            f"`${{secret:name}}`"
        )
    where = {key: fields.text(key) for key in ("header", "query", "cookie", "username", "prefix")}
    given = [key for key in ("header", "query", "cookie", "username") if where[key]]
    if len(given) != (1 if _NEEDS[kind] else 0) or any(key not in _NEEDS[kind] for key in given):
        wanted = (
            " or ".join(
                f"`{key}`, one of them" if len(_NEEDS[kind]) > 1 else f"`{key}`"
                for key in _NEEDS[kind][:1]
            )
            or "nothing else"
        )
        if kind == "api_key":
            wanted = "`header` or `query`, one of them"
        raise Unfit(f"the auth entry `{name}` of kind `{kind}` needs {wanted}")
    if where["header"] and not (
        _TOKEN.fullmatch(where["header"]) and _allowed_header(where["header"])
    ):
        raise Unfit(f"`{where['header']}` cannot be the header of an api_key")
    if where["cookie"] and not _TOKEN.fullmatch(where["cookie"]):
        raise Unfit(f"`{where['cookie']}` cannot be the name of a cookie")
    if ":" in where["username"] or not where["username"].isprintable():
        raise Unfit("a user name has no `:`")
    if where["prefix"] and (
        kind != "api_key" or not where["header"] or not _LITERAL.fullmatch(where["prefix"])
    ):
        raise Unfit("`prefix` goes before the secret of an api_key in a header")
    return Auth(name, kind, reference, **where)


def _allowed_header(name: str) -> bool:
    return settable(name) or name.lower() == "authorization"


def read_endpoint(
    fields: Fields, schema: Schema | None, auths: Mapping[str, Auth], problems: Problems
) -> tuple[Endpoint, Schema] | None:
    """The endpoint of a tool and the schema of its arguments, made from its templates where there
    is none. None: there are problems.
    """
    before = len(problems)
    method: Method = fields.choice("method", METHODS, "GET")
    fields.text("method", needed=True)
    address: Address | None = None
    if fields.text("url_template", needed=True):
        with problems.at(fields.get("url_template")):
            address = parse_address(fields.text("url_template"))
    auth = tuple(_auth(fields, auths, problems))
    headers = tuple(_headers(fields, auth, problems))
    parameters = tuple(_parameters(fields, auth, problems))
    if address is None:
        return None
    _check_query(fields, address, parameters, auth, problems)
    body = _body(fields, method, headers, problems)
    endpoint = Endpoint(
        method,
        address,
        parameters,
        headers,
        body,
        auth,
        fields.flag("idempotency_key", False),
        fields.whole("max_bytes", MAX_BYTES, 1024, MOST_BYTES),
    )
    made = _derived(endpoint) if schema is None else schema
    if schema is not None:
        _check_names(fields, endpoint, schema, problems)
    if endpoint.idempotency_key and method not in ("POST", "PATCH", "PUT", "DELETE"):
        problems.add(fields.get("idempotency_key"), f"a {method} needs no `idempotency_key`")
    return (
        (replace(endpoint, body=_rest(fields, endpoint, made)), made)
        if len(problems) == before
        else None
    )


# ---- parts


def _auth(fields: Fields, auths: Mapping[str, Auth], problems: Problems) -> Iterator[Auth]:
    if not fields.given("auth_ref"):
        return
    node = fields.get("auth_ref")
    seen: set[str] = set()
    for one in node.items or [node]:
        found = auths.get(one.value) if isinstance(one.value, str) else None
        if found is None:
            near = get_close_matches(str(one.value), auths, 1)
            hint = (
                f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(auths) or 'none'}"
            )
            problems.add(one, f"auth_ref `{one.value}` names no entry of `auth`; {hint}")
        elif found.sets_header in seen and found.sets_header != "cookie":
            problems.add(one, f"two auth entries set the header `{found.sets_header}`")
        else:
            seen |= {found.sets_header} - {""}
            yield found


def _headers(
    fields: Fields, auth: tuple[Auth, ...], problems: Problems
) -> Iterator[tuple[str, Template]]:
    seen: set[str] = set()
    for name, node in fields.mapping("headers"):
        template: Template | None = None
        if not isinstance(node.value, (str, int)) or isinstance(node.value, bool):
            problems.add(node, f"the header `{name}` must be text")
            continue
        with problems.at(node):
            _check_header(name, auth)
            template = parse_template(str(node.value))
            if template.literal is not None and not _LITERAL.fullmatch(template.literal):
                raise Unfit(f"the header `{name}` holds line breaks or characters beyond ASCII")
            if any(
                isinstance(part, str) and not _LITERAL.fullmatch(part) for part in template.parts
            ):
                raise Unfit(f"the header `{name}` holds line breaks or characters beyond ASCII")
            if template.literal is not None:
                _check_literal("header", name, template.literal)
            if name.lower() in seen:
                raise Unfit(f"the header `{name}` a second time")
            seen.add(name.lower())
            yield name, template


def _check_header(name: str, auth: tuple[Auth, ...]) -> None:
    if not _TOKEN.fullmatch(name):
        raise Unfit(f"`{name}` is no name of a header")
    if any(one.sets_header == name.lower() for one in auth):
        raise Unfit(f"the header `{name}` is set by the auth section, and nothing can replace that")
    if not settable(name):
        hint = (
            "it comes from the auth section"
            if name.lower() in ("authorization", "cookie")
            else "the request sets it itself"
        )
        raise Unfit(f"the header `{name}` cannot be set: {hint}")


def _check_literal(what: str, name: str, value: str) -> None:
    """A key written out where nobody looks for one. Short words are none: `sort_key=name`."""
    if looks_secret(name) and value and not (value.isalpha() and len(value) <= 12):
        raise Unfit(
            f"the {what} `{name}` looks like a secret that is written out; put it into the "
            "auth section"
        )


def _parameters(fields: Fields, auth: tuple[Auth, ...], problems: Problems) -> Iterator[Parameter]:
    for node in fields.items("parameters"):
        inner = Fields(node, PARAMETER, "a parameter", problems)
        name = inner.text("name", needed=True)
        if not name or not inner.text("in", needed=True):
            continue
        place: Place = inner.choice("in", PLACES, "query")
        style = inner.choice("style", STYLES[place], STYLES[place][0])
        explode = inner.flag("explode", False) if inner.given("explode") else None
        with problems.at(node):
            if place == "header":
                _check_header(name, auth)
                if looks_secret(name):
                    raise Unfit(
                        f"the header `{name}` looks like a secret, and a model has none: put "
                        "it into the auth section"
                    )
            if place == "cookie" and (
                not _TOKEN.fullmatch(name) or any(one.cookie == name for one in auth)
            ):
                raise Unfit(f"the cookie `{name}` cannot be set")
            yield Parameter(name, place, inner.text("from") or name, style, explode)


def _check_query(
    fields: Fields,
    address: Address,
    parameters: tuple[Parameter, ...],
    auth: tuple[Auth, ...],
    problems: Problems,
) -> None:
    theirs = {one.query for one in auth if one.query}
    places = {hole.name for part in address.path for hole in part.holes}
    for one in parameters:
        if one.place == "path" and one.source not in places:
            problems.add(
                fields.get("parameters"),
                (
                    f"the path parameter `{one.name}` has no place `{{{{{one.source}}}}}` in "
                    "`url_template`"
                ),
            )
    for name in [name for name, _ in address.query] + [
        one.name for one in parameters if one.place == "query"
    ]:
        if name in theirs:
            problems.add(
                fields.get("url_template"),
                (
                    f"the query parameter `{name}` is set by the auth section, and nothing can "
                    "replace that"
                ),
            )
    for name, value in address.query:
        if value.literal:
            with problems.at(fields.get("url_template")):
                _check_literal("query parameter", name, value.literal)


# ---- body


def _body(
    fields: Fields, method: Method, headers: tuple[tuple[str, Template], ...], problems: Problems
) -> Body | None:
    template, whole = fields.given("body_template"), fields.text("body_from")
    if template and whole:
        problems.add(fields.get("body_from"), "`body_template` and `body_from`: write one of them")
    if (template or whole) and method == "GET":
        problems.add(fields.get("body_template" if template else "body_from"), "a GET has no body")
        return None
    kind: Kind = fields.choice("body_type", tuple(BODY_KINDS), _kind_of(headers))
    if whole:
        if kind == "xml":
            problems.add(fields.get("body_type"), "xml is made by a `body_template`")
        return Body(kind, whole=whole)
    if not template:
        return None
    node = fields.get("body_template")
    with problems.at(node):
        return _template(node, kind)
    return None


def _kind_of(headers: tuple[tuple[str, Template], ...]) -> Kind:
    said = next(
        (value.literal or "" for name, value in headers if name.lower() == "content-type"), ""
    )
    media = said.partition(";")[0].strip().lower()
    if media == BODY_KINDS["form"]:
        return "form"
    if media in ("application/xml", "text/xml") or media.endswith("+xml"):
        return "xml"
    return "text" if media.startswith("text/") else "json"


def _template(node: Node, kind: Kind) -> Body:
    if isinstance(node.value, str):
        return (
            json_template(node.value)
            if kind == "json"
            else Body(kind, text=parse_template(node.value))
        )
    if kind != "json" or (node.pairs is None and node.items is None):
        raise Unfit(
            "`body_template` must be text"
            if kind != "json"
            else "`body_template` must be text or a mapping"
        )
    return shape_template(plain(node))


def _rest(fields: Fields, endpoint: Endpoint, schema: Schema) -> Body | None:
    """Without a template, what stands nowhere else is the body of a request that has one."""
    if endpoint.body is not None or endpoint.method not in ("POST", "PUT", "PATCH"):
        return endpoint.body
    used = frozenset(_used(endpoint))
    declared = set(cast("Mapping[str, Any]", schema.get("properties") or {}))
    if schema.get("additionalProperties") is False and not declared - used:
        return None
    return Body("json", used=used)


# ---- names


def _holes(endpoint: Endpoint) -> Iterator[Hole]:
    yield from endpoint.address.holes()
    for _, template in endpoint.headers:
        yield from template.holes
    if endpoint.body is not None:
        yield from endpoint.body.holes()


def _used(endpoint: Endpoint) -> Iterator[str]:
    yield from (hole.path[0] for hole in _holes(endpoint))
    yield from (one.source for one in endpoint.parameters)
    if endpoint.body is not None and endpoint.body.whole:
        yield endpoint.body.whole


def _check_names(fields: Fields, endpoint: Endpoint, schema: Schema, problems: Problems) -> None:
    for hole in dict.fromkeys(_holes(endpoint)):
        if not _declared(hole.path, schema):
            problems.add(
                fields.node,
                (
                    f"`{{{{{hole.name}}}}}` is no argument of "
                    f"`input_schema`{_near(hole.path[0], schema)}"
                ),
            )
    for name in dict.fromkeys(_used(endpoint)):
        if not _declared((name,), schema):
            problems.add(
                fields.node, f"`{name}` is no argument of `input_schema`{_near(name, schema)}"
            )


def _declared(path: tuple[str, ...], schema: Schema) -> bool:
    """Whether an argument is declared; further in, only as far as the schema spells its properties
    out.
    """
    inner: Any = schema
    for depth, part in enumerate(path):
        listed: Any = (
            cast("Schema", inner).get("properties") if isinstance(inner, Mapping) else None
        )
        if not isinstance(listed, Mapping):
            return depth > 0
        if part not in listed:
            return False
        inner = cast("Schema", listed)[part]
    return True


def _near(name: str, schema: Schema) -> str:
    near = get_close_matches(
        name, [str(one) for one in cast("Schema", schema.get("properties") or {})], 1
    )
    return f"; did you mean `{near[0]}`?" if near else ""


def _derived(endpoint: Endpoint) -> Schema:
    """The arguments of a tool that does not say them: one for each name that its templates use."""
    holes = list(_holes(endpoint))
    names = list(dict.fromkeys(_used(endpoint)))
    if not names and endpoint.body is None and endpoint.method in ("POST", "PUT", "PATCH"):
        return {"type": "object"}
    plain_ones = {hole.name for hole in endpoint.address.holes()} | {
        hole.name for _, template in endpoint.headers for hole in template.holes
    }
    kinds: dict[str, Any] = {
        name: {"type": ["string", "number", "boolean"]} if name in plain_ones else {}
        for name in names
    }
    optional = {one.source for one in endpoint.parameters if one.place != "path"}
    optional |= {hole.path[0] for hole in holes if hole.optional}
    required = [name for name in names if name not in optional]
    return {
        "type": "object",
        "properties": kinds,
        "required": required,
        "additionalProperties": False,
    }
