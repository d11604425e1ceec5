"""The timeline of a session: whatever happens in whatever order, a reader who comes back misses
nothing.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.console.timeline import Card, Timeline
from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.events import (
    CallConfined,
    CallEvaluated,
    CallStarted,
    Cancelled,
    DirectCall,
    Event,
    JournalRecord,
    LimitHit,
    ModelAnswered,
    ModelFailed,
    Noticed,
    PersonAnswered,
    Recovered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
    Unknown,
)
from ferrule.core.identity import Identity
from ferrule.engine.event_bus.events import Place, from_record, seal
from ferrule.permissions.redaction import Redactor

REDACTOR = Redactor()
ids = st.sampled_from(["c1", "c2", "c3"])


def result(call: str, good: bool) -> ToolResult:
    """What a call came to."""
    if good:
        return ToolResult(call, "note", True, "fine")
    return ToolResult(call, "note", False, None, ErrorType.CANCELLED, "stopped")


happenings: st.SearchStrategy[Event] = st.one_of(
    st.builds(RunStarted, st.text(max_size=5)),
    st.builds(
        lambda names: ModelAnswered("words", tuple(ToolCall(one, "note") for one in names)),
        st.lists(ids, max_size=2),
    ),
    st.builds(lambda one: DirectCall(ToolCall(one, "note")), ids),
    st.builds(CallEvaluated, ids, st.sampled_from(["allow", "ask"])),
    st.builds(lambda one: CallEvaluated(one, "refuse", result=result(one, False)), ids),
    st.builds(PersonAnswered, ids, st.sampled_from(["once", "session", "deny"])),
    st.builds(CallStarted, ids),
    st.builds(CallConfined, ids, st.just("namespaces")),
    st.builds(lambda one, good: ToolAnswered(result(one, good)), ids, st.booleans()),
    st.builds(Noticed, st.just("topic"), st.text(max_size=5)),
    st.just(Recovered()),
    st.just(Cancelled("stop")),
    st.just(Unknown("later.kind", {"x": 1})),
    st.builds(RunFinished, st.sampled_from(["done", "failed", "cancelled"])),
)


def fed(timeline: Timeline, events: list[Event], first: int = 1) -> Timeline:
    """The timeline after these events, of which the first has this number."""
    for number, event in enumerate(events, first):
        record = JournalRecord("s", number, number * 1000, "r", event, "", "local", "owner")
        timeline.feed(from_record(record, REDACTOR))
    return timeline


def shown(entries: list[Any]) -> dict[int, Any]:
    """What a page shows of entries, by their number, as it is now."""
    return {entry.number: copy.deepcopy(entry) for entry in entries}


@given(st.lists(happenings, max_size=25), st.integers(0, 25))
def test_what_changed_behind_a_place_is_all_that_a_page_misses(
    events: list[Event], cut: int
) -> None:
    events = [SessionOpened(model="m"), *events]
    cut = min(cut, len(events))
    timeline = fed(Timeline(), events[:cut])
    page, place = shown(timeline.entries), timeline.place
    fed(timeline, events[cut:], cut + 1)
    page |= shown(timeline.since(place))
    assert page == shown(timeline.entries)
    assert [entry.number for entry in timeline.entries] == [*range(len(timeline.entries))]


def test_a_note_says_that_a_run_was_resumed_and_not_that_a_session_was_opened_again() -> None:
    def topics(*more: Event) -> list[str]:
        timeline = fed(Timeline(), [SessionOpened(model="m"), RunStarted("go"), *more])
        return [entry.topic for entry in timeline.entries if entry.kind == "note"]

    assert topics(Recovered("it was killed")) == ["resumed"]
    assert topics(RunFinished("done"), Recovered("it was closed")) == []


def test_an_entry_has_the_time_of_its_event_in_milliseconds() -> None:
    timeline = fed(Timeline(), [SessionOpened(model="m"), RunStarted("go"), Noticed("t", "x")])
    assert [entry.time for entry in timeline.entries] == [2000, 3000]


@given(st.lists(happenings, max_size=25), st.integers(0, 25))
def test_an_event_that_comes_twice_changes_nothing(events: list[Event], again: int) -> None:
    events = [SessionOpened(model="m"), *events]
    once = shown(fed(Timeline(), events).entries)
    timeline = fed(Timeline(), events)
    fed(timeline, events[again:], again + 1)
    assert shown(timeline.entries) == once


def test_a_new_run_shows_nothing_of_an_answer_that_broke_off_without_an_end() -> None:
    timeline = fed(Timeline(), [SessionOpened(model="m"), RunStarted("go")])
    who = Identity("local", "owner", "s", "r")
    body = '{"text": "Half an ans"}'
    timeline.feed(seal("piece.text", body, identity=who, time=2.5, place=Place(2, 1), cursor="2.1"))
    assert timeline.partial.text.text == "Half an ans"
    fed(timeline, [RunStarted("again")], 3)
    assert timeline.partial.text.text == ""


@pytest.mark.parametrize("end", [ModelAnswered("Half an answer"), RunFinished("cancelled")])
def test_a_page_drops_the_pieces_of_an_answer_that_is_an_entry_now(end: Event) -> None:
    timeline = fed(Timeline(), [SessionOpened(model="m"), RunStarted("go")])
    who = Identity("local", "owner", "s", "r")
    last = Place(2, 1)
    timeline.feed(
        seal("piece.text", '{"text": "Half"}', identity=who, time=2.5, place=last, cursor="2.1")
    )
    fed(timeline, [end], 3)
    assert timeline.partial.place > last


@given(st.lists(happenings, max_size=25))
def test_after_the_end_of_a_run_no_call_of_it_looks_as_if_it_went_on(events: list[Event]) -> None:
    timeline = fed(Timeline(), [SessionOpened(model="m"), *events, RunFinished("cancelled")])
    cards = [entry for entry in timeline.entries if isinstance(entry, Card) and not entry.direct]
    assert not {card.state for card in cards} & {"running", "asks", "evaluating"}


def test_a_card_says_what_became_of_its_call() -> None:
    opened = [
        SessionOpened(model="m"),
        RunStarted("go"),
        ModelAnswered(calls=(ToolCall("c1", "note"),)),
    ]

    def state(*more: Event) -> tuple[str, str]:
        card = fed(Timeline(), [*opened, *more]).cards["c1"]
        return card.state, card.decided

    ask, yes = CallEvaluated("c1", "ask"), PersonAnswered("c1", "once", by="ada")
    assert state() == ("evaluating", "")
    assert state(ask) == ("asks", "asks")
    assert state(ask, yes) == ("running", "allowed once")
    assert state(ask, yes, ask) == ("asks", "asks")
    assert state(ask, yes, CallStarted("c1"), ToolAnswered(result("c1", True))) == (
        "done",
        "allowed once",
    )
    assert state(ask, yes, CallStarted("c1"), ToolAnswered(result("c1", False))) == (
        "cancelled",
        "allowed once",
    )
    assert state(ask, yes, CallStarted("c1"), RunFinished("failed")) == ("unknown", "allowed once")
    assert state(ask, PersonAnswered("c1", "deny", by="ada")) == ("refused", "denied")
    assert state(CallEvaluated("c1", "refuse", result=result("c1", False))) == (
        "cancelled",
        "refused",
    )


@pytest.mark.parametrize(
    "event",
    [
        Cancelled("stopped", text="Half of it"),
        ModelFailed("connection", "it broke", text="Half of it"),
        LimitHit("max_seconds", 3, text="Half of it"),
    ],
)
def test_an_answer_that_was_cut_stays_on_the_page(event: Event) -> None:
    timeline = fed(Timeline(), [SessionOpened(model="m"), RunStarted("go"), event])
    assert [entry.text for entry in timeline.entries if entry.kind == "message"] == [
        "go",
        "Half of it\n\n[cut here]",
    ]


@pytest.mark.proves("records.exit-status")
def test_a_run_whose_calls_were_denied_and_a_command_that_failed_are_not_green() -> None:
    refused = ToolResult.refusal(ToolCall("c1", "note"), "rule", "no")
    failed = ToolResult("c2", "run", True, "oh no\n[exit status 1]")
    timeline = fed(
        Timeline(),
        [
            SessionOpened(model="m"),
            RunStarted("go"),
            ModelAnswered("", (ToolCall("c1", "note"), ToolCall("c2", "run"))),
            CallEvaluated("c1", "refuse", result=refused),
            CallEvaluated("c2", "allow"),
            ToolAnswered(failed),
            RunFinished("done", "fine"),
        ],
    )
    assert [entry.state for entry in timeline.entries if isinstance(entry, Card)] == [
        "refused",
        "failed",
    ]
    [end] = [entry for entry in timeline.entries if entry.kind == "end"]
    assert end.denied == 1
