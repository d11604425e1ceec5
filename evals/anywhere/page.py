"""Keep what `make anywhere` saw for readers: a page, and what `ferrule doctor` says."""

from __future__ import annotations

import json
from typing import Any

from .systems import ROOT

PAGE = ROOT / "docs/machines.md"
TRIED = ROOT / "src/ferrule/cli/doctor/tried.json"
MARK = "<!-- table: written by `make anywhere` -->"
HEAD = "| cell | system | Python | demo | tests | passed | failed | skipped | seconds |"


def write_results(rows: list[dict[str, Any]], untried: list[str]) -> None:
    """Write the table of the page, and the systems and Pythons where nothing failed."""
    ran = [row for row in rows if not row["untried"]]
    lines = [HEAD, "|" + "---|" * HEAD.count(" | ") + "---|"]
    for row in ran:
        names = (
            "name",
            "system",
            "python",
            "demo",
            "ran",
            "passed",
            "failed",
            "skipped",
            "seconds",
        )
        lines.append("| " + " | ".join(str(row[name]) for name in names) + " |")
    lines += ["", f"Last run: {max(row['date'] for row in ran)}. Untried:", ""]
    lines += [f"- {name}" for name in untried]
    lines += [
        f"- {row['name']}: {row['untried'].removeprefix('untried: ')}"
        for row in rows
        if row["untried"]
    ]
    before = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(before + "\n".join([MARK, "", *lines, ""]), encoding="utf-8")
    good = [row for row in ran if not row["failed"] and row["demo"] == "yes"]
    versions = {tuple(map(int, row["python"].split("."))) for row in good}
    tried = {
        "date": max(row["date"] for row in ran),
        "pythons": [".".join(map(str, version)) for version in sorted(versions)],
        "systems": sorted({row["system"] for row in good}),
        "untried": untried,
    }
    TRIED.write_text(json.dumps(tried, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
