"""What evaluations of small models found: rows on disk, rates, and a table in a page. Pure but for
the files it is given.

A working file has one JSON object a line and question, so that a run that was stopped goes on where
it was:

    {"half": "development", "category": "simple", "way": "constrained", "entry": 12, "made": 2,
    "seconds": 0.81}

`made` is 2 for the right tool with the right arguments, 1 for the right tool, 0 for neither. What
is kept in the repository (`evals/results/*.jsonl`) is shorter: one line a way, the outcomes as a
string of digits, entry by entry (`-`: not asked), and seconds as median and 95th percentile.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

Key = tuple[str, str, str]
"""Half, category, way."""


@dataclass(frozen=True)
class Line:
    """One way on one category of one half."""

    half: str
    category: str
    way: str
    made: str
    median: float | None = None
    p95: float | None = None

    @property
    def asked(self) -> int:
        return len(self.made) - self.made.count("-")

    @property
    def tool(self) -> float:
        """Percent of the questions that got the right tool."""
        return 100 * (self.made.count("1") + self.made.count("2")) / max(self.asked, 1)

    @property
    def both(self) -> float:
        """Percent that got the right tool and the right arguments."""
        return 100 * self.made.count("2") / max(self.asked, 1)


class Rows:
    """The working file: what was asked before is not asked again."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path is not None and path.exists():
            self.rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]

    def known(self, key: Key) -> dict[int, dict[str, Any]]:
        """Rows of a way, by entry."""
        return {
            row["entry"]: row
            for row in self.rows
            if (row["half"], row["category"], row["way"]) == key
        }

    def add(self, key: Key, entry: int, made: int, seconds: float) -> None:
        half, category, way = key
        row: dict[str, Any] = {"half": half, "category": category, "way": way, "entry": entry}
        row.update(made=made, seconds=round(seconds, 3))
        self.rows.append(row)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of them do not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def line_of(key: Key, rows: Mapping[int, Mapping[str, Any]], *, timed: bool = True) -> Line:
    """The rows of a way as one line. The first question also starts the model: its seconds do not
    count.
    """
    last = max(rows, default=-1)
    made = "".join(str(rows[n]["made"]) if n in rows else "-" for n in range(last + 1))
    seconds = [row["seconds"] for row in list(rows.values())[1:]] or [
        r["seconds"] for r in rows.values()
    ]
    if not timed or not seconds:
        return Line(*key, made)
    return Line(*key, made, round(median(seconds), 2), round(percentile(seconds, 0.95), 2))


def shown(line: Line) -> str:
    """A row of the table that is printed while questions are asked."""
    seconds = [
        f"{value:8.2f}" if value is not None else " " * 8 for value in (line.median, line.p95)
    ]
    return (
        f"| {line.category:8} | {line.way:46} | {line.asked:3} | {line.tool:10.1f} % | "
        f"{line.both:18.1f} % "
        f"| {seconds[0]} | {seconds[1]} |"
    )


HEADER = (
    f"| {'category':8} | {'way':46} |   n | right tool   | tool and arguments   | median s | "
    "p95 s    |\n"
    "|---|---|--:|--:|--:|--:|--:|"
)


def keep(lines: Iterable[Line], path: Path) -> None:
    """Write lines as the repository keeps them. Those of the file that are not among them stay."""
    known = {(one.half, one.category, one.way): one for one in kept(path)}
    known.update({(one.half, one.category, one.way): one for one in lines})
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(_short(one)) + "\n" for one in known.values()))


def _short(line: Line) -> dict[str, Any]:
    return {key: value for key, value in asdict(line).items() if value is not None}


def kept(path: Path) -> list[Line]:
    if not path.exists():
        return []
    return [Line(**json.loads(line)) for line in path.read_text().splitlines() if line.strip()]


def placed(page: str, name: str, table: str) -> str:
    """The page with the table between its markers. Raises ValueError if they are not there."""
    start, end = f"<!-- {name}: written by evals/small.py -->", f"<!-- end of {name} -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"the page has no place for `{name}`: `{start}` ... `{end}`")
    return pattern.sub(lambda _: f"{start}\n\n{table}\n\n{end}", page)
