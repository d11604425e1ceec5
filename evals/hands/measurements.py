"""Have a scripted model do the same work in Ferrule and in other agents; print it as a table.

    make lab NAME=rivals                                   # Ferrule, with the tools of two families
    make lab NAME=rivals ARGS="--rivals FOLDER"            # and those installed there
    make lab NAME=rivals ARGS="--ferrule OTHER/bin/ferrule --only ferrule"

Nothing is asked in the rows about tokens and seconds. `questions` counts in the editor's protocol
(ACP) for Ferrule, in mode `default` and, in brackets, in `sandboxed`; each is answered with a yes for
this once. The row after it is mode `default` where the person says yes to all edits of the session
when the first is asked about. Of rivals it is not counted here, since each would need its own
terminal driven.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from .editor import talk
from .model_server import Call, ModelServer
from .rival_agents import FERRULE, RIVALS, RivalAgent, make_environment
from .tokens import find_counter

PROMPT = "Say what this project is."
OLD = "        return sum(line.price for line in {}lines)"
NEW = "        return sum(line.price * line.count for line in self.lines)"
CART = "\n".join(
    [
        "class Line:",
        "    def __init__(self, price, count):",
        "        self.price = price",
        "        self.count = count",
        "",
        "",
        "class Cart:",
        "    def __init__(self):",
        "        self.lines = []",
        "",
        "    def add(self, price, count=1):",
        "        self.lines.append(Line(price, count))",
        "",
        "    def total(self):",
        OLD.format("self."),
        "",
    ]
)
FILES = {
    "README.md": "# shop\n\nA small shop.\n",
    "AGENTS.md": "Run `python3 -m pytest -q` before you commit.\n",
    "src/shop/__init__.py": "",
    "src/shop/cart.py": CART,
    "fail.sh": "for i in $(seq 1 20); do echo line $i of what went wrong; done\nexit 1\n",
}
AIMS = {
    "first request": "2,500",
    "eight operations": "12,000",
    "168 KB of output": "4,000",
    "file of 4,000 lines": "5,000",
    "missed edit": "90",
    "denial": "40",
    "questions in twelve calls": "2",
    "the same, edits granted for the session": "2",
    "headless: reads and harmless commands": "all (7)",
    "three `sleep 3`": "3.5 s",
    "answers of 61": "61",
    "background": "all",
}
"""Rows of the table and what Ferrule aims at: at most, where it is a number."""


def make_repository(folder: Path) -> None:
    """Make the repository that each run begins with."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    rows = [
        f"{number:04d} the quick brown fox jumps over the lazy dog and goes home"
        + (" zebrafish" if number % 133 == 7 else "")
        for number in range(1, 4001)
    ]
    (folder / "big.txt").write_text("\n".join(rows) + "\n")
    subprocess.run(["git", "init", "-q", folder], check=True)


@dataclass
class Ran:
    """What one run sent, and how it ended."""

    server: ModelServer
    status: int
    processor_seconds: float
    questions: list[str]
    said: str


