"""Make `tests/everyday.toml` from the times that `pytest --times FOLDER` wrote.

A function of tests may take BOUND seconds of processor time a day. One that takes longer runs as
many rows as fit, none if the first does not; a function of attacks may take ATTACK_BOUND seconds.
The quickest function of a module always runs a row, unless that takes LONGEST_SECONDS.
Functions that were not measured keep what the table says of them: `pytest --everyday --times`, or
the times of some folders, bring the rest up to date.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from everyday import LONGEST_SECONDS, STARTS_FIRST_SECONDS, TABLE, Limit, name_function, read_table

BOUND = 0.12
ATTACK_BOUND = 0.6
ENOUGH_ROWS = 3
"""With fewer measured rows, the table's time of a function of more rows stands."""
ATTACKS = re.compile(r"/attacks/|attack|hostile|attempt")
"""What an attack has in its node id."""

HEAD = """\
# Functions of tests that take long, how many of their rows `make test` runs, and the seconds of a row (tests/everyday.py).
# Made by `make lab NAME=everyday`: what takes more than {bound} s of processor time runs as many rows as fit.
"""


@dataclass
class Function:
    """What one function of tests takes."""

    module: str
    name: str
    rows: int
    seconds: float

    @property
    def mean(self) -> float:
        return self.seconds / self.rows

    def count_rows(self, bound: float) -> int:
        """Return how many rows run every day."""
        if ATTACKS.search(f"{self.module}::{self.name}"):
            bound = max(bound, ATTACK_BOUND)
        return self.rows if self.seconds <= bound else int(bound / self.mean)


def read_functions(folder: Path, table: dict[str, Limit]) -> list[Function]:
    """Return the functions that were measured or stand in the table, sorted by their names."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for file in folder.glob("*.json"):
        for node_id, seconds in json.loads(file.read_text("utf-8")).items():
            times[name_function(node_id)].append(seconds)
    found: list[Function] = []
    for function in sorted({*times, *table}):
        module, _, name = function.partition("::")
        seconds = times.get(function, [])
        known = table.get(function)
        rows = max(len(seconds), known.of if known else 0)
        if known is not None and len(seconds) < min(ENOUGH_ROWS, rows):
            mean = known.seconds
        else:
            mean = sum(seconds) / len(seconds)
        found.append(Function(module, name, rows, rows * mean))
    return found


def choose_rows(functions: list[Function], bound: float) -> dict[str, dict[str, int]]:
    """Return the rows of functions that do not run whole, by module and name."""
    modules: defaultdict[str, list[Function]] = defaultdict(list)
    for function in functions:
        modules[function.module].append(function)
    chosen: dict[str, dict[str, int]] = {}
    for module, members in modules.items():
        rows = {one.name: one.count_rows(bound) for one in members}
        quickest = min(members, key=lambda one: one.mean)
        if not any(rows.values()) and quickest.mean < LONGEST_SECONDS:
            rows[quickest.name] = 1
        limited = {
            one.name: rows[one.name]
            for one in members
            if rows[one.name] < one.rows or one.mean >= STARTS_FIRST_SECONDS
        }
        if limited:
            chosen[module] = limited
    return chosen


def render(functions: list[Function], chosen: dict[str, dict[str, int]], bound: float) -> str:
    """Return the text of the table."""
    lines = [HEAD.format(bound=bound)]
    by_id = {(one.module, one.name): one for one in functions}
    for module, names in chosen.items():
        lines.append(f'["{module}"]')
        for name, rows in names.items():
            one = by_id[module, name]
            key = name if "::" not in name else f'"{name}"'
            lines.append(f"{key} = {{rows = {rows}, of = {one.rows}, seconds = {one.mean:.2g}}}")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Write the table and print what the everyday run takes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what `pytest --times` wrote")
    parser.add_argument("--bound", type=float, default=BOUND, help="seconds of a function")
    asked = parser.parse_args()
    functions = read_functions(asked.folder, read_table() if TABLE.exists() else {})
    chosen = choose_rows(functions, asked.bound)
    TABLE.write_text(render(functions, chosen, asked.bound), "utf-8")
    runs = [(one, chosen.get(one.module, {}).get(one.name, one.rows)) for one in functions]
    print(
        f"every day: {sum(rows for _, rows in runs):,} of {sum(one.rows for one in functions):,} tests, "
        f"{sum(one.mean * rows for one, rows in runs):.0f} of "
        f"{sum(one.seconds for one in functions):.0f} s of processor time"
    )


if __name__ == "__main__":
    main()
