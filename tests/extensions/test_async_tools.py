"""Tool files that say `async: true`: answered at once, going on in the session, and known to have
ended however they did.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from script_runs import PATIENT
from script_sessions import ScriptSession

from ferrule import Agent, Storage, tool
from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.events import NoticeGiven, RunFinished, ToolAnswered
from ferrule.engine import background
from ferrule.engine.background import TASK_TOOLS
from ferrule.engine.hooks.events import Action, ToolPost, block, modify
from ferrule.engine.session import Session
from ferrule.extensions.builtins.dispatch import ScriptEnvironment
from ferrule.extensions.hooks.decorator import hook
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.extensions.tool_files.loading import load_tools
from ferrule.models.scripted import Scripted, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.background_launch import Launch
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool
from grouped_options import grouped
from task_outcomes import list_task_outcomes

MAX_RUNNING = 16


class Gate:
    """A tool that a task waits in until the test says so."""

    def __init__(self) -> None:
        self.reached, self.passed = asyncio.Event(), asyncio.Event()
        self.stopped = asyncio.Event()

    @property
    def tool(self) -> Tool:
        @tool(side_effect="none")
        async def gate() -> str:
            """Wait."""
            self.reached.set()
            try:
                await self.passed.wait()
            except asyncio.CancelledError:
                self.stopped.set()
                raise
            return "open"

        return gate

    async def until_reached(self) -> None:
        await asyncio.wait_for(self.reached.wait(), PATIENT)


@pytest.fixture
def gate() -> Gate:
    return Gate()


SLOW = "said = meta.call_tool('gate', {})\nreturn {'said': said, 'n': args.get('n')}"


def opened(script_session: ScriptSession, *tools: Tool) -> Session:
    return script_session.open(*tools, *TASK_TOOLS)


def slow(
    script_session: ScriptSession, body: str = SLOW, name: str = "slow", **fields: str
) -> Tool:
    return script_session.tool(body, name, **{"async": "true", **fields})


async def begun(session: Session, name: str = "slow", **arguments: Any) -> str:
    result = await session.call(name, **arguments)
    assert result.success, result.error_message
    assert result.data == {"task_id": result.data["task_id"], "status": "running"}
    return result.data["task_id"]


async def ended(session: Session, task_id: str) -> dict[str, Any]:
    return (await session.call("task_await", task_id=task_id, timeout_ms=PATIENT * 1000)).data


async def test_an_async_tool_answers_at_once_and_its_script_goes_on(
    script_session: ScriptSession, gate: Gate
) -> None:
    session = opened(script_session, slow(script_session), gate.tool)
    task_id = await begun(session, n=3)
    await gate.until_reached()
    running = (await session.call("task_poll", task_id=task_id)).data
    assert running == {"task_id": task_id, "name": "slow", "status": "running"}
    assert (await session.call("task_await", task_id=task_id, timeout_ms=1)).data == running
    gate.passed.set()
    assert await ended(session, task_id) == {
        **running,
        "status": "done",
        "result": {"said": "open", "n": 3},
    }
    assert (await session.call("task_poll", task_id=task_id)).data["status"] == "done"


async def test_each_call_of_an_async_tool_has_exactly_one_result(
    script_session: ScriptSession, gate: Gate
) -> None:
    steps = [calls(("slow", {"n": 1}), ("slow", {"n": 2})), says("done")]
    agent = Agent(
        Scripted(steps),
        [slow(script_session), gate.tool, *TASK_TOOLS],
        **grouped(journal=script_session.journal, **script_session.options),
    )
    session = script_session.session = agent.session()
    result = await session.run("go")
    assert [one.data["status"] for one in result.results] == ["running", "running"]
    gate.passed.set()
    for one in result.results:
        assert (await ended(session, one.data["task_id"]))["status"] == "done"
    answered = [
        event.result.call_id for event in script_session.events() if isinstance(event, ToolAnswered)
    ]
    assert len(answered) == len(set(answered))
    assert all(one.call_id in answered for one in result.results)


async def test_the_model_hears_of_the_end_with_its_next_question_and_not_of_the_result(
    script_session: ScriptSession, gate: Gate
) -> None:
    model = Scripted([calls(("slow", {})), says("started"), says("heard")])
    agent = Agent(
        model,
        [slow(script_session), gate.tool, *TASK_TOOLS],
        **grouped(journal=script_session.journal, **script_session.options),
    )
    session = script_session.session = agent.session()
    first = await session.run("go")
    task_id = first.results[0].data["task_id"]
    told = asyncio.Event()
    session.observe(lambda item: told.set() if isinstance(item, NoticeGiven) else None)
    gate.passed.set()
    await asyncio.wait_for(told.wait(), PATIENT)
    await session.run("and now?")
    (notice,) = [event for event in script_session.events() if isinstance(event, NoticeGiven)]
    assert notice.source == "slow"
    assert notice.text == f"{task_id} (`slow`) is done; `task_await` gives what came of it"
    assert notice.text in session.driver.machine.history[-2].text


async def test_who_waits_for_a_task_is_not_told_a_second_time(
    script_session: ScriptSession, gate: Gate
) -> None:
    session = opened(script_session, slow(script_session), gate.tool)
    task_id = await begun(session)
    await gate.until_reached()
    waiting = asyncio.create_task(ended(session, task_id))
    tasks = background.find_background(session.driver.memory)
    assert tasks is not None
    while not tasks._tasks[task_id].waiters:
        await asyncio.sleep(0)
    gate.passed.set()
    assert (await waiting)["status"] == "done"
    assert [event for event in script_session.events() if isinstance(event, NoticeGiven)] == []


async def test_what_a_task_does_passes_the_gate_of_its_session(
    script_session: ScriptSession,
) -> None:
    script_session.options["deny"] = ["write_file"]
    session = opened(script_session, slow(script_session, "fs.write('b.txt', 'x')\nreturn 1"))
    found = await ended(session, await begun(session))
    assert (found["status"], found["error_type"]) == ("failed", "permission_denied")
    assert not (script_session.folder / "b.txt").exists()


async def test_an_async_tool_that_is_denied_starts_nothing(script_session: ScriptSession) -> None:
    script_session.options["deny"] = ["slow"]
    session = opened(script_session, slow(script_session, "return 1"))
    assert (await session.call("slow")).error_type is ErrorType.PERMISSION_DENIED
    assert script_session.notices("task") == []


@pytest.mark.parametrize(
    ("body", "fields", "error_type", "said"),
    [
        ("fail('why')", {}, "tool_error", "slow.md:5: why"),
        ("for i in range(1000000000):\n    pass", {"timeout_ms": "200"}, "timeout", "200 ms"),
        ("return fs.read('none.txt')", {}, "not_found", "none.txt"),
        ("x = [0] * 1000\nfor i in range(60):\n    x = x + x\nreturn 1", {}, "limit", "memory"),
    ],
)
async def test_however_a_task_fails_it_says_why(
    script_session: ScriptSession, body: str, fields: dict[str, str], error_type: str, said: str
) -> None:
    session = opened(script_session, slow(script_session, body, **fields))
    found = await ended(session, await begun(session))
    assert (found["status"], found["error_type"]) == ("failed", error_type)
    assert said in found["error"]


# ---- hooks


async def test_hooks_see_the_result_of_a_task_and_not_its_launch(
    script_session: ScriptSession, gate: Gate
) -> None:
    heard: list[ToolPost] = []

    @hook("tool.post", when='name == "slow"')
    def redact(result: ToolPost) -> Action:
        heard.append(result)
        return modify({"result": result.result["said"] + ", redacted"})

    script_session.options["hooks"] = [redact]
    session = opened(script_session, slow(script_session), gate.tool)
    started = await session.call("slow", n=7)
    assert started.data == {"task_id": started.data["task_id"], "status": "running"}
    assert heard == []
    gate.passed.set()
    found = await ended(session, started.data["task_id"])
    assert found["result"] == "open, redacted"
    (posted,) = heard
    assert (posted.id, posted.name, posted.success) == (started.call_id, "slow", True)
    assert (posted.result, posted.arguments) == ({"said": "open", "n": 7}, {"n": 7})


async def test_a_hook_withholds_the_result_of_a_task_or_learns_of_its_failure(
    script_session: ScriptSession,
) -> None:
    heard: list[tuple[bool, str, str]] = []

    @hook("tool.post", when='name == "slow" and get(get(payload, "arguments", None), "n", 0) == 1')
    def judge(result: ToolPost) -> Action:
        heard.append((result.success, result.error, result.message))
        return block("not for you")

    script_session.options["hooks"] = [judge]
    session = opened(
        script_session,
        slow(script_session, "if args.get('bad'):\n    fail('broken')\nreturn 'secret'"),
    )
    found = await ended(session, await begun(session, n=1))
    assert (found["status"], found["error_type"]) == ("failed", "permission_denied")
    assert "withheld by the hook `judge`: not for you" in found["error"]
    assert "secret" not in str(found)
    await ended(session, await begun(session, n=1, bad=True))
    assert [one[:2] for one in heard] == [(True, "none"), (False, "tool_error")]
    assert "broken" in heard[1][2]


class AroundCalls:
    """A program's own hook at the dispatcher, which breaks at whatever it does not know."""

    def __init__(self) -> None:
        self.after_calls: list[ToolResult] = []

    async def before(self, tool: Tool, values: Mapping[str, Any], context: Context) -> None:
        pass

    async def after(self, tool: Tool, result: ToolResult, context: Context) -> ToolResult | None:
        if tool.name != "slow":
            return None
        self.after_calls.append(result)
        return replace(result, data=result.data["said"].upper())


