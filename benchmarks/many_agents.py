"""What is left of 5,000 agents: descriptors, sockets, threads, tasks and memory, which must be flat.

    python benchmarks/many_agents.py [AGENTS]

Each agent is made, used for one run with a call in a thread, and forgotten or closed, as programs
do. A fifth of the runs is cancelled in the middle. The exit status is 1 if anything grew.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import tempfile
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

from ferrule import Agent, Scripted, Storage, tool
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
    descriptors = os.listdir("/proc/self/fd")
    targets = [_read_link(name) for name in descriptors]
    status = Path("/proc/self/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return Counts(
        len(descriptors),
        sum(target.startswith("socket:") for target in targets),
        threading.active_count(),
        len(asyncio.all_tasks()),
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


async def main(agents: int) -> int:
    """Use that many agents. Return the exit status."""
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
    print(f"after {warm:,} agents: {before}")
    print(f"after {agents:,} agents: {after}")
    grown = [
        name
        for name in ("descriptors", "sockets", "threads", "tasks", "agents")
        if getattr(after, name) > getattr(before, name)
    ]
    if after.resident_kib > before.resident_kib + SLACK_KIB:
        grown.append("resident_kib")
    print(f"grown: {', '.join(grown) or 'nothing'}")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 5000)))
