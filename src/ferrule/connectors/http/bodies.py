"""The body of a request: a template that is JSON, a form or text, or arguments as they are. No I/O.

A JSON template may be a text or a YAML mapping. A place that stands alone is the value itself,
whatever its type; a place within a text becomes part of that text. Either way the result is built
as a value and encoded once, so no argument can close a string or add a key. A key or an item whose
optional argument is missing is left out.

In a form each value is percent-encoded, in XML its markup is escaped, in plain text it stands as it
is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast
from xml.sax.saxutils import quoteattr

from ferrule.core.calls import compact

from .templates import MISSING, Hole, Template, Unfit, parse_template, scalar
from .url_templates import encoded

Kind = Literal["json", "form", "xml", "text"]
KINDS: dict[Kind, str] = {
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
    "xml": "application/xml",
    "text": "text/plain; charset=utf-8",
}
_PLACE = re.compile("\ue000([0-9]+)\ue001")


@dataclass(frozen=True, slots=True)
class Body:
    """How a body is made. One of: `shape` (a JSON value whose texts are templates), `text` (a
    template), `whole` (one argument), or none of them: an object of all arguments that stand
    nowhere else (`rest`, their names are not these).
    """

    kind: Kind
    shape: Any = None
    text: Template | None = None
    whole: str = ""
    used: frozenset[str] = frozenset()

    def holes(self) -> Iterator[Hole]:
        """All places."""
        if self.text is not None:
            yield from self.text.holes
        yield from _holes(self.shape)

    def encode(self, arguments: Mapping[str, Any]) -> bytes | None:
        """The body of a call; None where it has none. Raises Unfit."""
        if self.text is not None:
            text = self.text.fill(arguments, _ESCAPES[self.kind])
            return None if text is None else _utf8(text)
        if self.shape is not None:
            return _utf8(compact(_filled(self.shape, arguments)))
        if not self.whole:
            return _utf8(
                compact({name: arguments[name] for name in arguments if name not in self.used})
            )
        value = arguments.get(self.whole)
        if value is None:
            return None
        if self.kind == "form":
            return _utf8("&".join(_form(value)))
        return _utf8(compact(value) if self.kind == "json" else scalar(value, self.whole))


def json_template(text: str) -> Body:
    """A template of JSON in a text: `{"name": {{name}}, "note": "for {{name}}"}`. Raises Unfit if
    it is no JSON around its places.
    """
    template = parse_template(text)
    holes = list(template.holes)
    pieces: list[str] = []
    inside = False
    quoted: list[bool] = []
    for part in template.parts:
        if isinstance(part, Hole):
            mark = f"\ue000{len(quoted)}\ue001"
            pieces.append(mark if inside else f'"{mark}"')
            quoted.append(inside)
        else:
            if re.search("[\ue000\ue001]", part):
                raise Unfit("the body has characters of Unicode's private use")
            pieces.append(part)
            inside = _in_string(part, inside)
    try:
        value: Any = json.loads("".join(pieces))
    except (ValueError, RecursionError) as error:
        raise Unfit(f"the body is no JSON around its places: {error}") from None
    return Body("json", shape=_marked(value, holes, quoted))


def shape_template(value: Any) -> Body:
    """A template of JSON that is a value already, with templates as its texts. Raises Unfit."""
    return Body("json", shape=_parsed(value))


def _in_string(text: str, inside: bool) -> bool:
    """Whether JSON text ends within a string, where it began within one or not."""
    escaped = False
    for char in text:
        if inside and escaped:
            escaped = False
        elif inside and char == "\\":
            escaped = True
        elif char == '"':
            inside = not inside
    return inside


def _marked(value: Any, holes: list[Hole], quoted: list[bool]) -> Any:
    def replace(text: str) -> Template:
        parts: list[str | Hole] = []
        for number, piece in enumerate(_PLACE.split(text)):
            if number % 2:
                # Between quotation marks of the template it is text, whatever its type.
                parts += [""] * quoted[int(piece)] + [holes[int(piece)]]
            elif piece:
                parts.append(piece)
        return Template(tuple(parts))

    return _each_text(value, replace)


def _parsed(value: Any) -> Any:
    return _each_text(value, parse_template)


def _each_text(value: Any, make: Callable[[str], Template]) -> Any:
    if isinstance(value, str):
        return make(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        for name, _ in pairs:
            if any(make(name).holes):
                raise Unfit(f"the key `{name[:40]}` of the body has a place; only values have")
        return {name: _each_text(inner, make) for name, inner in pairs}
    if isinstance(value, list):
        return [_each_text(inner, make) for inner in cast("list[Any]", value)]
    return value


def _holes(shape: Any) -> Iterator[Hole]:
    if isinstance(shape, Template):
        yield from shape.holes
    elif isinstance(shape, dict):
        for inner in cast("dict[str, Any]", shape).values():
            yield from _holes(inner)
    elif isinstance(shape, list):
        for inner in cast("list[Any]", shape):
            yield from _holes(inner)


def _filled(shape: Any, arguments: Mapping[str, Any]) -> Any:
    """A shape with its values, `MISSING` for what is left out."""
    if isinstance(shape, Template):
        if shape.only is not None:
            return shape.only.value(arguments)
        text = shape.fill(arguments, str)
        return MISSING if text is None else text
    if isinstance(shape, dict):
        pairs = (
            (name, _filled(inner, arguments))
            for name, inner in cast("dict[str, Any]", shape).items()
        )
        return {name: value for name, value in pairs if value is not MISSING}
    if isinstance(shape, list):
        values = (_filled(inner, arguments) for inner in cast("list[Any]", shape))
        return [value for value in values if value is not MISSING]
    return shape


def _form(value: Any) -> Iterator[str]:
    """An object as a form; a list is a field that is said again, an object within is JSON."""
    if not isinstance(value, Mapping):
        raise Unfit("a form is made of an object")
    for name, given in cast("Mapping[str, Any]", value).items():
        for one in cast("list[Any]", given) if isinstance(given, list) else [given]:
            if one is not None:
                text = compact(one) if isinstance(one, (dict, list)) else scalar(one, name)
                yield f"{encoded(name)}={encoded(text)}"


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Unfit("a value holds half of a character (a lone surrogate)") from None


def _xml(text: str) -> str:
    if re.search("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        raise Unfit("a value holds characters that XML has not")
    return quoteattr(text)[1:-1].replace("'", "&apos;").replace('"', "&quot;")


_ESCAPES: dict[Kind, Callable[[str], str]] = {
    "json": str,
    "form": encoded,
    "xml": _xml,
    "text": str,
}
