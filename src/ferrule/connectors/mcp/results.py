"""A server's answer as a value for the model.

    structuredContent  that value, whatever it is
    text only          the texts, joined by line ends; a single one that is a JSON object or array
                       is that value
    anything else      `{"parts": [...]}`, in order: texts as they are; images and audio by type
                       and size, links by address

Images and audio are described and not shown: no model client carries them in a result yet.
`isError` means that the tool itself failed: its text is the message, and nothing says that trying
again would help. Everything a server says is data; nothing of it is followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ferrule.connectors.json_values import mapping_or_empty, objects_in
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

_MAX_JSON_CHARACTERS = 1024 * 1024
"""Longer text is not parsed: it would be cut anyway."""
_MAX_MESSAGE = 4_000
_MAX_PARTS = 1_000


def result_value(server: str, tool: str, result: Mapping[str, Any]) -> Any:
    """Return a `tools/call` result as a value.

    Raises:
        ToolFailed: The server says that the tool failed, or its answer has no content.
    """
    parts = objects_in(result.get("content"))
    structured = result.get("structuredContent")
    if result.get("isError") is True:
        text = clean_text("\n".join(_part_text(part) for part in parts).strip())[:_MAX_MESSAGE]
        data = mapping_or_empty(structured) or None
        message = f"`{tool}` of server `{server}` failed: {text or 'it did not say why'}"
        raise ToolFailed(ErrorType.TOOL_ERROR, message, data=data)
    if structured is not None:
        return structured
    if not isinstance(result.get("content"), list):
        raise ToolFailed(
            ErrorType.PARSE_ERROR,
            f"`{tool}` of server `{server}`: its answer is not valid: no content",
        )
    return content_value(parts)


def content_value(parts: list[Mapping[str, Any]]) -> Any:
    """Return content parts as a value."""
    texts = [
        part["text"]
        for part in parts
        if part.get("type") == "text" and isinstance(part.get("text"), str)
    ]
    if len(texts) == len(parts):
        return _parse_json(texts[0]) if len(texts) == 1 else "\n".join(texts)
    return {"parts": [_describe_part(part) for part in parts[:_MAX_PARTS]]}


def resource_value(result: Mapping[str, Any]) -> Any:
    """Return a `resources/read` result as a value.

    It is the text of a single resource, or a description of each.
    """
    contents = objects_in(result.get("contents"))
    if len(contents) == 1 and isinstance(contents[0].get("text"), str):
        return contents[0]["text"]
    return {"contents": [_describe_resource(resource) for resource in contents[:_MAX_PARTS]]}


def prompt_value(result: Mapping[str, Any]) -> Any:
    """Return a `prompts/get` result as `{"description", "messages": [{"role", "content"}]}`."""
    messages = [
        {
            "role": str(message.get("role", "")),
            "content": content_value(objects_in([message.get("content")])),
        }
        for message in objects_in(result.get("messages"))[:_MAX_PARTS]
    ]
    description = result.get("description")
    if isinstance(description, str):
        return {"description": description, "messages": messages}
    return {"messages": messages}


def _part_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else json.dumps(_describe_part(part))


def _parse_json(text: str) -> Any:
    if text[:1].strip() not in ("{", "[") or len(text) > _MAX_JSON_CHARACTERS:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _describe_part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = str(part.get("type", "unknown"))[:40]
    match kind:
        case "text":
            return {"type": "text", "text": str(part.get("text", ""))}
        case "image" | "audio":
            return {
                "type": kind,
                "media_type": str(part.get("mimeType", ""))[:100],
                "bytes": _decoded_size(part.get("data")),
            }
        case "resource_link":
            keys = ("uri", "name", "title", "description", "mimeType", "size")
            known = {key: part[key] for key in keys if isinstance(part.get(key), (str, int))}
            return {"type": kind, **known}
        case "resource":
            return {"type": kind, **_describe_resource(mapping_or_empty(part.get("resource")))}
        case _:
            return {"type": kind, "note": "unknown kind of content"}


def _describe_resource(resource: Mapping[str, Any]) -> dict[str, Any]:
    facts = {
        "uri": str(resource.get("uri", ""))[:2_000],
        "media_type": str(resource.get("mimeType", ""))[:100],
    }
    if isinstance(resource.get("text"), str):
        return {**facts, "text": resource["text"]}
    return {**facts, "bytes": _decoded_size(resource.get("blob"))}


def _decoded_size(data: Any) -> int:
    """Return the size of base64 data without decoding it."""
    text = data if isinstance(data, str) else ""
    return len(text) * 3 // 4 - text[-2:].count("=")
