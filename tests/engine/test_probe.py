"""Calls that had started when their process died: a probe, then a person, decides; nothing is done
twice by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ferrule import Agent, Permissions, Storage, tool
from ferrule.core.events import CallProbed, CallStarted, Recovered, ToolAnswered
from ferrule.core.identity import Identity
from ferrule.core.messages import ToolMessage
from ferrule.engine.replay.replay import replay
from ferrule.models.scripted import Scripted, calls, says
from ferrule.permissions.approvals import (
    AllowlistApprover,
    ApprovalAnswer,
    ApprovalRequest,
    Approver,
    DenyingApprover,
)
from ferrule.permissions.grant_proposals import GrantOffer
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool
from ferrule.tools.outcome_probe import NOT_HAPPENED, UNKNOWN, Probe, ProbeResult, report_effect


class World:
    """What was sent, by the id of the call that sent it."""

    def __init__(self) -> None:
        self.sent: dict[str, list[str]] = {}
        self.probed: list[tuple[str, str]] = []

    def tool(self, probe: Probe | None = None) -> Tool:
        @tool(side_effect="external", probe=probe)
        async def send(text: str, context: Context) -> str:
            """Send a text."""
            self.sent.setdefault(context.call_id, []).append(text)
            return f"sent {text}"

        return send

    async def look(self, values: Mapping[str, Any], context: Context) -> ProbeResult:
        self.probed.append((context.call_id, values["text"]))
        return (
            report_effect(f"sent {values['text']}")
            if context.call_id in self.sent
            else NOT_HAPPENED
        )


class Person:
    """Answers questions about unknown outcomes, and keeps them."""

    asks_about_unknown = True

    def __init__(self, choice: str) -> None:
        self.choice = choice
        self.asked: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer(self.choice, by="a person")  # type: ignore[arg-type]


async def died(
    world: World,
    send: Tool,
    *,
    did: bool,
    approver: Approver | None = None,
    allow: tuple[str, ...] = ("send",),
):
    """A session whose process died while it sent, after or before the effect, and resumed under
    these rules; its tool message and its events.
    """
    journal = SqliteJournal(":memory:")
    first = Agent(
        Scripted([calls(("send", {"text": "hello"})), says("?")]),
        [send],
        permissions=Permissions(allow=["send"]),
        storage=Storage(journal=journal, user="me"),
    )
    session = first.session()
    await session.run("send it")
    await session.close()
    records = list(journal.records(session.id))
    at = next(n for n, record in enumerate(records) if isinstance(record.event, CallStarted))
    left = SqliteJournal(":memory:")
    for record in records[: at + 1]:
        left.append(
            session.id,
            record.run,
            [record.event],
            identity=Identity("local", "me", session.id, record.run),
        )
    left.release(session.id)
    if not did:
        world.sent.clear()
    agent = Agent(
        Scripted([says("went on")]),
        [send],
        permissions=Permissions(allow=allow, approver=approver),
        storage=Storage(journal=left, user="me"),
    )
    again = agent.resume(session.id)
    result = await again.resume()
    await again.close()
    assert result is not None and result.text == "went on"
    left.verify(session.id)
    assert replay(left.records(session.id)).same
    (message,) = [m for m in again.driver.machine.history if isinstance(m, ToolMessage)]
    return message, [record.event for record in left.records(session.id)]


@pytest.mark.parametrize("did", [True, False])
async def test_a_probe_finds_out_and_the_effect_happens_exactly_once(did: bool) -> None:
    world = World()
    message, events = await died(world, world.tool(world.look), did=did)
    ((call_id, sent),) = world.sent.items()
    assert sent == ["hello"]
    assert world.probed == [(call_id, "hello")]
    assert message.text.startswith("sent hello")
    assert message.success
    assert sum(isinstance(event, CallProbed) for event in events) == (not did)
    assert [event.asks for event in events if isinstance(event, Recovered)] == [True]
    assert sum(isinstance(event, ToolAnswered) for event in events) == 1


async def knows_nothing(values: Mapping[str, Any], context: Context) -> ProbeResult:
    return UNKNOWN


async def breaks(values: Mapping[str, Any], context: Context) -> ProbeResult:
    raise OSError("the outbox is gone")


async def answers_nonsense(values: Mapping[str, Any], context: Context) -> ProbeResult:
    return True  # type: ignore[return-value]


@pytest.mark.proves("crash.unknown-is-said")
@pytest.mark.parametrize("probe", [None, knows_nothing, breaks, answers_nonsense])
@pytest.mark.parametrize("approver", [None, DenyingApprover(), AllowlistApprover(["send"])])
async def test_where_nobody_knows_the_outcome_is_unknown_and_nothing_runs_again(
    probe: Probe | None, approver: Approver | None
) -> None:
    world = World()
    message, events = await died(world, world.tool(probe), did=True, approver=approver)
    assert list(world.sent.values()) == [["hello"]]
    assert "outcome unknown" in message.text
    assert not message.success
    assert not any(isinstance(event, CallProbed) for event in events)


async def test_a_person_may_have_it_done_again_or_leave_it_unknown() -> None:
    world, person = World(), Person("once")
    message, events = await died(world, world.tool(), did=True, approver=person)
    assert [len(sent) for sent in world.sent.values()] == [2]
    assert message.success
    (probed,) = [event for event in events if isinstance(event, CallProbed)]
    assert probed.by == "a person"
    (asked,) = person.asked
    assert asked.has_unknown_outcome
    assert "outcome is unknown" in asked.reason
    assert asked.offers == (GrantOffer("once", ""),)  # No rule covers it.

    world, person = World(), Person("deny")
    message, events = await died(world, world.tool(), did=True, approver=person)
    assert [len(sent) for sent in world.sent.values()] == [1]
    assert "outcome unknown" in message.text


async def test_what_did_not_happen_is_not_started_again_where_a_person_is_to_be_asked_by_now() -> (
    None
):
    world = World()
    message, _ = await died(world, world.tool(world.look), did=False, allow=())
    assert world.sent == {}
    assert not message.success
    assert "not run" in message.text and "outcome unknown" not in message.text

    for choice, times in (("once", 1), ("deny", 0)):
        world, person = World(), Person(choice)
        message, _ = await died(world, world.tool(world.look), did=False, allow=(), approver=person)
        assert sum(len(sent) for sent in world.sent.values()) == times
        assert message.success == bool(times)
        (asked,) = person.asked
        assert "did not happen" in asked.reason
