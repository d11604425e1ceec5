"""Runs every framework against every kind of fault and prints the share of runs that finish.

    make lab NAME=faults                                                # everything that is installed (some minutes)
    PYTHONPATH=evals python -m faults --peers ferrule,langchain --only near-name,cut-json --seeds 4
    PYTHONPATH=evals python -m faults --page                    # and writes the table into docs/evidence.md

Frameworks are the adapters of `benchmarks/peers` in the environments that
`benchmarks/peers/envs.py` makes, in their default settings but for what the adapters say (limits on
rounds are lifted). Ferrule is the one this program uses. Each run has `SECONDS`; a framework that
raises, hangs or dies has not finished that run. Half of the runs, the odd seeds, are streamed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

import ferrule

from .habits import KINDS
from .scores import Score, table
from .server import FaultServer, prompt

EVALS = Path(__file__).resolve().parents[1]
PEERS = EVALS.parent / "benchmarks" / "peers"
PAGE = EVALS.parent / "docs" / "evidence.md"
LOOPS = ("sockets", "litellm_loop", "openai_sdk")
"""Loops written by hand like `bare`, over other clients: left out unless they are asked for."""
SECONDS = 60.0
LOADING = 300.0
"""Seconds for a run, and for a framework to be imported, on a machine that may be busy."""
SOURCE = str(Path(ferrule.__file__).parents[1])
"""The Ferrule that is measured: the one that this program uses."""
sys.path.insert(0, str(PEERS))


@dataclass(frozen=True, slots=True)
class Framework:
    """An adapter, the interpreter that runs it, and what it says about itself."""

    name: str
    path: Path
    python: Path
    version: str
    environment: dict[str, str]
    options: dict[str, str]


class Hung(Exception):
    """A run was not over in its time, or the process is gone."""


class Worker:
    """A process of a framework, started again after it hung or died."""

    def __init__(self, framework: Framework, url: str) -> None:
        self._framework, self._url = framework, url
        words = prompt(f"{framework.name}-warm-up", "none", 0, **framework.options)
        self._warm_up = {"prompt": words, "stream": False}
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, task: dict[str, Any]) -> dict[str, Any]:
        """One run. Raises Hung."""
        if self._process is None:
            await self._start()
            await self._said(LOADING)
            # What is loaded with the first request is no part of any run.
            await self._play(self._warm_up, LOADING)
        return await self._play(task, SECONDS)

    async def _play(self, task: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            await self._process.stdin.drain()
        except ConnectionError as problem:
            await self.stop()
            raise Hung("the process ended") from problem
        return await self._said(seconds)

    async def _said(self, seconds: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        try:
            async with asyncio.timeout(seconds):
                while (line := await self._process.stdout.readline()) and not line.startswith(
                    b"@@"
                ):
                    pass
        except TimeoutError as problem:
            await self.stop()
            raise Hung(f"not over after {seconds:g} s") from problem
        if not line:
            await self.stop()
            raise Hung("the process ended")
        return json.loads(line[2:])

    async def _start(self) -> None:
        framework = self._framework
        self._process = await asyncio.create_subprocess_exec(
            *(str(framework.python), "-P", "-m", "faults.worker", str(framework.path), self._url),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=framework.environment,
            limit=1 << 24,
        )

    async def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


async def frameworks(wanted: list[str]) -> list[Framework]:
    """Those that are asked for, or all whose environment is there. Raises UsageError for one that
    is not.
    """
    from envs import adapters, python  # of the peers' benchmark, whose environments these are
    from run import KEEP, OFFLINE

    known = {
        name: facts for name, facts in adapters().items() if name in wanted or name not in LOOPS
    }
    if unknown := [name for name in wanted if name not in known]:
        raise click.UsageError(
            f"no adapter for {', '.join(unknown)}; there are: {', '.join(known)}"
        )
    found: list[Framework] = []
    for name in ["ferrule", *(name for name in known if name != "ferrule")]:
        facts, interpreter = (
            known[name],
            Path(sys.executable if name == "ferrule" else python(name)),
        )
        if wanted and name not in wanted:
            continue
        if not interpreter.exists():  # noqa: ASYNC240  (before anything runs)
            if wanted:
                raise click.UsageError(
                    f"{interpreter} is missing; make it: python benchmarks/peers/envs.py {name}"
                )
            continue
        kept = {key: os.environ[key] for key in KEEP if key in os.environ}
        paths = os.pathsep.join(
            (str(EVALS), str(PEERS / "given"), *([SOURCE] if name == "ferrule" else []))
        )
        environment = {**kept, **OFFLINE, **facts.get("ENV", {}), "PYTHONPATH": paths}
        version = await _version(interpreter, facts["VERSION_OF"])
        options = facts.get("PROMPT_OPTS", {})
        found.append(Framework(name, facts["path"], interpreter, version, environment, options))
    return found


async def _version(python: Path, package: str) -> str:
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(str(python), "-c", code, stdout=pipe)
    said, _ = await process.communicate()
    return said.decode().strip()


async def play(
    server: FaultServer, worker: Worker, framework: Framework, kind: str, seed: int, score: Score
) -> None:
    """One run, judged."""
    run = f"{framework.name}-{kind}-{seed}"
    streamed = KINDS[kind].streamed or seed % 2 == 1
    words = prompt(run, kind, seed, **framework.options)
    try:
        said = await worker.run({"prompt": words, "stream": streamed})
    except Hung as problem:
        said = {"answer": None, "error": str(problem), "placed": []}
    model = server.plays.pop(run, None)
    refused = server.refusals.pop(run, "")
    if model is None:
        return score.add(
            finished=False, once=False, rounds=0, why=said["error"] or "it never asked"
        )
    answer = model.said if streamed else said["answer"] or ""
    finished = not said["error"] and model.order.confirmation in answer
    once = [tuple(placed) for placed in said["placed"]] == [model.order.placed]
    why = (
        ""
        if finished and once
        else said["error"] or _why(finished, model.gave_up, answer, said["placed"])
    )
    return score.add(
        finished=finished,
        once=once,
        rounds=model.rounds,
        why=f"{why} | 400: {refused}" if refused else why,
    )


def _why(finished: bool, gave_up: bool, answer: str, placed: list[Any]) -> str:
    if finished:
        return f"{len(placed)} orders" if len(placed) != 1 else "another order than was meant"
    if gave_up:
        return "the model gave up"
    return f"it ended with {answer[:60]!r}" if answer else "it ended without the last words"


async def measure(given: argparse.Namespace) -> dict[str, Any]:
    """All runs; several frameworks at a time, each one run after run."""
    found = await frameworks(given.peers)
    scores = {
        kind: {framework.name: Score() for framework in found} for kind in given.only or KINDS
    }
    free, done = asyncio.Semaphore(given.jobs), list[Framework]()

    async def every(framework: Framework) -> None:
        async with free, FaultServer() as server:
            worker, started = Worker(framework, server.url), time.monotonic()
            try:
                for kind, score in scores.items():
                    for seed in range(given.seeds):
                        await play(server, worker, framework, kind, seed, score[framework.name])
            finally:
                await worker.stop()
            done.append(framework)
            click.echo(f"{framework.name}: {time.monotonic() - started:.0f} s", err=True)
            written(given.out, result())

    def result() -> dict[str, Any]:
        return summary(given, [framework for framework in found if framework in done], scores)

    await asyncio.gather(*map(every, found))
    return result()


def summary(
    given: argparse.Namespace, found: list[Framework], scores: Mapping[str, Mapping[str, Score]]
) -> dict[str, Any]:
    """The result of these frameworks as JSON, beside those of the earlier runs that are named."""
    versions: dict[str, str] = {}
    kinds: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
    for earlier in given.beside:
        before = json.loads(earlier.read_text(encoding="utf-8"))
        versions.update(before["versions"])
        for kind, row in kinds.items():
            row.update(before["kinds"].get(kind, {}))
    for framework in found:
        versions[framework.name] = framework.version
        for kind, row in scores.items():
            kinds[kind][framework.name] = row[framework.name].data()
    kinds = {kind: row for kind, row in kinds.items() if row}
    names = sorted(versions, key=lambda name: (name != "ferrule", name))
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "seeds": given.seeds,
        "versions": {name: versions[name] for name in names},
        "table": table(kinds, names),
        "kinds": kinds,
    }


def written(path: Path, result: dict[str, Any]) -> None:
    """Keep a result; also one that is not complete, since the whole takes long."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def page(result: dict[str, Any]) -> str:
    """The block of docs/evidence.md."""
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    above = (
        f"On {result['made']}, Python {result['python']}, {result['seeds']} runs of each "
        "kind with each framework: percent of runs "
        "that finish with exactly one order, the one that was meant. In brackets: percent "
        "that finish, where that is more.\n\n"
    )
    return f"\n{above}{result['table']}\n\nVersions: {versions}.\n\n"


