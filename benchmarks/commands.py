"""What the sandbox costs: a confined command beside a bare spawn, and a confined build beside a bare one, in one run."""

from __future__ import annotations

import asyncio
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ferrule.guard.environment import child_environment
from ferrule.guard.sandbox.command import Command
from ferrule.guard.sandbox.policy import Policy
from ferrule.guard.sandbox.sandbox import Sandbox

REPEATS = 60
FILES = 12
"""Compiled twice in each build: enough that one takes about ten seconds on two cores."""
SOURCE = '#include <algorithm>\n#include <map>\n#include <regex>\n#include <string>\nint part{n}(std::string const& s) {{ return std::regex_match(s, std::regex("a+{n}")); }}\n'


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
    environment = child_environment(os.environ).values
    try:
        ended = await sandbox.run(Command(tuple(argv), program, directory, environment, lambda data: True))
    finally:
        os.close(directory)
    assert ended.exit_code == 0, ended


async def pairs(
    one: Callable[[], Awaitable[None]], other: Callable[[], Awaitable[None]], count: int
) -> tuple[float, float]:
    """Medians in milliseconds, taken alternately, so that what else the machine does falls on both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(count):
        for work, kept in zip((one, other), times, strict=True):
            begin = time.perf_counter()
            await work()
            kept.append((time.perf_counter() - begin) * 1000)
    return statistics.median(times[0]), statistics.median(times[1])


async def measured() -> list[tuple[str, str, str, str]]:
    """Rows for the table: figure, Ferrule, beside, aim."""
    folder = Path(tempfile.mkdtemp(prefix="ferrule-bench-", dir=Path.home())).resolve()
    sandbox = Sandbox(Policy(folder))
    try:
        await confined(sandbox, ["true"], folder)
        plain, held = await pairs(
            lambda: bare(["true"], folder), lambda: confined(sandbox, ["true"], folder), REPEATS
        )
        rows = [
            (
                "a confined `true`, ms",
                f"{held:.1f}",
                f"bare spawn {plain:.1f}, added {held - plain:.1f}",
                "added <= 10",
            )
        ]
        if shutil.which("g++") and shutil.which("make"):
            rows.append(await build(sandbox, folder))
        return rows
    finally:
        await sandbox.close()
        shutil.rmtree(folder)


async def build(sandbox: Sandbox, folder: Path) -> tuple[str, str, str, str]:
    """A C++ build with two jobs. Both compile the same files; each takes about ten seconds."""
    for number in range(FILES):
        (folder / f"part{number}.cc").write_text(SOURCE.format(n=number))
    objects = " ".join(f"part{n}.o" for n in range(FILES))
    (folder / "Makefile").write_text(f"all: {objects}\n%.o: %.cc\n\tg++ -O0 -c -o $@ $<\n")
    make = ["make", "-s", "-B", "-j2"]
    plain, held = await pairs(lambda: bare(make, folder), lambda: confined(sandbox, make, folder), 2)
    share = (held - plain) / plain * 100
    return (
        "a confined build, s",
        f"{held / 1000:.2f}",
        f"bare {plain / 1000:.2f}, added {share:.1f} %",
        "added <= 2 %",
    )


if __name__ == "__main__":
    for figure in asyncio.run(measured()):
        print("  ".join(figure))
