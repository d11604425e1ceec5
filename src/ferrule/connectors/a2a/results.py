"""The state of a peer's task as the value of a call, or as its error.

    message         {"agent", "answer"}
    completed       {"agent", "answer"}: the artifacts; the peer's last message is beside them as
                    `said`, or is the answer if there are none
    input-required  {"agent", "state", "wants", "task_id", "next"}: what it waits for, and how to
                    continue
    auth-required   the same; nothing secret is to be sent
    failed …        ToolFailed

An answer is text if there is only text, a value if there is only one, else a list of parts in
order: texts, values, and files by name, type, size or address. Pictures, sounds and PDFs, given by
their bytes, follow it as media. Another single file, given by its bytes, is passed on as those (an
artifact of ours, if it is large or no text).

Whatever a peer says is in a field of an object that names the peer: it is data, and cannot be
taken for words of the person.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ferrule.connectors.json_values import text_or_empty
from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.media import Media
from ferrule.tools.chunked_output import Chunks
from ferrule.tools.media_types import MediaInvalid, detect_type, looks_like_medium

from .task_state import TaskState

_MAX_MESSAGE = 4_000
_MAX_PARTS = 1_000
_MAX_NAME = 200
_END_ERRORS = {
    "failed": (ErrorType.TOOL_ERROR, "could not do it"),
    "rejected": (ErrorType.PERMISSION_DENIED, "does not want to do it"),
    "canceled": (ErrorType.CANCELLED, "ended it before it was done"),
}


def result_value(peer: str, tool: str, task: TaskState) -> Any:
    """Return the value of a call.

    Raises:
        ToolFailed: The peer failed, rejected or cancelled the task.
    """
    if task.reply is not None:
        return _answer(peer, task.reply)
    if task.state in _END_ERRORS:
        error_type, meaning = _END_ERRORS[task.state]
        reason = clean_text(_join_text(task.message)).strip()[:_MAX_MESSAGE] or "it did not say why"
        data = {"agent": peer, "state": task.state, "task_id": task.task_id}
        raise ToolFailed(
            error_type, f"the agent `{peer}` {meaning} ({task.state}). It says: {reason}", data=data
        )
    if task.state == "completed":
        return _completed_value(peer, task)
    return _waiting_value(peer, tool, task)


def _completed_value(peer: str, task: TaskState) -> Any:
    artifacts = list(task.artifacts.values())
    if not artifacts:
        return _answer(peer, task.message)
    media = [one for artifact in artifacts for one in _find_media(artifact.joined_parts())]
    if len(artifacts) == 1 and not media:
        value = _answer(peer, artifacts[0].joined_parts())
    elif len(artifacts) == 1:
        value = {"agent": peer, "answer": content_value(artifacts[0].joined_parts())}
    else:
        listed = [
            {"name": artifact.name[:_MAX_NAME], "content": content_value(artifact.joined_parts())}
            for artifact in artifacts
        ]
        value = {"agent": peer, "answer": listed}
    if isinstance(value, dict) and task.message:
        value["said"] = content_value(task.message)
    return [value, *media] if media else value  # pyright: ignore[reportUnknownVariableType]  JSON, or pieces of bytes


def _waiting_value(peer: str, tool: str, task: TaskState) -> dict[str, Any]:
    step = f"call `{tool}` again with this `task_id`, and the answer as `message`"
    if task.state == "auth-required":
        step = (
            "a person has to sign in or give access at that agent; ask for that, and then "
            f"call `{tool}` again with this `task_id`. Never send a password or a key in `message`"
        )
    wants = content_value(task.message) if task.message else "it did not say what"
    return {
        "agent": peer,
        "state": task.state,
        "wants": wants,
        "task_id": task.task_id,
        "next": step,
    }


def _answer(peer: str, parts: list[Mapping[str, Any]]) -> Any:
    media = _find_media(parts)
    data = _decode_file(parts[0]) if len(parts) == 1 else None
    if data is None or media:
        value = {"agent": peer, "answer": content_value(parts)}
        return [value, *media] if media else value
    media_type = text_or_empty(parts[0].get("mediaType"))[:100] or "application/octet-stream"
    return Chunks((data,), mime=media_type)


def _find_media(parts: list[Mapping[str, Any]]) -> list[Media]:
    """Return the pictures, sounds and PDFs among parts, known by their content."""
    found: list[Media] = []
    for part in parts[:_MAX_PARTS]:
        data = _decode_file(part)
        if data is None or not looks_like_medium(data[:1024]):
            continue
        try:
            detect_type(data, "it")
        except MediaInvalid:
            continue
        found.append(Media(data, name=text_or_empty(part.get("filename"))[:_MAX_NAME]))
    return found


def content_value(parts: list[Mapping[str, Any]]) -> Any:
    """Return parts of a message or artifact as a value."""
    if len(parts) == 1 and "data" in parts[0]:
        return parts[0]["data"]
    if all(isinstance(part.get("text"), str) for part in parts):
        return "\n".join(part["text"] for part in parts)
    shown = [_describe_part(part) for part in parts[:_MAX_PARTS]]
    if len(parts) > _MAX_PARTS:
        shown.append(f"{len(parts) - _MAX_PARTS} more parts")
    return shown


def _describe_part(part: Mapping[str, Any]) -> Any:
    if isinstance(part.get("text"), str):
        return part["text"]
    if "data" in part:
        return part["data"]
    facts: dict[str, Any] = {
        "file": text_or_empty(part.get("filename"))[:_MAX_NAME],
        "media_type": text_or_empty(part.get("mediaType"))[:_MAX_NAME],
    }
    if isinstance(part.get("url"), str):
        return {**facts, "url": part["url"][:2_000], "note": "not fetched"}
    raw = text_or_empty(part.get("raw"))
    return {**facts, "bytes": len(raw) * 3 // 4 - raw[-2:].count("=")}


def _decode_file(part: Mapping[str, Any]) -> bytes | None:
    if not isinstance(part.get("raw"), str):
        return None
    try:
        return base64.b64decode(part["raw"], validate=True)
    except (binascii.Error, ValueError):
        return None


def _join_text(parts: list[Mapping[str, Any]]) -> str:
    return "\n".join(text_or_empty(part.get("text")) for part in parts if part.get("text"))
