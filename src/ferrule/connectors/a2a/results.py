"""From a peer's work to the value of a call, or the error that it was.

    message            {"agent", "answer"}
    completed          {"agent", "answer"}: the artifacts; what was said last, beside them as `said` or alone as the answer
    input-required     {"agent", "state", "wants", "task_id", "next"}: what it waits for, and how to go on
    auth-required      the same; nothing secret is to be sent
    failed …           ToolFailed

An answer is text where there is only text, a value where there is only one, else a list of parts in
order: texts, values, and files by name, type, size or address. One file alone, given by its bytes,
is handed on as those (an artifact of ours, if it is large or no text).

Whatever a peer says stands in a field of an object that names it: it is data, and cannot be taken
for words of the person.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ferrule.connectors.cleaning import clean
from ferrule.connectors.json_values import text_of
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.tools.chunked_output import Chunks

from .task_state import Work

_MESSAGE = 4_000
_PARTS = 1_000
_SHORT = 200
_ERRORS = {
    "failed": (ErrorType.TOOL_ERROR, "could not do it"),
    "rejected": (ErrorType.PERMISSION_DENIED, "does not want to do it"),
    "canceled": (ErrorType.CANCELLED, "ended it before it was done"),
}


def value_of(peer: str, tool: str, work: Work) -> Any:
    """What a call returns. Raises ToolFailed where the work came to nothing."""
    if work.reply is not None:
        return _answered(peer, work.reply)
    if work.state in _ERRORS:
        kind, meaning = _ERRORS[work.state]
        why = clean(_text(work.said)).strip()[:_MESSAGE] or "it did not say why"
        data = {"agent": peer, "state": work.state, "task_id": work.task_id}
        raise ToolFailed(
            kind, f"the agent `{peer}` {meaning} ({work.state}). It says: {why}", data=data
        )
    if work.state == "completed":
        return _completed(peer, work)
    return _waiting(peer, tool, work)


def _completed(peer: str, work: Work) -> Any:
    artifacts = list(work.artifacts.values())
    if not artifacts:
        return _answered(peer, work.said)
    if len(artifacts) == 1:
        found = _answered(peer, artifacts[0].whole())
    else:
        listed = [{"name": one.name[:_SHORT], "content": told(one.whole())} for one in artifacts]
        found = {"agent": peer, "answer": listed}
    if isinstance(found, dict) and work.said:
        found["said"] = told(work.said)
    return found  # pyright: ignore[reportUnknownVariableType]  JSON, or pieces of bytes


def _waiting(peer: str, tool: str, work: Work) -> dict[str, Any]:
    step = f"call `{tool}` again with this `task_id`, and the answer as `message`"
    if work.state == "auth-required":
        step = (
            "a person has to sign in or give access at that agent; ask for that, and then "
            f"call `{tool}` again with this `task_id`. Never send a password or a key in `message`"
        )
    wants = told(work.said) if work.said else "it did not say what"
    return {
        "agent": peer,
        "state": work.state,
        "wants": wants,
        "task_id": work.task_id,
        "next": step,
    }


def _answered(peer: str, parts: list[Mapping[str, Any]]) -> Any:
    if len(parts) == 1 and (raw := _bytes(parts[0])) is not None:
        return Chunks(
            (raw,), mime=text_of(parts[0].get("mediaType"))[:100] or "application/octet-stream"
        )
    return {"agent": peer, "answer": told(parts)}


def told(parts: list[Mapping[str, Any]]) -> Any:
    """Parts as a value."""
    if len(parts) == 1 and "data" in parts[0]:
        return parts[0]["data"]
    if all(isinstance(part.get("text"), str) for part in parts):
        return "\n".join(part["text"] for part in parts)
    shown = [_described(part) for part in parts[:_PARTS]]
    return [*shown, f"{len(parts) - _PARTS} more parts"] if len(parts) > _PARTS else shown


def _described(part: Mapping[str, Any]) -> Any:
    if isinstance(part.get("text"), str):
        return part["text"]
    if "data" in part:
        return part["data"]
    about: dict[str, Any] = {
        "file": text_of(part.get("filename"))[:_SHORT],
        "media_type": text_of(part.get("mediaType"))[:_SHORT],
    }
    if isinstance(part.get("url"), str):
        return {**about, "url": part["url"][:2_000], "note": "not fetched"}
    raw = text_of(part.get("raw"))
    return {**about, "bytes": len(raw) * 3 // 4 - raw[-2:].count("=")}


def _bytes(part: Mapping[str, Any]) -> bytes | None:
    if not isinstance(part.get("raw"), str):
        return None
    try:
        return base64.b64decode(part["raw"], validate=True)
    except (binascii.Error, ValueError):
        return None


def _text(parts: list[Mapping[str, Any]]) -> str:
    return "\n".join(text_of(part.get("text")) for part in parts if part.get("text"))
