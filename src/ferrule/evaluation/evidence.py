"""What happened in a trial, read from the events of its sessions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Literal

from ferrule.core.calls import CallOutcome, read_arguments
from ferrule.core.events import JournalRecord, ModelAnswered, RunFinished, SessionOpened
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import RunStop
from ferrule.engine.budgets import count_cost, in_dollars
from ferrule.storage.audit.audit import AuditedCall, audit_calls
from ferrule.tools.definition import Tool


@frozen
class MadeCall:
    """A call that was made.

    Attributes:
        tool: Its tool's full name.
        arguments: Its arguments; None if they were no JSON object.
        written: Its arguments as the model wrote them.
        outcome: `success`, or the error type of its result.
        effect: Its tool's side effect; "" if the call never reached the gate.
        has_run: Whether the tool ran.
        by_sub_agent: Whether a sub-agent made it.
    """

    tool: str
    arguments: Mapping[str, Any] | None
    written: str = ""
    outcome: CallOutcome = "success"
    effect: str = ""
    has_run: bool = True
    by_sub_agent: bool = False

    def __str__(self) -> str:
        return f"{self.tool} {self.written}"


@frozen
class ToolFacts:
    """What comparing arguments needs of a tool: its parameters' defaults, and which are paths."""

    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    paths: frozenset[str] = frozenset()


@frozen
class Evidence:
    """What happened in a trial.

    Attributes:
        calls: All calls, in the order in which they were settled.
        output: The text that the last run ended with.
        stop: How it ended; `open` if it did not.
        code: The code of the error that ended it, or "".
        detail: That error.
        changes: Files of the workspace that changed; None if that is not known.
        files: Texts of the files that the case names; None for one that is not there.
        tools: Facts about tools, by name.
        turns: Answers of the model, sub-agents included.
        input_tokens: Tokens that the models were sent.
        output_tokens: Tokens that they wrote.
        cost: US dollars; None if a price is not known.
        seconds: Wall time; None if it was not measured.
        session: The session's id.
        model_failed: Whether a model that gave no answer ended it.
    """

    calls: tuple[MadeCall, ...] = ()
    output: str = ""
    stop: RunStop | Literal["open"] = "open"
    code: str = ""
    detail: str = ""
    changes: tuple[str, ...] | None = ()
    files: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    tools: Mapping[str, ToolFacts] = field(default_factory=dict[str, ToolFacts])
    turns: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    seconds: float | None = None
    session: str = ""
    model_failed: bool = False


def read_evidence(
    sessions: Iterable[Iterable[JournalRecord]],
    *,
    changes: tuple[str, ...] | None = None,
    files: Mapping[str, str | None] | None = None,
    tools: Mapping[str, ToolFacts] | None = None,
    seconds: float | None = None,
) -> Evidence:
    """Read what happened from the events of a session, and of its sub-agents' sessions after it.

    The other arguments are what events do not hold; see `Evidence`.
    """
    reading = _Reading()
    for number, records in enumerate(sessions):
        reading.take(list(records), by_sub_agent=number > 0)
    finished = reading.finished
    return Evidence(
        tuple(reading.calls),
        finished.text if finished else "",
        finished.stop if finished else "open",
        finished.code if finished else "",
        finished.detail if finished else "",
        changes,
        files or {},
        tools or {},
        reading.turns,
        reading.input_tokens,
        reading.output_tokens,
        reading.cost,
        seconds,
        reading.session,
    )


class _Reading:
    def __init__(self) -> None:
        self.calls: list[MadeCall] = []
        self.finished: RunFinished | None = None
        self.session = ""
        self.turns = 0
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost: float | None = 0.0

    def take(self, records: list[JournalRecord], *, by_sub_agent: bool) -> None:
        model = ""
        for record in records:
            event = record.event
            if isinstance(event, SessionOpened):
                model = event.model
            elif isinstance(event, ModelAnswered):
                self._count_answer(event, event.model or model)
            elif isinstance(event, RunFinished) and not by_sub_agent:
                self.finished = event
                self.session = record.session
        self.calls += [_to_made_call(call, by_sub_agent) for call in audit_calls(records)]

    def _count_answer(self, answer: ModelAnswered, model: str) -> None:
        self.turns += 1
        self.input_tokens += answer.usage.input
        self.output_tokens += answer.usage.output
        if not answer.usage.input and not answer.usage.output:
            # A script, or a provider that counts nothing: there is nothing to pay for.
            return
        cost = in_dollars(count_cost([(model, answer.usage)]))
        self.cost = None if cost is None or self.cost is None else self.cost + cost


def _to_made_call(call: AuditedCall, by_sub_agent: bool) -> MadeCall:
    effect = call.decisions[-1].effect if call.decisions else ""
    # What only reads is not announced in the journal; its success shows that it ran.
    has_run = call.started is not None or call.outcome == "success"
    return MadeCall(
        call.tool,
        read_arguments(call.arguments),
        call.arguments,
        call.outcome,
        effect,
        has_run,
        by_sub_agent,
    )


def read_tool_facts(tools: Iterable[Tool]) -> dict[str, ToolFacts]:
    """Return what comparing arguments needs of the tools, by name."""
    facts: dict[str, ToolFacts] = {}
    for tool in tools:
        schema: Any = tool.arguments.schema
        properties: dict[str, Any] = schema.get("properties") or {}
        defaults: dict[str, Any] = {}
        for name, parameter in properties.items():
            if isinstance(parameter, dict) and "default" in parameter:
                defaults[name] = parameter["default"]
        paths = [name for name, touch in tool.touches.items() if touch.kind in ("read", "write")]
        facts[tool.full_name] = ToolFacts(defaults, frozenset(paths))
    return facts
