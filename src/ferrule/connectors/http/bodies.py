"""The body of a request: a JSON, form, XML or text template, or arguments as they are. No I/O.

A JSON template may be a text or a YAML mapping. A placeholder that stands alone is the value
itself, whatever its type; one within a text becomes part of that text. Either way the result is
built as a value and encoded once, so no argument can close a string or add a key. A key or an item
whose optional argument is missing is left out.

In a form each value is percent-encoded, in XML its markup is escaped, in plain text it is
unchanged. A multipart form (RFC 7578) is made of an object whose fields are values or files: a
text, or an object with `text` or `base64`, `filename` and `content_type`. Its boundary is a hash of
its content, so that no value can contain it by intent.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from typing import Any, Literal, cast
from xml.sax.saxutils import quoteattr

from ferrule.core.calls import encode_json
from ferrule.core.value_class import frozen

from .templates import MISSING, Placeholder, Template, TemplateError, parse_template, scalar_text
from .url_templates import percent_encode

Kind = Literal["json", "form", "multipart", "xml", "text"]
KINDS: dict[Kind, str] = {
    "json": "application/json",
    "form": "application/x-www-form-urlencoded",
    "multipart": "multipart/form-data",
    "xml": "application/xml",
    "text": "text/plain; charset=utf-8",
}
_MARK = re.compile("\ue000([0-9]+)\ue001")


@frozen
class BodyTemplate:
    """How a body is made.

    One of `shape` (a JSON value whose texts are templates), `text` (a template), `from_argument`
    (one argument), or none of them: an object of all arguments that are used nowhere else (those
    not in `used_arguments`).
    """

    kind: Kind
    shape: Any = None
    text: Template | None = None
    from_argument: str = ""
    used_arguments: frozenset[str] = frozenset()

    def placeholders(self) -> Iterator[Placeholder]:
        """Yield all placeholders."""
        if self.text is not None:
            yield from self.text.placeholders
        yield from _placeholders_in(self.shape)

    def encode(self, arguments: Mapping[str, Any]) -> bytes | None:
        """Return the body of a call, or None if it has none. Raises TemplateError."""
        if self.text is not None:
            text = self.text.fill(arguments, _ESCAPES[self.kind])
            return None if text is None else _encode(text)
        if self.shape is not None:
            return _encode(encode_json(_fill(self.shape, arguments)))
        if not self.from_argument:
            unused = {
                name: arguments[name] for name in arguments if name not in self.used_arguments
            }
            return _encode(encode_json(unused))
        value = arguments.get(self.from_argument)
        if value is None:
            return None
        if self.kind == "form":
            return _encode("&".join(_form_pairs(value)))
        if self.kind == "multipart":
            return _encode_multipart(value)
        return _encode(
            encode_json(value) if self.kind == "json" else scalar_text(value, self.from_argument)
        )


def parse_json_template(text: str) -> BodyTemplate:
    """Parse a JSON template in a text: `{"name": {{name}}, "note": "for {{name}}"}`.

    Raises:
        TemplateError: It is not JSON around its placeholders.
    """
    template = parse_template(text)
    holes = list(template.placeholders)
    pieces: list[str] = []
    is_inside = False
    is_quoted: list[bool] = []
    for part in template.parts:
        if isinstance(part, Placeholder):
            mark = f"\ue000{len(is_quoted)}\ue001"
            pieces.append(mark if is_inside else f'"{mark}"')
            is_quoted.append(is_inside)
        else:
            if re.search("[\ue000\ue001]", part):
                raise TemplateError("the body has characters of Unicode's private use")
            pieces.append(part)
            is_inside = _in_string(part, is_inside)
    try:
        value: Any = json.loads("".join(pieces))
    except (ValueError, RecursionError) as error:
        raise TemplateError(f"the body is not JSON around its placeholders: {error}") from None
    return BodyTemplate("json", shape=_restore_placeholders(value, holes, is_quoted))


def parse_value_template(value: Any) -> BodyTemplate:
    """Parse a JSON template that is a value already, with templates as its texts.

    Raises TemplateError.
    """
    return BodyTemplate("json", shape=_parse_texts(value))


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


def _restore_placeholders(value: Any, holes: list[Placeholder], is_quoted: list[bool]) -> Any:
    def replace(text: str) -> Template:
        parts: list[str | Placeholder] = []
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
            if any(make(name).placeholders):
                raise TemplateError(
                    f"the key `{name[:40]}` of the body has a placeholder; only values may"
                )
        return {name: _map_texts(inner, make) for name, inner in pairs}
    if isinstance(value, list):
        return [_map_texts(inner, make) for inner in cast("list[Any]", value)]
    return value


def _placeholders_in(shape: Any) -> Iterator[Placeholder]:
    if isinstance(shape, Template):
        yield from shape.placeholders
    elif isinstance(shape, dict):
        for inner in cast("dict[str, Any]", shape).values():
            yield from _placeholders_in(inner)
    elif isinstance(shape, list):
        for inner in cast("list[Any]", shape):
            yield from _placeholders_in(inner)


def _fill(shape: Any, arguments: Mapping[str, Any]) -> Any:
    """Return a shape with its values, `MISSING` for what is left out."""
    if isinstance(shape, Template):
        if shape.single_placeholder is not None:
            return shape.single_placeholder.value(arguments)
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
        raise TemplateError("a form is made of an object")
    for name, field in cast("Mapping[str, Any]", value).items():
        items = cast("list[Any]", field) if isinstance(field, list) else [field]
        for item in items:
            if item is not None:
                text = (
                    encode_json(item) if isinstance(item, (dict, list)) else scalar_text(item, name)
                )
                yield f"{percent_encode(name)}={percent_encode(text)}"


_FILE_KEYS = frozenset({"filename", "text", "base64", "content_type"})
_HEADER_TEXT = re.compile(r"[^\x00-\x1f\x7f\"\\]*")
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(?:; ?charset=[\w-]+)?")


def _encode_multipart(value: Any) -> bytes:
    if not isinstance(value, Mapping):
        raise TemplateError("a multipart form is made of an object")
    parts: list[bytes] = []
    for name, field in cast("Mapping[str, Any]", value).items():
        items = cast("list[Any]", field) if isinstance(field, list) else [field]
        parts += (_encode_part(name, item) for item in items if item is not None)
    boundary = _boundary(parts)
    body = b"".join(b"--%b\r\n%b\r\n" % (boundary, part) for part in parts)
    return body + b"--%b--\r\n" % boundary


def _boundary(parts: list[bytes]) -> bytes:
    return b"ferrule-" + sha256(b"\0".join(parts)).hexdigest()[:40].encode()


def _encode_part(name: str, item: Any) -> bytes:
    disposition = f'form-data; name="{_check_header_text(name)}"'
    media = ""
    file = cast("Mapping[str, Any]", item) if _is_file(item) else None
    if file is None:
        is_json = isinstance(item, (dict, list))
        data = _encode(encode_json(item) if is_json else scalar_text(item, name))
        media = KINDS["json"] if is_json else ""
    else:
        disposition += f'; filename="{_check_header_text(str(file.get("filename", name)))}"'
        data, media = _file_content(name, file)
    head = f"Content-Disposition: {disposition}\r\n"
    if media:
        head += f"Content-Type: {media}\r\n"
    return _encode(head + "\r\n") + data


def _is_file(item: Any) -> bool:
    if not isinstance(item, Mapping):
        return False
    keys = set(cast("Mapping[str, Any]", item))
    return keys <= _FILE_KEYS and len(keys & {"text", "base64"}) == 1


def _file_content(name: str, file: Mapping[str, Any]) -> tuple[bytes, str]:
    media = str(file.get("content_type", ""))
    if media and not _MEDIA_TYPE.fullmatch(media):
        raise TemplateError(f"`{name}.content_type` is not a media type")
    if "text" in file:
        return _encode(str(file["text"])), media or KINDS["text"]
    try:
        data = base64.b64decode(str(file["base64"]), validate=True)
    except ValueError:
        raise TemplateError(f"`{name}.base64` is not base64") from None
    return data, media or "application/octet-stream"


def _check_header_text(text: str) -> str:
    if not _HEADER_TEXT.fullmatch(text):
        raise TemplateError("a name in a multipart form has quotes or characters nobody sees")
    return text


def find_content_type(kind: Kind, body: bytes) -> str:
    """Return the content type of a body that `BodyTemplate.encode` made."""
    if kind != "multipart":
        return KINDS[kind]
    boundary = body.partition(b"\r\n")[0].strip(b"-").decode("ascii")
    return f"{KINDS[kind]}; boundary={boundary}"


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise TemplateError("a value has half of a character (a lone surrogate)") from None


def _escape_xml(text: str) -> str:
    if re.search("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
        raise TemplateError("a value has characters that XML does not allow")
    return quoteattr(text)[1:-1].replace("'", "&apos;").replace('"', "&quot;")


_ESCAPES: dict[Kind, Callable[[str], str]] = {
    "json": str,
    "form": percent_encode,
    "multipart": str,
    "xml": _escape_xml,
    "text": str,
}
