"""A pytest plug-in that records, for each test, how it ended and the lines of the package it
executed, also in the processes that it started.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest


class Recorder:
    """Collects the lines of each test in a context of its own."""

    def __init__(self, package: Path, children: Path) -> None:
        self._prefix = f"{package}/"
        self._children = children
        self._cover = coverage.Coverage(data_file=None, include=[f"{package}/*"], config_file=False)
        # The way of Python 3.14 notes a line once, whatever the context.
        self._cover.set_option("run:core", "ctrace")
        self._tests: list[dict[str, Any]] = []

    def pytest_sessionstart(self) -> None:
        self._cover.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        promises = {name for mark in item.iter_markers("proves") for name in mark.args}
        self._tests.append(
            {
                "name": item.nodeid,
                "promises": sorted(promises),
                "outcome": "skipped",
                "seconds": 0.0,
                "lines": {},
            }
        )
        self._cover.switch_context(str(len(self._tests)))
        try:
            return (yield)
        finally:
            self._cover.switch_context("")
            self._take_children()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests[-1]
        test["seconds"] = round(test["seconds"] + report.duration, 3)
        if report.failed:
            test["outcome"] = "failed"
        elif report.when == "call" and report.passed:
            test["outcome"] = "passed"

    def _take_children(self) -> None:
        """Give the lines of processes to the test during which they ended."""
        for path in self._children.glob("*.json"):
            # A process that was ended while it wrote leaves half of it.
            with contextlib.suppress(ValueError):
                for name, lines in json.loads(path.read_text()).items():
                    self._add(self._tests[-1], name, lines)
            path.unlink()

    def _add(self, test: dict[str, Any], name: str, lines: list[int]) -> None:
        # Templates are compiled into modules of their name.
        if not name.endswith(".py"):
            return
        module = name.removeprefix(self._prefix)
        test["lines"][module] = sorted({*test["lines"].get(module, ()), *lines})

    def finish(self) -> list[dict[str, Any]]:
        """Return what was recorded."""
        self._cover.stop()
        data = self._cover.get_data()
        for name in data.measured_files():
            executed: dict[str, list[int]] = {}
            for line, contexts in data.contexts_by_lineno(name).items():
                for context in contexts:
                    executed.setdefault(context, []).append(line)
            for context, lines in executed.items():
                if context:
                    self._add(self._tests[int(context) - 1], name, lines)
        return self._tests
