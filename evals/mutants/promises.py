"""The promises, the files with the tests that prove each, and a pytest plug-in that runs only those
tests.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest


def read_proofs(tests: Path) -> dict[str, list[str]]:
    """Return, for each promise that a test claims, the files that hold its tests, from the root of
    the repository.
    """
    found: dict[str, set[str]] = {}
    for path in sorted(tests.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if ".proves" not in text:
            continue
        for name in _read_marks(ast.parse(text)):
            found.setdefault(name, set()).add(path.relative_to(tests.parent).as_posix())
    return {name: sorted(files) for name, files in sorted(found.items())}


def _read_marks(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.proves"):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


class OnlyProofs:
    """A pytest plug-in: runs the tests that prove a promise ("": all there are), and counts those
    that passed. With `names`, those tests alone, in that order.
    """

    def __init__(self, promise: str, names: Sequence[str] = ()) -> None:
        self.passed = 0
        self.failed: list[str] = []
        self._promise = promise
        self._places = {name: place for place, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._is_proof(item)]
        if self._places:
            items.sort(key=lambda item: self._places[item.nodeid])

    def _is_proof(self, item: pytest.Item) -> bool:
        if self._places:
            return item.nodeid in self._places
        marks = item.iter_markers("proves")
        return not self._promise or any(self._promise in mark.args for mark in marks)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed += 1
