"""One run of the protocol: what a request starts or goes on with, and its events until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ferrule.core.calls import parse_json
from ferrule.core.errors import FerruleError, LimitReached, ProviderError, RunCancelled
from ferrule.core.media import Content, Media
from ferrule.core.messages import AssistantMessage, Message, UserMessage
from ferrule.engine.session import RunResult
from ferrule.runtime.hidden_errors import is_for_clients, log_hidden_error

from .event_writer import AgUiEvent, redact
from .inputs import InputRefused, PersonMessage, RunInput
from .threads import Thread

PROTOCOL_VERSION = "1.0"
HEARTBEAT = 15.0
"""Seconds after which a silent stream sends something, so that nothing on the way ends it."""
_SETTLE_TURNS = 20
"""Turns of the event loop that calls of one answer get to begin together."""
_ACCOUNTS = ("unauthorized", "quota", "api_key")
"""Errors between this server and its provider; their messages may name accounts and keys."""


class RunStream:
    """A request and the events that answer it.

    Args:
        thread: The person's thread.
        given: What the client sent.

    Raises:
        InputRefused: The thread is at work for another request, or an answer is to no question.
    """

    def __init__(self, thread: Thread, given: RunInput) -> None:
        if thread.is_read:
            raise InputRefused(
                "this thread is at work for another request", status=409, code="thread_busy"
            )
        thread.check_answers(given.answers)
        self._thread = thread
        self._given = given
        self._is_over = False
        thread.is_read = True

    async def events(self) -> AsyncIterator[AgUiEvent | None]:
        """Yield the events, and None where the stream was silent for long."""
        thread = self._thread
        thread.writer.begin(self._given.run_id)
        try:
            yield {
                "type": "RUN_STARTED",
                "threadId": self._given.thread_id,
                "runId": self._given.run_id,
                "protocolVersion": PROTOCOL_VERSION,
            }
            if not self._begin():
                yield self._snapshot()
                yield self._finish({"type": "success"})
                return
            async for event in self._pump():
                yield event
        finally:
            thread.is_read = False

    # ---- what the request does

    def _begin(self) -> bool:
        """Start or go on with a run. Return False if there is nothing to work on."""
        thread = self._thread
        given = self._given
        if thread.is_busy:
            self._go_on()
            return True
        if thread.session.has_open_run:
            # The process that ran it is gone: its questions are asked again, of this client.
            thread.give_answers(given.answers)
            last = _find_last_message(thread)
            for one in given.said:
                thread.mark_seen(one.id)
                if _plain(one.content) != last:
                    thread.session.tell(_plain(one.content))
            thread.start(thread.session.resume)
            return True
        said = self._list_new()
        if not said and thread.has_failed:
            said = list(given.said[-1:])
        if not said:
            return False
        self._add_context()
        content = _join([one.content for one in said])
        for one in said:
            thread.mark_seen(one.id)
        thread.start(lambda: thread.session.run(content))
        return True

    def _go_on(self) -> None:
        """Give a run that is under way what it waits for, and what the person says."""
        thread = self._thread
        thread.give_answers(self._given.answers)
        thread.give_results(dict(self._given.tool_results))
        if not thread.open_questions:
            said = self._list_new()
            if said:
                thread.abandon_client_calls()
            for one in said:
                thread.mark_seen(one.id)
                thread.session.tell(_plain(one.content))
        if thread.open_questions or thread.open_client_calls:
            thread.outbox.put_nowait("paused")

    def _list_new(self) -> list[PersonMessage]:
        return [one for one in self._given.said if self._thread.is_new(one.id)]

    def _add_context(self) -> None:
        """Tell the model what the client says of its page, once for each change."""
        context = self._given.context
        if not context or context == self._thread.told_context:
            return
        self._thread.told_context = context
        lines = [f"{description}: {value}" for description, value in context]
        told = "\n".join(["What the person's program says of what they see:", *lines])
        self._thread.session.history.add_context(told)

    # ---- what the client is told

    async def _pump(self) -> AsyncIterator[AgUiEvent | None]:
        while not self._is_over:
            for event in await self._next_events():
                yield event

    async def _next_events(self) -> Sequence[AgUiEvent | None]:
        try:
            async with asyncio.timeout(HEARTBEAT):
                item = await self._thread.outbox.get()
        except TimeoutError:
            return [None]
        if item == "paused":
            return await self._take_pause()
        if item == "ended":
            return self._end()
        return [] if isinstance(item, str) else [item]

    async def _take_pause(self) -> list[AgUiEvent]:
        """Return what is left to tell before the stream ends, and its end.

        Returns nothing if the session does not wait for the client any more.
        """
        thread = self._thread
        if thread.open_client_calls and not thread.open_questions:
            for _ in range(_SETTLE_TURNS):
                await asyncio.sleep(0)
        if not thread.is_waiting:
            return []
        events: list[AgUiEvent] = []
        while not thread.outbox.empty():
            item = thread.outbox.get_nowait()
            if item == "ended":
                return [*events, *self._end()]
            if not isinstance(item, str):
                events.append(item)
        return [*events, *self._pause()]

    def _pause(self) -> list[AgUiEvent]:
        """Return the end of a run of the protocol whose session waits for the client."""
        self._is_over = True
        thread = self._thread
        closing = list(thread.writer.close())
        if thread.open_questions:
            asked = [one.to_json(thread.writer.announced) for one in thread.open_questions]
            return [*closing, self._finish({"type": "interrupt", "interrupts": asked})]
        pending = thread.open_client_calls
        return [*closing, self._finish({"type": "success", "pendingToolCallIds": pending})]

    def _end(self) -> list[AgUiEvent]:
        """Return the end of a run that is over."""
        self._is_over = True
        thread = self._thread
        task = thread.run_task
        assert task is not None
        closing = list(thread.writer.close())
        thread.has_failed = True
        try:
            result = task.result()
        except (asyncio.CancelledError, RunCancelled):
            return [*closing, self._finish({"type": "cancelled"})]
        except FerruleError as error:
            return [*closing, self._fail(*describe_failure(error))]
        thread.has_failed = False
        ending = self._finish({"type": "success"})
        if result is not None and thread.session.ends_with_value:
            ending["result"] = _value(result)
        return [*closing, ending]

    def _finish(self, outcome: dict[str, Any]) -> AgUiEvent:
        ending: AgUiEvent = {
            "type": "RUN_FINISHED",
            "threadId": self._given.thread_id,
            "runId": self._given.run_id,
            "outcome": outcome,
        }
        usage = self._thread.writer.usage_entries()
        if usage:
            ending["usage"] = usage
        return ending

    def _fail(self, message: str, code: str) -> AgUiEvent:
        ending: AgUiEvent = {"type": "RUN_ERROR", "message": message, "code": code}
        usage = self._thread.writer.usage_entries()
        if usage:
            ending["usage"] = usage
        return ending

    def _snapshot(self) -> AgUiEvent:
        session = self._thread.session
        messages = snapshot_messages(session.id, session.history)
        return {"type": "MESSAGES_SNAPSHOT", "messages": messages}


def describe_failure(error: FerruleError) -> tuple[str, str]:
    """Return what a client is told of an error, and its code.

    What went wrong inside is for the server's owner, and logged.
    """
    if isinstance(error, LimitReached):
        return f"{redact(error.detail)}; another message goes on", error.code
    if is_for_clients(error):
        return redact(error.detail), error.code
    if isinstance(error, ProviderError) and error.code not in _ACCOUNTS:
        return redact(error.detail), error.code
    log_hidden_error("ag_ui", error)
    if isinstance(error, ProviderError):
        return f"the model's provider refused this server ({error.code})", error.code
    return f"the agent cannot work now ({error.code})", error.code


def _value(result: RunResult[Any]) -> Any:
    try:
        return parse_json(result.text)
    except ValueError:
        return result.text


def _find_last_message(thread: Thread) -> str:
    said = [one.text for one in thread.session.history if isinstance(one, UserMessage)]
    return said[-1] if said else ""


def _plain(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(one for one in content if isinstance(one, str))


def _join(contents: Sequence[Content]) -> Content:
    """Return messages that were sent together as one."""
    if all(isinstance(one, str) for one in contents):
        return "\n\n".join(one for one in contents if isinstance(one, str))
    parts: list[str | Media] = []
    for one in contents:
        parts.extend([one] if isinstance(one, str) else one)
    return parts


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