class Bench:
    """Runs agents in fresh repositories with homes of their own."""

    def __init__(self, ferrule: str, rivals: Path) -> None:
        self._ferrule = ferrule
        self._rivals = rivals

    def find(self, agent: RivalAgent) -> str:
        """Return the folder of an agent's programs; "" if it is not installed."""
        if agent in FERRULE.values():
            return str(Path(self._ferrule).parent)
        return agent.find(self._rivals)

    def run(self, agent: RivalAgent, answers: list[list[Call]], *options: str) -> Ran:
        """Work through answers without a terminal."""

        def start(folder: Path, environment: dict[str, str]) -> tuple[int, list[str], str]:
            words = [word.replace("{bin}", self.find(agent)) for word in agent.words]
            words = [PROMPT if word == "{prompt}" else word for word in words]
            ended = subprocess.run(
                [*words, *options],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=240,
                check=False,
            )
            return ended.returncode, [], ended.stdout[-2000:] + ended.stderr[-2000:]

        return self._prepare(agent, answers, start)

    def ask(
        self, agent: RivalAgent, answers: list[list[Call]], mode: str, yes: tuple[str, ...] = ()
    ) -> Ran:
        """Work through answers in an editor; only for Ferrule. See `talk` for `yes`."""

        def start(folder: Path, environment: dict[str, str]) -> tuple[int, list[str], str]:
            words = [self._ferrule, "serve", "acp", "-m", agent.words[3], "--mode", mode]
            return 0, talk(words, folder, environment, PROMPT, yes).questions, ""

        return self._prepare(agent, answers, start)

    def _prepare(
        self,
        agent: RivalAgent,
        answers: list[list[Call]],
        start: Callable[[Path, dict[str, str]], tuple[int, list[str], str]],
    ) -> Ran:
        # Not below /tmp: commands have a folder of their own in its place.
        above = Path(tempfile.mkdtemp(prefix="ferrule-rivals-", dir=Path.home()))
        folder = above / "work"

        def answer(number: int, body: dict[str, Any]) -> list[Call]:
            calls = answers[number - 1] if number <= len(answers) else list(agent.last)
            return [(name, _place(values, folder)) for name, values in calls]

        server = ModelServer(answer).start()
        try:
            folder.mkdir()
            (above / "home").mkdir()
            make_repository(folder)
            agent.prepare(above / "home", f"{server.address}/v1")
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            status, questions, said = start(
                folder, make_environment(above / "home", server.address)
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            return Ran(server, status, seconds, questions, said)
        finally:
            server.stop()
            shutil.rmtree(above, ignore_errors=True)


def _place(values: Any, folder: Path) -> Any:
    if isinstance(values, str):
        return values
    paths = ("path", "file_path", "filePath")
    return {
        name: f"{folder}/{value}" if name in paths and value != "." else value
        for name, value in values.items()
    }


_SLEPT = 3.0


def list_operations(agent: RivalAgent) -> dict[str, Call]:
    """Return eight calls whose results are counted."""
    return {
        "small file": agent.read("src/shop/cart.py"),
        "file of 4,000 lines": agent.read("big.txt"),
        "lines 100-150": agent.read("big.txt", (100, 150)),
        "search, 31 hits": agent.search("zebrafish"),
        "folder": agent.tree(),
        "command with status 1": agent.shell("sh fail.sh"),
        "168 KB of output": agent.shell("seq 1 30000"),
        "missed edit": agent.edit("src/shop/cart.py", OLD.format(""), NEW),
    }


HARMLESS = ("ls", "cat README.md", "git status --short", "python3 -c 'print(1)' 2>&1 | tail -3")


def list_twelve(agent: RivalAgent) -> list[list[Call]]:
    """Return twelve plain calls; the first six only read, the seventh computes."""
    commands = ["echo hi > new.txt", "rm README.md", "curl -sS -m 3 http://127.0.0.1:9/"]
    commands += ["echo x > ../outside.txt", "cat /etc/hostname"]
    calls = [agent.read("README.md"), agent.search("zebrafish"), *map(agent.shell, HARMLESS)]
    calls.append(agent.edit("src/shop/cart.py", OLD.format("self."), NEW))
    return [[call] for call in [*calls, *map(agent.shell, commands)]]


def measure(agent: RivalAgent, bench: Bench, count: Callable[[str], int]) -> dict[str, str]:
    """Return the cells of one agent's column."""
    cells: dict[str, str] = {}
    operations = list_operations(agent)
    ran = bench.run(agent, [[call] for call in operations.values()], *agent.anything)
    if not ran.server.requests:
        return {"first request": f"did not run: {ran.said[-160:]!r}".replace("|", "/")}
    tokens = [count(text) for text in ran.server.results()]
    cells["first request"] = f"{count(ran.server.sizes[0]):,}"
    cells["eight operations"] = f"{sum(tokens):,}"
    for label, one in zip(operations, tokens, strict=False):
        cells[label] = f"{one:,}"
    cells["processor seconds of that run"] = f"{ran.processor_seconds:.1f}"
    ran = bench.run(
        agent, [[agent.shell(f"sleep 3; echo {one}") for one in "abc"]], *agent.anything
    )
    if len(ran.server.times) > 1:
        seconds = ran.server.times[1] - ran.server.times[0]
        # Some agents refuse a plain `sleep`: what took less time did not run.
        cells["three `sleep 3`"] = "refused" if seconds < _SLEPT else f"{seconds:.1f} s"
    many = [[agent.shell(f"echo {number}")] for number in range(60)]
    ran = bench.run(agent, many, *agent.anything)
    cells["answers of 61"] = str(len(ran.server.requests))
    cells["background"] = ", ".join(agent.background)
    if agent in FERRULE.values():
        cells |= _measure_permissions(agent, bench, count)
    return cells


def _measure_permissions(
    agent: RivalAgent, bench: Bench, count: Callable[[str], int]
) -> dict[str, str]:
    ran = bench.run(agent, list_twelve(agent))
    results = ran.server.results()
    denied = ["permission_denied" in text[:300] for text in results]
    edited = bench.run(agent, list_twelve(agent), "--mode", "acceptEdits").server.results()
    edit = "" if "permission_denied" in edited[6][:300] else ", edit by `--mode acceptEdits`"
    default = bench.ask(agent, list_twelve(agent), "default").questions
    try:
        sandboxed = str(len(bench.ask(agent, list_twelve(agent), "sandboxed").questions))
    except RuntimeError:
        sandboxed = "-"  # an older version, which does not know the mode
    edits_granted = bench.ask(agent, list_twelve(agent), "default", ("session-edits",)).questions
    longest = max((count(text) for text, no in zip(results, denied, strict=True) if no), default=0)
    return {
        "denial": str(longest),
        "headless: reads and harmless commands": f"{denied[:6].count(False)} of 6{edit}",
        "questions in twelve calls": f"{len(default)} ({sandboxed})",
        "the same, edits granted for the session": str(len(edits_granted)),
        "background": _measure_background(agent, bench),
    }


def _measure_background(agent: RivalAgent, bench: Bench) -> str:
    ticks = "for i in 1 2 3 4; do echo tick $i; sleep 0.5; done; sleep 60"
    texts = [f"({ticks}) > o.txt 2>&1 &", f"{ticks} &", "wait %2", "cat o.txt", "kill %2", "jobs"]
    calls: list[list[Call]] = [[agent.shell(text)] for text in texts]
    calls[2] = [(calls[2][0][0], {"command": "wait %2", "timeout": 3})]
    started, other, waited, file, stopped, listed = bench.run(
        agent, calls, *agent.anything
    ).server.results()
    seen = {
        "start": "%1" in started and "%2" in other,
        "wait": "tick 4" in waited and "is running" in waited,
        "poll": "%2" in listed,
        "stop": "killed" in stopped,
        "file": "tick 4" in file,
    }
    return ", ".join(name for name, works in seen.items() if works)


def main() -> None:
    """Print the table: rows with their aim, a column for each agent."""
    parser = argparse.ArgumentParser(prog="python -m hands.measurements", description=__doc__)
    parser.add_argument("--ferrule", default=str(Path(sys.executable).with_name("ferrule")))
    parser.add_argument("--rivals", type=Path, default=Path("build/rivals"))
    parser.add_argument("--only", default="", help="agents with this in their name")
    given = parser.parse_args()
    name, count = find_counter()
    bench = Bench(given.ferrule, given.rivals)
    columns: dict[str, dict[str, str]] = {}
    for agent in (*FERRULE.values(), *RIVALS):
        if given.only.casefold() not in agent.name.casefold():
            continue
        if not bench.find(agent):
            click.echo(f"{agent.name}: not installed", err=True)
            continue
        began = time.monotonic()
        columns[agent.name] = measure(agent, bench, count)
        click.echo(f"{agent.name}: {time.monotonic() - began:.0f} s", err=True)
    click.echo(f"tokens: {name}\n")
    click.echo(f"| | aim | {' | '.join(columns)} |")
    click.echo("|---|--:|" + "--:|" * len(columns))
    rows = dict.fromkeys(row for column in columns.values() for row in column)
    for row in dict.fromkeys((*AIMS, *rows)):
        cells = " | ".join(column.get(row, "-") for column in columns.values())
        click.echo(f"| {row} | {AIMS.get(row, '')} | {cells} |")


if __name__ == "__main__":
    main()
