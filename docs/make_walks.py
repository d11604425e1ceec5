"""Traces runs, approvals and calls: `make docs` writes their steps into `docs/architecture.md`.

A walk is a module of `docs/walks`. It is executed in a process of its own, without network, in a
temporary folder, and every function of `ferrule` that is entered is recorded; comprehensions,
lambdas and the bodies of classes are not functions. The table shows the steps that the walk names
in `STEPS`: each must occur in the record after the one before it, and what it does is the first
sentence of its docstring. A step that does not occur, or has no docstring, is an error.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "walks"))

from tracing import Entry, Tracer

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
WALKS = ("agent", "streamed", "approval", "mcp_call")
"""Modules of `docs/walks`, in the order of the page.

Each has a title and a text in its docstring, `STEPS` (a file and a function on each line, with `...`
behind them where a coroutine goes on that had been entered before), and `execute(tracer)`.
"""

BEGIN = "<!-- walks: made by docs/make_walks.py, run by `make docs` -->"
END = "<!-- end of walks -->"
SECONDS = 120
"""Seconds that one walk may take."""


def read_steps(text: str) -> list[Entry]:
    """Return the steps that a walk names."""
    words = [line.split() for line in text.strip().splitlines()]
    return [Entry(file, function, bool(rest)) for file, function, *rest in words]


def trace(walk: str) -> dict[str, list[Entry]]:
    """Execute a walk in a process of its own. Return its records by their names."""
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, __file__, "--trace", walk],
            cwd=folder,
            env={"PATH": os.environ.get("PATH", ""), "HOME": folder},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    if ran.returncode != 0:
        raise RuntimeError(f"the walk `{walk}` failed:\n{ran.stderr}")
    records: dict[str, list[list[Any]]] = json.loads(ran.stdout)
    return {name: [Entry(*entry) for entry in record] for name, record in records.items()}


def check_steps(steps: Sequence[Entry], record: Sequence[Entry]) -> None:
    """Raise LookupError for a step that does not occur in the record after the one before it."""
    rest = iter(record)
    for number, step in enumerate(steps, 1):
        if step not in rest:
            what = "does not go on" if step.goes_on else "is not entered"
            raise LookupError(
                f"step {number}: `{step.function}` of {step.file} {what} after the step before it"
            )


def summarise(step: Entry) -> str:
    """Return the first sentence of a function's docstring. Raises LookupError if it has none."""
    node: ast.AST = _parse(step.path)
    for name in step.function.split("."):
        node = next(
            one
            for one in ast.iter_child_nodes(node)
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and one.name == name
        )
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    text = ast.get_docstring(node)
    if not text:
        raise LookupError(f"`{step.function}` of {step.file} has no docstring")
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z`])", paragraph)[0].replace("|", "\\|")


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def count(record: Sequence[Entry]) -> str:
    """Return how many functions and files of the package occur in a record, in words."""
    functions = {(entry.file, entry.function) for entry in record if not entry.is_of_walk}
    files = {file for file, _ in functions}
    return f"{len(functions)} functions in {len(files)} files"


def format_walk(name: str) -> str:
    """Execute a walk and return it as Markdown. Raises LookupError for a step that is gone."""
    walk = import_module(name)
    title, _, text = (inspect.getdoc(walk) or "").partition("\n\n")
    steps = read_steps(walk.STEPS)
    records = trace(name)
    first, *more = records.values()
    check_steps(steps, first)
    rows = ["| | file | function | what it does |", "|--:|---|---|---|"]
    for number, step in enumerate(steps, 1):
        file = f"[{step.file}](../src/ferrule/{step.file})"
        if step.is_of_walk:
            file = f"docs/{step.file}"
        function = f"`{step.function}`" + (" goes on" if step.goes_on else "")
        rows.append(f"| {number} | {file} | {function} | {summarise(step)} |")
    counts = f"Entered altogether: {count(first)}."
    if more:
        counts = f"Entered by the first run: {count(first)}; by the second: {count(more[0])}."
    return "\n".join([f"### {title}", "", " ".join(text.split()), "", *rows, "", counts])


def format_page() -> str:
    """Return the page with the walks of today."""
    text = PAGE.read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    assert begin and end, f"{PAGE} lacks the marks around its walks"
    walks = "\n\n".join(format_walk(name) for name in WALKS)
    return f"{head}{BEGIN}\n\n{walks}\n\n{END}{tail}"


def record_walk(name: str) -> dict[str, list[Entry]]:
    """Execute a walk in this process and return its records."""
    tracer = Tracer()
    walk = import_module(name)
    tracer.install()
    asyncio.run(walk.execute(tracer))
    return tracer.records


def main(arguments: Sequence[str]) -> int:
    """Write the page; with `--trace WALK` print the records of one walk as JSON."""
    if arguments:
        print(json.dumps(record_walk(arguments[1])))
        return 0
    text = format_page()
    if PAGE.read_text(encoding="utf-8") != text:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
