"""`run_sync` in scripts, in notebooks (inside a running event loop), and in threads."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest

from ferrule import Agent, Context, Scripted, tool
from ferrule.models.scripted import calls, says
from ferrule.plugins import Parts
from ferrule.tools.definition import Tool

BOUND = 30
FLAVOR: contextvars.ContextVar[str] = contextvars.ContextVar("flavor", default="none")
HOSTS = ("script", "notebook")


@pytest.fixture
def real_interrupts() -> Any:
    """Ctrl-C as in a Jupyter kernel: it raises KeyboardInterrupt in the main thread."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted_agent(effects: list[int]) -> Agent:
    """Return an agent whose third call interrupts the program."""

    @tool(side_effect="external", risk="safe")
    async def step(number: int) -> str:
        """Do one thing."""
        effects.append(number)
        if number == 2:
            os.kill(os.getpid(), signal.SIGINT)
            # Until the interrupt has arrived; a handler that swallows it does not go on for long.
            try:
                await asyncio.sleep(BOUND)
            except asyncio.CancelledError:
                return "swallowed"
        return "ok"

    script = [calls(("step", {"number": number})) for number in range(6)]
    return Agent(Scripted([*script, says("end")]), [step])


@pytest.mark.parametrize("host", [*HOSTS, "coroutine"])
@pytest.mark.usefixtures("real_interrupts")
def test_an_interrupt_stops_the_run_before_the_caller_sees_it(host: str) -> None:
    effects: list[int] = []
    threads_before = set(threading.enumerate())

    async def cell() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            interrupted_agent(effects).run_sync("go")
        except KeyboardInterrupt:
            effects.append(-1)

    async def coroutine() -> None:
        try:
            interrupted_agent(effects).run_sync("go")
        finally:
            effects.append(-1)

    if host == "notebook":
        asyncio.run(cell())
    elif host == "coroutine":
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(coroutine())
    else:
        with pytest.raises(KeyboardInterrupt):
            interrupted_agent(effects).run_sync("go")
        effects.append(-1)
    assert effects == [0, 1, 2, -1]
    new = set(threading.enumerate()) - threads_before
    assert not [thread for thread in new if thread.name == "ferrule-run-sync"]
    assert len(new) <= 1


@pytest.mark.parametrize("started", [True, False], ids=["started", "not-started"])
def test_an_interrupt_while_the_thread_starts_stops_the_run_too(
    started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_call = threading.Event()
    ended: list[str] = []
    start_thread = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name != "ferrule-run-sync":
            start_thread(thread)
            return
        if started:
            start_thread(thread)
            assert in_call.wait(BOUND)
        raise KeyboardInterrupt

    @tool(side_effect="external", risk="safe")
    async def wait() -> str:
        """Wait until the run is stopped."""
        in_call.set()
        try:
            await asyncio.sleep(BOUND)
        finally:
            ended.append("wait")
        return "not stopped"

    async def cell() -> None:
        Agent(Scripted([calls(("wait", {})), says("end")]), [wait]).run_sync("go")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(cell())
    assert ended == ["wait"] * started
    assert "ferrule-run-sync" not in [thread.name for thread in threading.enumerate()]


def flavor_tools(seen: list[str]) -> list[Tool]:
    @tool(side_effect="read")
    def in_a_thread() -> str:
        """Read the variable in a thread."""
        seen.append(FLAVOR.get())
        return "ok"

    @tool(side_effect="read")
    async def in_a_task() -> str:
        """Read the variable in a task."""
        seen.append(FLAVOR.get())
        return "ok"

    return [in_a_thread, in_a_task]


class FlavorHook:
    """Reads the variable before each call."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    async def before(self, tool: Tool, values: object, context: Context) -> None:
        self.seen.append(FLAVOR.get())

    async def after(self, tool: Tool, result: object, context: Context) -> None: ...


@pytest.mark.parametrize("host", [*HOSTS, "thread"])
def test_context_variables_of_the_caller_reach_tools_and_hooks(host: str) -> None:
    seen: list[str] = []
    both = calls(("in_a_thread", {}), ("in_a_task", {}))
    agent = Agent(
        Scripted([calls(("in_a_thread", {})), both, says("end")]),
        flavor_tools(seen),
        plugins=[Parts(hooks=[FlavorHook(seen)])],
    )

    def run() -> None:
        FLAVOR.set("vanilla")
        agent.run_sync("go")

    async def cell() -> None:
        run()

    if host == "script":
        contextvars.copy_context().run(run)
    elif host == "notebook":
        asyncio.run(cell())
    else:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join(BOUND)
    assert seen == ["vanilla"] * 6


def test_a_second_interrupt_ends_a_program_whose_tool_never_does() -> None:
    """In a notebook the run has a thread of its own, which must not keep the program alive."""
    program = textwrap.dedent(
        """
        import asyncio, os, signal, threading
        from ferrule import Agent, Host, Scripted, tool
        from ferrule.testing import calls

        @tool(side_effect="read")
        def hang() -> str:
            "Blocks its thread."
            main = os.getpid()
            os.kill(main, signal.SIGINT)
            again = threading.Timer(0.5, os.kill, (main, signal.SIGINT))
            again.daemon = True
            again.start()
            threading.Event().wait()

        async def cell():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            agent = Agent(Scripted([calls(("hang", {}))]), [hang], host=Host(stop_seconds=3600))
            agent.run_sync("go")

        asyncio.run(cell())
        """
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND, check=False
    )
    assert "KeyboardInterrupt" in ended.stderr
    assert ended.returncode != 0
