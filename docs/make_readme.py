"""Pastes into pages what programs print: `python docs/make_readme.py [demo] [injection] [bench]
[speed]` (all by default).

Between `<!-- demo -->` and `<!-- /demo -->` of its page goes the output of `examples/demo.py`, and so
on (`PROGRAMS`). `speed` are the three lines of the README, made of the table that
`make lab NAME=bench-peers` has written into `docs/speed.md`. No figure is typed by hand. A program that fails
leaves its block empty, is said on standard error, and makes the exit status 1.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
SPEED = ROOT / "docs/speed.md"
SECONDS = 900
PROGRAMS = {
    "demo": (
        "docs/local-models.md",
        "examples/demo.py",
        "It prints what the model did. On {machine}:",
    ),
    "injection": (
        "docs/operators.md",
        "examples/injection.py",
        "It prints what was tried and what came of it. On {machine}:",
    ),
    "bench": ("docs/speed.md", "benchmarks/run.py", "On {machine}:"),
}
"""Block to its page, its program and the line above its output."""

LINES = {
    "50 rounds, ms per round": "- A turn with a model server that answers at once takes {ferrule} "
    "ms, gate and journal on; the same loop\n  written by hand, without either, {bare} ms; the "
    "fastest framework, {name}, {best} ms.",
    "cold start to the first finished run, ms": "- From starting Python to the first answer: "
    "{ferrule} ms; by hand {bare} ms; {name} {best} ms.",
    "100 runs at once, runs/s": "- 100 runs at once: {ferrule} of them in a second; by hand {bare}; "
    "{name} {best}.",
}
"""Rows of the table in `docs/speed.md`, and how the README says them."""


def machine() -> str:
    """Day, interpreter, cores and load, so that figures can be read for what they are."""
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    cores, load = os.cpu_count(), os.getloadavg()[0]
    return (
        f"{day}, Python {platform.python_version()}, {platform.machine()}, {cores} cores, load "
        f"{load:.1f}"
    )


def output(program: str) -> str:
    """What a program of the repository prints. Raises CalledProcessError, TimeoutExpired."""
    with tempfile.TemporaryDirectory() as state:
        ran = subprocess.run(
            [sys.executable, str(ROOT / program)],
            cwd=ROOT,
            env={**os.environ, "FERRULE_STATE": state, "FERRULE_CONFIG": state},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    return "\n".join(line.rstrip() for line in ran.stdout.strip("\n").splitlines())


def block(name: str) -> str:
    """The text between the markers."""
    if name == "speed":
        return f"\n{speed()}\n"
    _, program, above = PROGRAMS[name]
    said = above.format(machine=machine())
    return f"\n{said}\n\n```text\n{output(program)}\n```\n"


def speed() -> str:
    """The lines about speed, with the figures of the table. Raises KeyError without a row."""
    table: dict[str, list[str]] = {}
    for line in SPEED.read_text(encoding="utf-8").splitlines():
        if line.startswith("| "):
            row, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            table[row] = cells
    said: list[str] = []
    for row, line in LINES.items():
        ferrule, bare, framework, *_ = table[row]
        best, _, name = framework.rstrip(")").partition(" (")
        said.append(line.format(ferrule=ferrule, bare=bare, best=best, name=name))
    return "\n".join(said)


def pasted(text: str, name: str, content: str) -> str:
    """The page with the block replaced. Raises ValueError if it has no markers."""
    between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not between.search(text):
        raise ValueError(f"the page has no `<!-- {name} -->` … `<!-- /{name} -->`")
    return between.sub(lambda match: f"{match[1]}{content}{match[2]}", text)


def main(names: list[str]) -> int:
    """Fill the named blocks."""
    failed = 0
    for name in names or [*PROGRAMS, "speed"]:
        page = README if name == "speed" else ROOT / PROGRAMS[name][0]
        try:
            content = block(name)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{PROGRAMS[name][1]} failed, its block is left out: {error}", file=sys.stderr)
            said = getattr(error, "stderr", "") or ""
            print("\n".join(str(said).splitlines()[-5:]), file=sys.stderr)
            content, failed = "", 1
        text = pasted(page.read_text(encoding="utf-8"), name, content)
        page.write_text(text, encoding="utf-8")
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
