"""What the sandbox costs: a confined command beside a bare spawn, and a confined build beside a
bare one, in one run.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ferrule.permissions.child_environment import filter_environment
from ferrule.sandbox.command import Command
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

REPEATS = 60
PAUSE = 0.05
"""Seconds between two commands: much less than a model takes to ask for the next one."""
BUILDS = 5
FILES = 7
"""Compiled in each build: enough that one takes about ten seconds on two cores."""
SOURCE = (
    "#include <algorithm>\n#include <map>\n#include <regex>\n#include <string>\nint "
    'part{n}(std::string const& s) {{ return std::regex_match(s, std::regex("a+{n}")); }}\n'
)


async def bare(argv: list[str], folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    await process.communicate()
    assert process.returncode == 0


async def confined(sandbox: Sandbox, argv: list[str], folder: Path) -> None:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    program = shutil.which(argv[0])
    assert program is not None
    environment = filter_environment(os.environ).values
    try:
        ended = await sandbox.run(
            Command(tuple(argv), program, directory, environment, lambda data: True)
        )
    finally:
        os.close(directory)
    assert ended.exit_code == 0, ended


async def pairs(
    one: Callable[[], Awaitable[None]],
    other: Callable[[], Awaitable[None]],
    count: int,
    pause: float = 0.0,
) -> list[tuple[float, float]]:
    """Milliseconds, taken alternately and each first in turn, so that what else the machine does
    falls on both.
    """
    found: list[tuple[float, float]] = []
    for number in range(count):
        times = [0.0, 0.0]
        for index in (0, 1) if number % 2 else (1, 0):
            await asyncio.sleep(pause)
            begin = time.perf_counter()
            await (one, other)[index]()
            times[index] = (time.perf_counter() - begin) * 1000
        found.append((times[0], times[1]))
    return found


def medians(found: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(plain for plain, _ in found), statistics.median(
        held for _, held in found
    )


async def measured() -> list[tuple[str, str, str, str]]:
    """Rows for the table: figure, Ferrule, beside, aim."""
    folder = Path(tempfile.mkdtemp(prefix="ferrule-bench-", dir=Path.home())).resolve()
    sandbox = Sandbox(SandboxPolicy(folder))
    try:
        await confined(sandbox, ["true"], folder)
        rows = [
            await start(sandbox, folder, "one after the other", 0.0),
            await start(sandbox, folder, f"{PAUSE * 1000:.0f} ms apart", PAUSE),
        ]
        if shutil.which("g++") and shutil.which("make"):
            rows.append(await build(sandbox, folder))
        return rows
    finally:
        await sandbox.close()
        shutil.rmtree(folder)


async def start(
    sandbox: Sandbox, folder: Path, how: str, pause: float
) -> tuple[str, str, str, str]:
    """A program that does nothing. Without a pause, what is made ahead of the next command is made
    beside this one.
    """
    found = await pairs(
        lambda: bare(["true"], folder), lambda: confined(sandbox, ["true"], folder), REPEATS, pause
    )
    plain, held = medians(found)
    beside = f"bare spawn {plain:.1f}, added {held - plain:.1f}"
    return f"a confined `true`, {how}, ms", f"{held:.1f}", beside, "added <= 10"


async def build(sandbox: Sandbox, folder: Path) -> tuple[str, str, str, str]:
    """A C++ build with two jobs. Both compile the same files.

    What is added is the median of what each pair says: two builds of the same kind differ by more
    than the sandbox costs, so the least and the most are told too.
    """
    for number in range(FILES):
        (folder / f"part{number}.cc").write_text(SOURCE.format(n=number))
    objects = " ".join(f"part{n}.o" for n in range(FILES))
    (folder / "Makefile").write_text(f"all: {objects}\n%.o: %.cc\n\tg++ -O0 -c -o $@ $<\n")
    make = ["make", "-s", "-B", "-j2"]
    found = await pairs(lambda: bare(make, folder), lambda: confined(sandbox, make, folder), BUILDS)
    plain, held = medians(found)
    added = sorted((walled - alone) / alone * 100 for alone, walled in found)
    return (
        "a confined build, s",
        f"{held / 1000:.2f}",
        (
            f"bare {plain / 1000:.2f}, added {statistics.median(added):.1f} % ({added[0]:.1f} to "
            f"{added[-1]:.1f})"
        ),
        "added <= 2 %",
    )


if __name__ == "__main__":
    for figure in asyncio.run(measured()):
        print("  ".join(figure))
