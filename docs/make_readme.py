"""Pastes what programs print into README.md: `python docs/make_readme.py [demo] [injection]
[bench]` (all by default).

Between `<!-- demo -->` and `<!-- /demo -->` goes the output of `examples/demo.py`, between `<!--
bench -->` and `<!-- /bench -->` that of `benchmarks/run.py`. No figure of the README is typed by
hand. A program that fails leaves its block empty, is said on standard error, and makes the exit
status 1.
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
SECONDS = 900
PROGRAMS = {
    "demo": ("examples/demo.py", "It prints what the model did. On {machine}:"),
    "injection": (
        "examples/injection.py",
        "It prints what was tried and what came of it. On {machine}:",
    ),
    "bench": ("benchmarks/run.py", "On {machine}:"),
}
"""Block to program and the line above its output."""


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
    program, above = PROGRAMS[name]
    said = above.format(machine=machine())
    return f"\n{said}\n\n```text\n{output(program)}\n```\n"


def pasted(text: str, name: str, content: str) -> str:
    """The README with the block replaced. Raises ValueError if it has no markers."""
    between = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not between.search(text):
        raise ValueError(f"README.md has no `<!-- {name} -->` … `<!-- /{name} -->`")
    return between.sub(lambda match: f"{match[1]}{content}{match[2]}", text)


def main(names: list[str]) -> int:
    """Fill the named blocks."""
    failed = 0
    for name in names or list(PROGRAMS):
        try:
            content = block(name)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"{PROGRAMS[name][0]} failed, its block is left out: {error}", file=sys.stderr)
            said = getattr(error, "stderr", "") or ""
            print("\n".join(str(said).splitlines()[-5:]), file=sys.stderr)
            content, failed = "", 1
        README.write_text(
            pasted(README.read_text(encoding="utf-8"), name, content), encoding="utf-8"
        )
    return failed


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
