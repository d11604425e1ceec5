"""Convert a session's history into objects for hooks, and what they made of it back into messages.

What comes back is checked as strictly as any history that is sent: in order, each assistant message
with calls followed by exactly its results. Otherwise the hook is broken, and the request is not
made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage

from .events import NotJson

_ROLES: dict[type, str] = {UserMessage: "user", AssistantMessage: "assistant", ToolMessage: "tool"}
_NEW = frozenset({"role", "content"})


def messages_to_objects(history: Sequence[Message]) -> tuple[Mapping[str, Any], ...]:
    """Return the messages as `completion.pre` gets them."""
    return tuple(_object(index, message) for index, message in enumerate(history))


def _object(index: int, message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {"index": index, "role": _ROLES[type(message)], "content": message.text}
    if isinstance(message, AssistantMessage) and message.calls:
        shown["tool_calls"] = [
            {"id": c.id, "name": c.tool, "arguments": c.arguments} for c in message.calls
        ]
    if isinstance(message, ToolMessage):
        shown["tool_call_id"], shown["name"] = message.call_id, message.tool
    return shown


def objects_to_messages(objects: Sequence[object], history: Sequence[Message]) -> list[Message]:
    """Convert what a hook left of a history into messages. Raises NotJson."""
    found: list[Message] = []
    last = -1
    for shown in objects:
        if not isinstance(shown, Mapping):
            raise NotJson(f"a message must be an object, found {type(shown).__name__}")
        given = dict(cast("Mapping[str, Any]", shown))
        message = _message(given, history)
        index = given.get("index")
        if index is not None:
            if index <= last:
                raise NotJson(f"message {index} comes after message {last}")
            last = index
        found.append(message)
    _pair(found)
    return found


def _message(shown: dict[str, Any], history: Sequence[Message]) -> Message:
    index = shown.get("index")
    text = shown.get("content")
    if not isinstance(text, str):
        raise NotJson("the `content` of a message must be a text")
    if index is None:
        if shown.keys() != _NEW or shown["role"] != "user":
            raise NotJson("a new message has `role: user` and `content`, nothing else")
        return UserMessage(text)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(history):
        raise NotJson(f"there is no message {index!r}")
    message = history[index]
    if text == message.text:
        if shown != _object(index, message):
            raise NotJson(f"of message {index} only the `content` can be changed")
        return message
    if {**shown, "content": message.text} != _object(index, message):
        raise NotJson(f"of message {index} only the `content` can be changed")
    if isinstance(message, AssistantMessage):
        # A provider's own blocks contain the old text, so they are dropped.
        return replace(message, text=text, raw=None)
    return replace(message, text=text)


def _pair(messages: Sequence[Message]) -> None:
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if not waiting or waiting.pop(0) != message.call_id:
                raise NotJson(f"the result of `{message.call_id}` comes without its call")
        elif waiting:
            raise NotJson(f"the call `{waiting[0]}` has no result")
        elif isinstance(message, AssistantMessage):
            waiting = [call.id for call in message.calls]
    if waiting:
        raise NotJson(f"the call `{waiting[0]}` has no result")
    if not messages or isinstance(messages[-1], AssistantMessage):
        raise NotJson("there is no message left that the model could answer")
    if not isinstance(messages[0], UserMessage):
        raise NotJson("the first message must be the person's")
