"""The background in a shell's words: `&`, `jobs`, `wait %1`, `kill %1`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.sandbox import Sandbox
from ferrule.toolkits.commands import CommandPolicy, run_command
from ferrule.toolkits.commands.jobs import read_job_command, split_background
from ferrule.tools.context import Context
from unheld import share_unheld

Run = Callable[..., Awaitable[str]]


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def ends() -> asyncio.Queue[str]:
    return asyncio.Queue()


@pytest.fixture
async def run(tmp_path: Path, told: list[str], ends: asyncio.Queue[str]) -> AsyncIterator[Run]:
    closers: list[Any] = []
    context = Context(
        Identity("t", "u", "s", "r"),
        "call_1",
        resources={
            Sandbox: share_unheld(),
            Workspace: Workspace(tmp_path),
            CommandPolicy: CommandPolicy(shell_allowed=True),
        },
        tell=told.append,
        tell_end=ends.put_nowait,
        on_close=closers.append,
    )

    async def call(command: str, **more: Any) -> str:
        return str(await run_command.handler(command, context=context, **more))

    yield call
    for closer in reversed(closers):
        await closer()


async def test_a_command_is_started_waited_for_read_on_and_told(
    run: Run, told: list[str], ends: asyncio.Queue[str]
) -> None:
    started = await run("echo one; until test -e go; do sleep 0.05; done; echo two &")
    assert "[running in the background as %1; " in started
    assert "`wait %1`, `kill %1`]" in started
    assert "%1 is running" in await run("jobs")
    first = await run("wait %1", timeout=0.3)
    assert "[%1 is running after" in first
    assert (started + first).count("one\n") == 1
    await run("touch go")
    assert (await run("wait %1", timeout=30)).startswith("two\n[%1 ended with exit status 0 after")
    assert told == [] and ends.empty()
    await run("exit 3", background=True)
    assert "ended with exit status 3" in await run("wait %2", timeout=30)


async def test_an_end_that_nobody_waits_for_is_told_as_one(
    run: Run, told: list[str], ends: asyncio.Queue[str]
) -> None:
    await run("until test -e go; do sleep 0.05; done; exit 3 &")
    await run("touch go")
    async with asyncio.timeout(30):
        text = await ends.get()
    assert "(%1) ended with exit status 3 after" in text and told == []


async def test_one_is_ended_and_the_others_go_on(run: Run) -> None:
    await run("sleep 500 &")
    await run("cd . && sleep 500 &")
    assert "[%1 was killed after" in await run("kill -9 %1")
    listed = (await run("jobs")).splitlines()
    assert [row.split()[1:3] for row in listed] == [["was", "killed"], ["is", "running"]]
    with pytest.raises(ToolFailed, match="there is no %7; there is %1, %2"):
        await run("wait %7")


async def test_what_ends_others_may_stand_before_other_commands(run: Run) -> None:
    await run("sleep 517 &")
    said = await run("kill %1 2>/dev/null || true; echo on")
    assert said.startswith("[%1 was killed after") and said.endswith("\non\n")
    await run("sleep 518 &")
    said = await run("pkill -f 'sleep 518' && echo on")
    assert said.startswith("[%2 was killed after") and said.endswith("\non\n")
    await run("sleep 519 &")
    assert "%3 was killed" in await run("pkill sleep")


async def test_a_process_search_does_not_find_the_shell_that_makes_it(run: Run) -> None:
    said = await run("pkill -f no-such-process-here; pgrep -f no-such-process-here; echo on")
    assert said == "on\n"
    assert await run("sleep 3.0625 & kill $(pgrep -f 'sleep 3.0625') && echo on") == "on\n"


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("npm start &", "npm start"),
        ("cd web && npm start > log 2>&1 & ", "cd web && npm start > log 2>&1"),
        ("a && b", None),
        ("a & b", None),
        ("echo a\\&", None),
        ("a &&", None),
        ("echo 'a &'", None),
    ],
)
def test_only_a_last_ampersand_counts(text: str, before: str | None) -> None:
    assert split_background(text) == before


@pytest.mark.parametrize(
    "text",
    ["jobs | wc", "kill 17", "wait", "kill %1 17", "kill %1 | x", "pkill -f 'a.*'", "pkill a b"],
)
def test_anything_else_is_for_the_shell(text: str) -> None:
    assert read_job_command(text) is None
