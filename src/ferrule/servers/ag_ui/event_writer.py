"""Events of a session as events of the protocol, in the order in which a client may read them.

A message or a span of reasoning is open at most once, and closed before anything else begins.
Arguments are sent whole with the model's answer: before it they have no call that they belong to.
A call of the client's own tools is announced when the gate has let it through, and no sooner, since
the client runs what it is told of.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any

from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.events import (
    DelegationFinished,
    ModelAnswered,
    Noticed,
    PersonAnswered,
    ToolAnswered,
    Usage,
)
from ferrule.engine.live_events import Live, Progress, ReasoningDelta, TextDelta
from ferrule.permissions.redaction import Redactor

AgUiEvent = dict[str, Any]
MAX_PROGRESS = 2_000
"""Most characters of a line of progress."""
OWN_EVENTS = "ferrule."
"""The beginning of the names of events that only Ferrule has (`CUSTOM`)."""


class EventWriter:
    """Turns what happens in a run into events of the protocol.

    Args:
        run_id: The beginning of the ids of its messages.
        client_tools: Names of tools that run in the client.
    """

    def __init__(self, run_id: str, client_tools: frozenset[str]) -> None:
        self._run_id = run_id
        self._client_tools = client_tools
        self._count = 0
        self._message = ""
        self._reasoning = ""
        self._said = ""
        self._parent = ""
        self._unannounced: dict[str, ToolCall] = {}
        self._ran_in_client: set[str] = set()
        self.announced: set[str] = set()
        """Calls that the client was told of."""
        self.usage: dict[str, Usage] = {}
        """What this stream's requests to models used, by model."""

    def write(self, item: Live) -> Iterator[AgUiEvent]:
        """Yield the events for something that happened."""
        match item:
            case TextDelta(text):
                yield from self._say(text)
            case ReasoningDelta(text):
                yield from self._reason(text)
            case ModelAnswered():
                yield from self._finish_answer(item)
            case ToolAnswered(result):
                yield from self._give_result(result)
            case PersonAnswered(call_id, choice):
                value = {"toolCallId": call_id, "choice": str(choice), "by": item.by}
                yield self._own("approval", value)
            case Progress(call_id, text):
                shown = redact(text[:MAX_PROGRESS])
                yield self._own("progress", {"toolCallId": call_id, "text": shown})
            case Noticed(topic, text):
                yield self._own("notice", {"topic": topic, "text": redact(text)})
            case DelegationFinished():
                self._count_usage("", item.usage)
            case _:
                pass

    def begin(self, run_id: str) -> None:
        """Begin another run of the protocol, in which the session's run may go on."""
        self._run_id = run_id
        self._count = 0
        self.usage = {}

    def announce_client_call(self, call_id: str) -> Iterator[AgUiEvent]:
        """Yield the events of a call that the client is to run now."""
        self._ran_in_client.add(call_id)
        call = self._unannounced.get(call_id)
        if call is not None:
            yield from self._announce(call)

    def close(self) -> Iterator[AgUiEvent]:
        """Yield what closes a message or reasoning that is still open."""
        yield from self._close_reasoning()
        yield from self._close_message()

    # ---- what the model says

    def _say(self, text: str) -> Iterator[AgUiEvent]:
        if not text:
            return
        yield from self._close_reasoning()
        if not self._message:
            self._message = self._next_id()
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._message, "role": "assistant"}
        self._said += text
        yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message, "delta": text}

    def _reason(self, text: str) -> Iterator[AgUiEvent]:
        if not text:
            return
        yield from self._close_message()
        if not self._reasoning:
            self._reasoning = self._next_id()
            yield {"type": "REASONING_START", "messageId": self._reasoning}
            yield {
                "type": "REASONING_MESSAGE_START",
                "messageId": self._reasoning,
                "role": "reasoning",
            }
        yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": self._reasoning, "delta": text}

    def _finish_answer(self, answer: ModelAnswered) -> Iterator[AgUiEvent]:
        if not self._said:
            yield from self._say(answer.text)
        self._parent = self._message
        yield from self.close()
        self._said = ""
        self._count_usage(answer.response_model or answer.model, answer.usage)
        for call in answer.calls:
            if call.tool in self._client_tools:
                self._unannounced[call.id] = call
            else:
                yield from self._announce(call)

    def _close_message(self) -> Iterator[AgUiEvent]:
        if self._message:
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._message}
            self._message = ""

    def _close_reasoning(self) -> Iterator[AgUiEvent]:
        if self._reasoning:
            yield {"type": "REASONING_MESSAGE_END", "messageId": self._reasoning}
            yield {"type": "REASONING_END", "messageId": self._reasoning}
            self._reasoning = ""

    # ---- calls

    def _announce(self, call: ToolCall) -> Iterator[AgUiEvent]:
        self._unannounced.pop(call.id, None)
        self.announced.add(call.id)
        start = {"type": "TOOL_CALL_START", "toolCallId": call.id, "toolCallName": call.tool}
        if self._parent:
            start["parentMessageId"] = self._parent
        yield start
        arguments = call.arguments or "{}"
        # What the client runs, it gets as the model wrote it.
        shown = arguments if call.tool in self._client_tools else redact(arguments)
        yield {"type": "TOOL_CALL_ARGS", "toolCallId": call.id, "delta": shown}
        yield {"type": "TOOL_CALL_END", "toolCallId": call.id}

    def _give_result(self, result: ToolResult) -> Iterator[AgUiEvent]:
        held_back = self._unannounced.get(result.call_id)
        if held_back is not None:
            yield from self._announce(held_back)
        if result.call_id not in self.announced:
            # A call that another tool made: its result is part of that tool's.
            return
        if result.call_id in self._ran_in_client and result.success:
            # The client has this result: it sent it.
            return
        yield {
            "type": "TOOL_CALL_RESULT",
            "messageId": f"{result.call_id}-result",
            "toolCallId": result.call_id,
            "content": redact(result.to_text()),
            "role": "tool",
        }

    # ---- the rest

    def _own(self, name: str, value: dict[str, Any]) -> AgUiEvent:
        return {"type": "CUSTOM", "name": f"{OWN_EVENTS}{name}", "value": value}

    def _next_id(self) -> str:
        self._count += 1
        return f"{self._run_id}-{self._count}"

    def _count_usage(self, model: str, used: Usage) -> None:
        before = self.usage.get(model, Usage())
        self.usage[model] = before + used

    def usage_entries(self) -> list[dict[str, Any]]:
        """Return what was used, as the protocol has it."""
        entries: list[dict[str, Any]] = []
        for model, used in self.usage.items():
            entry: dict[str, Any] = {
                "inputTokens": used.input,
                "outputTokens": used.output,
                "cachedInputTokens": used.cached,
                "cacheWriteInputTokens": used.written,
                "reasoningTokens": used.reasoning,
            }
            if model:
                entry["model"] = model
            if used.input or used.output:
                entries.append(entry)
        return entries


@cache
def _redactor() -> Redactor:
    return Redactor.for_environment(os.environ)


def redact(text: str) -> str:
    """Return a text without the secrets of this process."""
    return _redactor().redact_text(text)
