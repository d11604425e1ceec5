"""Run a recorded session again: with another model, or with the tools as they are now.

    recording = Recording.of(records)
    again = await rerun(recording, agent, model="ollama:llama3.2")   # with the recorded results
    again = await rerun(recording, agent, tools="live")              # with the recorded answers

The driver, the dispatcher and the machine are the real ones; the session is a new one in a journal
in memory. With recorded results no handler runs and no rule is asked: what was refused then is
refused again, by the recording. With `tools="live"` the agent's own gate decides and handlers do
what they do: give it a workspace that may be written.

Each run has the limits, the join policy, the required tools and the wanted output that it had then.
What a person did besides the conversation (direct calls, messages during a run, stopping it) is not
repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from ferrule.core import events
from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.errors import ConfigError, FerruleError, ProviderError
from ferrule.core.media import Content, Media, MediaReference, split_content
from ferrule.core.required_tools import ALTERNATIVE_SEPARATOR
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import RunStop
from ferrule.engine.agent import Agent
from ferrule.engine.live_events import Live
from ferrule.engine.run_inputs import UNSET
from ferrule.models.client import ModelClient
from ferrule.storage.artifacts.store import Scope
from ferrule.tools.catalog import Catalog

from .recording import RecordedMessage, RecordedModel, RecordedTools, Recording, canonical_json


@frozen
class AnswerComparison:
    """A call of the new run beside the recorded one with the same number.

    Either is None if the other run made more calls.
    """

    call: ToolCall | None
    result: ToolResult | None
    recorded_call: ToolCall | None
    recorded_result: ToolResult | None

    @property
    def same(self) -> bool:
        """Whether the same tool was called with the same arguments, and answered the same."""
        if (
            self.call is None
            or self.recorded_call is None
            or self.result is None
            or self.recorded_result is None
        ):
            return False
        mine, then = (self.call, self.result), (self.recorded_call, self.recorded_result)
        return _comparable(*mine) == _comparable(*then)


@frozen
class RunComparison:
    """One message that was run again."""

    question: str
    text: str
    stop: RunStop
    recorded_text: str
    recorded_stop: RunStop | Literal["open"]
    calls: tuple[AnswerComparison, ...]
    usage: events.Usage

    @property
    def same(self) -> bool:
        """Whether answer, calls and results are the recorded ones."""
        return (self.text, self.stop) == (self.recorded_text, self.recorded_stop) and all(
            answered.same for answered in self.calls
        )


@frozen
class RerunReport:
    """A session that was run again.

    `missing` are recorded tools that the agent does not have; `unmatched` calls that the recording
    could not answer, as `(tool, canonical arguments)`.
    """

    session: str
    model: str
    runs: tuple[RunComparison, ...]
    missing: tuple[str, ...]
    unmatched: tuple[tuple[str, str], ...]

    @property
    def same(self) -> bool:
        """Whether every run came out as recorded."""
        return all(run.same for run in self.runs)


async def rerun(
    recording: Recording,
    agent: Agent[Any, Any],
    *,
    model: str | ModelClient | None = None,
    tools: Literal["recorded", "live"] = "recorded",
    deps: object = UNSET,
    read_media: Callable[[MediaReference], bytes] | None = None,
) -> RerunReport:
    """Run all messages of a recording again, one after another, in a copy of `agent`.

    Args:
        recording: The recorded session.
        agent: The agent to copy.
        model: The model to ask; None gives the recorded answers.
        tools: Whether calls get the recorded results or run.
        deps: The dependencies of calls that run, if the agent has any.
        read_media: Returns the bytes of pictures and the like; by default those that the agent's
            artifact store has of the recorded session.

    Raises:
        ConfigError: Nothing would differ from `engine.replay.replay`.
        ProviderError: The bytes of a medium are gone (`media_missing`).
    """
    if model is None and tools == "recorded":
        raise ConfigError(
            "a recorded model with recorded tools says nothing new",
            hint="give a model, or tools='live'",
        )
    read = read_media or partial(_read_kept, agent, recording)
    answers = RecordedTools(recording) if tools == "recorded" else None
    copied, session = agent.open_rehearsal(
        RecordedModel(recording) if model is None else model,
        answers,
        system=recording.system,
        history=recording.history,
        deps=deps,
    )
    missing = tuple(name for name in recording.tools if agent.catalog.get(name) is None)
    media = {one.sha256: one for one in recording.list_media()}
    for one in media.values():
        session.history.keep_media(one, read)
    seen = _RunObserver(answers)
    session.observe(seen.take)
    runs: list[RunComparison] = []
    recorded = _calls_by_run(recording)
    try:
        for message in recording.messages:
            if message.limits is None:
                session.history.add_context(message.text)
                continue
            session.change(
                limits=message.limits,
                join=message.join,
                require=_select_existing(message.require, agent.catalog),
                recorded_instructions=message.instructions,
            )
            session.expect_output(message.output_request)
            seen.clear()
            try:
                await session.run(_to_content(message, read))
            except FerruleError:
                # Its end is in the events, as it would be for a person who looks at the journal.
                if seen.finished is None:
                    raise
            runs.append(seen.compare(message, recorded[len(runs)]))
    finally:
        await session.close()
        await copied.close()
    return RerunReport(
        recording.session,
        copied.model,
        tuple(runs),
        missing,
        tuple(answers.unmatched if answers else ()),
    )


def _read_kept(agent: Agent[Any, Any], recording: Recording, one: MediaReference) -> bytes:
    """Return the bytes of a recorded medium from the agent's store. Raises ProviderError."""
    scope = Scope(*recording.owner, recording.session)
    try:
        return agent.find_media_store().read(scope, one.reference, 0, one.size)
    except FerruleError as error:
        raise ProviderError(
            f"{one.describe()} cannot be given again: {error}",
            code="media_missing",
            hint="artifacts expire; `ferrule sessions replay` needs none of their bytes",
        ) from error


