"""Convert the blocks of a prompt to the message of a run.

Text is used as it is, embedded context is marked, and links are named. The model reads a resource
that the editor embeds as context, framed as data: the person chose to send it, not what it says. A
link is named and not opened: the model may read it with a tool, if the rules allow it. Pictures and
sound are refused, because models are sent text only; the advertised capabilities say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from ferrule.core.errors import ConfigError
from ferrule.core.invisible_characters import escape_invisible

MAX_MESSAGE = 4 << 20
"""Most characters of a message."""


def parse_prompt(blocks: object) -> str:
    """Return the message. Raises ConfigError for content that cannot be read."""
    if not isinstance(blocks, list):
        raise ConfigError("`prompt` must be a list of content blocks")
    parts = [_read_block(block) for block in cast("list[object]", blocks)]
    text = "".join(parts).strip()
    if not text:
        raise ConfigError("the prompt is empty")
    if len(text) > MAX_MESSAGE:
        raise ConfigError(f"the prompt has {len(text)} characters; the limit is {MAX_MESSAGE}")
    # JSON can hold half of a surrogate pair, which UTF-8 cannot encode.
    return text.encode("utf-8", "replace").decode()


def _read_block(block: object) -> str:
    fields = _require_object(block, "a content block")
    match fields.get("type"):
        case "text":
            return _text(fields, "text")
        case "resource_link":
            return _link(_text(fields, "uri"), str(fields.get("name") or ""))
        case "resource":
            return _render_embedded_text(_require_object(fields.get("resource"), "`resource`"))
        case "image" | "audio" as kind:
            raise ConfigError(f"this agent does not accept {kind}: models are sent text only")
        case other:
            raise ConfigError(f"unknown type of content: {str(other)[:40]!r}")


def _render_embedded_text(resource: Mapping[str, Any]) -> str:
    uri = _text(resource, "uri")
    if "text" not in resource:
        raise ConfigError(
            f"the resource `{escape_invisible(uri)[:200]}` has no text, and only text can be read"
        )
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
