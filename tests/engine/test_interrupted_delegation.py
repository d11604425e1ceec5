"""A run whose sub-agents were at work when its process ended goes on with their work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from ferrule import (
    Agent,
    Context,
    Identity,
    JournalError,
    LimitReached,
    Limits,
    RunResult,
    Scripted,
    Storage,
    SubAgent,
    ask_agent,
    tool,
)
from ferrule.core.events import DelegationFinished, DelegationStarted, Event, RunFinished, Usage
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.job_run import run_job
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.storage import SqliteJournal

QUESTION = "asked: the agent `boss`: the agent `clerk`: `pay` has high risk"


def test_a_run_killed_at_any_write_resumes_its_agents_and_their_question_is_answered_once(
    tmp_path: Path,
) -> None:
    program = Path(__file__).with_name("delegating.py")
    ran = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    whole, *tries = [json.loads(line) for line in ran.stdout.splitlines()]
    assert whole["paid"] == 1 and whole["tokens"] == 66 and whole["writes"] >= 12
    assert len(tries) == whole["writes"] + 8
    unknown = 0
    for found in tries:
        assert all(found["killed"]), found
        assert found["code"] == 0 and found["problems"] == [], found
        # One run of each, and one end of each delegation: nothing was begun anew.
        assert found["runs"] == {"": 1, "boss": 1, "clerk": 1}, found
        assert found["ended"] == {"": 1, "boss": 1, "clerk": 0}, found
        assert (found["says"], found["tokens"]) == ("ended (True)", 66), found
        assert found["asked_later"] == ([] if found["was_answered"] else [QUESTION]), found
        [paid] = found["pay"]
        if paid.startswith("outcome unknown"):
            unknown += 1
            assert found["paid"] <= 1, found
        else:
            assert paid == "paid" and found["paid"] == 1, found
    # Only where the effect was about to happen, or just had.
    assert unknown == 3


# ---- in one process: another agent finds what the journal has at that moment


class Left:
    """The journal of a run, as it is when an event is written or a step is asked for."""

    def __init__(self) -> None:
        self.journal = SqliteJournal(":memory:")
        self.kept: SqliteJournal | None = None

    def keep(self) -> None:
        if self.kept is not None:
            return
        self.kept = SqliteJournal(":memory:")
        for info in reversed(self.journal.sessions()):
            for record in self.journal.records(info.session):
                who = Identity(record.tenant, record.user, info.session, record.run)
                self.kept.append(info.session, record.run, [record.event], identity=who)

    def then(self, step: Any) -> Callable[[Any], Any]:
        """A step that is asked for when the process ends."""

        def answer(history: Any) -> Any:
            self.keep()
            return step

        return answer


@tool(side_effect="none")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Sum(BaseModel):
    value: int


ADDER = SubAgent("adder", "Adds numbers.", tools=["add"])
TYPED = SubAgent("typed", "Adds numbers.", tools=["add"], output_type=Sum)
SHORT = SubAgent("short", "Adds numbers.", tools=["add"], limits=Limits(max_turns=1))
ASK = calls(("delegate", {"task": "2 + 3?", "agent": "adder"}))
ADD = calls(("add", {"a": 2, "b": 3}), usage=Usage(100, 10))


def make_agent(journal: SqliteJournal, steps: list[Any], **more: Any) -> Agent[Any, Any]:
    agents = more.pop("agents", (ADDER, TYPED, SHORT))
    tools = more.pop("tools", [add])
    storage = Storage(journal=journal, user="ann")
    return Agent(Scripted(steps), tools, plugins=[Parts(agents=agents)], storage=storage, **more)


async def leave(left: Left, steps: list[Any], **more: Any) -> None:
    await make_agent(left.journal, steps, **more).session(id="outer").run("go")
    assert left.kept is not None


async def resume(left: Left, steps: list[Any], **more: Any) -> RunResult[Any]:
    assert left.kept is not None
    done = await make_agent(left.kept, steps, **more).resume("outer").resume()
    assert done is not None
    return done


def events(journal: SqliteJournal | None, kind: type[Event], session: str = "outer") -> list[Any]:
    assert journal is not None
    return [one.event for one in journal.records(session) if isinstance(one.event, kind)]


async def test_what_an_agent_had_used_counts_in_the_run_that_is_resumed() -> None:
    left = Left()
    step = left.then(says("5", usage=Usage(100, 10)))
    await leave(left, [ASK, ADD, step, says("ok")])
    done = await resume(left, [says("5", usage=Usage(100, 10)), says("ok", usage=Usage(7, 1))])
    assert done.results[0].data["answer"] == "5"
    assert done.results[0].data["tokens"] == 220 and done.usage == Usage(207, 21)


async def test_an_agent_goes_on_with_what_is_left_of_the_runs_budget() -> None:
    for limits, said in [
        (Limits(max_tokens=215), "max_tokens"),
        (Limits(max_calls=2), "max_calls"),
    ]:
        left = Left()
        more = calls(("add", {"a": 5, "b": 5}), usage=Usage(100, 10))
        await leave(left, [ASK, ADD, left.then(says("5")), says("ok")], limits=limits)
        with pytest.raises(LimitReached, match=said):
            await resume(left, [more, says("10"), says("ok")], limits=limits)


async def test_calls_of_agents_that_had_ended_count_in_the_run_that_is_resumed() -> None:
    left = Left()
    limits = Limits(max_calls=3)
    await leave(left, [ASK, ADD, says("5"), left.then(says("ok"))], limits=limits)
    with pytest.raises(LimitReached, match="max_calls"):
        await resume(left, [ASK, ADD, says("5"), says("ok")], limits=limits)


async def test_work_that_was_sent_back_is_not_sent_back_more_often_after_a_restart() -> None:
    verdicts = [False, False, True]

    @tool(side_effect="read")
    def check() -> bool:
        """Check the work."""
        return verdicts.pop(0)

    ask = calls(
        (
            "delegate",
            {"task": "2 + 3?", "agent": "adder", "verify": "check", "max_verify_retries": 1},
        )
    )
    left = Left()
    step = left.then(says("5", usage=Usage(1, 1)))
    script = [ask, says("4", usage=Usage(100, 10)), step, says("ok")]
    await leave(left, script, tools=[add, check])
    assert verdicts == [True]
    done = await resume(left, [says("5", usage=Usage(1, 1)), says("ok")], tools=[add, check])
    assert done.results[0].data["attempts"] == 2 and done.results[0].data["tokens"] == 112

    verdicts[:] = [False, False, False]
    left = Left()
    script = [ask, says("4"), left.then(says("5")), says("ok")]
    await leave(left, script, tools=[add, check])
    done = await resume(left, [says("6"), says("ok")], tools=[add, check])
    assert "did not pass its check after 2 attempts" in (done.results[0].error_message or "")


@pytest.mark.parametrize("reported", [False, True])
async def test_the_answer_of_an_agent_that_had_ended_is_taken_from_the_journal(
    reported: bool,
) -> None:
    left = Left()

    @tool(side_effect="none")
    async def typed(context: Context) -> str:
        """Say nothing."""
        return ""

    ask = calls(("delegate", {"task": "2 + 3?", "agent": "typed"}))
    agent = make_agent(
        left.journal,
        [ask, says('{"value": 5}', usage=Usage(30, 3)), says("ok")],
        tools=[add, typed],
    )
    session = agent.session(id="outer")

    def watch(item: Any) -> None:
        if isinstance(item, DelegationFinished):
            if reported:
                session.flush()
            left.keep()

    session.observe(watch)
    await session.run("go")
    assert len(events(left.kept, DelegationFinished)) == int(reported)
    done = await resume(left, [says("ok")], tools=[add, typed])
    assert done.results[0].data["answer"] == {"value": 5}
    assert done.results[0].data["tokens"] == 33 and done.usage == Usage(30, 3)
    assert len(events(left.kept, DelegationFinished)) == 1


async def test_how_an_agent_had_failed_is_taken_from_the_journal() -> None:
    left = Left()
    ask = calls(("delegate", {"task": "2 + 3?", "agent": "short"}))
    agent = make_agent(left.journal, [ask, ADD, says("ok")])
    session = agent.session(id="outer")
    session.observe(lambda item: left.keep() if isinstance(item, DelegationFinished) else None)
    first = await session.run("go")
    done = await resume(left, [says("ok")])
    assert done.results[0].error_type == first.results[0].error_type == "limit"
    assert done.results[0].error_message == first.results[0].error_message


async def test_work_whose_session_was_deleted_is_unknown_and_not_begun_anew() -> None:
    left = Left()
    await leave(left, [ASK, ADD, left.then(says("5")), says("ok")])
    assert left.kept is not None
    whole, left.kept = left.kept, SqliteJournal(":memory:")
    for record in whole.records("outer"):
        who = Identity(record.tenant, record.user, "outer", record.run)
        left.kept.append("outer", record.run, [record.event], identity=who)
    done = await resume(left, [says("I looked")])
    assert done.text == "I looked" and "outcome unknown" in (done.results[0].error_message or "")


async def test_an_agent_that_is_gone_is_an_error_of_the_call() -> None:
    left = Left()
    await leave(left, [ASK, ADD, left.then(says("5")), says("ok")])
    done = await resume(left, [says("ok")], agents=(TYPED,))
    assert done.results[0].error_type == "not_found"
    assert "there is no agent `adder`" in (done.results[0].error_message or "")


async def test_what_a_tools_code_delegated_is_unknown_as_nobody_waits_for_it() -> None:
    @tool(side_effect="external", risk="safe")
    async def outer_tool(context: Context) -> str:
        """Have it added."""
        return str((await ask_agent(context, "2 + 3?", "adder"))["answer"])

    left = Left()
    script = [calls(("outer_tool", {})), ADD, left.then(says("5")), says("ok")]
    await leave(left, script, tools=[add, outer_tool])
    done = await resume(left, [says("I looked")], tools=[add, outer_tool])
    assert done.text == "I looked" and "outcome unknown" in (done.results[0].error_message or "")
    [started] = events(left.kept, DelegationStarted)
    assert events(left.kept, RunFinished, started.session) == []


async def test_a_session_that_is_still_leased_for_a_moment_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left = Left()
    await leave(left, [ASK, ADD, left.then(says("5")), says("ok")])
    assert left.kept is not None
    refused: list[str] = []
    lease = left.kept.lease

    def lease_later(session: str) -> None:
        if session != "outer" and not refused:
            refused.append(session)
            raise JournalError("another process is driving it", code="journal_leased")
        lease(session)

    monkeypatch.setattr(left.kept, "lease", lease_later)
    done = await resume(left, [says("5"), says("ok")])
    assert len(refused) == 1 and done.results[0].data["answer"] == "5"


async def test_a_worker_that_takes_a_job_over_goes_on_with_its_agents_work() -> None:
    left = Left()
    job = Job("go", run="r" * 32, tenant="local", user="ann", session="outer")

    def make(steps: list[Any]) -> Callable[[Job, Any], Agent[Any, Any]]:
        return lambda job, journal: make_agent(journal, steps)

    await run_job(job, left.journal, make([ASK, ADD, left.then(says("5")), says("ok")]))
    assert left.kept is not None
    outcome = await run_job(job, left.kept, make([says("5"), says("all done")]))
    assert (outcome["stop"], outcome["text"]) == ("done", "all done")
    [finished] = events(left.kept, DelegationFinished)
    assert finished.stop == "done"
