"""A conversation with tools as a conversation without: for models whose provider has no tools
field.

Calls that were made become text again, results become a message of data, and what a person said on
the way stands below it in the same message: many templates refuse two messages of one side in a
row. Each message is converted once; the converted list only grows, so that the wire below encodes
only what is new and the prefix stays stable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ferrule.core.calls import Call
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.models.client import Sink

Render = Callable[[str, Sequence[Call]], str]
"""Text and calls of an answer as the text that the model is shown as its own."""

_FRAME = re.compile(r"<(\s*/?\s*(?:tool_results|result)\b)", re.IGNORECASE)


class PlainHistory:
    """The history as messages without tools. Give it the same growing history each time."""

    def __init__(self, render: Render) -> None:
        self._render = render
        self._messages: list[Message] = []
        self._seen = 0

    def convert(self, history: Sequence[Message]) -> Sequence[Message]:
        """All messages so far, converted; those that were converted before are the same objects."""
        results: list[ToolMessage] = []
        parts: list[str] = []
        for message in history[self._seen :]:
            if isinstance(message, ToolMessage):
                results.append(message)
            elif isinstance(message, UserMessage):
                self._show(results, parts)
                parts.append(message.text)
            else:
                self._speak(results, parts)
                text = self._render(message.text, message.calls)
                self._messages.append(AssistantMessage(text or "(nothing)"))
        self._speak(results, parts)
        self._seen = len(history)
        return self._messages

    def _show(self, results: list[ToolMessage], parts: list[str]) -> None:
        if results:
            parts.append(show_results(results))
            results.clear()

    def _speak(self, results: list[ToolMessage], parts: list[str]) -> None:
        """One message for all that the model is told between two answers."""
        self._show(results, parts)
        if parts:
            self._messages.append(UserMessage("\n\n".join(parts)))
            parts.clear()


def show_results(results: Sequence[ToolMessage]) -> str:
    """Results as data in a frame that they cannot close: marks of the frame inside them are
    escaped.

    It does not keep a model from believing what it reads; the gate is what bounds it.
    """
    shown = "\n".join(map(_show, results))
    return f"<tool_results>\n{shown}\n</tool_results>"


def _show(result: ToolMessage) -> str:
    failed = "" if result.success else ' failed="true"'
    data = _FRAME.sub(r"&lt;\1", result.text)
    return f'<result tool="{result.tool}"{failed}>\n{data}\n</result>'


class Notices:
    """Where an exchange's notices go: to the sink of an ask, or into the list that its driver
    takes.
    """

    def __init__(self, kept: list[tuple[str, str]]) -> None:
        self._kept = kept

    def tell(self, sink: Sink | None, topic: str, text: str) -> None:
        if sink is not None:
            sink.notice(topic, text)
        else:
            self._kept.append((topic, text))
