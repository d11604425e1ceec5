"""The page of field reports: what broke in other programs, and what Ferrule does there.

`make_reference.py` writes it from `tests/field/reports/*.yaml`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

REPORTS = Path(__file__).resolve().parents[1] / "tests" / "field" / "reports"
FIRST_TRIES = ("held", "partly", "failed")


@dataclass(frozen=True)
class Report:
    """One public report; fields as in `tests/field/README.md`."""

    area: str
    source: str
    symptom: str
    behaviour: str
    first_try: str
    test: str = ""
    date: str = ""


def read_reports() -> list[Report]:
    """All reports, by area in the order of the files."""
    return [
        Report(path.stem, **{key: str(value) for key, value in row.items()})
        for path in sorted(REPORTS.glob("*.yaml"))
        for row in _read(path)
    ]


def _read(path: Path) -> list[dict[str, Any]]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, list), f"{path.name} is a list of reports"
    return found


def page() -> str:
    """The page, as Markdown."""
    reports = read_reports()
    parts = [
        "<!-- Made by docs/made_field_reports.py from tests/field/reports. Run `make docs`. -->",
        "# Field reports",
        "Bug reports that users of other programs published, each tried on Ferrule. The column *first try* "
        "is what Ferrule did before anybody had looked at the report; what failed was then fixed.",
        "\n".join(_summarize(reports)),
    ]
    for area in dict.fromkeys(report.area for report in reports):
        parts.append(f"## {area.replace('-', ' ').capitalize()}")
        parts.append("\n".join(_table(report for report in reports if report.area == area)))
    return "\n\n".join(parts) + "\n"


def _summarize(reports: list[Report]) -> Iterator[str]:
    yield "| area | reports | held at the first try | partly | failed |"
    yield "|---|--:|--:|--:|--:|"
    for area in (*dict.fromkeys(report.area for report in reports), ""):
        rows = [report for report in reports if area in ("", report.area)]
        tries = Counter(report.first_try for report in rows)
        counts = " | ".join(str(tries[name]) for name in FIRST_TRIES)
        yield f"| {area.replace('-', ' ') or 'all'} | {len(rows)} | {counts} |"


def _table(reports: Iterator[Report]) -> Iterator[str]:
    yield "| report | symptom there | Ferrule | first try |"
    yield "|---|---|---|---|"
    for report in reports:
        dated = f"{report.source} ({report.date})" if report.date else report.source
        cells = (dated, report.symptom, report.behaviour, report.first_try)
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
