"""Have a scripted strong model work twelve tasks through Ferrule, and print what that cost.

    make lab NAME=hands                                  # all families
    make lab NAME=hands ARGS="--family gpt rename -v"    # one task; what went otherwise than wanted
    make lab NAME=hands ARGS="--ferrule OTHER/bin/ferrule --mode default"   # another version

The model calls as strong models do: names of arguments from other agents, absolute paths,
`cd x && ...`, pipes, here-documents, servers in the background. Questions are answered yes, as a
person at an editor would. `otherwise` counts results that lack what the model needed next.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from .editor import talk
from .model_habits import MODELS, write_call
from .model_server import Call, ModelServer
from .tasks import AUTHOR, Task, load_tasks
from .tokens import find_counter

HEAD = (
    "| task | turns | tokens of requests | tokens of results | questions | refused calls | "
    "turns lost to arguments | otherwise | seconds | done |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|---|"
)
REFUSED = re.compile(r"\bpermission_denied\b")
INVALID = re.compile(r"\bvalidation_failed\b|\bunknown tool\b")


@dataclass
class Outcome:
    """What one task cost."""

    task: Task
    numbers: list[int]
    seconds: float
    is_done: bool
    questions: list[str]
    otherwise: list[str]


def main() -> int:
    """Work the tasks and print the table of each family."""
    parser = argparse.ArgumentParser(prog="python -m hands", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="names in `tasks/`; default: all")
    parser.add_argument("--ferrule", default=str(Path(sys.executable).with_name("ferrule")))
    parser.add_argument("--family", choices=list(MODELS), action="append")
    parser.add_argument("--mode", default="sandboxed")
    parser.add_argument("-v", "--verbose", action="store_true")
    given = parser.parse_args()
    name, count = find_counter()
    click.echo(f"tokens: {name}; mode: {given.mode}")
    is_well = True
    for family in given.family or MODELS:
        click.echo(f"\nfamily {family} ({MODELS[family]})\n\n{HEAD}")
        outcomes: list[Outcome] = []
        for task in load_tasks(given.tasks):
            outcome = work(task, family, given.ferrule, given.mode, count)
            outcomes.append(outcome)
            click.echo(_row(task.title, outcome.numbers, outcome.seconds, outcome.is_done))
            if given.verbose:
                click.echo("\n".join(f"    asked: {one}" for one in outcome.questions))
                click.echo("\n".join(f"    otherwise: {one}" for one in outcome.otherwise))
        sums = [sum(numbers) for numbers in zip(*(one.numbers for one in outcomes), strict=True)]
        seconds = sum(one.seconds for one in outcomes)
        click.echo(_row("all", sums, seconds, all(one.is_done for one in outcomes)))
        is_well = is_well and all(one.is_done and one.numbers[5] == 0 for one in outcomes)
    return 0 if is_well else 1


def _row(title: str, numbers: list[int], seconds: float, is_done: bool) -> str:
    cells = " | ".join(f"{number:,}" for number in numbers)
    return f"| {title} | {cells} | {seconds:.1f} | {'yes' if is_done else '**no**'} |"


def work(task: Task, family: str, ferrule: str, mode: str, count: Any) -> Outcome:
    """Work one task in a folder of its own, with a home of its own."""
    # Not below /tmp: commands have a folder of their own in its place.
    above = Path(tempfile.mkdtemp(prefix="ferrule-hands-", dir=Path.home()))
    folder = above / "work"
    folder.mkdir()
    (above / "home").mkdir()
    task.prepare(folder)
    wanted: list[str | None] = []

    def answer(number: int, body: dict[str, Any]) -> list[Call]:
        if number > len(task.turns):
            return []
        steps = task.turns[number - 1]
        calls = [
            write_call(family, step, str(folder), len(wanted) + index)
            for index, step in enumerate(steps)
        ]
        wanted.extend(step.get("want") for step in steps)
        return calls

    server = ModelServer(answer).start()
    begun = time.monotonic()
    try:
        words = [ferrule, "serve", "acp", "-m", MODELS[family], "--mode", mode]
        talked = talk(words, folder, _environment(server, above / "home"), task.prompt)
        seconds = time.monotonic() - begun
        results = server.results()
        otherwise = [
            f"{call_wanted!r} not in: {result[:600]}"
            for call_wanted, result in zip(wanted, results, strict=False)
            if call_wanted and not re.search(call_wanted, result)
        ]
        invalid = [result for result in results if INVALID.search(result[:300])]
        numbers = [
            len(server.requests),
            sum(map(count, server.sizes)),
            sum(map(count, results)),
            len(talked.questions),
            sum(bool(REFUSED.search(result[:300])) for result in results),
            len(invalid),
            len(otherwise),
        ]
        done = task.is_done(folder)
        return Outcome(task, numbers, seconds, done, talked.questions, [*otherwise, *invalid])
    finally:
        server.stop()
        shutil.rmtree(above, ignore_errors=True)


def _environment(server: ModelServer, home: Path) -> dict[str, str]:
    author = f"[user]\nname = {AUTHOR['GIT_AUTHOR_NAME']}\nemail = {AUTHOR['GIT_AUTHOR_EMAIL']}\n"
    (home / ".gitconfig").write_text(author)
    # Shims of pyenv look for their interpreters below the person's home, which is another one here.
    python = str(Path(os.path.realpath(sys.executable)).parent)
    folders = [part for part in os.environ["PATH"].split(":") if not part.endswith("/shims")]
    return {
        "PATH": ":".join([python, *folders]),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "NO_PROXY": "127.0.0.1",
        "OPENAI_API_KEY": "x",
        "OPENAI_BASE_URL": f"{server.address}/v1",
        "ANTHROPIC_API_KEY": "x",
        "ANTHROPIC_BASE_URL": server.address,
    }


if __name__ == "__main__":
    sys.exit(main())
