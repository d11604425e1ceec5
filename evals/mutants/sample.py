"""Which breakages are tried: one line per promise, the rarer among promises the likelier, the same
for the same seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .operators import Breakage, find_body_lines, find_breakages, find_uses

COMMON = 0.2
"""A line that more than this share of the promises execute says nothing about one of them."""
LEFT_OUT = ("testing/",)
"""Parts of the package that no promise is about: what tests are written with."""

Lines = Mapping[str, Iterable[int]]
"""Executed lines by file, from the package on."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A breakage of a module, and the promise whose tests should notice it."""

    promise: str
    module: str
    breakage: Breakage

    @property
    def shown(self) -> str:
        return f"{self.module}:{self.breakage.line} {self.breakage.operator}: {self.breakage.shown}"


@dataclass
class Module:
    """What there is to break in a module, and on which lines."""

    source: bytes
    breakages: dict[int, list[Breakage]] = field(default_factory=dict)
    """By line; a constant of the module stands on every line of a function that reads it."""

    @classmethod
    def read(cls, path: Path) -> Module:
        """Read a module of the package."""
        source = path.read_bytes()
        inside = find_body_lines(source)
        uses = find_uses(source)
        found: dict[int, list[Breakage]] = {}
        for one in find_breakages(source):
            lines = uses.get(one.name, set()) if one.name else {one.line} & inside
            for line in lines:
                found.setdefault(line, []).append(one)
        return cls(source, found)


class Sample:
    """Draws breakages for promises from the lines that their tests executed."""

    def __init__(self, package: Path, executed: Mapping[str, Lines], seed: int) -> None:
        self._seed = seed
        self._executed = {
            promise: {
                (name, line)
                for name, lines in found.items()
                if name.endswith(".py") and not name.startswith(LEFT_OUT)
                for line in lines
            }
            for promise, found in executed.items()
        }
        self._count = Counter(place for places in self._executed.values() for place in places)
        names = {name for name, _ in self._count}
        self._modules = {name: Module.read(package / name) for name in sorted(names)}
        self._too_common = max(1, int(COMMON * len(executed)))

    def draw(self, promise: str, count: int = 1) -> list[Trial]:
        """Draw up to `count` breakages on different lines for a promise.

        A line that n of the measured promises execute has the weight 1/n². Which breakage of the
        line is tried, each operator of it first, is left to chance.
        """
        chance = random.Random(f"{self._seed}:{promise}")
        weights = {
            place: self._count[place] ** -2.0
            for place in sorted(self._executed[promise])
            if self._count[place] <= self._too_common
            and place[1] in self._modules[place[0]].breakages
        }
        drawn: list[Trial] = []
        while weights and len(drawn) < count:
            (place,) = chance.choices(list(weights), list(weights.values()))
            del weights[place]
            name, line = place
            possible = self._modules[name].breakages[line]
            operator = chance.choice(sorted({one.operator for one in possible}))
            breakage = chance.choice([one for one in possible if one.operator == operator])
            drawn.append(Trial(promise, name, breakage))
        return drawn

    def apply(self, trial: Trial) -> bytes:
        """Return the broken module."""
        return trial.breakage.apply(self._modules[trial.module].source)

    def find_others(self, trial: Trial) -> list[str]:
        """Return the other measured promises whose tests execute the line, those with the fewest
        lines first.
        """
        place = (trial.module, trial.breakage.line)
        others = [
            name
            for name, places in self._executed.items()
            if place in places and name != trial.promise
        ]
        return sorted(others, key=lambda name: len(self._executed[name]))
