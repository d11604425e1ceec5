"""A recorded session to run again: its messages, its model's answers, its tools' results.

Results are found by tool and arguments, not by the call's id, so that another model finds them,
too. Arguments are the same if they are the same JSON; the first recorded result is used first, and
the last one again if a call is repeated.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ferrule.core import events
from ferrule.core.calls import ErrorType, ToolCall, ToolResult, decode_arguments
from ferrule.core.errors import JournalError, ProviderError
from ferrule.core.events import ModelAnswered
from ferrule.core.limits import Limits
from ferrule.core.media import MediaReference
from ferrule.core.messages import Message
from ferrule.core.output import OutputRequest
from ferrule.core.similar_names import find_similar_names
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.call_hooks import Answer
from ferrule.models.client import Capabilities, Exchange, ModelOptions, Sink, ToolSpec
from ferrule.permissions.rule_evaluation import Decision, PermissionGate
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool


@frozen
class RecordedMessage:
    """A message of a person: one that started a run, or context alone.

    A message that started a run has its limits, its options as in `RunStarted`, and its outcome.
    """

    text: str
    limits: Limits | None = None
    finished: events.RunFinished | None = None
    join: int = 0
    require: tuple[str, ...] = ()
    output_request: OutputRequest | None = None
    instructions: str = ""
    media: tuple[MediaReference, ...] = ()


@frozen
class Recording:
    """One recorded session.

    Attributes:
        session: Its id.
        model: Its model.
        system: Its system text.
        tools: Its tools.
        messages: The person's messages.
        answers: The model's answers.
        results: Each call with its result, in the order of the results.
        calls_by_run: The model's calls after each message that started a run.
        history: The messages that it began with, as JSON (`core.messages`); "" if none.
        owner: Its tenant and user, whose artifact store has the bytes of its media.
    """

    session: str
    model: str
    system: str
    tools: tuple[str, ...]
    messages: tuple[RecordedMessage, ...]
    answers: tuple[ModelAnswered, ...]
    results: tuple[tuple[ToolCall, ToolResult], ...]
    calls_by_run: tuple[tuple[ToolCall, ...], ...]
    history: str = ""
    owner: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, records: Iterable[events.JournalRecord]) -> Recording:
        """Read a session from its first event.

        Raises JournalError if it does not start with `session.opened`.
        """
        reading = _Reading()
        for record in records:
            reading.session = record.session
            reading.owner = (record.tenant, record.user)
            reading.take(record.event)
        opened = reading.opened
        if opened is None:
            raise JournalError("a recording begins with `session.opened`", code="journal_corrupt")
        return cls(
            reading.session,
            opened.model,
            opened.system,
            opened.tools,
            tuple(reading.messages),
            tuple(reading.answers),
            tuple(reading.results),
            tuple(tuple(calls) for calls in reading.made),
            reading.history,
            reading.owner,
        )

    def list_media(self) -> Iterator[MediaReference]:
        """Yield the references of all media in messages and results."""
        for message in self.messages:
            yield from message.media
        for _, result in self.results:
            yield from result.media


class _Reading:
    def __init__(self) -> None:
        self.session = ""
        self.owner: tuple[str, str] = ("", "")
        self.opened: events.SessionOpened | None = None
        self.made: list[list[ToolCall]] = []
        self.messages: list[RecordedMessage] = []
        self.answers: list[ModelAnswered] = []
        self.results: list[tuple[ToolCall, ToolResult]] = []
        self.history = ""
        self._calls: dict[str, ToolCall] = {}

    def take(self, event: events.Event) -> None:
        if isinstance(event, ModelAnswered):
            self.answers.append(event)
            self._calls |= {call.id: call for call in event.calls}
            if self.made:
                self.made[-1].extend(event.calls)
        self._note(event)

    def _note(self, event: events.Event) -> None:
        match event:
            case events.SessionOpened():
                self.opened = self.opened or event
            case events.RunStarted():
                self.messages.append(
                    RecordedMessage(
                        event.text,
                        event.limits,
                        None,
                        event.join,
                        event.require,
                        event.output_request,
                        event.instructions,
                        event.media,
                    )
                )
                self.made.append([])
            case events.RunFinished() if self.messages:
                self.messages[-1] = replace(self.messages[-1], finished=event)
            case events.HistoryGiven():
                self.history = self.history or event.messages
            case events.ContextAdded():
                self.messages.append(RecordedMessage(event.text))
            case events.DirectCall():
                self._calls[event.call.id] = event.call
            case events.ToolAnswered():
                self._add_result(event.result)
            case events.CallEvaluated() if event.result is not None:
                self._add_result(event.result)
            case _:
                pass

    def _add_result(self, result: ToolResult) -> None:
        call = self._calls.get(result.call_id)
        if call is not None:
            self.results.append((call, result))


def canonical_json(arguments: Any) -> str:
    """Return arguments as text that is the same for the same JSON: keys sorted, no spaces.

    Invalid JSON is returned unchanged.
    """
    value: object = arguments
    if isinstance(arguments, str):
        try:
            value, _ = decode_arguments(arguments)
        except ValueError:
            return arguments
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


class RecordedModel:
    """A model client that gives the recorded answers in order, whatever it is asked. No network."""

    def __init__(self, recording: Recording) -> None:
        self._model = recording.model
        self._answers = deque(recording.answers)

    @property
    def model(self) -> str:
        return self._model

    async def capabilities(self) -> Capabilities:
        return Capabilities(tools=True, structured=True, source="recording")

    def open(self, system: str, tools: Sequence[ToolSpec], options: ModelOptions) -> Exchange:
        return _RecordedExchange(self._answers)

    async def close(self) -> None:
        """Do nothing: nothing was opened."""


class _RecordedExchange:
    def __init__(self, answers: deque[ModelAnswered]) -> None:
        self._answers = answers
        self.notices: list[tuple[str, str]] = []

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        if not self._answers:
            said = (
                "the recorded model has no further answer: the run went on longer than the "
                "recording"
            )
            raise ProviderError(
                said, code="recording_over", hint="look at the differences before this"
            )
        answer = self._answers.popleft()
        if sink is not None and answer.text:
            sink.add_text(answer.text)
        return answer


class OpenGate(PermissionGate):
    """A gate that allows everything.

    Only for sessions whose calls `RecordedTools` answers, so that nothing runs.
    """

    def decide(self, tool: Tool, values: Mapping[str, Any]) -> Decision:
        return Decision("allow", "answered from a recording", layer="builtin")

    def for_session(self) -> PermissionGate:
        return self


class RecordedTools:
    """A hook that answers every call from a recording, so that no handler runs.

    Implements `engine.hooks.call_hooks.Hook`. `matched` counts the calls that it could answer,
    `unmatched` lists the others as `(tool, canonical arguments)`: they are answered with
    `not_found` and the nearest recorded arguments.
    """

    def __init__(self, recording: Recording) -> None:
        self.matched = 0
        self.unmatched: list[tuple[str, str]] = []
        self._known: dict[str, dict[str, deque[ToolResult]]] = {}
        for call, result in recording.results:
            of_tool = self._known.setdefault(call.tool, {})
            of_tool.setdefault(canonical_json(call.arguments), deque()).append(result)
        self._asked: dict[str, tuple[str, str]] = {}

    def expect(self, call: ToolCall) -> None:
        """Remember a call as the model wrote it.

        A hook sees it only after its arguments were checked and repaired.
        """
        self._asked[call.id] = (call.tool, canonical_json(call.arguments))

    async def before(self, tool: Tool, values: Mapping[str, Any], context: Context) -> Answer:
        """Answer the call, so that nothing runs; `after` replaces the answer."""
        asked = self._asked.get(context.call_id, (tool.full_name, canonical_json(dict(values))))

        async def keep_asked() -> None:
            self._asked[context.call_id] = asked

        return Answer(keep_asked)

    async def after(self, tool: Tool, result: ToolResult, context: Context) -> ToolResult:
        """Return the recorded result for this call."""
        name, arguments = self._asked.pop(context.call_id)
        known = self._known.get(name, {})
        recorded = known.get(arguments)
        if recorded is not None:
            self.matched += 1
            found = recorded.popleft() if len(recorded) > 1 else recorded[0]
            return replace(found, call_id=result.call_id)
        self.unmatched.append((name, arguments))
        near = find_similar_names(arguments, known, count=3, cutoff=0.0)
        others = f"; it has it for {', '.join(near)}" if near else ""
        said = f"the recording has no answer of `{name}` for {arguments[:500]}{others[:1000]}"
        call = ToolCall(result.call_id, name)
        return ToolResult.error(call, ErrorType.NOT_FOUND, said, timestamp=result.timestamp)
