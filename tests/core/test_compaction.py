"""What is left out of a history and put back: any history, any cut, any order."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.commands import AskModel
from ferrule.core.compaction import can_leave_out
from ferrule.core.events import (
    CallEvaluated,
    ContextAdded,
    ContextCompacted,
    ContextRestored,
    Event,
    ModelAnswered,
    NoticeGiven,
    RunStarted,
    ToolAnswered,
    Usage,
    event_from_json,
    event_to_json,
)
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage

NUMBERS = st.integers(-1, 14)


@st.composite
def compacted(draw: st.DrawFn) -> ContextCompacted:
    """Any event of the kind: numbers that may fit, texts that say where they are from."""
    elided = draw(st.lists(NUMBERS, max_size=4, unique=True))
    return ContextCompacted(
        elided=tuple(elided),
        stubs=tuple(f"[stub {number}]" for number in elided[: draw(st.integers(3, 4))]),
        through=draw(st.integers(0, 14)),
        kept=tuple(draw(st.lists(NUMBERS, max_size=3))),
        text="[summary]",
        usage=Usage(7, 3),
    )


STEPS = st.one_of(
    st.builds(RunStarted, st.just("go"), limits=st.just(Limits(max_turns=50))),
    st.integers(0, 3),
    st.builds(NoticeGiven, st.sampled_from(["word", "news"]), st.sampled_from(["person", "job"])),
    st.builds(ContextAdded, st.just("more")),
    compacted(),
    st.builds(ContextRestored, st.just("me")),
)
"""A number is an answer with so many calls, each evaluated and answered: 0 ends a run."""


@dataclass
class Twins:
    """Two machines that are told the same, but only one of them of compactions."""

    one: Machine
    plain: Machine
    events: list[Event]

    def feed(self, event: Event) -> None:
        self.events.append(event)
        commands = self.one.feed(event)
        if not isinstance(event, (ContextCompacted, ContextRestored)):
            self.plain.feed(event)
        if any(isinstance(command, AskModel) for command in commands):
            assert_valid(self.one.history)

    def step(self, step: Event | int) -> None:
        if not isinstance(step, int):
            self.feed(step)
        elif self.one.is_active:
            number = len(self.one.call_ids)
            calls = tuple(ToolCall(f"c{number + n}", "look") for n in range(step))
            self.feed(ModelAnswered("said", calls))
            for call in calls:
                self.feed(CallEvaluated(call.id, "allow", effect="none"))
            for call in calls:
                self.feed(ToolAnswered(ToolResult(call.id, "look", True, f"result of {call.id}")))


def assert_valid(history: list[Message]) -> None:
    """What all model clients ask for: a person begins, every call is followed by exactly its results."""
    owed: list[str] = []
    assert isinstance(history[0], UserMessage)
    for message in history:
        if isinstance(message, ToolMessage):
            assert owed and owed.pop(0) == message.call_id
            continue
        assert not owed
        owed = [call.id for call in message.calls] if isinstance(message, AssistantMessage) else []
    assert not owed


def play_steps(steps: list[Event | int]) -> Twins:
    twins = Twins(Machine(), Machine(), [])
    for step in (RunStarted("the task", limits=Limits(max_turns=50)), *steps):
        twins.step(step)
    return twins


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_any_cut_leaves_a_valid_history_and_undoing_it_gives_every_byte_back(
    steps: list[Event | int],
) -> None:
    twins = play_steps(steps)
    one = twins.one
    assert one.compaction.full_history(one.history) == twins.plain.history
    if one.is_active:
        assert one.history[-1] == twins.plain.history[-1]
    for index in range(one.compaction.head_length, len(one.history)):
        whole = twins.plain.history[one.compaction.message_number(index) - 1]
        assert type(one.history[index]) is type(whole)
    before = one.history
    one.feed(ContextRestored())
    assert one.history == twins.plain.history
    assert one.history is not before


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_the_same_events_read_from_a_journal_give_the_same_messages(
    steps: list[Event | int],
) -> None:
    twins = play_steps(steps)
    again = Machine()
    again.rebuild(
        [
            event_from_json(kind, json.loads(json.dumps(body)))
            for kind, body in map(event_to_json, twins.events)
        ]
    )
    assert (again.history, again.usage) == (twins.one.history, twins.one.usage)


def three_rounds() -> Machine:
    """task, (call, result) three times: messages 1 to 7."""
    twins = play_steps([1, 1, 1])
    assert len(twins.one.history) == 7
    return twins.one


@pytest.mark.parametrize(
    "event",
    [
        ContextCompacted(),
        ContextCompacted(elided=(1,), stubs=("x",)),
        ContextCompacted(elided=(2,), stubs=("x",)),
        ContextCompacted(elided=(7,), stubs=("x",)),
        ContextCompacted(elided=(3, 5), stubs=("x",)),
        ContextCompacted(through=2, text="x"),
        ContextCompacted(through=7, text="x"),
        ContextCompacted(through=3, kept=(2,), text="x"),
        ContextCompacted(through=3, kept=(4,), text="x"),
        ContextCompacted(through=-1, text="x"),
    ],
    ids=lambda event: f"elided {event.elided} through {event.through} kept {event.kept}",
)
def test_what_would_tear_a_pair_or_touch_the_last_message_changes_nothing(
    event: ContextCompacted,
) -> None:
    machine = three_rounds()
    machine.history[-1] = ToolMessage("c2", "look", "the last one")
    before = list(machine.history)
    machine.feed(event)
    assert machine.history == before
    assert not machine.compaction.is_active


def test_a_summary_stands_behind_the_words_of_the_person_and_takes_the_place_of_an_earlier_one() -> (
    None
):
    machine = three_rounds()
    machine.feed(ContextCompacted(elided=(3, 5), stubs=("[3]", "[5]")))
    assert [m.text for m in machine.history] == [
        "the task",
        "said",
        "[3]",
        "said",
        "[5]",
        "said",
        "result of c2",
    ]
    machine.feed(
        ContextCompacted(made="summary", through=3, kept=(1,), text="[to 3]", usage=Usage(5, 5))
    )
    assert [m.text for m in machine.history] == [
        "the task",
        "[to 3]",
        "said",
        "[5]",
        "said",
        "result of c2",
    ]
    machine.feed(ContextCompacted(made="summary", through=5, text="[to 5]"))
    assert [m.text for m in machine.history] == ["[to 5]", "said", "result of c2"]
    assert machine.usage == Usage(5, 5)
    machine.feed(ContextCompacted(made="summary", through=3, text="[back to 3]"))
    assert [m.text for m in machine.history] == ["[to 5]", "said", "result of c2"]


def test_a_call_that_is_open_is_not_cut_off() -> None:
    machine = three_rounds()
    machine.feed(ModelAnswered("", (ToolCall("open", "look"),)))
    assert not can_leave_out(machine.history, len(machine.history))
    before = machine.history
    machine.feed(ContextCompacted(through=8, text="x"))
    assert machine.history is before
    machine.feed(ContextCompacted(through=7, text="[to 7]"))
    assert machine.history == [
        UserMessage("[to 7]"),
        AssistantMessage("", (ToolCall("open", "look"),)),
    ]
