"""The everyday run: the part of the tests that `make test` runs, by `pytest --everyday`.

`everyday.toml` names the functions of tests that take long: how many of their rows run every day,
of how many, and the seconds of a row. 0 leaves the function out. Rows are taken evenly from the
first to the last. What the table does not name runs whole: so does a new test, and everything
without `--everyday`.

Where workers share the tests, those that take longest start first: none is left for the end, when
the other workers have nothing more to do.

The table is made from measured times: `make lab NAME=everyday`.
"""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pytest

TABLE = Path(__file__).parent / "everyday.toml"
STARTS_FIRST_SECONDS = 2.0
"""A row that takes longer starts first."""
LONGEST_SECONDS = 10.0
"""A module whose quickest row takes longer has none in the everyday run."""


@dataclass(frozen=True)
class Limit:
    """A row of the table: how many rows of a function run every day, and what one takes."""

    rows: int
    of: int
    seconds: float


def read_table(path: Path = TABLE) -> dict[str, Limit]:
    """Return the slow functions of tests, by their node ids without a row."""
    table = tomllib.loads(path.read_text("utf-8"))
    return {
        f"{module}::{name}": Limit(**entry)
        for module, functions in table.items()
        for name, entry in functions.items()
    }


def name_function(node_id: str) -> str:
    """Return the node id of a test without its row."""
    return node_id.partition("[")[0]


def take_evenly(count: int, most: int) -> set[int]:
    """Return the numbers of at most `most` rows of `count`: the first, the last and between."""
    if most >= count:
        return set(range(count))
    if most <= 1:
        return set(range(most))
    return {number * (count - 1) // (most - 1) for number in range(most)}


def choose(node_ids: Iterable[str], table: dict[str, Limit]) -> set[str]:
    """Return the node ids that run every day."""
    rows: defaultdict[str, list[str]] = defaultdict(list)
    for node_id in node_ids:
        rows[name_function(node_id)].append(node_id)
    chosen: set[str] = set()
    for function, ids in rows.items():
        most = table[function].rows if function in table else len(ids)
        chosen.update(ids[number] for number in take_evenly(len(ids), most))
    return chosen


def put_longest_first(node_ids: list[str], seconds: dict[str, float], workers: int) -> list[str]:
    """Return the node ids in the order in which workers are to have them.

    `--dist worksteal` gives each worker a part of the list, one after the other. Each part begins
    with its share of the tests in `seconds`, the longest first.
    """
    long = sorted(
        (one for one in node_ids if one in seconds), key=lambda one: seconds[one], reverse=True
    )
    rest = iter([one for one in node_ids if one not in seconds])
    ordered: list[str] = []
    for worker in range(workers):
        size = (len(node_ids) - len(ordered)) // (workers - worker)
        first = long[worker::workers]
        ordered += [*first, *islice(rest, max(0, size - len(first)))]
    return [*ordered, *rest]


class LongestFirst:
    """Lets workers start with the tests that take longest."""

    def __init__(self, workers: int) -> None:
        self._workers = workers

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the tests in order; all workers do it alike."""
        table = read_table()
        seconds: dict[str, float] = {}
        for item in items:
            limit = table.get(name_function(item.nodeid))
            if limit is not None and limit.seconds >= STARTS_FIRST_SECONDS:
                seconds[item.nodeid] = limit.seconds
        by_id = {item.nodeid: item for item in items}
        items[:] = [by_id[one] for one in put_longest_first([*by_id], seconds, self._workers)]


def name_folder(node_id: str) -> str:
    """Return the folder of a test below `tests`, or its file if it is in none."""
    return node_id.partition("::")[0].removeprefix("tests/").partition("/")[0]


class EverydayRun:
    """Leaves out what the table leaves out, and says at the end how much that was, and of what."""

    def __init__(self) -> None:
        self.left_out: dict[str, int] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Take the tests of the table's rows only."""
        chosen = choose((item.nodeid for item in items), read_table())
        dropped = [item for item in items if item.nodeid not in chosen]
        items[:] = [item for item in items if item.nodeid in chosen]
        config.hook.pytest_deselected(items=dropped)
        self.left_out = dict(Counter(name_folder(item.nodeid) for item in dropped))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that started this one, if this is a worker."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["left_out"] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take the numbers from a worker: all of them collect the same tests."""
        self.left_out = getattr(node, "workeroutput", {}).get("left_out", self.left_out)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was left out, and what runs it."""
        folders = sorted(self.left_out.items(), key=lambda pair: (-pair[1], pair[0]))
        terminalreporter.write_line(
            f"{sum(self.left_out.values()):,} slow tests left out (tests/everyday.toml): "
            "`FERRULE_TEST_ALL=1 make test` and CI run them, and so does `pytest FILE`"
        )
        if folders:
            counts = ", ".join(f"{folder} {count:,}" for folder, count in folders)
            terminalreporter.write_line(f"of them in {counts}")


class ProcessorTimes:
    """Writes how many seconds of processor time each test takes, with its ended children.

    What is made for a module or for all tests, and what ends with them, counts for none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seconds: dict[str, float] = {}
        self._shared = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Measure one test with its fixtures."""
        self._shared = 0.0
        before = _read_seconds()
        result = yield
        self.seconds[item.nodeid] = round(_read_seconds() - before - self._shared, 3)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Generator[None, object, object]:
        """Take out the fixtures that more than one test has."""
        with self._left_out(fixturedef.scope != "function"):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Take out the teardown that ends a module."""
        with self._left_out(nextitem is None or nextitem.path != item.path):
            return (yield)

    @contextmanager
    def _left_out(self, is_shared: bool) -> Generator[None]:
        before = _read_seconds()
        shared = self._shared
        yield
        if is_shared:
            self._shared = shared + _read_seconds() - before

    def pytest_sessionfinish(self) -> None:
        """Write the file of this process."""
        if self.seconds:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = self.folder / f"{os.getpid()}-{time.time_ns()}.json"
            file.write_text(json.dumps(self.seconds, indent=0), "utf-8")


def _read_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
