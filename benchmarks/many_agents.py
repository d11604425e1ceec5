"""What is left of 5,000 agents, 10,000 turns, 200 forks and 1,000 stopped runs, which must be flat.

    python benchmarks/many_agents.py [SHARE]

Counted are descriptors, sockets, threads, tasks, agents and memory, after the first tenth of each
and at its end. Each agent is made, used for one run with a call in a thread, and forgotten or
closed, as programs do; a fifth of the runs is cancelled. Forks are of a process whose threads run
agents, and each child runs one. Stopped runs are in a call that swallows its cancellation, and
their model would go on with calls that have effects: no effect may follow. SHARE (1) of each is
done. The exit status is 1 if anything grew or happened.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from ferrule import Agent, FerruleError, Host, Limits, Scripted, Storage, tool
from ferrule.core.value_class import frozen
from ferrule.storage import SqliteJournal
from ferrule.testing import calls, says

SLACK_KIB = 8 * 1024
"""How much the resident memory may grow between the first tenth and the end: the allocator's own."""


@frozen
class Counts:
    """What the process holds."""

    descriptors: int
    sockets: int
    threads: int
    tasks: int
    agents: int
    resident_kib: int


def count() -> Counts:
    """Count what the process holds."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # what the allocator of glibc keeps of freed memory
    try:
        tasks = len(asyncio.all_tasks())
    except RuntimeError:
        tasks = 0  # no loop runs
    descriptors = os.listdir("/proc/self/fd")
    targets = [_read_link(name) for name in descriptors]
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return Counts(
        len(descriptors),
        sum(target.startswith("socket:") for target in targets),
        threading.active_count(),
        tasks,
        sum(isinstance(one, Agent) for one in gc.get_objects()),
        int(resident.split()[1]),
    )


def _read_link(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except FileNotFoundError:
        return ""


@tool(side_effect="read")
def look() -> str:
    """Look, in a thread."""
    return "seen"


@tool(side_effect="read")
async def wait() -> str:
    """Wait for ever."""
    await asyncio.Event().wait()
    return "never"


async def forget(storage: Storage) -> None:
    """Use an agent and close nothing."""
    await Agent(Scripted([calls(("look", {})), says("end")]), [look], storage=storage).run("go")


async def use_with(storage: Storage) -> None:
    """Use an agent and a session as context managers."""
    model = Scripted([calls(("look", {})), says("end")])
    async with Agent(model, [look], storage=storage) as agent, agent.session() as session:
        await session.run("go")


async def use_a_loop_of_its_own(storage: Storage) -> None:
    """Use an agent by `run_sync`, which runs in a thread of its own here."""
    Agent(Scripted([calls(("look", {})), says("end")]), [look], storage=storage).run_sync("go")


async def forget_a_session(storage: Storage) -> None:
    """Leave a session open."""
    agent = Agent(Scripted([calls(("look", {})), says("end")]), [look], storage=storage)
    await agent.session().run("go")


async def cancel(storage: Storage) -> None:
    """Cancel a run in the middle of a call."""
    agent = Agent(Scripted([calls(("wait", {})), says("end")]), [wait], storage=storage)
    run = asyncio.ensure_future(agent.run("go"))
    for _ in range(20):
        await asyncio.sleep(0)
    run.cancel()
    await asyncio.wait([run])


USES: tuple[Callable[[Storage], Awaitable[None]], ...] = (
    forget,
    use_with,
    use_a_loop_of_its_own,
    forget_a_session,
    cancel,
)


async def use_agents(agents: int) -> bool:
    """Use that many agents. Return whether nothing grew."""
    with tempfile.TemporaryDirectory() as folder:
        shared = SqliteJournal(Path(folder) / "shared.db")
        own = str(Path(folder) / "own.db")
        storages = (Storage(), Storage(journal=shared), Storage(journal=own))
        warm = max(len(USES) * len(storages), agents // 10)
        before = count()
        for number in range(agents):
            if number == warm:
                before = count()
            await USES[number % len(USES)](storages[number // len(USES) % len(storages)])
        after = count()
        shared.close()
    return report("agents", warm, before, agents, after)


TURNS = 100
"""Turns of a run."""


@tool(side_effect="read")
def add(number: int) -> int:
    """Add one."""
    return number + 1


async def take_turns(turns: int) -> bool:
    """Take that many turns, in sessions of ten runs. Return whether nothing grew."""
    runs = max(20, turns // TURNS)
    warm = max(10, runs // 10)
    before = count()
    for number in range(0, runs, 10):
        if number == warm // 10 * 10:
            before = count()
        await run_ten_times()
    return report("turns", warm * TURNS, before, runs * TURNS, count())


async def run_ten_times() -> None:
    """Run a session of ten runs, whose agent and history are forgotten at the end."""
    steps = [calls(("add", {"number": turn})) for turn in range(TURNS - 1)]
    script = Scripted([*steps, says("end")] * 10)
    async with Agent(script, [add]) as agent, agent.session() as session:
        for _ in range(10):
            await session.run("go")


def ask_about(number: int) -> None:
    """Run an agent without a loop."""
    script = Scripted([calls(("add", {"number": number})), says("end")])
    assert Agent(script, [add]).run_sync("go").results[0].data == number + 1


def fork_often(forks: int) -> bool:
    """Fork that often while threads run agents. Return whether all children ended well, flat."""
    warnings.simplefilter("ignore", DeprecationWarning)  # forks of a process with threads
    stopped = threading.Event()

    def keep_busy() -> None:
        while not stopped.is_set():
            ask_about(1)

    ask_about(1)
    threads = [threading.Thread(target=keep_busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    failed = 0
    warm = max(1, forks // 10)
    before = count()
    for number in range(forks):
        if number == warm:
            before = count()
        failed += fork_once(number)
    stopped.set()
    for thread in threads:
        thread.join()
    print(f"forks: {failed} of {forks} children failed")
    return report("forks", warm, before, forks, count()) and not failed


def fork_once(number: int) -> bool:
    """Run an agent in a child. Return whether it failed."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0
    signal.alarm(30)
    try:
        ask_about(number)
    except BaseException as error:
        print(f"child {number}: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


class Stubborn:
    """A run in a call that swallows its cancellation, and the effects that followed."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.effects = 0

        @tool(side_effect="read")
        async def swallow() -> str:
            """Go on whatever happens."""
            self.begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "went on"

        @tool(side_effect="write", risk="safe")
        async def write() -> str:
            """Have an effect."""
            self.effects += 1
            return "written"

        self.tools = (swallow, write)

    def agent(self, **more: object) -> Agent:
        steps = [calls(("swallow", {})), *([calls(("write", {}))] * 20)]
        return Agent(Scripted(steps), self.tools, host=Host(stop_seconds=1), **more)  # type: ignore[arg-type]


async def cancel_task(run: Stubborn) -> None:
    """Cancel the task of a run."""
    task = asyncio.ensure_future(run.agent().run("go"))
    await run.begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def cancel_session(run: Stubborn) -> None:
    """Stop a session."""
    async with run.agent().session() as session:
        task = asyncio.ensure_future(session.run("go"))
        await run.begun.wait()
        session.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def time_out(run: Stubborn) -> None:
    """Bound a run from outside."""
    with suppress(TimeoutError):
        await asyncio.wait_for(run.agent().run("go"), 0.02)


async def reach_limit(run: Stubborn) -> None:
    """Bound a run by a limit."""
    with suppress(FerruleError):
        await run.agent(limits=Limits(max_seconds=0.02)).run("go")


STOPS = (cancel_task, cancel_session, time_out, reach_limit)


async def stop_runs(runs: int) -> bool:
    """Stop that many runs. Return whether no effect followed and nothing grew."""
    warm = max(len(STOPS), runs // 10)
    stopped: list[Stubborn] = []
    before = count()
    for number in range(runs):
        if number == warm:
            before = count()
        stopped.append(Stubborn())
        await STOPS[number % len(STOPS)](stopped[-1])
    await asyncio.sleep(1.5)  # longer than a tool is waited for
    effects = sum(run.effects for run in stopped)
    begun = sum(run.begun.is_set() for run in stopped)
    stopped.clear()
    print(f"stopped runs: {runs:,}, of which {begun:,} were in their call: {effects} effects after")
    return report("stopped runs", warm, before, runs, count()) and not effects


def report(what: str, first: int, before: Counts, last: int, after: Counts) -> bool:
    """Print both counts. Return whether nothing grew."""
    print(f"after {first:,} {what}: {before}")
    print(f"after {last:,} {what}: {after}")
    grown = [
        name
        for name in ("descriptors", "sockets", "threads", "tasks", "agents")
        if getattr(after, name) > getattr(before, name)
    ]
    if after.resident_kib > before.resident_kib + SLACK_KIB:
        grown.append("resident_kib")
    print(f"{what}: grown: {', '.join(grown) or 'nothing'}", flush=True)
    return not grown


async def use_and_stop(share: float) -> list[bool]:
    """Do what needs a loop."""
    return [
        await use_agents(int(5000 * share)),
        await take_turns(int(10_000 * share)),
        await stop_runs(int(1000 * share)),
    ]


def main(share: float) -> int:
    """Do that share of everything. Return the exit status."""
    flat = [fork_often(int(200 * share)), *asyncio.run(use_and_stop(share))]
    return 0 if all(flat) else 1


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if len(sys.argv) > 1 else 1))