async def test_a_hook_of_a_program_sees_the_result_of_a_task_too(
    script_session: ScriptSession, gate: Gate
) -> None:
    around = AroundCalls()
    script_session.options["hooks"] = [around]
    session = opened(script_session, slow(script_session), gate.tool)
    task_id = await begun(session, n=7)
    gate.passed.set()
    assert (await ended(session, task_id))["result"] == "OPEN"
    (result,) = around.after_calls
    assert (result.tool, result.data) == ("slow", {"said": "open", "n": 7})


async def test_hooks_see_that_a_task_could_not_be_started(
    script_session: ScriptSession, gate: Gate
) -> None:
    heard: list[tuple[bool, str]] = []

    @hook("tool.post", when='name == "slow"')
    def hear(result: ToolPost) -> None:
        heard.append((result.success, result.error))

    script_session.options["hooks"] = [hear]
    session = opened(script_session, slow(script_session), gate.tool)
    for _ in range(16):
        await begun(session)
    refused = await session.call("slow")
    assert refused.error_type is ErrorType.LIMIT
    assert heard == [(False, "limit")]


@pytest.mark.parametrize(("outcome", "fits"), [(3, True), ("three", False)])
async def test_a_function_promises_the_outcome_of_its_task_and_not_the_launch(
    script_session: ScriptSession, outcome: Any, fits: bool
) -> None:
    @tool(side_effect="none")
    async def count() -> int | Launch:
        """Count later."""

        async def work() -> Any:
            return outcome

        return Launch(work, "count")

    assert count.output is not None and count.output.schema == {"type": "integer"}
    agent = Agent(
        Scripted([says("seen")]),
        [count, *TASK_TOOLS],
        **grouped(journal=script_session.journal, **script_session.options),
    )
    session = script_session.session = agent.session()
    started = await session.call("count")
    assert (started.data["status"], started.notes) == ("running", ())
    assert (await ended(session, started.data["task_id"]))["result"] == outcome
    await session.run("and now?")
    told = [event.text for event in script_session.events() if isinstance(event, NoticeGiven)]
    assert any("does not fit the tool's own schema" in text for text in told) is not fits


