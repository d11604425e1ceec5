"""Keep what `make anywhere` saw: a table that is made in pieces, and what readers get of it.

`table.json` has a row for each cell that was ever run, with the day and the commit. From it are
made the page `docs/machines.md`, the line of the README and the `tried.json` of `ferrule doctor`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ferrule.cli.doctor.command import describe_tried

from .systems import ROOT

TABLE = Path(__file__).with_name("table.json")
PAGE = ROOT / "docs/machines.md"
README = ROOT / "README.md"
TRIED = ROOT / "src/ferrule/cli/doctor/tried.json"
WRITTEN = (TABLE, PAGE, README, TRIED)
MARK = "<!-- table: written by `make anywhere` -->"
README_LINE = re.compile(r"(<!-- tried -->\n).*?(\n<!-- /tried -->)", re.DOTALL)
COLUMNS = {
    "name": "cell",
    "system": "system",
    "python": "Python",
    "ran": "tests",
    "demo": "demo",
    "passed": "passed",
    "failed": "failed",
    "skipped": "skipped",
    "seconds": "seconds",
    "date": "day",
    "commit": "commit",
}
"""Fields of a row that are shown, and the heads of their columns."""


def read_rows() -> list[dict[str, Any]]:
    """Return the rows of all cells that were run, by this run of the program or an earlier one."""
    return json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else []


def add_row(
    rows: list[dict[str, Any]], row: dict[str, Any], order: list[str]
) -> list[dict[str, Any]]:
    """Return the rows with this one in its place. A cell that ran once is not untried again."""
    kept = {old["name"]: old for old in rows}
    known = kept.get(row["name"])
    if known is None or known["untried"] or not row["untried"]:
        kept[row["name"]] = row
    return [kept[name] for name in order if name in kept]


def write_rows(rows: list[dict[str, Any]], order: list[str], untried: list[str]) -> None:
    """Write the table, and everything that is made from it.

    Args:
        rows: The rows of the cells that were run.
        order: The names of all cells.
        untried: What no cell can try.
    """
    TABLE.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(make_page(rows, order, untried), encoding="utf-8")
    good = [row for row in rows if is_good(row)]
    if not good:
        return
    tried = make_tried(good, untried)
    TRIED.write_text(json.dumps(tried, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    README.write_text(make_readme(tried), encoding="utf-8")


def make_page(rows: list[dict[str, Any]], order: list[str], untried: list[str]) -> str:
    """Return the page with the table of these rows, and what was not tried."""
    lines = [f"| {' | '.join(COLUMNS.values())} |", "|---" * len(COLUMNS) + "|"]
    lines += [
        f"| {' | '.join(str(row[name]) for name in COLUMNS)} |"
        for row in rows
        if not row["untried"]
    ]
    lines += ["", "Untried:", "", *(f"- {name}" for name in untried)]
    reasons = {row["name"]: row["untried"] for row in rows}
    not_run = {name: reasons.get(name, "not run yet") for name in order}
    lines += [f"- {name}: {reason}" for name, reason in not_run.items() if reason]
    before = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    return before + "\n".join([MARK, "", *lines, ""])


def is_good(row: dict[str, Any]) -> bool:
    """Return whether a cell ran, its demo ended well, and no test failed."""
    return not row["untried"] and not row["failed"] and row["demo"] == "yes"


def make_tried(good: list[dict[str, Any]], untried: list[str]) -> dict[str, Any]:
    """Return the systems and Pythons of rows where the demo ended well and no test failed."""
    versions = {tuple(map(int, row["python"].split("."))) for row in good}
    return {
        "date": max(row["date"] for row in good),
        "pythons": [".".join(map(str, version)) for version in sorted(versions)],
        "systems": sorted({row["system"] for row in good}),
        "untried": untried,
    }


def make_readme(tried: dict[str, Any]) -> str:
    """Return the README with its line about where both commands were tried."""
    said = describe_tried(tried)
    line = f"[{said[0].upper()}{said[1:]}](docs/machines.md)."
    text = README.read_text(encoding="utf-8")
    if not README_LINE.search(text):
        raise ValueError("README.md has no `<!-- tried -->` … `<!-- /tried -->`")
    return README_LINE.sub(lambda found: f"{found[1]}{line}{found[2]}", text)
