"""The conversation as the session has it, for a client that lacks it (`MESSAGES_SNAPSHOT`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ferrule.core.messages import AssistantMessage, Message, UserMessage

from .event_writer import redact


def snapshot_messages(session_id: str, history: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a session's messages as the protocol has them."""
    return [_message(f"{session_id}-{at}", one) for at, one in enumerate(history)]


def _message(name: str, message: Message) -> dict[str, Any]:
    if isinstance(message, UserMessage):
        return {"id": name, "role": "user", "content": message.text}
    if isinstance(message, AssistantMessage):
        shown: dict[str, Any] = {"id": name, "role": "assistant"}
        if message.text:
            shown["content"] = message.text
        if message.calls:
            shown["toolCalls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.tool, "arguments": redact(call.arguments)},
                }
                for call in message.calls
            ]
        return shown
    return {
        "id": name,
        "role": "tool",
        "toolCallId": message.call_id,
        "content": redact(message.text),
    }
