"""The page of promises: what was promised where, and which tests prove it. `make_reference.py`
writes it.

`tests/promise_sources/*.yaml` are the places that promise behaviour, `tests/promises.yaml` the
promises, and a test claims one by `@pytest.mark.proves("its.id")`. A place may name tests, too.
Tests are read as text: nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TESTS = Path(__file__).resolve().parents[1] / "tests"
TITLES = {
    "tool_files": "Tool files (requirement 003)",
    "llm_tools": "Tools for models (requirement 001)",
    "harvey": "Working in a folder (requirement 000)",
    "local_harness": "Local models (requirement 002)",
    "harbor": "Tools in the process (requirement 004)",
    "design": "Rules that hold everywhere (the design, §3)",
    "acceptance": "Worked examples",
    "defects": "Defects that others have",
}
"""Order and titles of the sections, by the name of the file."""


@dataclass(frozen=True)
class Claim:
    """One `@pytest.mark.proves`: the promise, the file (from `tests/`), the line, and the test
    below it if it is one.
    """

    promise: str
    file: str
    line: int
    test: str = ""

    @property
    def where(self) -> str:
        return f"tests/{self.file}:{self.line}"


def claims(folder: Path = TESTS) -> Iterator[Claim]:
    """Every promise claimed by a mark, in the order of files and lines."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if ".proves" not in text:
            continue
        nodes = list(ast.walk(ast.parse(text)))
        tests = {id(mark): node.name for node in nodes for mark in _marks_on(node)}
        for node in nodes:
            if isinstance(node, ast.Call) and _is_mark(node.func):
                file = path.relative_to(folder).as_posix()
                for argument in node.args:
                    if not isinstance(argument, ast.Constant) or not isinstance(
                        argument.value, str
                    ):
                        raise AssertionError(
                            f"{file}:{node.lineno}: a promise is named by a plain string"
                        )
                    yield Claim(argument.value, file, node.lineno, tests.get(id(node), ""))


def _marks_on(node: ast.AST) -> list[ast.Call]:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return []
    return [one for one in node.decorator_list if isinstance(one, ast.Call) and _is_mark(one.func)]


def _is_mark(function: ast.expr) -> bool:
    named = isinstance(function, ast.Attribute) and function.attr == "proves"
    return named and ast.unparse(function).endswith("mark.proves")


def entries(path: Path) -> list[dict[str, Any]]:
    """The list that one of the files holds."""
    loader = getattr(
        yaml, "CSafeLoader", yaml.SafeLoader
    )  # In C it takes a tenth of the time, where there is one.
    found = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    assert isinstance(found, list), f"{path.name} is a list"
    return found


def page() -> str:
    """The page, as Markdown."""
    proofs: dict[str, list[Claim]] = {}
    for claim in claims():
        proofs.setdefault(claim.promise, []).append(claim)
    parts = [
        (
            "<!-- Made by docs/made_promises.py. Change tests/promise_sources, then run `make "
            "docs`. -->"
        ),
        "# What is promised, and what proves it",
        "Each row is a place that promises behaviour, in our words, and a test for each "
        "promise that keeps it, or the tests that show it. "
        "`later` says what is not there yet, and why.",
    ]
    for name, title in TITLES.items():
        parts.append(f"## {title}")
        parts.append("\n".join(_table(entries(TESTS / "promise_sources" / f"{name}.yaml"), proofs)))
    return "\n\n".join(parts) + "\n"


def _table(places: list[dict[str, Any]], proofs: dict[str, list[Claim]]) -> Iterator[str]:
    yield "| promised | proved by |"
    yield "|---|---|"
    for place in places:
        kept = [_proof(name, proofs.get(name, [])) for name in place.get("promises") or ()]
        kept += place.get("tests") or ()
        if place.get("later"):
            kept.append(f"later: {place['reason']}")
        yield f"| {_cell(place['place'])} | {'<br>'.join(map(_cell, kept))} |"


def _proof(name: str, found: list[Claim]) -> str:
    """The first test that claims a promise by its own name; how many others there are."""
    named = [claim for claim in found if claim.test] or found
    if not named:
        return f"`{name}`: no test"
    first = named[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    shown = f"{first.file}::{first.test}" if first.test else first.file
    return f"`{name}`: {shown}{more}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
