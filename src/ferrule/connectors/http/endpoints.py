"""The request of a tool, read from its keys: URL, parameters, headers, body, auth.

If a tool does not describe its arguments, their schema is derived from its templates.

Checked here: that every name in a template is an argument, that no header or parameter replaces
what `auth` sets, and that the file holds no literal secret where a header or a query parameter
looks as if it held one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from ferrule.connectors.json_values import mapping_or_empty
from ferrule.core.similar_names import suggest_names
from ferrule.permissions.child_environment import is_secret_variable
from ferrule.storage.settings.yaml_tree import Node, to_plain

from .auth import KINDS as AUTH_KINDS
from .auth import Auth
from .auth import Kind as AuthKind
from .bodies import KINDS as BODY_KINDS
from .bodies import BodyTemplate, Kind, parse_json_template, parse_value_template
from .fields import Fields, Problems
from .parameters import LOCATIONS, STYLES, Location, Parameter
from .requests import is_settable
from .secrets import parse_reference
from .spec import DEFAULT_MAX_BYTES, MAX_BYTES_LIMIT, METHODS, Endpoint, Method
from .templates import Placeholder, Template, TemplateError, parse_template
from .url_templates import UrlTemplate, parse_url_template

AUTH_KEYS = ("kind", "secret", "header", "query", "cookie", "username", "prefix")
PARAMETER_KEYS = ("name", "in", "from", "style", "explode")
_REQUIRED_KEYS = {
    "api_key": ("header", "query"),
    "cookie": ("cookie",),
    "basic": ("username",),
    "bearer": (),
}
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PRINTABLE_ASCII = re.compile(r"[\x20-\x7e]*")

Schema = Mapping[str, Any]


def read_auth(name: str, fields: Fields) -> Auth | None:
    """Read an entry of the auth section; None if it cannot be used, which is then a problem.

    Raises:
        TemplateError: The entry contradicts itself or has an invalid value.
    """
    kind: AuthKind = fields.choice("kind", AUTH_KINDS, "bearer")
    secret = fields.text("secret", required=True)
    if not fields.text("kind", required=True) or not secret:
        return None
    reference = parse_reference(secret)
    if reference is None:
        # The text is not shown: it may be a secret.
        raise TemplateError(
            f"the secret of `{name}` is written out; name where it is: `${{NAME}}` or "
            f"`${{secret:name}}`"
        )
    texts = {key: fields.text(key) for key in ("header", "query", "cookie", "username", "prefix")}
    _check_auth_keys(name, kind, texts)
    header = texts["header"]
    if header and not (_TOKEN.fullmatch(header) and _can_hold_secret(header)):
        raise TemplateError(f"`{header}` cannot be the header of an api_key")
    if texts["cookie"] and not _TOKEN.fullmatch(texts["cookie"]):
        raise TemplateError(f"`{texts['cookie']}` cannot be the name of a cookie")
    if ":" in texts["username"] or not texts["username"].isprintable():
        raise TemplateError("a user name has no `:`")
    prefix = texts["prefix"]
    if prefix and (kind != "api_key" or not header or not _PRINTABLE_ASCII.fullmatch(prefix)):
        raise TemplateError("`prefix` goes before the secret of an api_key in a header")
    return Auth(name, kind, reference, **texts)


def _check_auth_keys(name: str, kind: AuthKind, texts: Mapping[str, str]) -> None:
    required = _REQUIRED_KEYS[kind]
    given = [key for key in ("header", "query", "cookie", "username") if texts[key]]
    expected_count = 1 if required else 0
    if len(given) == expected_count and all(key in required for key in given):
        return
    wanted = "nothing else"
    if len(required) == 1:
        wanted = f"`{required[0]}`"
    elif required:
        wanted = f"{' or '.join(f'`{key}`' for key in required)}, one of them"
    raise TemplateError(f"the auth entry `{name}` of kind `{kind}` needs {wanted}")


def _can_hold_secret(name: str) -> bool:
    return is_settable(name) or name.lower() == "authorization"


def read_endpoint(
    fields: Fields, schema: Schema | None, auths: Mapping[str, Auth], problems: Problems
) -> tuple[Endpoint, Schema] | None:
    """Read the endpoint of a tool and the schema of its arguments, derived if there is none.

    Returns None if there are problems.
    """
    problems_before = len(problems)
    method: Method = fields.choice("method", METHODS, "GET")
    fields.text("method", required=True)
    address: UrlTemplate | None = None
    if fields.text("url_template", required=True):
        with problems.collect(fields.get("url_template")):
            address = parse_url_template(fields.text("url_template"))
    auth = tuple(_read_auth_ref(fields, auths, problems))
    headers = tuple(_read_headers(fields, auth, problems))
    parameters = tuple(_read_parameters(fields, auth, problems))
    if address is None:
        return None
    _check_query(fields, address, parameters, auth, problems)
    body = _read_body(fields, method, headers, problems)
    endpoint = Endpoint(
        method=method,
        url=address,
        parameters=parameters,
        headers=headers,
        body=body,
        auth=auth,
        idempotency_key=fields.flag("idempotency_key", False),
        max_bytes=fields.integer("max_bytes", DEFAULT_MAX_BYTES, 1024, MAX_BYTES_LIMIT),
    )
    arguments_schema = _derive_schema(endpoint) if schema is None else schema
    if schema is not None:
        _check_names(fields, endpoint, schema, problems)
    if endpoint.idempotency_key and method not in ("POST", "PATCH", "PUT", "DELETE"):
        problems.add(fields.get("idempotency_key"), f"a {method} needs no `idempotency_key`")
    if len(problems) > problems_before:
        return None
    body = _with_unused_arguments(endpoint, arguments_schema)
    return replace(endpoint, body=body), arguments_schema


# ---- parts


def _read_auth_ref(fields: Fields, auths: Mapping[str, Auth], problems: Problems) -> Iterator[Auth]:
    if not fields.is_given("auth_ref"):
        return
    node = fields.get("auth_ref")
    seen: set[str] = set()
    for reference in node.items or [node]:
        entry = auths.get(reference.value) if isinstance(reference.value, str) else None
        if entry is None:
            wrong = str(reference.value)
            hint = suggest_names(wrong, auths, f"there are: {', '.join(auths) or 'none'}")
            problems.add(
                reference, f"auth_ref `{reference.value}` names no entry of `auth`; {hint}"
            )
        elif entry.sets_header in seen and entry.sets_header != "cookie":
            problems.add(reference, f"two auth entries set the header `{entry.sets_header}`")
        else:
            seen |= {entry.sets_header} - {""}
            yield entry


def _read_headers(
    fields: Fields, auth: tuple[Auth, ...], problems: Problems
) -> Iterator[tuple[str, Template]]:
    seen: set[str] = set()
    for name, node in fields.get_pairs("headers"):
        if not isinstance(node.value, (str, int)) or isinstance(node.value, bool):
            problems.add(node, f"the header `{name}` must be text")
            continue
        with problems.collect(node):
            _check_header(name, auth)
            template = parse_template(str(node.value))
            texts = [part for part in template.parts if isinstance(part, str)]
            if not all(_PRINTABLE_ASCII.fullmatch(text) for text in texts):
                raise TemplateError(
                    f"the header `{name}` has line breaks or characters beyond ASCII"
                )
            if template.literal is not None:
                _check_literal("header", name, template.literal)
            if name.lower() in seen:
                raise TemplateError(f"the header `{name}` is given twice")
            seen.add(name.lower())
            yield name, template


def _check_header(name: str, auth: tuple[Auth, ...]) -> None:
    if not _TOKEN.fullmatch(name):
        raise TemplateError(f"`{name}` is not a valid header name")
    if any(entry.sets_header == name.lower() for entry in auth):
        raise TemplateError(
            f"the header `{name}` is set by the auth section, and nothing can replace that"
        )
    if not is_settable(name):
        hint = "the request sets it itself"
        if name.lower() in ("authorization", "cookie"):
            hint = "it comes from the auth section"
        raise TemplateError(f"the header `{name}` cannot be set: {hint}")


def _check_literal(what: str, name: str, value: str) -> None:
    """Refuse a literal that looks like a secret. Short words are none: `sort_key=name`."""
    if is_secret_variable(name) and value and not (value.isalpha() and len(value) <= 12):
        raise TemplateError(
            f"the {what} `{name}` looks like a secret that is written out; put it into the "
            "auth section"
        )


def _read_parameters(
    fields: Fields, auth: tuple[Auth, ...], problems: Problems
) -> Iterator[Parameter]:
    for node in fields.items("parameters"):
        parameter = Fields(node, PARAMETER_KEYS, "a parameter", problems)
        name = parameter.text("name", required=True)
        if not name or not parameter.text("in", required=True):
            continue
        place: Location = parameter.choice("in", LOCATIONS, "query")
        style = parameter.choice("style", STYLES[place], STYLES[place][0])
        explode = parameter.flag("explode", False) if parameter.is_given("explode") else None
        with problems.collect(node):
            if place == "header":
                _check_header(name, auth)
                if is_secret_variable(name):
                    raise TemplateError(
                        f"the header `{name}` looks like a secret, which a model does not have: "
                        "put it into the auth section"
                    )
            is_set_by_auth = any(entry.cookie == name for entry in auth)
            if place == "cookie" and (not _TOKEN.fullmatch(name) or is_set_by_auth):
                raise TemplateError(f"the cookie `{name}` cannot be set")
            yield Parameter(name, place, parameter.text("from") or name, style, explode)


def _check_query(
    fields: Fields,
    address: UrlTemplate,
    parameters: tuple[Parameter, ...],
    auth: tuple[Auth, ...],
    problems: Problems,
) -> None:
    set_by_auth = {entry.query for entry in auth if entry.query}
    placeholders: set[str] = set()
    for segment in address.path:
        placeholders.update(hole.name for hole in segment.placeholders)
    for parameter in parameters:
        if parameter.location == "path" and parameter.argument not in placeholders:
            message = (
                f"the path parameter `{parameter.name}` has no placeholder "
                f"`{{{{{parameter.argument}}}}}` in `url_template`"
            )
            problems.add(fields.get("parameters"), message)
    names = [name for name, _ in address.query]
    names += [parameter.name for parameter in parameters if parameter.location == "query"]
    for name in names:
        if name in set_by_auth:
            message = (
                f"the query parameter `{name}` is set by the auth section, and nothing can "
                "replace that"
            )
            problems.add(fields.get("url_template"), message)
    for name, value in address.query:
        if value.literal:
            with problems.collect(fields.get("url_template")):
                _check_literal("query parameter", name, value.literal)


# ---- body


def _read_body(
    fields: Fields, method: Method, headers: tuple[tuple[str, Template], ...], problems: Problems
) -> BodyTemplate | None:
    has_template = fields.is_given("body_template")
    whole = fields.text("body_from")
    if has_template and whole:
        problems.add(fields.get("body_from"), "`body_template` and `body_from`: write one of them")
    if (has_template or whole) and method == "GET":
        key = "body_template" if has_template else "body_from"
        problems.add(fields.get(key), "a GET has no body")
        return None
    kind: Kind = fields.choice("body_type", tuple(BODY_KINDS), _default_kind(headers))
    if whole:
        if kind == "xml":
            problems.add(fields.get("body_type"), "xml is made by a `body_template`")
        if kind == "multipart" and any(name.lower() == "content-type" for name, _ in headers):
            problems.add(fields.get("headers"), "a multipart form sets its own `Content-Type`")
        return BodyTemplate(kind, from_argument=whole)
    if not has_template:
        return None
    node = fields.get("body_template")
    with problems.collect(node):
        return _read_body_template(node, kind)
    return None


def _default_kind(headers: tuple[tuple[str, Template], ...]) -> Kind:
    content_types = (
        value.literal or "" for name, value in headers if name.lower() == "content-type"
    )
    media = next(content_types, "").partition(";")[0].strip().lower()
    if media == BODY_KINDS["form"]:
        return "form"
    if media in ("application/xml", "text/xml") or media.endswith("+xml"):
        return "xml"
    return "text" if media.startswith("text/") else "json"


def _read_body_template(node: Node, kind: Kind) -> BodyTemplate:
    if isinstance(node.value, str):
        if kind == "json":
            return parse_json_template(node.value)
        if kind == "multipart":
            raise TemplateError("a multipart form is made of an argument: `body_from`")
        return BodyTemplate(kind, text=parse_template(node.value))
    if kind != "json":
        raise TemplateError("`body_template` must be text")
    if node.pairs is None and node.items is None:
        raise TemplateError("`body_template` must be text or a mapping")
    return parse_value_template(to_plain(node))


def _with_unused_arguments(endpoint: Endpoint, schema: Schema) -> BodyTemplate | None:
    """Without a template, use the arguments that are used nowhere else as the body, if any."""
    if endpoint.body is not None or endpoint.method not in ("POST", "PUT", "PATCH"):
        return endpoint.body
    used = frozenset(_used_arguments(endpoint))
    declared = set(cast("Mapping[str, Any]", schema.get("properties") or {}))
    if schema.get("additionalProperties") is False and not declared - used:
        return None
    return BodyTemplate("json", used_arguments=used)


# ---- names


def _placeholders(endpoint: Endpoint) -> Iterator[Placeholder]:
    yield from endpoint.url.placeholders()
    for _, template in endpoint.headers:
        yield from template.placeholders
    if endpoint.body is not None:
        yield from endpoint.body.placeholders()


def _used_arguments(endpoint: Endpoint) -> Iterator[str]:
    yield from (hole.path[0] for hole in _placeholders(endpoint))
    yield from (parameter.argument for parameter in endpoint.parameters)
    if endpoint.body is not None and endpoint.body.from_argument:
        yield endpoint.body.from_argument


def _check_names(fields: Fields, endpoint: Endpoint, schema: Schema, problems: Problems) -> None:
    for hole in dict.fromkeys(_placeholders(endpoint)):
        if not _is_declared(hole.path, schema):
            suggestion = _suggestion(hole.path[0], schema)
            problems.add(
                fields.node,
                f"`{{{{{hole.name}}}}}` is not an argument of `input_schema`{suggestion}",
            )
    for name in dict.fromkeys(_used_arguments(endpoint)):
        if not _is_declared((name,), schema):
            suggestion = _suggestion(name, schema)
            problems.add(fields.node, f"`{name}` is not an argument of `input_schema`{suggestion}")


def _is_declared(path: tuple[str, ...], schema: Schema) -> bool:
    """Return whether an argument is declared.

    Further in, this is checked only as far as the schema lists its properties.
    """
    inner: Any = schema
    for depth, part in enumerate(path):
        properties = mapping_or_empty(inner).get("properties")
        if not isinstance(properties, Mapping):
            return depth > 0
        if part not in properties:
            return False
        inner = cast("Schema", properties)[part]
    return True


def _suggestion(name: str, schema: Schema) -> str:
    names = [str(argument) for argument in mapping_or_empty(schema.get("properties"))]
    suggestion = suggest_names(name, names)
    return suggestion and f"; {suggestion}"


def _derive_schema(endpoint: Endpoint) -> Schema:
    """Return the schema of a tool without one: an argument for each name in its templates."""
    holes = list(_placeholders(endpoint))
    names = list(dict.fromkeys(_used_arguments(endpoint)))
    if not names and endpoint.body is None and endpoint.method in ("POST", "PUT", "PATCH"):
        return {"type": "object"}
    scalars = {hole.name for hole in endpoint.url.placeholders()}
    for _, template in endpoint.headers:
        scalars.update(hole.name for hole in template.placeholders)
    properties: dict[str, Any] = {name: {} for name in names}
    for name in names:
        if name in scalars:
            properties[name] = {"type": ["string", "number", "boolean"]}
    optional = {
        parameter.argument for parameter in endpoint.parameters if parameter.location != "path"
    }
    optional |= {hole.path[0] for hole in holes if hole.is_optional}
    required = [name for name in names if name not in optional]
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
