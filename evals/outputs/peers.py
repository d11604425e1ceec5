"""The same types, manners and modes for Ferrule and its peers, on one server (`server`).

Peers live in environments of their own, made once by `benchmarks/peers/envs.py`. The ends are
explained in `worker`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from .manners import MANNERS
from .server import ManneredServer
from .types_asked import ASKED

EVALS = Path(__file__).resolve().parents[1]
REQUIRES = {
    "pydantic-ai": ("pydantic-ai-slim[openai]==2.68.0",),
    "instructor": ("instructor==1.17.0",),
}
MODES = ("schema", "tool", "prompt")
ENDS = ("right", "wrong value", "value", "no value", "not taken", "not ended")
RUN_SECONDS = 90.0
"""Time for one run. The worker gives up after 60 seconds, unless a library keeps its loop busy."""
PROGRESS_EVERY = 240


class Case(NamedTuple):
    """A run of every library."""

    type: int
    manner: int
    mode: str
    stream: bool


class Figures(NamedTuple):
    """How often each end came in each mode, streamed or not, and the seconds of all runs."""

    ends: Counter[tuple[str, bool, str]]
    faults: Counter[str]
    seconds: float


def list_cases(every: int = 1) -> Iterator[Case]:
    """Yield all cases, or each `every`-th."""
    cases = (
        Case(number, manner, mode, stream)
        for manner in range(len(MANNERS))
        for number in range(len(ASKED))
        for mode in MODES
        for stream in (False, True)
    )
    for place, case in enumerate(cases):
        if place % every == 0:
            yield case


def find_pythons() -> dict[str, str]:
    """Return the interpreter of each library, in environments that are made where they lack."""
    sys.path.insert(0, str(EVALS.parent / "benchmarks/peers"))
    from envs import make, python

    found = {"ferrule": sys.executable}
    for name, requires in REQUIRES.items():
        own = f"outputs-{name}"
        sys.stderr.write(f"{name}: looking for its environment, or making it\n")
        make(own, list(requires), False)
        found[name] = str(python(own))
    return found


class Worker:
    """A process that plays runs with one library (`worker`), begun again if it does not answer.

    Args:
        command: What starts it.
        seconds: How long one run may take; the worker itself gives up before.
    """

    def __init__(self, command: Sequence[str], seconds: float = RUN_SECONDS) -> None:
        self._command = command
        self._seconds = seconds
        self._process: asyncio.subprocess.Process | None = None

    async def play(self, case: Case) -> str:
        """Return how a run ended; `not ended` if the worker died of it, or never came back."""
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self._seconds):
                process.stdin.write(json.dumps(case._asdict()).encode() + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readline()
        except (TimeoutError, ConnectionError):
            line = b""
        if not line.startswith(b"@@"):
            await self.stop()
            return "not ended"
        return str(json.loads(line[2:])["end"])

    async def _start(self) -> asyncio.subprocess.Process:
        variables = {**os.environ, "PYTHONPATH": str(EVALS), "PYDANTIC_AI_NO_UPDATE_CHECK": "1"}
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, env=variables
        )
        return self._process

    async def stop(self) -> None:
        """End the process, whatever it is doing."""
        process = self._process
        self._process = None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


async def measure(name: str, program: str, url: str, cases: list[Case]) -> Figures:
    """Play all cases with one library, in a process of its own."""
    worker = Worker((program, "-m", "outputs.worker", name, url))
    ends: Counter[tuple[str, bool, str]] = Counter()
    faults: Counter[str] = Counter()
    began = time.perf_counter()
    try:
        for played, case in enumerate(cases, 1):
            end = await worker.play(case)
            ends[(case.mode, case.stream, end)] += 1
            if end not in ("right", "not taken"):
                faults[f"{end}: {MANNERS[case.manner].name}"] += 1
            if played % PROGRESS_EVERY == 0:
                seconds = time.perf_counter() - began
                sys.stderr.write(f"{name}: {played} of {len(cases)} runs in {seconds:.0f} s\n")
    finally:
        await worker.stop()
    return Figures(ends, faults, time.perf_counter() - began)


async def measure_all(pythons: dict[str, str], cases: list[Case]) -> dict[str, Figures]:
    """Play all cases with all libraries, which take turns on as many cores as there are."""
    async with ManneredServer() as server, asyncio.TaskGroup() as group:
        tasks = {
            name: group.create_task(measure(name, program, server.url, cases))
            for name, program in pythons.items()
        }
    return {name: task.result() for name, task in tasks.items()}


def format_table(figures: dict[str, Figures]) -> str:
    """Return the table: how runs ended, by library and mode, streamed or not."""
    lines = ["| library | mode | | runs | " + " | ".join(ENDS) + " |"]
    lines.append("|---|---|---|" + "--:|" * (len(ENDS) + 1))
    for name, found in figures.items():
        for mode in MODES:
            for stream in (False, True):
                counts = [found.ends[(mode, stream, end)] for end in ENDS]
                cells = " | ".join(str(count) for count in counts)
                how = "streamed" if stream else "whole"
                lines.append(f"| {_label(name)} | {mode} | {how} | {sum(counts)} | {cells} |")
    return "\n".join(lines)


def _label(name: str) -> str:
    """Return a library with the version that is asked, or "ferrule"."""
    required = REQUIRES.get(name, (name,))[0]
    return re.sub(r"-slim|\[\w+\]", "", required).replace("==", " ")


def describe_faults(figures: dict[str, Figures]) -> str:
    """Return a line for each library: its seconds, and what went wrong most often."""
    lines: list[str] = []
    for name, found in figures.items():
        shown = ", ".join(f"{fault} {count}" for fault, count in found.faults.most_common(6))
        lines.append(f"{name}: {found.seconds:.0f} s; most often not right: {shown or 'nothing'}")
    return "\n".join(lines)


def compare(every: int) -> dict[str, Figures]:
    """Return the figures of all libraries."""
    return asyncio.run(measure_all(find_pythons(), list(list_cases(every))))


def is_all_right(figures: Figures) -> bool:
    """Return whether every run ended as it must."""
    return {end for _, _, end in figures.ends} == {"right"}
