"""What came of the runs: counts per kind and framework, and the tables that are made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from .habits import KINDS


@dataclass(slots=True)
class Score:
    """Runs of one framework with one kind of fault. `whys` are ends of runs that did not finish,
    each with its count.
    """

    runs: int = 0
    finished: int = 0
    once: int = 0
    rounds: list[int] = field(default_factory=list)
    whys: dict[str, int] = field(default_factory=dict)

    def add(self, *, finished: bool, once: bool, rounds: int, why: str) -> None:
        """Take a run in."""
        self.runs += 1
        self.finished += finished
        self.once += finished and once
        if finished:
            self.rounds.append(rounds)
        if why:
            self.whys[why] = self.whys.get(why, 0) + 1

    def data(self) -> Cell:
        """As JSON."""
        shown = dict(sorted(self.whys.items(), key=lambda item: -item[1])[:5])
        rounds = sum(self.rounds)
        return {
            "runs": self.runs,
            "finished": self.finished,
            "once": self.once,
            "answers": rounds,
            "whys": shown,
        }


Cell = dict[str, Any]
"""`Score.data`: of these runs of a kind with a framework. `answers` are those of all finished runs
together.
"""

Results = Mapping[str, Mapping[str, Cell]]
"""By kind, then by framework."""


def table(results: Results, frameworks: Sequence[str]) -> str:
    """A row per kind, a column per framework, and what it comes to in all."""
    rows = [["what the model does", *frameworks], ["---", *("--:" for _ in frameworks)]]
    for kind, found in results.items():
        rows.append([KINDS[kind].words, *(_shown(found.get(name)) for name in frameworks)])
    faults = [found for kind, found in results.items() if kind != "none"] or list(results.values())
    for words, figure in (
        ("**all faults**", lambda cells: _share(cells, "once")),
        ("finished, whatever was ordered", lambda cells: _share(cells, "finished")),
        ("answers in a finished run", _answers),
    ):
        rows.append(
            [words, *(figure([f[name] for f in faults if name in f]) for name in frameworks)]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _shown(cell: Cell | None) -> str:
    """Percent that finished with one order; in brackets those that finished at all, if these are
    more.
    """
    if not cell or not cell["runs"]:
        return ""
    one, every = (round(100 * cell[count] / cell["runs"]) for count in ("once", "finished"))
    return f"{one}" if one == every else f"{one} ({every})"


def _share(cells: Sequence[Cell], count: str) -> str:
    """Percent over kinds, each with the same weight."""
    shares = [cell[count] / cell["runs"] for cell in cells if cell["runs"]]
    return f"{100 * mean(shares):.1f}" if shares else ""


def _answers(cells: Sequence[Cell]) -> str:
    finished = sum(cell["finished"] for cell in cells)
    return f"{sum(cell['answers'] for cell in cells) / finished:.2f}" if finished else ""
