"""Who refused a call is recorded, and `denied by a person` is said only of a person."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ferrule import Agent, Host, Limits, Permissions, Scripted, Storage, ToolFailed, tool
from ferrule.console.timeline import Timeline
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError
from ferrule.core.events import PersonAnswered
from ferrule.core.refusals import describe_denial, name_answerer
from ferrule.core.vocabulary import Refuser
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.hooks.call_hooks import Block
from ferrule.engine.telemetry.telemetry import Telemetry
from ferrule.models.scripted import calls, says
from ferrule.permissions.approvals import ApprovalAnswer, DenyingApprover
from ferrule.plugins import Parts
from ferrule.storage.audit.audit import audit_calls
from ferrule.storage.audit.explanation import explain
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.statistics.finished_calls import CallReader


@tool(side_effect="write", risk="high")
def scribble(path: str) -> str:
    """Write something."""
    return path


class Person:
    async def ask(self, request: Any) -> ApprovalAnswer:
        return ApprovalAnswer("deny", by="ada", note="")


class Broken:
    async def ask(self, request: Any) -> ApprovalAnswer:
        raise ConfigError("no line to anybody")


APPROVERS: dict[Refuser, Any] = {
    "person": Person(),
    "nobody": DenyingApprover(),
    "error": Broken(),
}


@pytest.mark.parametrize("refuser", APPROVERS)
async def test_who_refused_is_in_the_journal_and_in_what_is_read_from_it(refuser: Refuser) -> None:
    with SqliteJournal(":memory:") as journal:
        agent = Agent(
            Scripted([calls(("scribble", {"path": "a"})), says("ok")]),
            [scribble],
            permissions=Permissions(approver=APPROVERS[refuser]),
            storage=Storage(journal=journal),
        )
        ran = await agent.run("go")
        await agent.close()
        records = list(journal.records(ran.session))
        (answer,) = [one.event for one in records if isinstance(one.event, PersonAnswered)]
        assert (answer.choice, answer.refused_by) == ("deny", refuser)
        (call,) = audit_calls(records)
        text = "\n".join(explain(call))
        assert f"by {name_answerer(answer.by, refuser)}" in text
        assert ("nobody" in text) == (refuser != "person")
        assert "denied by a person" not in f"{ran.results[0].error_message}{text}"


@pytest.mark.parametrize("refuser", get_args(Refuser))
def test_denied_by_a_person_is_said_only_of_a_person(refuser: Refuser) -> None:
    said = describe_denial("somebody", refuser, "")
    assert ("by a person" in said) == (refuser == "person")
    assert ("somebody" in name_answerer("somebody", refuser)) == (refuser == "person")


class BlockingHook:
    async def before(self, tool: Any, arguments: Any, context: Any) -> Block:
        return Block("not on Fridays")

    async def after(self, tool: Any, result: Any, context: Any) -> None:
        return None


@tool(side_effect="write", risk="high")
def refuse(path: str) -> str:
    """Refuse."""
    raise ToolFailed(ErrorType.PERMISSION_DENIED, "not here")


@tool(side_effect="write", risk="high")
def unconfined(path: str) -> str:
    """Need a sandbox that there is not."""
    raise ToolFailed(ErrorType.PERMISSION_DENIED, "not confined", refused_by="sandbox")


class AlwaysYes:
    async def ask(self, request: Any) -> ApprovalAnswer:
        return ApprovalAnswer("once", by="ada")


WAYS: dict[Refuser, tuple[str, dict[str, Any]]] = {
    "rule": ("scribble", {"permissions": Permissions(deny=["scribble"], approver=AlwaysYes())}),
    "mode": ("scribble", {"permissions": Permissions(mode="plan", approver=AlwaysYes())}),
    "gate": ("scoped", {"permissions": Permissions(approver=AlwaysYes())}),
    "person": ("scribble", {"permissions": Permissions(approver=Person())}),
    "nobody": ("scribble", {"permissions": Permissions(approver=DenyingApprover())}),
    "error": ("scribble", {"permissions": Permissions(approver=Broken())}),
    "hook": (
        "scribble",
        {
            "permissions": Permissions(approver=AlwaysYes()),
            "plugins": [Parts(hooks=[BlockingHook()])],
        },
    ),
    "sandbox": ("unconfined", {"permissions": Permissions(approver=AlwaysYes())}),
    "tool": ("refuse", {"permissions": Permissions(approver=AlwaysYes())}),
    "limit": (
        "scribble",
        {
            "permissions": Permissions(approver=AlwaysYes()),
            "limits": Limits(max_calls_per_turn=1),
        },
    ),
}
"""A tool and an agent whose call is refused, for each that can refuse."""


@tool(side_effect="write", risk="high", scopes={"admin"})
def scoped(path: str) -> str:
    """Need a scope."""
    return path


@pytest.mark.parametrize("refuser", get_args(Refuser))
async def test_every_way_to_refuse_a_call_is_one_word_everywhere(refuser: Refuser) -> None:
    name, given = WAYS[refuser]
    asked = [(name, {"path": str(number)}) for number in range(2 if refuser == "limit" else 1)]
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    bus = Bus()
    telemetry = Telemetry(tracer_provider=provider, meter_provider=MeterProvider())
    telemetry.listen(bus)
    with SqliteJournal(":memory:") as journal:
        agent = Agent(
            Scripted([calls(*asked), says("ok")]),
            [scribble, refuse, unconfined, scoped],
            storage=Storage(journal=journal),
            host=Host(bus=bus),
            **{**given, "plugins": [Parts(resources=[telemetry]), *given.get("plugins", ())]},
        )
        ran = await agent.run("go")
        await agent.close()
        records = list(journal.records(ran.session))
    result = ran.results[-1]
    assert result.refused_by == refuser
    audited = next(call for call in audit_calls(records) if call.call_id == result.call_id)
    assert (audited.refused_by, audited.settled_by) == (refuser, refuser)
    named = {"person": "ada", "rule": "the rule `scribble`", "hook": "the hook"}
    expected = named.get(refuser, name_answerer("", refuser))
    assert f"refused by {expected}" in explain(audited)[0]
    timeline = Timeline()
    for record in records:
        timeline._add_event(record.event, record.time, record.run)  # pyright: ignore[reportPrivateUsage]
    card = list(timeline.cards.values())[-1]
    if refuser == "limit":
        return  # the machine answers by itself: statistics and telemetry see a call that did not run
    reader = CallReader()
    finished = [call for record in records for call in reader.feed(record)]
    assert finished[-1].stopped_by == refuser
    assert card.decided in ("refused", "denied")
    assert card.by == {**named, "rule": "rule scribble (user)", "hook": "a hook"}.get(
        refuser, card.by
    )
    assert ("a person" in card.by) is False
    (span,) = [one for one in spans.get_finished_spans() if name in one.name]
    assert (span.attributes or {}).get("ferrule.refused_by") == refuser


def test_a_yes_names_who_gave_it() -> None:
    assert name_answerer("ada", "") == "ada"
    assert name_answerer("", "") == "a person"
    assert ApprovalAnswer("once", by="ada").refuser == ""
