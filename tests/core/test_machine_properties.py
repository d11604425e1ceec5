"""Any order of events, any cancel point: one result per call, a history every model client accepts, the
same state again.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.call_states import RunPhase
from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.commands import (
    AskModel,
    Command,
    EvaluateCall,
    FinishRun,
    RequestApproval,
    RunCall,
)
from ferrule.core.events import (
    Access,
    CallEvaluated,
    CallStarted,
    Cancelled,
    DirectCall,
    Event,
    LimitHit,
    ModelAnswered,
    ModelFailed,
    NoticeGiven,
    OutputChecked,
    PersonAnswered,
    Recovered,
    RunFinished,
    RunStarted,
    ToolAnswered,
    event_from_json,
    event_to_json,
)
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.core.output import OutputRequest

IDS = st.sampled_from(["", "a", "b", "c", "call_1_0"])
CALLS = st.builds(
    ToolCall, IDS, st.sampled_from(["look", "write"]), st.sampled_from(["{}", '{"x":1}', "{broken"])
)
ACCESS = st.sampled_from(
    [Access(), Access(reads=("a",)), Access(writes=("a/b",)), Access(writes=("",))]
)
EVALUATED = st.builds(
    CallEvaluated,
    IDS,
    st.sampled_from(["allow", "ask", "refuse"]),
    effect=st.sampled_from(["none", "read", "write"]),
    digest=st.sampled_from(["d", "e"]),
    access=ACCESS,
)
ANY_EVENT: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        RunStarted,
        st.just("hello"),
        output_request=st.sampled_from([None, OutputRequest("{}", 0), OutputRequest("{}", 1)]),
    ),
    st.builds(
        ModelAnswered,
        st.sampled_from(["", "text"]),
        st.lists(CALLS, max_size=4).map(tuple),
        stop=st.sampled_from(["end", "length", "filter"]),
        output=st.sampled_from(["", "{}"]),
    ),
    st.builds(OutputChecked, st.just("1"), st.sampled_from([(), ("no",)]), st.booleans()),
    st.builds(ModelFailed, st.just("down"), st.just("no server")),
    EVALUATED,
    st.builds(
        PersonAnswered,
        IDS,
        st.sampled_from(["once", "session", "deny"]),
        st.sampled_from(["d", "e"]),
    ),
    st.builds(CallStarted, IDS),
    st.builds(
        ToolAnswered, st.builds(ToolResult, IDS, st.just("look"), st.booleans(), st.just("data"))
    ),
    st.builds(Cancelled, st.just("stop"), st.one_of(st.just(""), IDS)),
    st.builds(LimitHit, st.just("max_seconds"), st.just(1.0)),
    st.builds(DirectCall, CALLS),
    st.builds(
        NoticeGiven, st.sampled_from(["tell", "</notice>"]), st.sampled_from(["person", "job"])
    ),
    st.builds(Recovered),
    st.builds(RunFinished, st.just("cancelled")),
)


def assert_valid(history: list[Message], *, working: bool) -> None:
    """What every provider asks for: calls answered at once, in order, ids unique, no orphan, no
    empty answer.
    """
    seen: set[str] = set()
    position = 0
    while position < len(history):
        message = history[position]
        position += 1
        assert not isinstance(message, ToolMessage), "a result without its call"
        if not isinstance(message, AssistantMessage):
            continue
        assert message.text or message.calls
        ids = [call.id for call in message.calls]
        assert all(ids) and len(set(ids)) == len(ids) and not seen & set(ids)
        seen.update(ids)
        if working and position == len(history):
            return
        answers = history[position : position + len(ids)]
        assert [m.call_id for m in answers if isinstance(m, ToolMessage)] == ids
        position += len(ids)


def state_of(machine: Machine) -> object:
    slots = [(s.call, s.state, s.result, s.evaluation, s.approved) for s in machine.open_calls()]
    return machine.phase, machine.turn, machine.usage, machine.history, slots, machine.results()


@pytest.mark.proves("machine.any-order", "machine.one-result", "machine.valid-history")
@settings(max_examples=600, deadline=None)
@given(st.lists(ANY_EVENT, max_size=40), st.integers(1, 3), st.sampled_from(["error", "answer"]))
def test_any_events_in_any_order_leave_a_valid_history(
    events: list[Event], rounds: int, on_limit: str
) -> None:
    machine = Machine()
    limits = Limits(max_turns=rounds, max_calls_per_turn=2, on_limit=on_limit)
    for event in events:
        event = replace(event, limits=limits) if isinstance(event, RunStarted) else event
        commands = machine.feed(event)
        assert_valid(machine.history, working=machine.phase is RunPhase.RUNNING_CALLS)
        if any(isinstance(c, (AskModel, FinishRun)) for c in commands):
            assert_valid(machine.history, working=False)
    machine.feed(Cancelled("the end"))
    machine.feed(RunStarted("one more"))
    assert_valid(machine.history, working=False)
    assert machine.phase is RunPhase.AWAITING_MODEL


@settings(max_examples=300, deadline=None)
@given(st.lists(ANY_EVENT, max_size=40))
def test_feeding_the_journal_again_gives_the_same_state(events: list[Event]) -> None:
    first, second = Machine(), Machine()
    for event in events:
        first.feed(event)
    second.rebuild(
        [
            event_from_json(kind, json.loads(json.dumps(body)))
            for kind, body in map(event_to_json, events)
        ]
    )
    assert state_of(first) == state_of(second)


@pytest.mark.proves("machine.cancel", "machine.one-result")
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_run_cancelled_or_killed_at_any_point_answers_every_call_once(
    data: st.DataObject,
) -> None:
    """A faithful driver that carries commands out in a drawn order, and is stopped at a drawn
    step.
    """
    machine = Machine()
    todo: list[Command] = machine.feed(RunStarted("go", limits=Limits(max_turns=3)))
    executed: list[str] = []
    stop_at = data.draw(st.integers(0, 25))
    for step in range(60):
        if not todo:
            break
        if step == stop_at:
            event = data.draw(
                st.sampled_from([Cancelled("stop"), Recovered(), LimitHit("max_tokens", 1)])
            )
            todo = (
                machine.feed(event)
                if isinstance(event, Recovered)
                else [*todo, *machine.feed(event)]
            )
            continue
        command = todo.pop(data.draw(st.integers(0, len(todo) - 1)))
        todo += _carry_out(machine, command, executed, data)
    machine.feed(Cancelled("the end"))
    assert_valid(machine.history, working=False)
    asked = [c.id for m in machine.history if isinstance(m, AssistantMessage) for c in m.calls]
    told = [m.call_id for m in machine.history if isinstance(m, ToolMessage)]
    assert asked == told
    assert not machine.open_calls()


def _carry_out(
    machine: Machine, command: Command, executed: list[str], data: st.DataObject
) -> list[Command]:
    if isinstance(command, AskModel):
        return machine.feed(ModelAnswered("", data.draw(st.lists(CALLS, max_size=3).map(tuple))))
    if isinstance(command, EvaluateCall):
        drawn = data.draw(EVALUATED)
        verdict, access, effect = drawn.verdict, drawn.access, drawn.effect
        return machine.feed(
            CallEvaluated(command.call.id, verdict, digest="d", access=access, effect=effect)
        )
    if isinstance(command, RequestApproval):
        choice = data.draw(st.sampled_from(["once", "deny"]))
        return machine.feed(PersonAnswered(command.call.id, choice, "d"))
    if isinstance(command, RunCall):
        slot = machine.find_slot(command.call.id)
        if slot is None or slot.result is not None:
            return []
        if command.evaluation.is_announced:
            machine.feed(CallStarted(command.call.id))
        executed.append(command.call.id)
        error = data.draw(st.sampled_from([ErrorType.NONE, ErrorType.TIMEOUT]))
        result = ToolResult(
            command.call.id, command.call.tool, error is ErrorType.NONE, "data", error, "late"
        )
        return machine.feed(ToolAnswered(result))
    return []


@pytest.mark.proves("notices.reach-the-model-once")
@settings(max_examples=400, deadline=None)
@given(st.lists(ANY_EVENT, max_size=40), st.integers(1, 3))
def test_every_notice_reaches_the_model_once_whatever_happens_around_it(
    events: list[Event], rounds: int
) -> None:
    machine, given_ = Machine(), list[str]()
    for number, event in enumerate(events):
        event = (
            replace(event, limits=Limits(max_turns=rounds))
            if isinstance(event, RunStarted)
            else event
        )
        if isinstance(event, NoticeGiven):
            event = replace(event, text=f"<{number}>{event.text}")
            given_.append(f"<{number}>")
        commands = machine.feed(event)
        read = "".join(message.text for message in machine.history)
        assert all(read.count(mark) <= 1 for mark in given_)
        if any(isinstance(command, AskModel) for command in commands):
            # What was given by now is read with this question: nothing waits longer than a round.
            assert isinstance(event, Recovered) or all(read.count(mark) == 1 for mark in given_)
    machine.feed(Cancelled("the end"))
    machine.feed(RunStarted("one more"))
    read = "".join(message.text for message in machine.history)
    assert [mark for mark in given_ if read.count(mark) != 1] == []
    assert_valid(machine.history, working=False)


@pytest.mark.proves("machine.never-twice")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(["none", "read", "write", "execute"]), min_size=1, max_size=5),
    st.integers(0, 5),
)
def test_after_a_crash_no_finished_and_no_unknown_effect_runs_again(
    effects: list[str], finished: int
) -> None:
    machine = Machine()
    machine.feed(RunStarted("go"))
    calls = tuple(ToolCall(f"c{i}", "tool", f'{{"i":{i}}}') for i in range(len(effects)))
    machine.feed(ModelAnswered(calls=calls))
    for call, effect in zip(calls, effects, strict=True):
        machine.feed(CallEvaluated(call.id, "allow", effect=effect, access=Access()))
    for call, effect in zip(calls, effects, strict=True):
        if effect not in ("none", "read"):
            machine.feed(CallStarted(call.id))
    for call in calls[:finished]:
        machine.feed(ToolAnswered(ToolResult(call.id, "tool", True, f"did {call.id}")))
    again = {c.call.id for c in machine.feed(Recovered()) if isinstance(c, (EvaluateCall, RunCall))}
    expected = {
        c.id for c, e in list(zip(calls, effects, strict=True))[finished:] if e in ("none", "read")
    }
    assert again == expected


def test_history_survives_a_session_of_many_runs() -> None:
    machine = Machine()
    for n in range(50):
        machine.feed(RunStarted(f"question {n}"))
        machine.feed(ModelAnswered(f"answer {n}"))
    assert [type(m) for m in machine.history] == [UserMessage, AssistantMessage] * 50
