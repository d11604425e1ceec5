"""One operation of an OpenAPI document as an entry of a manifest's `tools`.

Arguments are the parameters by name (two of one name are told apart by their location) and `body`
for the request body. A required parameter or body that cannot be sent makes the operation one that
is left out; an optional one is left out alone, with a notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote

from ferrule.connectors.http.parameters import STYLES, Location
from ferrule.connectors.http.requests import is_settable
from ferrule.connectors.http.templates import placeholder_for
from ferrule.connectors.json_values import list_or_empty, mapping_or_empty, text_or_empty
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.value_class import frozen
from ferrule.permissions.child_environment import is_secret_variable

from .document import Document, Object, Operation, UnusablePart
from .schemas import ALL_BOUNDS, SchemaBounds, SchemaConverter

DESCRIPTION = 1_000
MAX_PARAMETERS = 64
_IGNORED_HEADERS = ("accept", "content-type", "authorization")
"""Headers that are no parameters (OpenAPI 3.1, "Parameter Object"): the request sets them."""
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NOT_IN_ARGUMENT = re.compile(r"[^A-Za-z0-9_]+")
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_BODY_KINDS = {
    "application/x-www-form-urlencoded": "form",
    "multipart/form-data": "multipart",
    "text/plain": "text",
}
_FILE = {
    "type": "object",
    "properties": {
        "filename": {"type": "string"},
        "text": {"type": "string"},
        "base64": {"type": "string", "description": "Its bytes, where it is no text."},
        "content_type": {"type": "string"},
    },
    "additionalProperties": False,
}
_FILE_SCHEMA = {"anyOf": [{"type": "string"}, _FILE]}
"""A file of a multipart form: its text, or an object."""


@dataclass(slots=True)
class ToolEntry:
    """An operation as an entry for `tools`, without its name and auth, and notices for a person."""

    operation: Operation
    fields: dict[str, Any] = field(default_factory=dict[str, Any])
    notices: list[str] = field(default_factory=list[str])


@frozen
class EntryOptions:
    """How an entry is made.

    Attributes:
        results: Whether answers are checked against the document.
        has_auth: Whether a security scheme brings the operation's credentials.
        bounds: How much of its schemas is kept.
    """

    results: bool = False
    has_auth: bool = False
    bounds: SchemaBounds = ALL_BOUNDS[0]


def build_entry(
    document: Document, operation: Operation, server: str, options: EntryOptions
) -> ToolEntry:
    """Return the entry for an operation. Raises UnusablePart if it cannot be a tool."""
    return _EntryBuilder(document, operation, server, options).entry()


class _EntryBuilder:
    def __init__(
        self, document: Document, operation: Operation, server: str, options: EntryOptions
    ) -> None:
        self._document = document
        self._operation = operation
        self._server = server
        self._options = options
        self._schemas = SchemaConverter(document, options.bounds)
        self._entry = ToolEntry(operation)
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []

    def entry(self) -> ToolEntry:
        places: dict[str, str] = {}
        styled: list[dict[str, Any]] = []
        for parameter in self._parameters():
            self._add_parameter(parameter, places, styled)
        fields = self._entry.fields
        fields["description"] = _description(self._operation)
        fields["method"] = self._operation.method.upper()
        fields["url_template"] = self._server.rstrip("/") + self._url_path(places)
        if styled:
            fields["parameters"] = styled
        self._add_body()
        fields["input_schema"] = {
            "type": "object",
            "properties": self._properties,
            "required": self._required,
            "additionalProperties": False,
        }
        output = self._result_schema() if self._options.results else {}
        if output:
            fields["output_schema"] = output
        if self._operation.tags:
            tags = (clean_text(tag) for tag in self._operation.tags[:10])
            fields["tags"] = [tag[:60] for tag in tags if tag.strip()]
        return self._entry

    # ---- parameters

    def _parameters(self) -> Iterator[Object]:
        """Yield the operation's parameters, and those of its path that it does not replace."""
        found: dict[tuple[str, str], Object] = {}
        listed = (
            *list_or_empty(self._operation.shared.get("parameters")),
            *list_or_empty(self._operation.fields.get("parameters")),
        )
        for listed_parameter in listed:
            parameter = self._document.resolve(listed_parameter)
            found[text_or_empty(parameter.get("name")), text_or_empty(parameter.get("in"))] = (
                parameter
            )
        if len(found) > MAX_PARAMETERS:
            raise UnusablePart(f"it has more than {MAX_PARAMETERS} parameters")
        yield from found.values()

    def _add_parameter(
        self, given: Object, places: dict[str, str], styled: list[dict[str, Any]]
    ) -> None:
        name = text_or_empty(given.get("name"))
        where = text_or_empty(given.get("in"))
        is_required = given.get("required") is True or where == "path"
        if where == "header" and name.lower() in _IGNORED_HEADERS:
            return
        refusal = self._refusal(name, where)
        if refusal:
            # A service that has a scheme besides takes the credentials from there.
            is_brought = self._options.has_auth and is_secret_variable(name)
            if is_required and not is_brought:
                raise UnusablePart(f"its parameter `{clean_text(name)[:60]}` {refusal}")
            self._entry.notices.append(
                f"`{self._operation.key}`: the parameter `{clean_text(name)[:60]}` is left out: "
                f"it {refusal}"
            )
            return
        place = cast("Location", where)
        style, schema = self._style_and_schema(given, place)
        argument = self._free_argument(name, where)
        self._properties[argument] = _with_description(schema, given)
        if is_required:
            self._required.append(argument)
        if where == "path":
            places[name] = argument
            if style == "simple" and not given.get("explode"):
                return
        styled.append(self._parameter_entry(given, argument, style, place))

    def _parameter_entry(
        self, given: Object, argument: str, style: str, place: Location
    ) -> dict[str, Any]:
        name = text_or_empty(given.get("name"))
        entry: dict[str, Any] = {"name": name, "in": place}
        if argument != name:
            entry["from"] = argument
        if style != STYLES[place][0]:
            entry["style"] = style
        if isinstance(given.get("explode"), bool):
            entry["explode"] = given["explode"]
        return entry

    def _refusal(self, name: str, where: str) -> str:
        if where not in STYLES or not name:
            return "has no name, or an unknown location"
        if where == "header" and (not _TOKEN.fullmatch(name) or not is_settable(name)):
            return "is a header that the request sets itself"
        if where == "header" and is_secret_variable(name):
            return "looks like a secret, which a model does not have; no security scheme has it"
        if where == "cookie" and not _TOKEN.fullmatch(name):
            return "cannot be the name of a cookie"
        return ""

    def _style_and_schema(self, given: Object, place: Location) -> tuple[str, dict[str, Any]]:
        """Return style and schema. A parameter with `content` is JSON, or text."""
        content = mapping_or_empty(given.get("content"))
        if content:
            media, inner = next(iter(content.items()))
            schema = self._schemas.convert(self._document.resolve(inner).get("schema"))
            if media.partition(";")[0].strip().lower().endswith("json"):
                if "json" not in STYLES[place]:
                    raise UnusablePart("it has JSON in its path")
                return "json", schema
            return STYLES[place][0], schema
        style = text_or_empty(given.get("style")) or STYLES[place][0]
        if style not in STYLES[place]:
            raise UnusablePart(f"the style `{style[:40]}` does not exist for a {place} parameter")
        return style, self._schemas.convert(given.get("schema"))

    def _free_argument(self, name: str, where: str) -> str:
        """Return an argument name that providers accept and no other argument has."""
        base = _NOT_IN_ARGUMENT.sub("_", name).strip("_")[:50] or where
        if not (base[0].isalpha() or base[0] == "_"):
            base = f"_{base}"
        numbered = (f"{base}_{number}" for number in range(2, MAX_PARAMETERS + 3))
        for candidate in (base, f"{base}_{where}", *numbered):
            if candidate not in self._properties:
                return candidate
        raise UnusablePart("the names of its parameters are too similar")

    def _url_path(self, places: Mapping[str, str]) -> str:
        """Return the path with our placeholders; everything else is encoded where it must be."""
        text = self._operation.path
        if not text.startswith("/") or "?" in text or "#" in text:
            raise UnusablePart("its path cannot be used")
        pieces: list[str] = []
        for position, piece in enumerate(_PLACEHOLDER.split(text)):
            if position % 2 == 0:
                pieces.append(quote(piece, safe="/%:@!$&'()*+,;=~-._"))
            elif piece in places:
                pieces.append(placeholder_for(places[piece]))
            else:
                raise UnusablePart(
                    f"its path has `{{{clean_text(piece)[:40]}}}`, and no parameter says what that "
                    f"is"
                )
        return "".join(pieces)

    # ---- bodies

    def _add_body(self) -> None:
        given = self._document.resolve(self._operation.fields.get("requestBody"))
        content = mapping_or_empty(given.get("content"))
        if not content or self._operation.method == "get":
            return  # The body of a GET means nothing (RFC 9110, 9.3.1).
        chosen = _choose_media_type(content)
        if chosen is None:
            kinds = ", ".join(clean_text(name)[:40] for name in list(content)[:4])
            if given.get("required") is True:
                raise UnusablePart(f"its body must be {kinds}, which is not supported")
            self._entry.notices.append(
                f"`{self._operation.key}`: its body is left out: {kinds} is not supported"
            )
            return
        media, kind = chosen
        given_schema = self._document.resolve(content[media]).get("schema")
        schema = self._schemas.convert(given_schema)
        if kind == "multipart":
            self._open_files(schema, given_schema)
        argument = self._free_argument("body", "request")
        self._properties[argument] = _with_description(schema, given)
        if given.get("required") is True:
            self._required.append(argument)
        self._entry.fields["body_from"] = argument
        if kind != "json":
            self._entry.fields["body_type"] = kind
        elif media != "application/json" and "*" not in media:
            self._entry.fields["headers"] = {"Content-Type": media}

    def _open_files(self, schema: dict[str, Any], given: Any) -> None:
        """Let the files of a multipart form be texts or objects."""
        properties = mapping_or_empty(self._document.resolve(given).get("properties"))
        converted: dict[str, Any] = schema.get("properties", {})
        for name, value in properties.items():
            inner = self._document.resolve(value)
            item = self._document.resolve(inner.get("items"))
            if name not in converted:
                continue
            if _is_file(inner):
                converted[name] = _with_description(_FILE_SCHEMA, inner)
            elif _is_file(item):
                converted[name] = _with_description({"type": "array", "items": _FILE_SCHEMA}, inner)

    def _result_schema(self) -> dict[str, Any]:
        """Return the schema of a successful answer."""
        responses = mapping_or_empty(self._operation.fields.get("responses"))
        for status in ("200", "201", "2XX", "202", "203", "default"):
            if status in responses:
                content = mapping_or_empty(self._document.resolve(responses[status]).get("content"))
                chosen = _choose_media_type(content)
                if chosen is None or chosen[1] != "json":
                    return {}
                schema = self._document.resolve(content[chosen[0]]).get("schema")
                return self._schemas.convert(schema, for_request=False)
        return {}