def _to_content(message: RecordedMessage, read: Callable[[MediaReference], bytes]) -> Content:
    """Return a recorded message for a run: its text, or texts and media in order."""
    if not message.media:
        return message.text
    parts = split_content(message.text, message.media)
    return [part if isinstance(part, str) else Media(read(part), name=part.name) for part in parts]


def _select_existing(recorded: tuple[str, ...], catalog: Catalog) -> tuple[str, ...]:
    """Return the recorded run's required tools that still exist; others are reported as missing."""
    there = (
        ALTERNATIVE_SEPARATOR.join(
            name for name in entry.split(ALTERNATIVE_SEPARATOR) if name in catalog
        )
        for entry in recorded
    )
    return tuple(filter(None, there))


class _RunObserver:
    """The events of the run under way."""

    def __init__(self, answers: RecordedTools | None) -> None:
        self._answers = answers
        self.clear()

    def clear(self) -> None:
        self.calls: dict[str, ToolCall] = {}
        self.results: dict[str, ToolResult] = {}
        self.finished: events.RunFinished | None = None

    def take(self, item: Live) -> None:
        match item:
            case events.ModelAnswered():
                self.calls |= {call.id: call for call in item.calls}
                for call in item.calls if self._answers is not None else ():
                    assert self._answers is not None
                    self._answers.expect(call)
            case events.ToolAnswered():
                self.results[item.result.call_id] = item.result
            case events.CallEvaluated() if item.result is not None:
                self.results[item.call_id] = item.result
            case events.RunFinished():
                self.finished = item
            case _:
                pass

    def compare(
        self, message: RecordedMessage, recorded: Sequence[tuple[ToolCall, ToolResult | None]]
    ) -> RunComparison:
        assert self.finished is not None
        mine = list(self.calls.values())
        calls: list[AnswerComparison] = []
        for number in range(max(len(mine), len(recorded))):
            call = mine[number] if number < len(mine) else None
            then, result = recorded[number] if number < len(recorded) else (None, None)
            calls.append(
                AnswerComparison(call, self.results.get(call.id) if call else None, then, result)
            )
        was = message.finished
        done = self.finished
        return RunComparison(
            message.text,
            done.text,
            done.stop,
            was.text if was else "",
            was.stop if was else "open",
            tuple(calls),
            done.usage,
        )


def _comparable(call: ToolCall, result: ToolResult) -> tuple[object, ...]:
    """Return what is compared: not the time, the duration or the id."""
    said = (
        result.success,
        result.data,
        result.error_type,
        result.error_message,
        result.partial,
        result.notes,
    )
    return (call.tool, canonical_json(call.arguments), *said)


def _calls_by_run(recording: Recording) -> list[list[tuple[ToolCall, ToolResult | None]]]:
    """Return the model's calls of each run with their results, in the order of the calls."""
    results = {call.id: result for call, result in recording.results}
    return [[(call, results.get(call.id)) for call in calls] for calls in recording.calls_by_run]
