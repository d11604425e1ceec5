"""Convert the blocks of a prompt to the message of a run.

Text is used as it is, embedded context is marked, and links are named. The model reads a resource
that the editor embeds as context, framed as data: the person chose to send it, not what it says. A
link is named and not opened: the model may read it with a tool, if the rules allow it. Pictures,
sounds and embedded files become media of the message; their content says what they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from ferrule.core.errors import ConfigError
from ferrule.core.invisible_characters import escape_invisible
from ferrule.core.media import Audio, Content, Image, Media
from ferrule.tools.media_types import decode_medium, detect_type

MAX_MESSAGE = 4 << 20
"""Most characters of a message."""


def parse_prompt(blocks: object) -> Content:
    """Return the message. Raises ConfigError for content that cannot be read."""
    if not isinstance(blocks, list):
        raise ConfigError("`prompt` must be a list of content blocks")
    parts: list[str | Media] = []
    for block in cast("list[object]", blocks):
        found = _read_block(block)
        if isinstance(found, str) and parts and isinstance(parts[-1], str):
            parts[-1] += found
        else:
            parts.append(found)
    content = [_clean(part) if isinstance(part, str) else part for part in parts]
    content = [part for part in content if part]
    if not content:
        raise ConfigError("the prompt is empty")
    size = sum(len(part) for part in content if isinstance(part, str))
    if size > MAX_MESSAGE:
        raise ConfigError(f"the prompt has {size} characters; the limit is {MAX_MESSAGE}")
    only = content[0]
    return only if len(content) == 1 and isinstance(only, str) else content


def _clean(text: str) -> str:
    # JSON can hold half of a surrogate pair, which UTF-8 cannot encode.
    return text.strip().encode("utf-8", "replace").decode()


def _read_block(block: object) -> str | Media:
    fields = _require_object(block, "a content block")
    match fields.get("type"):
        case "text":
            return _text(fields, "text")
        case "resource_link":
            return _link(_text(fields, "uri"), str(fields.get("name") or ""))
        case "resource":
            return _read_resource(_require_object(fields.get("resource"), "`resource`"))
        case "image":
            return Image(_decode(fields, "image"))
        case "audio":
            return Audio(_decode(fields, "audio"))
        case other:
            raise ConfigError(f"unknown type of content: {str(other)[:40]!r}")


def _decode(fields: Mapping[str, Any], kind: str) -> bytes:
    label = f"the {kind} of the prompt"
    data = decode_medium(fields.get("data"), label)
    found = detect_type(data, label)
    if found.media_kind != kind:
        raise ConfigError(f"{label} is no {kind}: its content is {found.mime}")
    return data


def _read_resource(resource: Mapping[str, Any]) -> str | Media:
    uri = _text(resource, "uri")
    if "text" not in resource:
        label = f"the resource `{escape_invisible(uri)[:200]}`"
        name = _quote(unquote(urlsplit(uri).path).rpartition("/")[2])[:100]
        return Media(decode_medium(resource.get("blob"), label), name=name)
    text = _text(resource, "text").replace("</editor-context", "<\\/editor-context")
    return f'\n<editor-context source="{_format_uri(uri)}">\n{text}\n</editor-context>\n'


def _link(uri: str, name: str) -> str:
    return f"[{_quote(name) or 'link'}: {_format_uri(uri)}]"


def _format_uri(uri: str) -> str:
    """Return a file by its path and anything else by its address, as one quoted line."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return _quote(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return _quote(uri)
    return _quote(
        f"{unquote(parts.path)}#{parts.fragment}" if parts.fragment else unquote(parts.path)
    )


def _quote(text: str) -> str:
    return " ".join(escape_invisible(text).split()).replace('"', "'")[:1000]


def _require_object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{what} must be an object")
    return cast("dict[str, Any]", value)


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ConfigError(f"`{name}` must be a string")
    return value