def _is_file(schema: Object) -> bool:
    """Whether a field of a multipart form is a file (3.0: `format`, 3.1: its media type)."""
    if schema.get("format") in ("binary", "base64", "byte"):
        return True
    media = text_or_empty(schema.get("contentMediaType"))
    return bool(media) and not media.startswith("text/")


def _with_description(schema: dict[str, Any], given: Object) -> dict[str, Any]:
    description = text_or_empty(given.get("description"))
    if not description or "description" in schema:
        return schema
    return {"description": " ".join(clean_text(description).split())[:300], **schema}


def _choose_media_type(content: Object) -> tuple[str, str] | None:
    """Return media type and kind of a body that can be sent, JSON before all others."""
    types = {media: media.partition(";")[0].strip().lower() for media in content}
    for media, bare in types.items():
        if bare in ("application/json", "*/*", "application/*"):
            return media, "json"
    for media, bare in types.items():
        if bare.endswith("+json") and media.isascii() and media.isprintable() and len(media) < 100:
            return media, "json"
    for media, bare in types.items():
        if bare in _BODY_KINDS:
            return media, _BODY_KINDS[bare]
    return None


def _description(operation: Operation) -> str:
    """Return the document's description of the operation, for the model.

    Invisible characters are removed. The API's title is not part of it: the namespace names the
    API, and what all tools have in common tells none apart.
    """
    summary = " ".join(clean_text(text_or_empty(operation.fields.get("summary"))).split())
    details = clean_text(text_or_empty(operation.fields.get("description"))).strip()
    texts = dict.fromkeys(text for text in (summary, details) if text)
    text = "\n".join(texts) or operation.key
    if len(text) > DESCRIPTION:
        text = text[:DESCRIPTION] + "…"
    if operation.fields.get("deprecated") is True:
        text = f"{text}\nDeprecated."
    return text
