"""Joins: how many calls of an answer must succeed, and what becomes of the others."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.call_states import RunPhase
from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.commands import (
    AskModel,
    Command,
    EvaluateCall,
    RequestApproval,
    RunCall,
    StopCall,
)
from ferrule.core.errors import ConfigError
from ferrule.core.events import (
    Access,
    CallEvaluated,
    CallStarted,
    Cancelled,
    Event,
    ModelAnswered,
    PersonAnswered,
    Recovered,
    RunStarted,
    ToolAnswered,
    event_from_json,
    event_to_json,
)
from ferrule.core.join_policy import build_cancelled_result, has_enough_successes, parse_join
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine
from ferrule.core.messages import ToolMessage

MAX_PARALLEL_CALLS = 50

WHY = "enough calls of this answer succeeded (1)"


def call(name: str) -> ToolCall:
    return ToolCall(name, "look", json.dumps({"of": name}))


def good(name: str) -> ToolAnswered:
    return ToolAnswered(ToolResult(name, "look", True, f"found {name}"))


def bad(name: str, error: ErrorType = ErrorType.IO_ERROR) -> ToolAnswered:
    return ToolAnswered(ToolResult(name, "look", False, None, error, "broken"))


def asked(join: int, *names: str, access: Access | None = None, ask: str = "") -> Machine:
    """A machine whose model has asked for these calls, all of them judged; `ask` must be asked
    about.
    """
    machine = Machine()
    machine.feed(RunStarted("go", join=join))
    machine.feed(ModelAnswered(calls=tuple(call(name) for name in names)))
    for name in names:
        verdict = "ask" if name == ask else "allow"
        machine.feed(
            CallEvaluated(name, verdict, effect="read", digest="d", access=access or Access())
        )
    return machine


def read_results(machine: Machine) -> list[tuple[str, bool]]:
    """What the model reads of the round, in its order."""
    return [(m.call_id, m.success) for m in machine.history if isinstance(m, ToolMessage)]


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ("all", 0),
        ("first_success", 1),
        (1, 1),
        (3, 3),
        ("3", 3),
        (MAX_PARALLEL_CALLS, MAX_PARALLEL_CALLS),
    ],
)
def test_a_join_is_all_the_first_success_or_a_number_of_them(given_: object, wanted: int) -> None:
    assert parse_join(given_) == wanted


@pytest.mark.parametrize(
    "wrong", ["first", "", 0, -1, MAX_PARALLEL_CALLS + 1, True, 1.0, None, "0", "99999", [1]]
)
def test_another_join_is_an_error_that_lists_what_there_is(wrong: object) -> None:
    with pytest.raises(
        ConfigError, match=r"(?s)join = .*`all`, `first_success`, or how many .* 1 to 50"
    ):
        parse_join(wrong)


@pytest.mark.proves("join.all")
def test_joining_all_gives_two_results_and_one_error_in_call_order() -> None:
    machine = asked(0, "a", "b", "c")
    assert machine.feed(good("c")) == []
    assert machine.feed(bad("b")) == []
    assert machine.feed(good("a")) == [AskModel(2)]
    assert read_results(machine) == [("a", True), ("b", False), ("c", True)]


@pytest.mark.proves("join.first-success")
def test_the_first_success_ends_the_rest_each_of_which_has_its_result_in_call_order() -> None:
    machine = asked(1, "a", "b", "c")
    assert machine.feed(bad("c")) == []
    assert machine.feed(good("b")) == [StopCall(call("a"), WHY)]
    assert machine.feed(bad("a", ErrorType.CANCELLED)) == [AskModel(2)]
    assert read_results(machine) == [("a", False), ("b", True), ("c", False)]


@pytest.mark.proves("join.first-success")
def test_where_nothing_succeeds_all_are_worked_to_their_end() -> None:
    machine = asked(1, "a", "b")
    assert machine.feed(bad("a")) == []
    assert machine.feed(bad("b")) == [AskModel(2)]


@pytest.mark.proves("join.first-success")
def test_a_call_that_succeeds_although_it_was_to_be_stopped_keeps_what_it_found() -> None:
    machine = asked(1, "a", "b", "c")
    machine.feed(good("a"))
    assert machine.feed(good("b")) == []
    assert machine.feed(bad("c", ErrorType.CANCELLED)) == [AskModel(2)]
    assert read_results(machine) == [("a", True), ("b", True), ("c", False)]


def test_a_number_of_successes_is_counted_and_failures_are_not() -> None:
    machine = asked(2, "a", "b", "c", "d")
    assert [machine.feed(event) for event in (bad("d"), good("b"))] == [[], []]
    assert machine.feed(good("c")) == [
        StopCall(call("a"), "enough calls of this answer succeeded (2)")
    ]


def test_calls_that_wait_for_their_turn_do_not_begin_any_more() -> None:
    machine = asked(1, "a", "b", "c", access=Access(writes=("x",)))
    assert machine.feed(good("a")) == [StopCall(call("b"), WHY), StopCall(call("c"), WHY)]
    machine.feed(ToolAnswered(build_cancelled_result(call("b"), WHY)))
    assert machine.feed(ToolAnswered(build_cancelled_result(call("c"), WHY))) == [AskModel(2)]
    assert [(r.error_type, r.error_message) for r in machine.results()[1:]] == [
        (ErrorType.CANCELLED, f"not run: {WHY}")
    ] * 2


def test_a_question_to_a_person_is_taken_back_and_their_late_yes_runs_nothing() -> None:
    machine = asked(1, "a", "b", ask="b")
    assert machine.feed(good("a")) == [StopCall(call("b"), WHY)]
    machine.feed(ToolAnswered(build_cancelled_result(call("b"), WHY)))
    assert machine.feed(PersonAnswered("b", "once", "d")) == []
    assert read_results(machine) == [("a", True), ("b", False)]


def test_the_next_round_is_joined_anew() -> None:
    machine = asked(1, "a", "b")
    machine.feed(good("a"))
    machine.feed(bad("b", ErrorType.CANCELLED))
    machine.feed(ModelAnswered(calls=(call("c"), call("d"))))
    for name in ("c", "d"):
        machine.feed(CallEvaluated(name, "allow", effect="read", access=Access()))
    assert machine.feed(bad("c")) == []
    assert machine.feed(good("d")) == [AskModel(3)]


def test_at_most_fifty_calls_run_side_by_side_whatever_the_limits_say() -> None:
    machine = Machine()
    machine.feed(RunStarted("go", limits=Limits(max_calls_per_turn=1000)))
    commands = machine.feed(ModelAnswered(calls=tuple(call(f"c{n}") for n in range(52))))
    assert len(commands) == 50
    assert [r.error_type for r in machine.results()] == [ErrorType.LIMIT] * 2


def test_after_a_crash_what_was_not_needed_is_not_begun_again() -> None:
    events: list[Event] = [
        RunStarted("go", join=1),
        ModelAnswered(calls=(call("a"), call("b"), call("c"))),
        *(CallEvaluated(name, "allow", effect="read", access=Access()) for name in "ab"),
        CallEvaluated("c", "allow", effect="write", access=Access()),
        CallStarted("c"),
        good("a"),
    ]
    machine = Machine()
    machine.rebuild(events)
    commands = machine.feed(Recovered())
    assert [type(one) for one in commands] == [StopCall]
    machine.feed(ToolAnswered(build_cancelled_result(call("b"), "x")))
    assert "outcome unknown" in (machine.results()[2].error_message or "")
    assert machine.phase is RunPhase.AWAITING_MODEL


@given(st.integers(0, 5), st.lists(st.sampled_from([None, True, False]), max_size=9))
def test_enough_is_so_many_successes_and_never_where_all_are_wanted(
    wanted: int, ends: list[bool | None]
) -> None:
    results = [None if end is None else ToolResult("x", "t", end) for end in ends]
    assert has_enough_successes(wanted, results) == (wanted > 0 and ends.count(True) >= wanted)


ACCESS = st.sampled_from(
    [Access(), Access(reads=("a",)), Access(writes=("a",)), Access(writes=("",))]
)


class Faithful:
    """A driver that carries commands out in a drawn order, and ends calls when it is told to."""

    def __init__(self, data: st.DataObject, join: int) -> None:
        self.data, self.machine = data, Machine()
        self.journal: list[Event] = []
        self.running: set[str] = set()
        self.todo: list[Command] = []
        self.feed(RunStarted("go", limits=Limits(max_turns=2), join=join))

    def feed(self, event: Event) -> None:
        self.journal.append(event)
        self.todo += self.machine.feed(event)

    def step(self) -> None:
        draw = self.data.draw
        going = [None] * bool(self.todo) + sorted(self.running)
        chosen = draw(st.sampled_from(going))
        if chosen is not None:
            self.running.discard(chosen)
            self.feed(good(chosen) if draw(st.booleans()) else bad(chosen))
            return
        match self.todo.pop(draw(st.integers(0, len(self.todo) - 1))):
            case AskModel():
                count = draw(st.integers(1, 5))
                self.feed(ModelAnswered(calls=tuple(ToolCall("", "look") for _ in range(count))))
            case EvaluateCall(call=made):
                verdict = draw(st.sampled_from(["allow", "ask", "refuse"]))
                self.feed(
                    CallEvaluated(made.id, verdict, effect="read", digest="d", access=draw(ACCESS))
                )
            case RunCall(call=made) | RequestApproval(call=made) as command:
                slot = self.machine.find_slot(made.id)
                assert slot is not None
                if slot.result is None and isinstance(command, RunCall):
                    self.running.add(made.id)
                elif slot.result is None:
                    choice = draw(st.sampled_from(["once", "deny"]))
                    self.feed(PersonAnswered(made.id, choice, "d"))
            case StopCall(call=made, reason=why):
                self.running.discard(made.id)
                self.feed(ToolAnswered(build_cancelled_result(made, why)))
            case _:
                pass


@pytest.mark.proves("machine.one-result")
@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 3))
def test_in_any_order_of_things_every_call_has_one_result_and_the_run_goes_on(
    data: st.DataObject, join: int
) -> None:
    driver = Faithful(data, join)
    crash = data.draw(st.integers(0, 40))
    for number in range(200):
        if not (driver.todo or driver.running):
            break
        if number == crash:
            # The process dies: what ran is gone, another takes over from the journal.
            machine = Machine()
            machine.rebuild(
                [event_from_json(kind, body) for kind, body in map(event_to_json, driver.journal)]
            )
            driver.machine, driver.todo, driver.running = machine, [], set()
            driver.feed(Recovered())
            continue
        driver.step()
    assert driver.machine.phase is RunPhase.FINISHED
    made = [c.id for e in driver.machine.history for c in getattr(e, "calls", ())]
    assert [call_id for call_id, _ in read_results(driver.machine)] == made
    driver.machine.feed(Cancelled("the end"))
    assert not driver.machine.open_calls()
