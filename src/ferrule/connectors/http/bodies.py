"""The body of a request: a JSON, form, XML or text template, or arguments as they are. No I/O.

A JSON template may be a text or a YAML mapping. A placeholder that stands alone is the value
itself, whatever its type; one within a text becomes part of that text. Either way the result is
built as a value and encoded once, so no argument can close a string or add a key. A key or an item
whose optional argument is missing is left out.

In a form each value is percent-encoded, in XML its markup is escaped, in plain text it is
unchanged.
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
_MARK = re.compile("\ue000([0-9]+)\ue001")


@dataclass(frozen=True, slots=True)
class Body:
    """How a body is made.

    One of `shape` (a JSON value whose texts are templates), `text` (a template), `whole` (one
    argument), or none of them: an object of all arguments that are used nowhere else (those not in
    `used`).
    """

    kind: Kind
    shape: Any = None
    text: Template | None = None
    whole: str = ""
    used: frozenset[str] = frozenset()

    def holes(self) -> Iterator[Hole]:
        """Yield all placeholders."""
        if self.text is not None:
            yield from self.text.holes
        yield from _placeholders_in(self.shape)

    def encode(self, arguments: Mapping[str, Any]) -> bytes | None:
        """Return the body of a call, or None if it has none. Raises Unfit."""
        if self.text is not None:
            text = self.text.fill(arguments, _ESCAPES[self.kind])
            return None if text is None else _encode(text)
        if self.shape is not None:
            return _encode(compact(_fill(self.shape, arguments)))
        if not self.whole:
            unused = {name: arguments[name] for name in arguments if name not in self.used}
            return _encode(compact(unused))
        value = arguments.get(self.whole)
        if value is None:
            return None
        if self.kind == "form":
            return _encode("&".join(_form_pairs(value)))
        return _encode(compact(value) if self.kind == "json" else scalar(value, self.whole))


def json_template(text: str) -> Body:
    """Parse a JSON template in a text: `{"name": {{name}}, "note": "for {{name}}"}`.

    Raises:
        Unfit: It is not JSON around its placeholders.
    """
    template = parse_template(text)
    holes = list(template.holes)
    pieces: list[str] = []
    is_inside = False
    is_quoted: list[bool] = []
    for part in template.parts:
        if isinstance(part, Hole):
            mark = f"\ue000{len(is_quoted)}\ue001"
            pieces.append(mark if is_inside else f'"{mark}"')
            is_quoted.append(is_inside)
        else:
            if re.search("[\ue000\ue001]", part):
                raise Unfit("the body has characters of Unicode's private use")
            pieces.append(part)
            is_inside = _in_string(part, is_inside)
    try:
        value: Any = json.loads("".join(pieces))
    except (ValueError, RecursionError) as error:
        raise Unfit(f"the body is not JSON around its placeholders: {error}") from None
    return Body("json", shape=_restore_placeholders(value, holes, is_quoted))


def shape_template(value: Any) -> Body:
    """Parse a JSON template that is a value already, with templates as its texts. Raises Unfit."""
    return Body("json", shape=_parse_texts(value))


def _in_string(text: str, is_inside: bool) -> bool:
    """Return whether JSON text ends within a string, given whether it began within one."""
    is_escaped = False
    for character in text:
        if is_inside and is_escaped:
            is_escaped = False
        elif is_inside and character == "\\":
            is_escaped = True
        elif character == '"':
            is_inside = not is_inside
    return is_inside


def _restore_placeholders(value: Any, holes: list[Hole], is_quoted: list[bool]) -> Any:
    def replace(text: str) -> Template:
        parts: list[str | Hole] = []
        for position, piece in enumerate(_MARK.split(text)):
            if position % 2:
                number = int(piece)
                if is_quoted[number]:
                    # Between the template's quotation marks a value is text, whatever its type.
                    parts.append("")
                parts.append(holes[number])
            elif piece:
                parts.append(piece)
        return Template(tuple(parts))

    return _map_texts(value, replace)


def _parse_texts(value: Any) -> Any:
    return _map_texts(value, parse_template)


def _map_texts(value: Any, make: Callable[[str], Template]) -> Any:
    if isinstance(value, str):
        return make(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        for name, _ in pairs:
            if any(make(name).holes):
                raise Unfit(f"the key `{name[:40]}` of the body has a placeholder; only values may")
        return {name: _map_texts(inner, make) for name, inner in pairs}
    if isinstance(value, list):
        return [_map_texts(inner, make) for inner in cast("list[Any]", value)]
    return value


def _placeholders_in(shape: Any) -> Iterator[Hole]:
    if isinstance(shape, Template):
        yield from shape.holes
    elif isinstance(shape, dict):
        for inner in cast("dict[str, Any]", shape).values():
            yield from _placeholders_in(inner)
    elif isinstance(shape, list):
        for inner in cast("list[Any]", shape):
            yield from _placeholders_in(inner)


def _fill(shape: Any, arguments: Mapping[str, Any]) -> Any:
    """Return a shape with its values, `MISSING` for what is left out."""
    if isinstance(shape, Template):
        if shape.only is not None:
            return shape.only.value(arguments)
        text = shape.fill(arguments, str)
        return MISSING if text is None else text
    if isinstance(shape, dict):
        pairs = (
            (name, _fill(inner, arguments)) for name, inner in cast("dict[str, Any]", shape).items()
        )
        return {name: value for name, value in pairs if value is not MISSING}
    if isinstance(shape, list):
        values = (_fill(inner, arguments) for inner in cast("list[Any]", shape))
        return [value for value in values if value is not MISSING]
    return shape


def _form_pairs(value: Any) -> Iterator[str]:
    """Yield an object as a form; a list repeats its field, an object within is JSON."""
    if not isinstance(value, Mapping):
        raise Unfit("a form is made of an object")
    for name, field in cast("Mapping[str, Any]", value).items():
        items = cast("list[Any]", field) if isinstance(field, list) else [field]
        for item in items:
            if item is not None:
                text = compact(item) if isinstance(item, (dict, list)) else scalar(item, name)
                yield f"{encoded(name)}={encoded(text)}"


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Unfit("a value has half of a character (a lone surrogate)") from None


def _escape_xml(text: str) -> str:
    if re.search("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        raise Unfit("a value has characters that XML does not allow")
    return quoteattr(text)[1:-1].replace("'", "&apos;").replace('"', "&quot;")


_ESCAPES: dict[Kind, Callable[[str], str]] = {
    "json": str,
    "form": encoded,
    "xml": _escape_xml,
    "text": str,
}
