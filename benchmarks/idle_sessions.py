"""Ten thousand idle sessions in one server: memory of each, with all that the server keeps of it.

    python benchmarks/idle_sessions.py [SESSIONS]       # 10,000

The server is a console with the tools, hooks and sandbox of the settings as they ship. Each session
has had one run (a message and an answer) and stays open: its history, its approver, its lease and
its place on the event bus. The console's own bound (64 open sessions, the others are resumed from
the journal when they are needed) is taken away here. Memory is what the process has resident, from
the first tenth of the sessions to the last.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from ferrule.console.setup import build_console, close_console
from ferrule.console.viewer import Viewer

AT_ONCE = 16


def resident() -> float:
    """KiB that this process has in memory (Linux)."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


async def measure(folder: Path, wanted: int) -> None:
    answer = {"say": "It was an off-by-one error in the loop. " * 5}
    script = folder / "answers.json"
    script.write_text(json.dumps([answer] * wanted), encoding="utf-8")
    work = folder / "work"
    work.mkdir()
    console = build_console(
        {"model": f"scripted:{script}", "workspace": str(work)}, lambda _: None, owner="owner"
    )
    desk = console.open_sessions
    desk.pool.max_open = wanted
    viewer = Viewer("owner", operator=True)

    async def work_on(count: int) -> None:
        for start in range(0, count, AT_ONCE):
            number = min(AT_ONCE, count - start)
            texts = [f"Please fix bug {start + n} in module {n}." for n in range(number)]
            opened = [await desk.start(viewer, text) for text in texts]
            runs = [one.run_task for one in opened if one.run_task is not None]
            await asyncio.wait(runs)
            assert not any(one.failed for one in opened), opened[0].failed

    first = wanted // 10
    await work_on(first)
    before = resident()
    begun = time.process_time()
    await work_on(wanted - first)
    taken = time.process_time() - begun
    after = resident()
    assert len(desk.pool) == wanted
    each = (after - before) / (wanted - first)
    print(
        f"{wanted:,} idle sessions, load {os.getloadavg()[0]:.1f}: {each:.1f} KiB each, "
        f"{after / 1024:.0f} MiB in all; opening one and its run {taken / (wanted - first) * 1000:.1f}"
        " ms of processor time"
    )
    await close_console(console)


def main() -> int:
    wanted = int(sys.argv[1]) if sys.argv[1:] else 10_000
    with tempfile.TemporaryDirectory(prefix="ferrule-idle-") as folder:
        os.environ["FERRULE_STATE"] = f"{folder}/state"
        os.environ["XDG_CONFIG_HOME"] = f"{folder}/config"
        asyncio.run(measure(Path(folder), wanted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
