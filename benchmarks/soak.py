"""`make lab NAME=soak`: many commands in one session, and what is left of them: nothing.

1,000 commands, 100 at once in the background, each with a descendant in a session of its own that
holds the pipes and ignores SIGTERM. A third ends by itself, a third is killed, a third runs out of
time. Then no process, descriptor, file or zombie may be left, and memory must be where it was once
a session keeps as many finished commands as it ever does (a third of the way). Ends with status 1
if anything is.

    python benchmarks/soak.py [commands] [at once] [unconfined]
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MARK = f"1000.{os.getpid()}"
"""How long they sleep: numbers of processes are soon given to others, so they are known by this."""
HIDDEN = (
    f"""setsid setsid sh -c 'trap "" TERM HUP; echo "$$"; exec sleep {MARK}' & wait; sleep {MARK}"""
)
KINDS = ("echo done; head -c 100000 /dev/urandom", HIDDEN, HIDDEN)
TIMEOUTS = (600_000, 600_000, 1_000)
ENDS = ("completed", "killed", "timed_out")
GROWTH = 16 * 1024
"""KiB of resident memory that may come after the first third: caches of the interpreter."""


def main(count: int = 1000, at_once: int = 100, *, confined: bool = True) -> int:
    """Run it and print what was found. 0 if nothing is left."""
    with tempfile.TemporaryDirectory(prefix="ferrule-soak-") as folder:
        os.environ["FERRULE_STATE"] = f"{folder}/state"
        work = Path(folder, "work").resolve()
        work.mkdir()
        return asyncio.run(soaked(work, count, at_once, confined=confined))


async def soaked(work: Path, count: int, at_once: int, *, confined: bool) -> int:
    from ferrule.core.identity import Identity
    from ferrule.permissions.filesystem.workspace import Workspace
    from ferrule.sandbox.policy import SandboxPolicy
    from ferrule.toolkits.commands import (
        CommandOptions,
        CommandPolicy,
        SessionCommands,
        command_tools,
    )
    from ferrule.tools.context import Context

    policy = CommandPolicy(
        shell_allowed=True, max_running=at_once, confine=SandboxPolicy(work) if confined else None
    )
    resources: dict[type, object] = {Workspace: Workspace(work), CommandPolicy: policy}
    context = Context(Identity("t", "u", "s", "r"), "soak", memory={}, resources=resources)
    tools = {
        tool.name: tool
        for tool in command_tools(CommandOptions(output_format="value", lifecycle=True))
    }
    ended: dict[str, int] = {}

    async def one(number: int) -> None:
        kind = number % 3
        record = await call(
            "run_command",
            command=KINDS[kind],
            mode="shell",
            background=True,
            timeout_ms=TIMEOUTS[kind],
        )
        if kind == 1:
            await call("kill_command", handle_id=record["handle_id"])
        record = await call("wait_command", handle_id=record["handle_id"], timeout_ms=600_000)
        right = record["status"] == ENDS[kind]
        ended[record["status"]] = ended.get(record["status"], 0) + 1
        if not right:
            print(f"{number}: {record['status']} instead of {ENDS[kind]}: {record}")

    async def call(name: str, **arguments: Any) -> Any:
        checked = tools[name].arguments.check(arguments)
        return await tools[name].handler(context=context, **checked.values)

    await one(0)  # what is loaded and opened once is there now
    before, begin = opened(), time.monotonic()
    first = 0
    for start in range(0, count, at_once):
        await asyncio.gather(*(one(number) for number in range(start, min(count, start + at_once))))
        if start * 3 <= count:
            first = resident()
    took = time.monotonic() - begin
    wrong = [f"still running: {line}" for line in running()]
    wrong += [f"descriptor: {name}" for name in set(opened()) - set(before)]
    grown = resident() - first
    wrong += [f"memory grew by {grown} KiB"] * (grown > GROWTH)
    await SessionCommands.from_context(context).close()
    wrong += [f"file: {path}" for path in Path(os.environ["FERRULE_STATE"], "commands").iterdir()]
    wrong += [f"child: {child}" for child in children()]
    print(
        f"{count} commands, {at_once} at once, in {took:.1f} s: {ended}; memory {first} KiB, "
        f"then {grown:+} KiB"
    )
    print("\n".join(wrong) or "nothing is left")
    return 1 if wrong or sum(ended.get(end, 0) for end in ENDS) != count + 1 else 0


def opened() -> list[str]:
    """What this process has open, numbered where there is more than one of a kind."""
    gc.collect()
    counted: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            what = re.sub(r"\d+|[0-9a-f]{8,}", "N", os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
        counted[what] = counted.get(what, 0) + 1
    return [f"{what} ({number})" for what, count in counted.items() for number in range(count)]


def resident() -> int:
    """KiB of memory that this process holds."""
    gc.collect()
    return int(
        next(
            line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
        ).split()[1]
    )


def running() -> list[str]:
    """Command lines of ours that have not ended."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().decode("utf-8", "replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found += [line.replace("\0", " ")] * (MARK in line)
    return found


def children() -> list[str]:
    """Processes that are ours: running ones and zombies. The shared server of unconfined commands
    may stay.
    """
    found: list[str] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition(") ")
        except FileNotFoundError:
            continue
        state, parent = rest.split()[:2]
        if int(parent) == os.getpid() and (state == "Z" or "python" not in name):
            found.append(f"{name}) {state}")
    return found


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    sys.exit(main(*numbers, confined="unconfined" not in sys.argv))
