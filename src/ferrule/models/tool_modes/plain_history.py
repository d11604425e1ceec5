"""Convert a history with tool calls into messages without them.

For models whose provider has no tools field. Tool calls become text again. Tool results become a
message of data, and what a person said meanwhile follows in the same message, because many chat
templates refuse two messages of one side in a row. Each message is converted once. The converted
list only grows, so the model client encodes only what is new and the prefix stays stable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ferrule.core.calls import ToolCall
from ferrule.core.media import MediaReference, shift_media
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Sink

Render = Callable[[str, Sequence[ToolCall]], str]
"""Writes the text and the calls of an answer as the text that the model is shown as its own."""

_FRAME = re.compile(r"<(\s*/?\s*(?:tool_results|result)\b)", re.IGNORECASE)


class PlainHistory:
    """A history as messages without tools. Give it the same growing history each time."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._messages: list[Message] = []
        self._converted = 0
        self._media: list[MediaReference] = []

    def convert(self, history: Sequence[Message]) -> Sequence[Message]:
        """Return all messages, converted. Those converted before are the same objects."""
        results: list[ToolMessage] = []
        parts: list[str] = []
        self._media = []
        for message in history[self._converted :]:
            if isinstance(message, ToolMessage):
                results.append(message)
            elif isinstance(message, UserMessage):
                self._add_results(results, parts)
                self._add_media(message.media, parts)
                parts.append(message.text)
            else:
                self._add_user_message(results, parts)
                text = self._render(message.text, message.calls)
                self._messages.append(AssistantMessage(text or "(nothing)"))
        self._add_user_message(results, parts)
        self._converted = len(history)
        return self._messages

    def _add_results(self, results: list[ToolMessage], parts: list[str]) -> None:
        if results:
            parts.append(render_results(results))
            end = len("\n\n".join(parts))
            for result in results:
                self._media += [replace(one, at=end) for one in result.media]
            results.clear()

    def _add_media(self, media: tuple[MediaReference, ...], parts: list[str]) -> None:
        if media:
            before = len("\n\n".join(parts)) + 2 if parts else 0
            self._media += shift_media(media, before)

    def _add_user_message(self, results: list[ToolMessage], parts: list[str]) -> None:
        """Add one message for everything between two answers."""
        self._add_results(results, parts)
        if parts:
            self._messages.append(UserMessage("\n\n".join(parts), tuple(self._media)))
            self._media = []
            parts.clear()


def render_results(results: Sequence[ToolMessage]) -> str:
    """Return results as data in a frame that they cannot close: frame tags in them are escaped.

    This does not keep a model from believing what it reads. What it can do about it is bounded by
    the permission gate alone.
    """
    shown = "\n".join(map(_show_result, results))
    return f"<tool_results>\n{shown}\n</tool_results>"


def _show_result(result: ToolMessage) -> str:
    failed = "" if result.success else ' failed="true"'
    data = _FRAME.sub(r"&lt;\1", result.text)
    return f'<result tool="{result.tool}"{failed}>\n{data}\n</result>'


class NoticeOutlet:
    """Where the notices of an exchange go: to the sink, or into a list if there is none."""

    def __init__(self, pending: list[tuple[str, str]]) -> None:
        """`pending` is the exchange's own list, which its caller empties."""
        self._pending = pending

    def notify(self, sink: Sink | None, topic: str, text: str) -> None:
        """Give a notice to the sink, or keep it for the caller."""
        if sink is not None:
            sink.notice(topic, text)
        else:
            self._pending.append((topic, text))