# ---- ends and bounds


async def test_a_task_ends_with_its_session_and_leaves_nothing(
    script_session: ScriptSession, gate: Gate, pool: WorkerPool
) -> None:
    script_session.pool = pool
    session = opened(script_session, slow(script_session), gate.tool)
    task_id = await begun(session)
    await gate.until_reached()
    await session.close()
    assert gate.stopped.is_set()
    assert list_task_outcomes(script_session.events()) == {task_id: "cancelled"}
    assert pool._computing == 0
    script_session.session = None


async def test_a_task_can_be_stopped(script_session: ScriptSession, gate: Gate) -> None:
    session = opened(script_session, slow(script_session), gate.tool)
    task_id = await begun(session)
    await gate.until_reached()
    found = (await session.call("task_cancel", task_id=task_id)).data
    assert (found["status"], found["error_type"]) == ("cancelled", "cancelled")
    assert gate.stopped.is_set()


async def test_a_task_goes_on_when_the_run_that_began_it_is_over(
    script_session: ScriptSession, gate: Gate
) -> None:
    steps = [calls(("slow", {})), says("done")]
    agent = Agent(
        Scripted(steps),
        [slow(script_session), gate.tool, *TASK_TOOLS],
        **grouped(journal=script_session.journal, **script_session.options),
    )
    session = script_session.session = agent.session()
    result = await session.run("go")
    assert any(isinstance(event, RunFinished) for event in script_session.events())
    await gate.until_reached()
    gate.passed.set()
    assert (await ended(session, result.results[0].data["task_id"]))["result"]["said"] == "open"


async def test_only_so_many_tasks_of_a_session_run(
    script_session: ScriptSession, gate: Gate
) -> None:
    session = opened(script_session, slow(script_session), gate.tool)
    started = [await begun(session) for _ in range(MAX_RUNNING)]
    result = await session.call("slow")
    assert (result.success, result.error_type) == (False, ErrorType.LIMIT)
    gate.passed.set()
    for task_id in started:
        await ended(session, task_id)
    await begun(session)


async def test_a_large_result_of_a_task_is_cut_and_says_so(script_session: ScriptSession) -> None:
    session = opened(script_session, slow(script_session, "return 'é' * 100000"))
    found = await ended(session, await begun(session))
    assert found["result"] == "é" * 24576
    assert found["notes"] == ["[output truncated at 49152 bytes of 200000]"]