def main() -> int:
    """Parse, measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    listed = lambda text: [item for item in text.split(",") if item]  # noqa: E731  (a type of argparse)
    parser.add_argument(
        "--only", type=listed, default=[], help=f"kinds of faults, of: {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--peers", type=listed, default=[], help="adapters; all that are installed by default"
    )
    parser.add_argument(
        "--seeds", type=int, default=20, help="runs of each kind with each framework"
    )
    parser.add_argument("--jobs", type=int, default=2, help="frameworks at a time")
    parser.add_argument("--out", type=Path, default=Path("build/faults.json"))
    paths = lambda text: [Path(item) for item in listed(text)]  # noqa: E731  (a type of argparse)
    parser.add_argument(
        "--beside", type=paths, default=[], help="results of earlier runs to put beside these"
    )
    parser.add_argument("--page", action="store_true", help="write the table into docs/evidence.md")
    given = parser.parse_args()
    if unknown := [kind for kind in given.only if kind not in KINDS]:
        parser.error(f"no such kind: {', '.join(unknown)}; there are: {', '.join(KINDS)}")
    result = asyncio.run(measure(given))
    click.echo(page(result))
    if given.page:
        before, start, rest = PAGE.read_text(encoding="utf-8").partition("<!-- faults -->\n")
        _, end, after = rest.partition("<!-- /faults -->")
        PAGE.write_text(f"{before}{start}{page(result)}{end}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
