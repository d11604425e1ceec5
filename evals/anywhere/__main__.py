"""Run `make demo` and tests in every cell that this machine can make, and print a table.

    make anywhere                                  # every cell, each with its selection of tests
    make anywhere ARGS="--only '*container*' root" # cells by name, or by patterns of names
    make anywhere ARGS="--tests everyday"          # what `make test` runs, in each of them: hours
    make anywhere ARGS="--only LANG=C --write"     # and put these rows into the table of all cells

Cells are lines of `cells.yaml`. Systems are made with `mmdebstrap` below `--systems`, checkouts and
users in them as they are needed; both stay for the next time. It needs root, since users, mounts
and namespaces are made; nothing that it changes outlives it or is seen by other programs, except
the user `ferrule-anywhere` and the folders.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

from .launch import find_memory_group
from .page import COLUMNS, WRITTEN, add_row, read_rows, write_rows
from .systems import PLACE, ROOT, Cell, NotHere, Place, describe_here, find_place, find_pythons

LOGS = ROOT / "build/anywhere"
NO_MODEL = "no model"
PR_SET_CHILD_SUBREAPER = 36
REPORT = "build/anywhere.xml"
SECONDS = {"venv": 900, "demo": 600, "few": 1800, "many": 3600, "everyday": 3600, "whole": 3 * 3600}


@cache
def find_commit() -> str:
    """Return the commit of the checkout, with a + if other files than ours differ from it."""
    git = ["git", "rev-parse", "--short=8", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    ours = [f":!{path.relative_to(ROOT)}" for path in WRITTEN]
    git = ["git", "status", "--porcelain", "--", ".", *ours]
    changes = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return commit.strip() + ("+" if changes else "")


@dataclass
class Row:
    """What came of a cell. `demo` is "yes", or the line that says why not."""

    name: str
    system: str
    python: str
    user: str
    ran: str
    demo: str = ""
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: int = 0
    date: str = f"{datetime.now(UTC):%Y-%m-%d}"
    commit: str = field(default_factory=find_commit)
    untried: str = ""

    @property
    def is_good(self) -> bool:
        """Whether nothing failed in it."""
        return not self.failed and self.demo in ("yes", NO_MODEL, "")


def main() -> int:
    """Run the cells that are asked for. The exit code is 1 if something failed in one."""
    options = parse_options()
    described: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("cells.yaml").read_text())
    cells = [Cell(**line) for line in described["cells"]]
    wanted = choose_cells(cells, options.only)
    if not wanted:
        print(f"no cell of cells.yaml has a name like {', '.join(options.only)}", file=sys.stderr)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends with us
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rows: list[Row] = []
    for cell in wanted:
        row = run_cell(cell, described, options)
        rows.append(row)
        print(f"{row.name}: {describe(row)}", flush=True)
        if not row.is_good:
            print(f"its log ends so:\n{read_end(find_log(cell))}", flush=True)
        if options.write:
            order = [cell.name for cell in cells]
            write_rows(add_row(read_rows(), asdict(row), order), order, described["untried"])
    print_table(rows, described["untried"])
    return 0 if all(row.is_good for row in rows) else 1


def choose_cells(cells: list[Cell], patterns: list[str]) -> list[Cell]:
    """Return the cells whose names match, each once, in the order of the patterns."""
    found = [cell for one in patterns for cell in cells if fnmatchcase(cell.name, one)]
    return list({cell.name: cell for cell in found}.values())


def find_log(cell: Cell) -> Path:
    """Return the file with what the commands of a cell print."""
    return LOGS / f"{cell.name.replace('/', '_')}.log"


def read_end(log: Path) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-80:])


def parse_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="make anywhere", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=["*"], help="names of cells, or patterns")
    parser.add_argument(
        "--tests",
        choices=("few", "many", "everyday", "whole"),
        help="the tests of each cell, instead of the selection that it names",
    )
    parser.add_argument("--jobs", default=str(min(2, os.cpu_count() or 1)))
    parser.add_argument("--systems", type=Path, default=Path(PLACE, "systems"))
    parser.add_argument(
        "--write", action="store_true", help="put the rows into the table of the pages"
    )
    return parser.parse_args()


def describe(row: Row) -> str:
    """Return what came of a cell in one line."""
    if row.untried:
        return f"untried, {row.untried}"
    counts = f"{row.passed} passed, {row.failed} failed, {row.skipped} skipped"
    return f"Python {row.python}; demo {row.demo}; {row.ran} tests: {counts} in {row.seconds} s"


def run_cell(cell: Cell, described: dict[str, Any], options: argparse.Namespace) -> Row:
    """Make the virtual environment of a cell, then run the demo and the tests."""
    system = described["machines"].get(cell.machine) or describe_here()
    ran = options.tests or cell.tests
    row = Row(cell.name, system, cell.python, cell.user, ran)
    packages = described["packages"].replace(" ", "")
    try:
        place = find_place(cell, options.systems.absolute(), packages)
    except NotHere as error:
        row.untried = str(error)
        return row
    row.python = place.version
    if cell.python == "newest" and len(find_pythons()) == 1:
        print(f"only Python {place.version} is here: it is the oldest and the newest", flush=True)
    log = find_log(cell)
    log.unlink(missing_ok=True)
    began = time.monotonic()
    conditions = cell.conditions if cell.fresh else []
    made = run(place, ["make", "venv"], conditions, log, SECONDS["venv"])
    if made == 0:
        row.demo = run_demo(cell, place, log)
        run_tests(cell, place, row, log, described["tests"][ran].split(), options.jobs)
    else:
        row.demo, row.failed = "no venv", 1
    row.seconds = round(time.monotonic() - began)
    return row


def run_demo(cell: Cell, place: Place, log: Path) -> str:
    """Run `make demo` and return how it ended. Where the model cannot be had, that is no failure."""
    pull = [".venv/bin/ferrule", "models", "pull", "smollm2"]
    conditions = [name for name in cell.conditions if name != "offline" or cell.fresh]
    if run(place, pull, conditions, log, SECONDS["demo"]):
        return NO_MODEL
    ended = run(place, ["make", "demo"], cell.conditions, log, SECONDS["demo"])
    return "yes" if ended == 0 else f"no ({ended})"


def run_tests(cell: Cell, place: Place, row: Row, log: Path, tests: list[str], jobs: str) -> None:
    """Run a selection of tests, and write their numbers into the row.

    Up to three that fail are run once more, alone, and named as unsteady.
    """
    cache = ".pytest_cache/anywhere"
    common = ["-rfEs", "-o", "junit_family=xunit2", f"--junitxml={REPORT}"]
    parallel = ["-o", f"cache_dir={cache}", "-n", jobs, "--dist", "worksteal"]
    words = [".venv/bin/pytest", *common, *parallel, *tests]
    run(place, words, cell.conditions, log, SECONDS[row.ran])
    counts = read_report(place)
    row.failed = counts["errors"] + counts["failures"]
    row.skipped = counts["skipped"]
    row.passed = counts["tests"] - row.failed - row.skipped
    if not row.failed:
        return
    print("\n".join(read_failed(place, cache)), flush=True)
    run(place, ["bash", ".ci/again", cache, *common], cell.conditions, log, SECONDS[row.ran])
    if place.outside(f"{place.folder}/{REPORT}").exists():
        counts = read_report(place)
        still = counts["errors"] + counts["failures"]
        row.passed += row.failed - still
        row.failed = still


def read_failed(place: Place, cache: str) -> list[str]:
    """Return a line for each test that failed."""
    try:
        text = place.outside(f"{place.folder}/{cache}/v/cache/lastfailed").read_text()
    except OSError:
        return ["the tests ended before they were finished"]
    return [
        f"failed, and run once more if there are three at most: {name}" for name in json.loads(text)
    ]


def read_report(place: Place) -> dict[str, int]:
    """Return the numbers of the last run. One that left none counts as one failure."""
    report = place.outside(f"{place.folder}/{REPORT}")
    names = ("tests", "errors", "failures", "skipped")
    try:
        suite = next(ElementTree.parse(report).iter("testsuite"))
    except (OSError, ElementTree.ParseError):
        return dict.fromkeys(names, 0) | {"tests": 1, "errors": 1}
    report.unlink()
    return {name: int(suite.get(name, 0)) for name in names}


def run(place: Place, command: list[str], conditions: list[str], log: Path, seconds: float) -> int:
    """Run a command in a cell. Everything that it started ends with it, in time or not."""
    with log.open("ab") as output:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        started = subprocess.Popen(
            place.command(command, conditions),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        began = time.monotonic()
        try:
            return started.wait(seconds)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            end_all(started)
            output.write(f"\nended after {round(time.monotonic() - began)} s\n".encode())


def end_all(started: subprocess.Popen[bytes]) -> None:
    """End a command and what is left of it, also in sessions of its own: orphans become ours."""
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    while left := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        for process in map(int, left):
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    with suppress(OSError):
        find_memory_group()[0].rmdir()


def print_table(rows: list[Row], untried: list[str]) -> None:
    """Print what ran, then what was not tried and why."""
    shown = [asdict(row) for row in rows if not row.untried]
    lines = [list(COLUMNS.values())]
    lines += [[str(row[name]) for name in COLUMNS] for row in shown]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores")
    for line in lines:
        print(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        )
    for row in rows:
        if row.untried:
            print(f"{row.name}: untried, {row.untried}")
    print(f"untried: {'; '.join(untried)}")


if __name__ == "__main__":
    sys.exit(main())
