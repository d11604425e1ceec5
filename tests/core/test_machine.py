"""The machine's promises, one by one."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.core.call_states import CallState, RunPhase
from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.commands import AskModel, EvaluateCall, FinishRun, RequestApproval, RunCall
from ferrule.core.events import (
    Access,
    CallEvaluated,
    CallStarted,
    Cancelled,
    DirectCall,
    LimitHit,
    ModelAnswered,
    ModelFailed,
    PersonAnswered,
    Recovered,
    RunStarted,
    ToolAnswered,
    Usage,
)
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine
from ferrule.core.messages import AssistantMessage, ToolMessage, UserMessage

READ = Access(reads=("a",))


def call(name: str, tool: str = "look", arguments: str = "{}") -> ToolCall:
    return ToolCall(name, tool, arguments)


def allow(call_id: str, access: Access = READ, **fields: object) -> CallEvaluated:
    return CallEvaluated(call_id, "allow", access=access, digest="d", effect="read", **fields)  # type: ignore[arg-type]


def answer(of: ToolCall, data: str = "fine") -> ToolAnswered:
    return ToolAnswered(ToolResult(of.id, of.tool, True, data))


def asked(*calls: ToolCall, limits: Limits | None = None) -> Machine:
    machine = Machine()
    machine.feed(RunStarted("hello", limits=limits or Limits()))
    machine.feed(ModelAnswered(calls=calls, stop="calls"))
    return machine


def test_a_question_a_call_and_an_answer_make_a_finished_run() -> None:
    machine = Machine()
    assert machine.feed(RunStarted("hello")) == [AskModel(1)]
    one = call("c1")
    assert machine.feed(ModelAnswered(calls=(one,), usage=Usage(5, 2))) == [EvaluateCall(one)]
    assert machine.feed(allow("c1")) == [RunCall(one, allow("c1"))]
    machine.feed(CallStarted("c1"))
    assert machine.feed(answer(one)) == [AskModel(2)]
    done = machine.feed(ModelAnswered("bye", usage=Usage(9, 1)))
    assert done == [FinishRun("done", "bye", usage=Usage(14, 3))]
    assert machine.history == [
        UserMessage("hello"),
        AssistantMessage("", (one,)),
        ToolMessage("c1", "look", "fine"),
        AssistantMessage("bye"),
    ]


def test_a_call_walks_the_states_of_the_requirement() -> None:
    machine = asked(call("c1"))
    states = [machine.find_slot("c1").state]  # type: ignore[union-attr]
    machine.feed(CallEvaluated("c1", "ask", digest="d"))
    states.append(machine.find_slot("c1").state)  # type: ignore[union-attr]
    machine.feed(PersonAnswered("c1", "once", "d"))
    states.append(machine.find_slot("c1").state)  # type: ignore[union-attr]
    machine.feed(answer(call("c1")))
    states.append(machine.find_slot("c1").state)  # type: ignore[union-attr]
    assert states == [
        CallState.EVALUATING,
        CallState.AWAITING_APPROVAL,
        CallState.EXECUTING,
        CallState.COMPLETED,
    ]


@pytest.mark.proves("machine.one-result")
def test_only_the_first_result_of_a_call_counts() -> None:
    machine = asked(call("c1"))
    machine.feed(allow("c1"))
    machine.feed(answer(call("c1"), "first"))
    assert machine.feed(answer(call("c1"), "second")) == []
    assert [m.text for m in machine.history if isinstance(m, ToolMessage)] == ["first"]


@pytest.mark.proves("machine.evaluate-before-run")
def test_nothing_runs_before_every_call_of_the_round_is_evaluated() -> None:
    machine = asked(call("c1"), call("c2"))
    assert machine.feed(allow("c1")) == []
    assert [type(c) for c in machine.feed(allow("c2"))] == [RunCall, RunCall]


@pytest.mark.proves("machine.reads-together-writes-in-order")
def test_reads_run_together_and_writes_wait_for_what_they_conflict_with() -> None:
    machine = asked(call("r1"), call("r2"), call("w"), call("r3"), call("other"))
    machine.feed(allow("r1", Access(reads=("a",))))
    machine.feed(allow("r2", Access(reads=("a/b",))))
    machine.feed(allow("w", Access(writes=("a/b",))))
    machine.feed(allow("r3", Access(reads=("a",))))
    first = machine.feed(allow("other", Access(reads=("ab",))))
    assert [c.call.id for c in first if isinstance(c, RunCall)] == ["r1", "r2", "other"]
    assert machine.feed(answer(call("r1"))) == []
    second = machine.feed(answer(call("r2")))
    assert [c.call.id for c in second if isinstance(c, RunCall)] == ["w"]
    third = machine.feed(answer(call("w")))
    assert [c.call.id for c in third if isinstance(c, RunCall)] == ["r3"]


def test_results_stand_in_the_models_order_whatever_finished_first() -> None:
    machine = asked(call("c1"), call("c2"))
    machine.feed(allow("c1"))
    machine.feed(allow("c2"))
    machine.feed(answer(call("c2"), "two"))
    machine.feed(answer(call("c1"), "one"))
    assert [m.text for m in machine.history if isinstance(m, ToolMessage)] == ["one", "two"]


@pytest.mark.proves("machine.one-question")
def test_a_person_is_asked_one_question_at_a_time() -> None:
    machine = asked(call("c1"), call("c2"))
    ask = {name: CallEvaluated(name, "ask", digest=name, access=Access()) for name in ("c1", "c2")}
    machine.feed(ask["c1"])
    assert machine.feed(ask["c2"]) == [RequestApproval(call("c1"), ask["c1"])]
    then = machine.feed(PersonAnswered("c1", "once", "c1"))
    assert then == [RunCall(call("c1"), ask["c1"]), RequestApproval(call("c2"), ask["c2"])]


@pytest.mark.proves("machine.approval-bound")
def test_an_approval_for_other_arguments_is_a_denial() -> None:
    machine = asked(call("c1"))
    machine.feed(CallEvaluated("c1", "ask", digest="these"))
    assert machine.feed(PersonAnswered("c1", "once", "others")) == [AskModel(2)]
    result = machine.find_slot("c1").result  # type: ignore[union-attr]
    assert result is not None and result.error_type is ErrorType.PERMISSION_DENIED
    assert result.error_message == "not run: approved for other arguments"


@pytest.mark.proves("machine.denied-is-answered")
@pytest.mark.parametrize("choice", ["Deny", "no", "", None])
def test_only_a_known_yes_approves_a_call(choice: Any) -> None:
    machine = asked(call("c1"))
    machine.feed(CallEvaluated("c1", "ask", digest="d", access=Access()))
    assert machine.feed(PersonAnswered("c1", choice, "d")) == [AskModel(2)]
    texts = [m.success for m in machine.history if isinstance(m, ToolMessage)]
    assert texts == [False]


@pytest.mark.proves("machine.denied-is-answered")
def test_a_denied_call_is_answered_and_the_next_one_goes_on() -> None:
    machine = asked(call("c1"), call("c2"))
    machine.feed(CallEvaluated("c1", "ask", digest="d", access=Access()))
    machine.feed(allow("c2"))
    machine.feed(answer(call("c2")))
    assert machine.feed(PersonAnswered("c1", "deny", "d")) == [AskModel(2)]
    texts = [m.success for m in machine.history if isinstance(m, ToolMessage)]
    assert texts == [False, True]


@pytest.mark.proves("limits.turns")
@pytest.mark.parametrize("turns", [10, 200])
def test_a_model_that_never_stops_is_stopped_at_its_turns_with_a_typed_end(
    turns: int,
) -> None:
    machine = Machine()
    commands = machine.feed(RunStarted("go", limits=Limits().fill_turns(turns)))
    executed = 0
    while not isinstance(commands[0], FinishRun):
        one = call(f"c{executed}", arguments=f'{{"n":{executed}}}')
        machine.feed(ModelAnswered(calls=(one,)))
        machine.feed(allow(one.id))
        commands = machine.feed(answer(one))
        executed += 1
    assert executed == turns
    assert (commands[0].stop, commands[0].code) == ("limit", "limit_max_turns")


@pytest.mark.proves("limits.calls-per-turn")
def test_the_sixteenth_call_of_a_round_gets_a_limit_result_and_fifteen_run() -> None:
    calls = tuple(call(f"c{i}") for i in range(16))
    machine = asked(*calls)
    for one in calls[:15]:
        commands = machine.feed(allow(one.id))
    assert len(commands) == 15
    last = machine.find_slot("c15").result  # type: ignore[union-attr]
    assert last is not None and last.error_type is ErrorType.LIMIT


@pytest.mark.proves("limits.last-answer")
def test_on_limit_answer_asks_once_more_without_tools() -> None:
    machine = asked(call("c1"), limits=Limits(max_turns=1, on_limit="answer"))
    machine.feed(allow("c1"))
    assert machine.feed(answer(call("c1"))) == [AskModel(2, tools=False)]
    finish = machine.feed(ModelAnswered("so far", calls=(call("c9"),)))
    assert finish == [FinishRun("limit", "so far", "limit_max_turns", "1 turns")]


def test_identical_calls_are_warned_then_redirected_then_refused() -> None:
    machine = Machine()
    machine.feed(RunStarted("go"))
    seen: list[str] = []
    for n in range(4):
        one = call(f"c{n}", arguments='{"b":1,"a":2}' if n % 2 else '{"a":2,"b":1}')
        evaluate = machine.feed(ModelAnswered(calls=(one,)))
        if evaluate and isinstance(evaluate[0], EvaluateCall):
            machine.feed(allow(one.id))
            machine.feed(answer(one, "same"))
        tool_message = [m for m in machine.history if isinstance(m, ToolMessage)][-1]
        seen.append(tool_message.text)
    assert seen[0] == "same"
    assert seen[1].startswith("same\n[note:")
    assert "gave this same answer 3 times" in seen[2]
    assert "was not run" in seen[3]


def test_a_tool_that_polls_may_repeat_itself() -> None:
    machine = Machine()
    machine.feed(RunStarted("go"))
    for n in range(6):
        one = call(f"c{n}")
        machine.feed(ModelAnswered(calls=(one,)))
        machine.feed(allow(one.id, polls=True))
        machine.feed(answer(one, "waiting"))
    assert {m.text for m in machine.history if isinstance(m, ToolMessage)} == {"waiting"}


@pytest.mark.proves("machine.cancel")
def test_cancelling_answers_every_open_call_and_says_what_is_known() -> None:
    machine = asked(call("ran"), call("wrote"), call("waited"))
    machine.feed(allow("ran", Access()))
    machine.feed(CallEvaluated("wrote", "allow", effect="write", access=Access()))
    machine.feed(CallEvaluated("waited", "ask", access=Access()))
    machine.feed(CallStarted("ran"))
    machine.feed(CallStarted("wrote"))
    finish = machine.feed(Cancelled("ctrl-c"))
    assert [type(c) for c in finish] == [FinishRun]
    said = [m.text for m in machine.history if isinstance(m, ToolMessage)]
    assert "stopped" in said[0] and "outcome unknown" in said[1] and "not run" in said[2]
    assert isinstance(machine.history[-1], AssistantMessage)


def test_recovery_reruns_reads_reports_writes_as_unknown_and_keeps_approvals() -> None:
    machine = asked(call("r"), call("w"), call("ok"), call("done"))
    machine.feed(allow("r", Access()))
    machine.feed(CallEvaluated("w", "allow", effect="write", access=Access()))
    machine.feed(CallEvaluated("ok", "ask", digest="d", access=Access(), effect="write"))
    machine.feed(allow("done", Access()))
    for name in ("r", "w", "done"):
        machine.feed(CallStarted(name))
    machine.feed(PersonAnswered("ok", "once", "d"))
    machine.feed(answer(call("done"), "kept"))
    commands = machine.feed(Recovered("the process ended"))
    assert [type(c) for c in commands] == [EvaluateCall, RunCall]
    unknown = machine.find_slot("w").result  # type: ignore[union-attr]
    assert unknown is not None and "outcome unknown" in (unknown.error_message or "")
    assert machine.find_slot("done").result.data == "kept"  # type: ignore[union-attr]


def test_missing_and_repeated_ids_are_made_unique_within_the_session() -> None:
    machine = asked(call(""), call("x"), call("x", "other"))
    message = machine.history[-1]
    assert isinstance(message, AssistantMessage)
    assert [c.id for c in message.calls] == ["call_1_0", "x", "x_2"]


def test_a_model_that_failed_leaves_a_history_that_can_go_on() -> None:
    machine = Machine()
    machine.feed(RunStarted("go"))
    assert machine.feed(ModelFailed("unreachable", "no server"))[0] == FinishRun(
        "failed", "", "unreachable", "no server"
    )
    assert machine.feed(RunStarted("again")) == [AskModel(1)]
    assert [type(m) for m in machine.history] == [UserMessage, AssistantMessage, UserMessage]


def test_a_direct_call_goes_the_same_way_and_leaves_no_trace_in_the_history() -> None:
    machine = Machine()
    one = call("p1", "read_file")
    assert machine.feed(DirectCall(one)) == [EvaluateCall(one)]
    assert machine.feed(allow("p1")) == [RunCall(one, allow("p1"))]
    assert machine.feed(answer(one)) == []
    assert machine.history == [] and machine.find_slot("p1").result.data == "fine"  # type: ignore[union-attr]


def test_a_direct_call_whose_question_must_wait_is_asked_next() -> None:
    machine = asked(call("c1"))
    machine.feed(CallEvaluated("c1", "ask", digest="d"))
    machine.feed(DirectCall(call("p1")))
    assert machine.feed(CallEvaluated("p1", "ask", digest="p")) == []
    then = machine.feed(PersonAnswered("c1", "once", "d"))
    assert [type(c) for c in then] == [RunCall, RequestApproval]


def test_a_limit_from_outside_ends_the_run_with_its_name() -> None:
    machine = asked(call("c1"))
    finish = machine.feed(LimitHit("max_seconds", 5))
    assert (finish[0].stop, finish[0].code) == ("limit", "limit_max_seconds")  # type: ignore[union-attr]
    assert machine.phase is RunPhase.FINISHED
