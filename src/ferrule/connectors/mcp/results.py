"""What a server answered, as a value for the model: structured content wins, then text, then a
description of the parts.

    structuredContent          that value, whatever it is
    text only                  the texts, one after another; a single one that is a JSON object or array is that value
    anything else              `{"parts": [...]}`, in order: texts as they are; pictures and sound by type and size, links by address

Pictures and sound are described and not shown: no wire of ours carries them in a result yet.
`isError` is the tool's own failure: its text is the message, and nothing says that trying again
would help. Everything a server says is data; nothing of it is followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ferrule.connectors.cleaning import clean
from ferrule.connectors.json_values import mapping_of, objects_of
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

_JSON_MOST = 1024 * 1024
"""Text beyond this is not parsed: it would be cut anyway."""
_MESSAGE = 4_000
_PARTS = 1_000


def value_of(server: str, tool: str, result: Mapping[str, Any]) -> Any:
    """A `tools/call` result as a value. Raises ToolFailed where the server says that the tool
    failed.
    """
    parts = objects_of(result.get("content"))
    structured = result.get("structuredContent")
    if result.get("isError") is True:
        said = clean("\n".join(_text(part) for part in parts).strip())[:_MESSAGE]
        data = mapping_of(structured) or None
        message = f"`{tool}` of server `{server}` failed: {said or 'it did not say why'}"
        raise ToolFailed(ErrorType.TOOL_ERROR, message, data=data)
    if structured is not None:
        return structured
    if not isinstance(result.get("content"), list):
        raise ToolFailed(
            ErrorType.PARSE_ERROR,
            f"`{tool}` of server `{server}`: its answer is not valid: no content",
        )
    return told(parts)


def told(parts: list[Mapping[str, Any]]) -> Any:
    """Content parts as a value."""
    texts = [
        part["text"]
        for part in parts
        if part.get("type") == "text" and isinstance(part.get("text"), str)
    ]
    if len(texts) == len(parts):
        return _as_json(texts[0]) if len(texts) == 1 else "\n".join(texts)
    return {"parts": [_described(part) for part in parts[:_PARTS]]}


def resource_value(result: Mapping[str, Any]) -> Any:
    """A `resources/read` result as a value: the text of a single one, else a description of
    each.
    """
    contents = objects_of(result.get("contents"))
    if len(contents) == 1 and isinstance(contents[0].get("text"), str):
        return contents[0]["text"]
    return {"contents": [_resource(one) for one in contents[:_PARTS]]}


def prompt_value(result: Mapping[str, Any]) -> Any:
    """A `prompts/get` result as a value: `{"description", "messages": [{"role", "content"}]}`."""
    messages = [
        {"role": str(one.get("role", "")), "content": told(objects_of([one.get("content")]))}
        for one in objects_of(result.get("messages"))[:_PARTS]
    ]
    said = result.get("description")
    return {**({"description": said} if isinstance(said, str) else {}), "messages": messages}


def _text(part: Mapping[str, Any]) -> str:
    said = part.get("text")
    return said if isinstance(said, str) else json.dumps(_described(part))


def _as_json(text: str) -> Any:
    if text[:1].strip() not in ("{", "[") or len(text) > _JSON_MOST:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _described(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(part.get("type", "unknown"))[:40]
    match kind:
        case "text":
            return {"type": "text", "text": str(part.get("text", ""))}
        case "image" | "audio":
            return {
                "type": kind,
                "media_type": str(part.get("mimeType", ""))[:100],
                "bytes": _bytes(part.get("data")),
            }
        case "resource_link":
            keys = ("uri", "name", "title", "description", "mimeType", "size")
            return {
                "type": kind,
                **{key: part[key] for key in keys if isinstance(part.get(key), (str, int))},
            }
        case "resource":
            return {"type": kind, **_resource(mapping_of(part.get("resource")))}
        case _:
            return {"type": kind, "note": "a kind of content that is not known here"}


def _resource(one: Mapping[str, Any]) -> dict[str, Any]:
    about = {
        "uri": str(one.get("uri", ""))[:2_000],
        "media_type": str(one.get("mimeType", ""))[:100],
    }
    if isinstance(one.get("text"), str):
        return {**about, "text": one["text"]}
    return {**about, "bytes": _bytes(one.get("blob"))}


def _bytes(data: Any) -> int:
    """The size of what is written in base64, without decoding it."""
    text = data if isinstance(data, str) else ""
    return len(text) * 3 // 4 - text[-2:].count("=")
