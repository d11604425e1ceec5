"""A server's answer as a value for the model.

    structuredContent  that value, whatever it is; pictures and sounds follow it
    text only          the texts, joined by line ends; a single one that is a JSON object or array
                       is that value
    with media         a list, in order: texts as they are; pictures, sounds and files as media, by
                       their content; links by address
    anything else      `{"parts": [...]}`, in order

What is no picture, sound or document that models take is described by type and size, and why.
`isError` means that the tool itself failed: its text is the message, and nothing says that trying
again would help. Everything a server says is data; nothing of it is followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ferrule.connectors.json_values import mapping_or_empty, objects_in
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.calls import ErrorType, parse_json
from ferrule.core.errors import ToolFailed
from ferrule.core.media import Media, has_media
from ferrule.tools.media_types import MediaInvalid, decode_medium, detect_type

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
        media = [one for part in parts for one in _media_of(part)]
        return [structured, *media] if media else structured
    if not isinstance(result.get("content"), list):
        # It ran: what it did stands, whatever its answer looks like.
        raise ToolFailed(
            ErrorType.PARSE_ERROR,
            f"`{tool}` of server `{server}`: its answer is not valid: no content; outcome unknown: "
            "check what it did before doing it again",
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
    value = [_part_value(part) for part in parts[:_MAX_PARTS]]
    if has_media(value):
        return value
    return {"parts": [_describe_part(part) for part in parts[:_MAX_PARTS]]}


def resource_value(result: Mapping[str, Any]) -> Any:
    """Return a `resources/read` result as a value.

    It is the text of a single resource, or a description of each.
    """
    contents = objects_in(result.get("contents"))
    if len(contents) == 1 and isinstance(contents[0].get("text"), str):
        return contents[0]["text"]
    value = [_resource_part(resource) for resource in contents[:_MAX_PARTS]]
    if has_media(value):
        return value
    return {"contents": [_describe_resource(resource) for resource in contents[:_MAX_PARTS]]}


def prompt_value(result: Mapping[str, Any]) -> Any:
    """Return a `prompts/get` result as `{"description", "messages": [{"role", "content"}]}`."""
    messages = [
        {
            "role": str(message.get("role", "")),
            "content": _message_value(objects_in([message.get("content")])),
        }
        for message in objects_in(result.get("messages"))[:_MAX_PARTS]
    ]
    description = result.get("description")
    if isinstance(description, str):
        return {"description": description, "messages": messages}
    return {"messages": messages}


def _message_value(parts: list[Mapping[str, Any]]) -> Any:
    """Return the content of a prompt's message, in which media are described."""
    value = content_value(parts)
    return {"parts": [_describe_part(part) for part in parts]} if has_media(value) else value


def _part_value(part: Mapping[str, Any]) -> Any:
    """Return one part of a result with media: text, a medium, or a description."""
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    if part.get("type") == "resource":
        return _resource_part(mapping_or_empty(part.get("resource")))
    return next(iter(_media_of(part)), None) or _describe_part(part)


def _resource_part(resource: Mapping[str, Any]) -> Any:
    if isinstance(resource.get("text"), str):
        return resource["text"]
    found = _decode_media(resource.get("blob"), str(resource.get("uri", "")).rpartition("/")[2])
    return found or _describe_resource(resource)


def _media_of(part: Mapping[str, Any]) -> list[Media]:
    """Return the medium of a part, if it has one that models take."""
    if part.get("type") in ("image", "audio"):
        found = _decode_media(part.get("data"), "")
        return [found] if found is not None else []
    if part.get("type") == "resource":
        found = _resource_part(mapping_or_empty(part.get("resource")))
        return [found] if isinstance(found, Media) else []
    return []


def _decode_media(data: Any, name: str) -> Media | None:
    """Return base64 data as a medium; None if it is none that models take.

    The server's word for its type counts for nothing: the content says it.
    """
    try:
        content = decode_medium(data, "it")
    except MediaInvalid:
        return None
    if detect_type(content, "it").mime == "image/svg+xml":
        return None
    return Media(content, name=clean_text(name)[:100])


def _part_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else json.dumps(_describe_part(part))


def _parse_json(text: str) -> Any:
    if text[:1].strip() not in ("{", "[") or len(text) > _MAX_JSON_CHARACTERS:
        return text
    try:
        value = parse_json(text, parse_constant=_refuse_constant)
    except ValueError:
        return text
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


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
                **_explain_unshown(part.get("data")),
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


def _explain_unshown(data: Any) -> dict[str, str]:
    """Return a note that says why a picture or a sound is described and not shown."""
    try:
        decode_medium(data, "it")
    except MediaInvalid as error:
        return {"note": f"not shown: {error.detail}"}
    return {}


def _decoded_size(data: Any) -> int:
    """Return the size of base64 data without decoding it."""
    text = data if isinstance(data, str) else ""
    return len(text) * 3 // 4 - text[-2:].count("=")
