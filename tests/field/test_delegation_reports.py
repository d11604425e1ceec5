"""Reports about sub-agents, handoffs and their approvals, each chosen before anything was tried."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from ferrule import (
    Agent,
    ApprovalAnswer,
    Context,
    Identity,
    LimitReached,
    Limits,
    Permissions,
    RunCancelled,
    RunResult,
    Scripted,
    Storage,
    SubAgent,
    tool,
)
from ferrule.core.events import DelegationFinished, RunStarted, Usage
from ferrule.core.messages import AssistantMessage, ToolMessage
from ferrule.engine.hooks.events import modify
from ferrule.extensions.hooks.decorator import hook
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage import SqliteJournal

RAN: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@tool(side_effect="read")
def look(what: str) -> str:
    """Look something up."""
    RAN.append(f"look {what}")
    return f"{what}: blue"


@tool(side_effect="write", risk="low")
def note(text: str) -> str:
    """Write a note."""
    RAN.append(f"note {text}")
    return f"noted {text}"


@tool(side_effect="external", risk="high")
def send(to: str, context: Context) -> str:
    """Send a letter."""
    RAN.append(f"send {to} {context.deps or ''}".strip())
    return f"sent to {to}"


class Person:
    """Answers each question with the next of these; waits for ever once there are none."""

    def __init__(self, *answers: ApprovalAnswer) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.waits = asyncio.Event()

    async def ask(self, request: Any) -> ApprovalAnswer:
        self.asked.append(f"{request.tool.name}: {request.reason}")
        if not self.answers:
            self.waits.set()
            await asyncio.Event().wait()
        return self.answers.pop(0)


YES = ApprovalAnswer("once", by="ada")
CLERK = SubAgent("clerk", "Sends letters.", tools=["send", "look", "note"])
READER = SubAgent("reader", "Looks things up.", tools=["look"])


def ask(agent: str = "clerk", task: str = "do it", **more: Any) -> tuple[str, dict[str, Any]]:
    return ("delegate", {"task": task, "agent": agent, **more})


def make(steps: Sequence[Any], person: Any = None, **more: Any) -> Agent[Any, Any]:
    journal = more.pop("journal", None) or SqliteJournal(":memory:")
    parts = Parts(agents=more.pop("agents", (CLERK, READER)), hooks=more.pop("hooks", ()))
    permissions = Permissions(allow=["note"]) if person is None else Permissions(approver=person)
    if person is not None:
        permissions = Permissions(approver=person, allow=["note"])
    return Agent(
        Scripted(steps),
        [look, note, send],
        plugins=[parts],
        storage=Storage(journal=journal, user="ada"),
        permissions=permissions,
        **more,
    )


async def leave_at_question(steps: Sequence[Any], **more: Any) -> SqliteJournal:
    """The journal of a run whose process ends while a person is asked."""
    person = Person()
    agent = make(steps, person, **more)
    deps = {"deps": "of yesterday"} if "deps_type" in more else {}
    running = asyncio.create_task(agent.session(id="outer").run("go", **deps))
    await asyncio.wait_for(person.waits.wait(), 20)
    kept = SqliteJournal(":memory:")
    for info in reversed(agent.journal.sessions()):
        for record in agent.journal.records(info.session):
            who = Identity(record.tenant, record.user, info.session, record.run)
            kept.append(info.session, record.run, [record.event], identity=who)
    running.cancel()
    await asyncio.wait([running])
    return kept


async def resume(
    journal: SqliteJournal, steps: Sequence[Any], person: Person, **more: Any
) -> RunResult[Any]:
    deps = {"deps": "of today"} if "deps_type" in more else {}
    done = await make(steps, person, journal=journal, **more).resume("outer", **deps).resume()
    assert done is not None
    return done


def count_runs(journal: Any, session: str = "outer") -> int:
    return sum(isinstance(one.event, RunStarted) for one in journal.records(session))


# ---- approvals and restarts


async def test_a_member_whose_process_ended_is_found_and_its_approved_call_runs_once() -> None:
    journal = await leave_at_question([calls(ask()), calls(("send", {"to": "Bo"}))])
    person = Person(YES)
    done = await resume(journal, [says("sent"), says("all done")], person)
    assert RAN == ["send Bo"] and done.text == "all done"
    assert done.results[0].data["answer"] == "sent"
    assert person.asked == ["send: the agent `clerk`: `send` has high risk"]
    # The leader's run went on: it was not begun anew.
    assert count_runs(journal) == 1 and count_runs(journal, done.results[0].data["session"]) == 1


async def test_a_resumed_agent_has_the_dependencies_of_the_run() -> None:
    journal = await leave_at_question([calls(ask()), calls(("send", {"to": "Bo"}))], deps_type=str)
    await resume(journal, [says("sent"), says("ok")], Person(YES), deps_type=str)
    assert RAN == ["send Bo of today"]


async def test_an_approval_holds_however_many_steps_the_agent_takes_afterwards() -> None:
    journal = await leave_at_question(
        [calls(ask()), calls(("look", {"what": "Bo"})), calls(("send", {"to": "Bo"}))]
    )
    RAN.clear()
    person = Person(YES, YES)
    steps = [
        calls(("look", {"what": "Cy"})),
        calls(("send", {"to": "Cy"})),
        says("both sent"),
        says("ok"),
    ]
    await resume(journal, steps, person)
    assert RAN == ["send Bo", "look Cy", "send Cy"] and len(person.asked) == 2


async def test_a_no_with_its_reason_reaches_the_agent_after_a_restart() -> None:
    journal = await leave_at_question([calls(ask()), calls(("send", {"to": "Bo"}))])
    heard: list[str] = []

    def answer(history: Any) -> Any:
        heard.append(history[-1].text)
        return says("I did not send it")

    no = ApprovalAnswer("deny", note="not on Sundays", by="ada")
    done = await resume(journal, [answer, says("ok")], Person(no))
    assert RAN == [] and "not on Sundays" in heard[0]
    assert done.results[0].data["answer"] == "I did not send it"


async def test_calls_beside_an_agent_that_asks_are_not_run_again_after_a_restart() -> None:
    turn = calls(("look", {"what": "a"}), ask("reader"), ask(), ("note", {"text": "b"}))
    steps = [turn, says("nothing found"), calls(("send", {"to": "Bo"}))]
    journal = await leave_at_question(steps)
    assert RAN[:1] == ["look a"]
    before = list(RAN)
    done = await resume(journal, [says("sent"), says("ok")], Person(YES))
    assert RAN[len(before) :] == ["send Bo", *([] if "note b" in before else ["note b"])]
    assert [one.success for one in done.results] == [True, True, True, True]
    assert done.results[1].data["answer"] == "nothing found"


async def test_a_background_agent_goes_on_when_its_call_is_approved() -> None:
    person = Person(YES)
    steps = [
        calls(ask(wait=False)),
        calls(("send", {"to": "Bo"})),
        says("sent"),
    ]

    def await_task(history: Any) -> Any:
        last = next(one for one in reversed(history) if isinstance(one, ToolMessage))
        task_id = last.text.split('"task_id":"')[1].split('"')[0]
        return calls(("task_await", {"task_id": task_id}))

    # Who asks its model first is open: each answers for itself.
    def either(history: Any) -> Any:
        if history[0].text == "go":
            return await_task(history) if len(history) == 3 else says("ok")
        return (
            says("sent") if isinstance(history[-1], ToolMessage) else calls(("send", {"to": "Bo"}))
        )

    del steps[1:]
    done = await make([*steps, either, either, either, either], person).run("go")
    assert RAN == ["send Bo"] and len(person.asked) == 1
    assert done.results[1].data["status"] == "done"
    assert done.results[1].data["result"]["answer"] == "sent"


async def test_hooks_that_add_to_a_run_do_not_disturb_an_agents_question() -> None:
    @hook("turn.start", name="time")
    def tell_time(value: Any) -> Any:
        RAN.append("hook")
        return modify({"text": f"{value.text}\n(it is noon)"})

    person = Person(YES)
    steps = [calls(ask()), calls(("send", {"to": "Bo"})), says("sent"), says("ok")]
    done = await make(steps, person, hooks=[tell_time]).run("go")
    assert RAN == ["hook", "hook", "send Bo"] and len(person.asked) == 1 and done.text == "ok"


# ---- stopping


async def test_an_agent_that_is_cancelled_from_within_is_an_error_of_the_parents_call() -> None:
    @tool(side_effect="none")
    def give_up() -> str:
        """Give up."""
        raise RunCancelled("enough")

    quitter = SubAgent("quitter", "Gives up.", tools=["give_up"])
    steps = [calls(ask("quitter")), calls(("give_up", {})), says("I gave up"), says("went on")]
    parts = Parts(agents=[quitter])
    done = await Agent(Scripted(steps), [give_up], plugins=[parts]).run("go")
    assert done.text == "went on" and done.messages.messages[0].text == "go"


async def test_stopping_the_parent_stops_an_agent_in_the_middle_of_its_work() -> None:
    begun = asyncio.Event()

    @tool(side_effect="write")
    async def slow(text: str) -> str:
        """Work slowly."""
        begun.set()
        await asyncio.sleep(0.3)
        RAN.append(text)
        return "done"

    worker = SubAgent("worker", "Works.", tools=["slow"])
    steps = [calls(ask("worker")), calls(("slow", {"text": "a"})), calls(("slow", {"text": "b"}))]
    agent = Agent(
        Scripted(steps),
        [slow],
        plugins=[Parts(agents=[worker])],
        permissions=Permissions(allow=["slow"]),
    )
    session = agent.session()
    running = asyncio.create_task(session.run("go"))
    await asyncio.wait_for(begun.wait(), 10)
    session.driver.cancel()
    with pytest.raises(RunCancelled):
        await running
    await asyncio.sleep(0.5)
    assert RAN == []


# ---- budgets


async def test_the_parents_limits_bind_its_agents() -> None:
    many = [calls(("look", {"what": str(n)})) for n in range(6)]
    with pytest.raises(LimitReached, match="max_calls"):
        await make([calls(ask("reader")), *many], limits=Limits(max_calls=4)).run("go")
    assert len(RAN) <= 3


async def test_what_an_agent_used_is_in_the_total_and_beside_its_answer() -> None:
    agent = make(
        [
            calls(ask("reader"), usage=Usage(10, 1)),
            says("blue", usage=Usage(100, 20)),
            says("ok", usage=Usage(5, 1)),
        ]
    )
    seen: list[Usage] = []
    session = agent.session()
    session.observe(
        lambda item: seen.append(item.usage) if isinstance(item, DelegationFinished) else None
    )
    done = await session.run("go")
    assert done.usage == Usage(115, 22) and done.results[0].data["tokens"] == 120
    assert [(one.input, one.output) for one in seen] == [(100, 20)]


# ---- what comes back


async def test_an_agent_that_ran_out_of_turns_is_a_failure_and_no_answer() -> None:
    short = SubAgent("short", "Looks.", tools=["look"], limits=Limits(max_turns=1))
    steps = [calls(ask("short")), calls(("look", {"what": "a"}), text="it may be blue"), says("ok")]
    [result] = (await make(steps, agents=(short,)).run("go")).results
    assert not result.success and result.error_type == "limit"
    assert "max_turns" in (result.error_message or "")


async def test_an_agent_that_says_nothing_is_told_from_one_that_answers() -> None:
    # An empty answer is asked for once more.
    steps = [calls(ask("reader")), says(""), says(""), says("ok")]
    [result] = (await make(steps).run("go")).results
    assert result.success and result.data["answer"] == ""
    assert result.data["note"].startswith("it ended without an answer")
    [result] = (await make([calls(ask("reader")), says("blue"), says("ok")]).run("go")).results
    assert "note" not in result.data


# ---- names and arguments


async def test_an_agent_gets_only_its_own_history_and_tools() -> None:
    steps = [
        calls(("note", {"text": "a"})),
        calls(ask("reader")),
        calls(("note", {"text": "b"})),
        says("I have no such tool"),
        says("ok"),
    ]
    model = Scripted(steps)
    agent = make([])
    agent = Agent(
        model,
        [look, note, send],
        plugins=[Parts(agents=[READER])],
        permissions=Permissions(allow=["note"]),
    )
    await agent.run("go")
    assert RAN == ["note a"]
    assert [m.text for m in model.asks[2].history] == ["do it"]
    refused = model.asks[3].history[-1]
    assert isinstance(refused, ToolMessage) and not refused.success
    assert {one.name for one in model.opened[-1].tools} <= {"look"}


def is_paired(history: Sequence[Any]) -> bool:
    """Whether the results of each answer's calls follow it, in order."""
    for at, message in enumerate(history):
        if isinstance(message, AssistantMessage) and message.calls:
            after = history[at + 1 : at + 1 + len(message.calls)]
            ids = [one.call_id for one in after if isinstance(one, ToolMessage)]
            if ids != [call.id for call in message.calls]:
                return False
    return True


