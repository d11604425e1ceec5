"""What a tool file may not do to its run, shown through an agent: one typed error, nothing left
behind, the next call fine.
"""

from __future__ import annotations

import asyncio
import os
import signal

import pytest
from script_runs import PATIENT, descriptors
from script_sessions import ScriptSession

from ferrule import Agent, Permissions, Storage
from ferrule.core.calls import ErrorType, ToolResult
from ferrule.engine.live_events import Progress
from ferrule.extensions.starlark.pool import WorkerPool
from ferrule.models.scripted import Scripted, calls, says

ENDLESS = "for i in range(1 << 30):\n    for j in range(1 << 30):\n        pass"
BAD = {
    "an endless loop": (ENDLESS, ErrorType.TIMEOUT, "time it may take"),
    "a loop that grows": (
        "x = [0] * 1000\nfor i in range(60):\n    x = x + x",
        ErrorType.LIMIT,
        "MiB of memory",
    ),
    "a text that grows": (
        "x = 'x' * 1000\nfor i in range(60):\n    x = x + x",
        ErrorType.LIMIT,
        "MiB of memory",
    ),
    "recursion": ("return descend(descend, 0)", ErrorType.LIMIT, "nested deeper"),
    "a nested text": ("x = []\nfor i in range(100000):\n    x = [x]\nreturn x", None, ""),
    "a result of 100 MB": ("return 'x' * 100000000", ErrorType.LIMIT, "result"),
    "a fail": ("fail('no way')", ErrorType.TOOL_ERROR, "mine.md:7: no way"),
    "an expression that takes minutes": (
        "re.search('(?:(?:a?){50}){19}c|.*?x', ('a' * 5000 + '\\n') * 1000)",
        ErrorType.TIMEOUT,
        "time it may take",
    ),
    "a sleep beyond its time": ("sleep(60000)", ErrorType.TIMEOUT, "time it may take"),
}
"""What a script does, the error it is, and what that says; None where either a value or an error
will do.
"""


async def through_an_agent(
    script_session: ScriptSession, body: str, *, kill: WorkerPool | None = None
) -> list[ToolResult]:
    """A model calls the bad tool, then a good one. With `kill`, workers are killed as soon as the
    script says something.
    """
    descend = "def descend(f, n):\n    return f(f, n + 1)\n"
    # What needs a moment for its own sake must not be stopped for that on a busy machine.
    endless = body == ENDLESS or "sleep" in body or "re.search" in body
    milliseconds = "500" if endless and kill is None else str(PATIENT * 1000)
    bad = script_session.tool(
        descend.replace("\n", "\n    ").rstrip() + "\n" + body, timeout_ms=milliseconds
    )
    good = script_session.tool("return 'fine'", "good")
    steps = [calls(("mine", {})), calls(("good", {})), says("done")]
    agent = Agent(
        Scripted(steps),
        [bad, good],
        storage=Storage(journal=script_session.journal),
        permissions=Permissions(mode="bypassPermissions"),
    )
    session = agent.session()

    def watch(item: object) -> None:
        if kill is not None and isinstance(item, Progress):
            for pid in kill.pids:
                os.kill(pid, signal.SIGKILL)

    session.observe(watch)
    try:
        async with asyncio.timeout(PATIENT):
            return list((await session.run("go")).results)
    finally:
        await session.close()
        await agent.close()


@pytest.mark.parametrize("case", BAD)
async def test_a_script_that_goes_too_far_is_one_typed_error_and_the_next_call_is_fine(
    script_session: ScriptSession, pool: WorkerPool, case: str
) -> None:
    body, error_type, said = BAD[case]
    script_session.pool = pool
    bad, good = await through_an_agent(script_session, body)
    if error_type is not None:
        assert (bad.success, bad.error_type) == (False, error_type), bad.error_message
        assert said in (bad.error_message or "")
    assert (good.success, good.data) == (True, "fine")
    assert pool._computing == 0


async def test_a_worker_that_is_killed_from_outside_is_one_typed_error_and_the_next_call_is_fine(
    script_session: ScriptSession, pool: WorkerPool
) -> None:
    script_session.pool = pool
    bad, good = await through_an_agent(script_session, "print('here')\n" + ENDLESS, kill=pool)
    assert (bad.success, bad.error_type) == (False, ErrorType.INTERNAL_ERROR)
    assert "ended by signal 9" in (bad.error_message or "")
    assert (good.success, good.data) == (True, "fine")


async def test_no_process_and_no_descriptor_is_left_of_scripts_that_went_too_far(
    script_session: ScriptSession,
) -> None:
    pool = script_session.pool = WorkerPool()
    script_session.journal.records("")  # The journal has its file open from here on.
    await through_an_agent(script_session, "return 1")
    pool.close()
    before = descriptors()
    pool = script_session.pool = WorkerPool()
    pids: set[int] = set()
    for body, _, _ in BAD.values():
        await through_an_agent(script_session, body)
        pids |= set(pool.pids)
    await through_an_agent(script_session, "print('here')\n" + ENDLESS, kill=pool)
    pids |= set(pool.pids)
    pool.close()
    assert pids
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []
    assert descriptors() == before
