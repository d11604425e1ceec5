"""Run `make demo` and tests in every cell that this machine can make, and print a table.

    make anywhere                                  # every cell, each with its selection of tests
    make anywhere ARGS="--only container,13"       # cells whose names have one of these words
    make anywhere ARGS="--whole"                   # the whole suite in each of them: hours
    make anywhere ARGS="--write"                   # and docs/machines.md, and what `ferrule doctor` says

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
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

from .launch import find_memory_group
from .page import write_results
from .systems import PLACE, ROOT, Cell, NotHere, Place, describe_here, find_place, find_pythons

LOGS = ROOT / "build/anywhere"
TABLE = LOGS / "table.json"
NO_MODEL = "no model"
PR_SET_CHILD_SUBREAPER = 36
REPORT = "build/anywhere.xml"
SECONDS = {"venv": 900, "demo": 600, "few": 1800, "many": 3600, "whole": 3 * 3600}


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
    untried: str = ""

    def cells(self) -> tuple[str, ...]:
        """Return the columns of the table."""
        counts = (self.demo, str(self.passed), str(self.failed), str(self.skipped))
        return (self.name, self.system, self.python, self.ran, *counts, str(self.seconds))


COLUMNS = ("cell", "system", "Python", "tests", "demo", "passed", "failed", "skipped", "seconds")


def main() -> int:
    """Run the cells that are asked for. The exit code is 1 if something failed in one."""
    options = parse_options()
    described: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("cells.yaml").read_text())
    cells = [Cell(**line) for line in described["cells"]]
    wanted = [cell for cell in cells if any(word in cell.name for word in options.only)]
    LOGS.mkdir(parents=True, exist_ok=True)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rows: list[Row] = []
    for cell in wanted:
        row = run_cell(cell, described, options)
        rows.append(row)
        print(f"{row.name}: {row.untried or describe(row)}", flush=True)
        keep_row(row, [cell.name for cell in cells])
    print_table(rows, described["untried"])
    if options.write:
        write_results(read_rows(), described["untried"])
    return 1 if any(row.failed or row.demo not in ("yes", NO_MODEL, "") for row in rows) else 0


def read_rows() -> list[dict[str, Any]]:
    """Return what is known of each cell from its last run here."""
    return json.loads(TABLE.read_text()) if TABLE.exists() else []


def keep_row(row: Row, order: list[str]) -> None:
    """Keep a row beside those of earlier runs: a part of the cells can be run again."""
    rows = {kept["name"]: kept for kept in read_rows()} | {row.name: asdict(row)}
    TABLE.write_text(json.dumps([rows[name] for name in order if name in rows], indent=1))


def parse_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(prog="make anywhere", description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=[""])
    parser.add_argument("--whole", action="store_true", help="the whole suite in each cell")
    parser.add_argument("--jobs", default=str(min(2, os.cpu_count() or 1)))
    parser.add_argument("--systems", type=Path, default=Path(PLACE, "systems"))
    parser.add_argument("--write", action="store_true", help="keep the results for the pages")
    return parser.parse_args()


def describe(row: Row) -> str:
    """Return what came of a cell in one line."""
    counts = f"{row.passed} passed, {row.failed} failed, {row.skipped} skipped"
    return f"Python {row.python}; demo {row.demo}; {row.ran} tests: {counts} in {row.seconds} s"


def run_cell(cell: Cell, described: dict[str, Any], options: argparse.Namespace) -> Row:
    """Make the virtual environment of a cell, then run the demo and the tests."""
    system = described["machines"].get(cell.machine) or describe_here()
    ran = "whole" if options.whole else cell.tests
    row = Row(cell.name, system, cell.python, cell.user, ran)
    packages = described["packages"].replace(" ", "")
    try:
        place = find_place(cell, options.systems.absolute(), packages)
    except NotHere as error:
        row.untried = f"untried: {error}"
        return row
    row.python = place.version
    if cell.python == "newest" and len(find_pythons()) == 1:
        print(f"only Python {place.version} is here: it is the oldest and the newest", flush=True)
    log = LOGS / f"{cell.name.replace('/', '_')}.log"
    log.unlink(missing_ok=True)
    began = time.monotonic()
    conditions = cell.conditions if cell.fresh else []
    made = run(place, ["make", "venv"], conditions, log, SECONDS["venv"])
    if made == 0:
        row.demo = run_demo(cell, place, log)
        run_tests(cell, place, row, log, described["tests"][ran].split(), options.jobs)
    else:
        row.demo = "no venv"
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

    Up to three that fail are run once more, alone, and named as unsteady, as `.ci/run` does it.
    """
    cache = ".pytest_cache/anywhere"
    words = [".venv/bin/pytest", "-rfEs", "-o", f"cache_dir={cache}", "-o", "junit_family=xunit2"]
    words += [f"--junitxml={REPORT}", *tests]
    parallel = ["-n", jobs, "--dist", "worksteal"]
    run(place, [*words, *parallel], cell.conditions, log, SECONDS[row.ran])
    counts = read_report(place)
    failed = counts["errors"] + counts["failures"]
    row.skipped = counts["skipped"]
    row.passed = counts["tests"] - failed - row.skipped
    if 0 < failed <= 3:
        names = json.loads(place.outside(f"{place.folder}/{cache}/v/cache/lastfailed").read_text())
        print(f"unsteady, run once more alone: {', '.join(names)}", flush=True)
        once_more = ["--last-failed", "--last-failed-no-failures", "none"]
        run(place, [*words, *once_more], cell.conditions, log, SECONDS[row.ran])
        counts = read_report(place)
        still = counts["errors"] + counts["failures"]
        row.passed += failed - still
        failed = still
    row.failed = failed


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
        try:
            return started.wait(seconds)
        except subprocess.TimeoutExpired:
            output.write(f"\nended after {seconds} s\n".encode())
            return 124
        finally:
            end_all(started)


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
    lines = [COLUMNS, *(row.cells() for row in rows if not row.untried)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    print(f"\n{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores")
    for line in lines:
        print(
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        )
    for row in rows:
        if row.untried:
            print(f"{row.name}: {row.untried}")
    print(f"untried: {'; '.join(untried)}")


if __name__ == "__main__":
    sys.exit(main())