@pytest.mark.parametrize("order", [1, -1])
async def test_an_answer_with_a_call_and_a_delegation_has_both_results(order: int) -> None:
    both = [("note", {"text": "a"}), ask("reader")][::order]
    model = Scripted([calls(*both), says("blue"), calls(ask("reader")), says("red"), says("ok")])
    agent = Agent(
        model,
        [look, note, send],
        plugins=[Parts(agents=[READER])],
        permissions=Permissions(allow=["note"]),
    )
    done = await agent.run("go")
    assert [one.success for one in done.results] == [True, True, True]
    assert all(is_paired(one.history) for one in model.asks)


async def test_a_task_in_an_object_is_refused_with_what_to_write_and_can_be_corrected() -> None:
    wrapped: Any = {"description": "look", "type": "str"}
    steps = [calls(ask("reader", wrapped)), calls(ask("reader")), says("blue"), says("ok")]
    first, second = (await make(steps).run("go")).results
    assert first.error_type == "validation_failed" and "task" in (first.error_message or "")
    assert second.data["answer"] == "blue"


@pytest.mark.parametrize("name", ["Reader", "reader ", "the reader", '"reader"'])
async def test_a_name_that_is_nearly_an_agents_is_answered_with_the_right_one(name: str) -> None:
    steps: list[Any] = [calls(ask(name)), says("ok"), says("ok")]
    result = (await make(steps).run("go")).results[0]
    assert result.success or "`reader`" in (result.error_message or ""), result