# ---- whose a task is, and what is known of one that was lost


async def test_tasks_of_other_sessions_are_not_found(
    script_session: ScriptSession, gate: Gate
) -> None:
    session = opened(script_session, slow(script_session), gate.tool)
    task_id = await begun(session)
    assert script_session.agent is not None
    other = script_session.agent.session()
    for name in ("task_poll", "task_await", "task_cancel"):
        for wrong in (task_id, "task_1", "", task_id[:-1], "task_" + "0" * 20):
            assert (await other.call(name, task_id=wrong)).error_type is ErrorType.NOT_FOUND
    await other.close()
    assert (await session.call("task_poll", task_id=task_id)).data["status"] == "running"


def test_a_task_whose_process_was_killed_is_unknown_ever_after(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import asyncio, os, signal, sys
        from ferrule import Agent, Permissions, Storage
        from ferrule.engine.background import TASK_TOOLS
        from ferrule.extensions.builtins.dispatch import ScriptEnvironment
        from ferrule.extensions.tool_files.loading import load_tools
        from ferrule.models.scripted import Scripted
        FILE = "---\\nasync: true\\nscript: |\\n  def run(args):\\n      sleep(60000)\\n---\\n"
        async def main():
            tools = load_tools({".harness/tools/slow.md": FILE.encode()}).make_tools(ScriptEnvironment())
            agent = Agent(Scripted([]), tools, storage=Storage(journal=sys.argv[1], user="ada"), permissions=Permissions(mode="bypassPermissions"))
            session = agent.session()
            print(session.id, (await session.call("slow")).data["task_id"], flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
    """)
    file = tmp_path / "journal.db"
    ran = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        capture_output=True,
        text=True,
        timeout=PATIENT,
        check=False,
    )
    assert ran.stdout, ran.stderr
    session_id, task_id = ran.stdout.split()
    journal = SqliteJournal(file)
    assert list_task_outcomes(record.event for record in journal.records(session_id)) == {
        task_id: "unknown"
    }

    async def asked() -> list[Any]:
        agent = Agent(Scripted([]), TASK_TOOLS, storage=Storage(journal=journal, user="ada"))
        session = agent.resume(session_id)
        found = [
            (await session.call(name, task_id=task_id)).data
            for name in ("task_poll", "task_await", "task_cancel")
        ]
        await session.close()
        return found

    for found in asyncio.run(asked()):
        assert (found["task_id"], found["status"]) == (task_id, "unknown")
        assert "check what it did before doing it again" in found["error"]


async def test_the_journal_says_when_a_task_began_and_how_it_ended(
    script_session: ScriptSession, gate: Gate
) -> None:
    session = opened(
        script_session, slow(script_session), slow(script_session, "fail('x')", "broken"), gate.tool
    )
    first, second = await begun(session), await begun(session, "broken")
    await ended(session, second)
    assert list_task_outcomes(script_session.events()) == {first: "unknown", second: "failed"}
    gate.passed.set()
    await ended(session, first)
    assert list_task_outcomes(script_session.events()) == {first: "done", second: "failed"}
    assert re.fullmatch(r"task_[0-9a-f]{20} \(`slow`\) started", script_session.notices("task")[0])


# ---- the catalog


def test_the_tools_for_tasks_are_there_only_with_an_async_tool_and_once() -> None:
    script = b"script: |\n  def run(args):\n      return 1\n---\n"
    plain = load_tools({".harness/tools/t.md": b"---\n" + script})
    ours = load_tools({".harness/tools/t.md": b"---\nasync: true\n" + script})
    of_tasks = {one.name for one in TASK_TOOLS}
    assert not of_tasks & {one.name for one in plain.make_tools(ScriptEnvironment())}
    names = [one.name for one in ours.make_tools(ScriptEnvironment())]
    assert of_tasks <= set(names)
    assert len(names) == len(set(names))
    again = [one.full_name for one in ours.make_tools(ScriptEnvironment(), shipped=TASK_TOOLS)]
    assert len(again) == len(set(again))


async def test_a_script_asks_after_a_task_like_a_model(script_session: ScriptSession) -> None:
    body = (
        "id = meta.call_tool('slow', {})['task_id']\nreturn [task.wait(id)['result'], "
        "task.poll(id)['status']]"
    )
    session = opened(script_session, script_session.tool(body), slow(script_session, "return 5"))
    assert (await session.call("mine")).data == [5, "done"]


@pytest.fixture(autouse=True)
async def _nothing_left() -> AsyncIterator[None]:
    """No task of the event loop is left when a test is over."""
    before = asyncio.all_tasks()
    yield
    assert asyncio.all_tasks() - before - {asyncio.current_task()} == set()
