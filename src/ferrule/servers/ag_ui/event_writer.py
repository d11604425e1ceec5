"""Events of a session as events of the protocol, in the order in which a client may read them.

A message or a span of reasoning is open at most once, and closed before anything else begins.
Arguments are sent whole with the model's answer: before it they have no call that they belong to.
A call of the client's own tools is announced when the gate has let it through, and no sooner, since
the client runs what it is told of.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.events import (
    DelegationFinished,
    ModelAnswered,
    Noticed,
    PersonAnswered,
    Usage,
)
from ferrule.engine.live_events import ArgumentsDelta, Live, Progress, ReasoningDelta, TextDelta
from ferrule.permissions.redaction import Redactor

AgUiEvent = dict[str, Any]
_PIECES = (TextDelta, ReasoningDelta, ArgumentsDelta, Progress)
"""What happens without a call being settled by it."""
MAX_PROGRESS = 2_000
"""Most characters of a line of progress."""
OWN_EVENTS = "ferrule."
"""The beginning of the names of events that only Ferrule has (`CUSTOM`)."""


class EventWriter:
    """Turns what happens in a run into events of the protocol.

    Args:
        client_tools: Names of tools that run in the client.
        find_result: Returns the result of a call; None while it has none.
    """

    def __init__(
        self, client_tools: frozenset[str], find_result: Callable[[str], ToolResult | None]
    ) -> None:
        self._run_id = ""
        self._client_tools = client_tools
        self._find_result = find_result
        self._count = 0
        self._message = ""
        self._reasoning = ""
        self._said = ""
        self._parent = ""
        self._open: dict[str, ToolCall] = {}
        """Calls of the model whose result the client was not told."""
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
            case PersonAnswered(call_id, choice):
                value = {"toolCallId": call_id, "choice": str(choice), "by": item.by}
                yield self._own("approval", value)
            case Progress(call_id, text, is_tail=False):
                shown = redact(text[:MAX_PROGRESS])
                yield self._own("progress", {"toolCallId": call_id, "text": shown})
            case Noticed(topic, text):
                yield self._own("notice", {"topic": topic, "text": redact(text)})
            case DelegationFinished():
                self._count_usage("", item.usage)
            case _:
                pass
        if not isinstance(item, _PIECES):
            yield from self._give_results()

    def begin(self, run_id: str) -> None:
        """Begin another run of the protocol, in which the session's run may go on."""
        self._run_id = run_id
        self._count = 0
        self.usage = {}

    def announce_client_call(self, call_id: str) -> Iterator[AgUiEvent]:
        """Yield the events of a call that the client is to run now."""
        self._ran_in_client.add(call_id)
        call = self._open.get(call_id)
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
            self._open[call.id] = call
            if call.tool not in self._client_tools:
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

    def _give_results(self) -> Iterator[AgUiEvent]:
        """Yield the results that there are now: a refused call has one without being run."""
        for call in list(self._open.values()):
            result = self._find_result(call.id)
            if result is not None:
                del self._open[call.id]
                yield from self._give_result(call, result)

    def _give_result(self, call: ToolCall, result: ToolResult) -> Iterator[AgUiEvent]:
        if call.id not in self.announced:
            yield from self._announce(call)
        if call.id in self._ran_in_client and result.success:
            # The client has this result: it sent it.
            return
        yield {
            "type": "TOOL_CALL_RESULT",
            "messageId": f"{call.id}-result",
            "toolCallId": call.id,
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
