"""One operation of an OpenAPI document as an entry of a manifest's `tools`.

Arguments are the parameters by name (two of one name are told apart by where they go) and `body`
for the request body. A parameter or a body that cannot be sent makes the operation one that is left
out, if it is required; else only that part is left out, and said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

from ferrule.connectors.cleaning import clean
from ferrule.connectors.http.parameters import STYLES, Place
from ferrule.connectors.http.requests import settable
from ferrule.connectors.http.templates import place_for
from ferrule.connectors.json_values import list_of, mapping_of, text_of
from ferrule.permissions.child_environment import looks_secret

from .document import Broken, Document, Object, Operation
from .schemas import Schemas

DESCRIPTION = 1_000
MAX_PARAMETERS = 64
_IGNORED = ("accept", "content-type", "authorization")
"""Headers that are no parameters (OpenAPI 3.1, "Parameter Object"): the request sets them."""
_PLACE = re.compile(r"\{([^{}]*)\}")
_ARGUMENT = re.compile(r"[^A-Za-z0-9_]+")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BODIES = {"application/x-www-form-urlencoded": "form", "text/plain": "text"}


@dataclass(slots=True)
class Entry:
    """What becomes of an operation: an entry for `tools` without its name and auth, and what a
    person should know of it.
    """

    operation: Operation
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    notices: list[str] = field(default_factory=list[str])


def entry_of(document: Document, operation: Operation, server: str, *, results: bool) -> Entry:
    """Raises Broken for an operation that cannot be a tool."""
    return _Maker(document, operation, server).entry(results)


class _Maker:
    def __init__(self, document: Document, operation: Operation, server: str) -> None:
        self._document = document
        self._operation = operation
        self._server = server
        self._schemas = Schemas(document)
        self._made = Entry(operation)
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []

    def entry(self, results: bool) -> Entry:
        places: dict[str, str] = {}
        styled: list[dict[str, Any]] = []
        for one in self._parameters():
            self._parameter(one, places, styled)
        fields = self._made.fields
        fields["description"] = _description(self._document, self._operation)
        fields["method"] = self._operation.method.upper()
        fields["url_template"] = self._server.rstrip("/") + self._path(places)
        if styled:
            fields["parameters"] = styled
        self._body()
        fields["input_schema"] = {
            "type": "object",
            "properties": self._properties,
            "required": self._required,
            "additionalProperties": False,
        }
        if results and (output := self._result()):
            fields["output_schema"] = output
        if self._operation.tags:
            fields["tags"] = [
                clean(tag)[:60] for tag in self._operation.tags[:10] if clean(tag).strip()
            ]
        return self._made

    # ---- parameters

    def _parameters(self) -> Iterator[Object]:
        """Those of the operation, and those of its path that it does not replace."""
        found: dict[tuple[str, str], Object] = {}
        listed = (
            *list_of(self._operation.shared.get("parameters")),
            *list_of(self._operation.fields.get("parameters")),
        )
        for one in listed:
            parameter = self._document.followed(one)
            found[text_of(parameter.get("name")), text_of(parameter.get("in"))] = parameter
        if len(found) > MAX_PARAMETERS:
            raise Broken(f"it has more than {MAX_PARAMETERS} parameters")
        yield from found.values()

    def _parameter(
        self, given: Object, places: dict[str, str], styled: list[dict[str, Any]]
    ) -> None:
        name, where = text_of(given.get("name")), text_of(given.get("in"))
        needed = given.get("required") is True or where == "path"
        if where == "header" and name.lower() in _IGNORED:
            return
        if why := self._unusable(name, where):
            if needed:
                raise Broken(f"its parameter `{clean(name)[:60]}` {why}")
            self._made.notices.append(
                f"`{self._operation.key}`: the parameter `{clean(name)[:60]}` is left out: it {why}"
            )
            return
        place = cast("Place", where)
        style, schema = self._styled(given, place)
        argument = self._argument(name, where)
        described = text_of(given.get("description"))
        if described and "description" not in schema:
            schema = {"description": " ".join(clean(described).split())[:300], **schema}
        self._properties[argument] = schema
        if needed:
            self._required.append(argument)
        if where == "path":
            places[name] = argument
            if style == "simple" and not given.get("explode"):
                return
        entry: dict[str, Any] = {"name": name, "in": where}
        if argument != name:
            entry["from"] = argument
        if style != STYLES[place][0]:
            entry["style"] = style
        if isinstance(given.get("explode"), bool):
            entry["explode"] = given["explode"]
        styled.append(entry)

    def _unusable(self, name: str, where: str) -> str:
        if where not in STYLES or not name:
            return "goes nowhere that there is"
        if where == "header" and (not _TOKEN.fullmatch(name) or not settable(name)):
            return "is a header that the request sets itself"
        if where == "header" and looks_secret(name):
            return "looks like a secret: no security scheme says so, and a model has none"
        if where == "cookie" and not _TOKEN.fullmatch(name):
            return "cannot be the name of a cookie"
        return ""

    def _styled(self, given: Object, place: Place) -> tuple[str, dict[str, Any]]:
        """Style and schema. A parameter with `content` is JSON, or text."""
        content = mapping_of(given.get("content"))
        if content:
            media, inner = next(iter(content.items()))
            schema = self._schemas.of(self._document.followed(inner).get("schema"))
            if media.partition(";")[0].strip().lower().endswith("json"):
                if "json" not in STYLES[place]:
                    raise Broken("it has JSON in its path")
                return "json", schema
            return STYLES[place][0], schema
        style = text_of(given.get("style")) or STYLES[place][0]
        if style not in STYLES[place]:
            raise Broken(f"the style `{style[:40]}` does not exist for a {place} parameter")
        return style, self._schemas.of(given.get("schema"))

    def _argument(self, name: str, where: str) -> str:
        """A name that providers accept, and that no other argument has."""
        base = _ARGUMENT.sub("_", name).strip("_")[:50] or where
        base = base if base[0].isalpha() or base[0] == "_" else f"_{base}"
        for candidate in (
            base,
            f"{base}_{where}",
            *(f"{base}_{number}" for number in range(2, MAX_PARAMETERS + 3)),
        ):
            if candidate not in self._properties:
                return candidate
        raise Broken("its parameters have too much the same names")

    def _path(self, places: Mapping[str, str]) -> str:
        """The path with its places as ours; what else it holds is encoded where it must be."""
        text = self._operation.path
        if not text.startswith("/") or "?" in text or "#" in text:
            raise Broken("its path cannot be used")
        pieces: list[str] = []
        for number, piece in enumerate(_PLACE.split(text)):
            if number % 2 == 0:
                pieces.append(quote(piece, safe="/%:@!$&'()*+,;=~-._"))
            elif piece in places:
                pieces.append(place_for(places[piece]))
            else:
                raise Broken(
                    f"its path has `{{{clean(piece)[:40]}}}`, and no parameter says what that is"
                )
        return "".join(pieces)

    # ---- bodies

    def _body(self) -> None:
        given = self._document.followed(self._operation.fields.get("requestBody"))
        content = mapping_of(given.get("content"))
        if not content:
            return
        chosen = _chosen(content)
        if chosen is None:
            kinds = ", ".join(clean(one)[:40] for one in list(content)[:4])
            if given.get("required") is True:
                raise Broken(f"its body must be {kinds}, which is not supported")
            self._made.notices.append(
                f"`{self._operation.key}`: its body is left out: {kinds} is not supported"
            )
            return
        media, kind = chosen
        schema = self._schemas.of(self._document.followed(content[media]).get("schema"))
        argument = self._argument("body", "request")
        said = text_of(given.get("description"))
        if said and "description" not in schema:
            schema = {"description": " ".join(clean(said).split())[:300], **schema}
        self._properties[argument] = schema
        if given.get("required") is True:
            self._required.append(argument)
        self._made.fields["body_from"] = argument
        if kind != "json":
            self._made.fields["body_type"] = kind
        elif media != "application/json" and "*" not in media:
            self._made.fields["headers"] = {"Content-Type": media}

    def _result(self) -> dict[str, Any]:
        """The schema of what comes back when all is well."""
        responses = mapping_of(self._operation.fields.get("responses"))
        for status in ("200", "201", "2XX", "202", "203", "default"):
            if status in responses:
                content = mapping_of(self._document.followed(responses[status]).get("content"))
                chosen = _chosen(content)
                if chosen is None or chosen[1] != "json":
                    return {}
                return self._schemas.of(
                    self._document.followed(content[chosen[0]]).get("schema"), writing=False
                )
        return {}


def _chosen(content: Object) -> tuple[str, str] | None:
    """Media type and kind of a body that can be sent; JSON before all others."""
    plain = {media: media.partition(";")[0].strip().lower() for media in content}
    for media, bare in plain.items():
        if bare in ("application/json", "*/*", "application/*"):
            return media, "json"
    for media, bare in plain.items():
        if bare.endswith("+json") and media.isascii() and media.isprintable() and len(media) < 100:
            return media, "json"
    return next(((media, _BODIES[bare]) for media, bare in plain.items() if bare in _BODIES), None)


def _description(document: Document, operation: Operation) -> str:
    """Whose words these are, then what the document says. A model reads it: nothing in it that a
    person would not see.
    """
    summary = " ".join(clean(text_of(operation.fields.get("summary"))).split())
    longer = clean(text_of(operation.fields.get("description"))).strip()
    said = "\n".join(dict.fromkeys(text for text in (summary, longer) if text)) or operation.key
    whose = " ".join(clean(document.title).split())[:60]
    marks = "Deprecated. " if operation.fields.get("deprecated") is True else ""
    text = f"{marks}{whose}: {said}" if whose else marks + said
    return text if len(text) <= DESCRIPTION else text[:DESCRIPTION] + "…"
