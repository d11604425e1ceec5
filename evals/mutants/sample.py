"""Which breakages are tried: lines of each promise, the rarer among promises the likelier, the same
for the same seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from .executed import Functions
from .operators import Breakage, find_body_lines, find_breakages, find_uses

COMMON = 0.2
"""A line that more than this share of the promises execute says nothing about one of them."""
LEFT_OUT = ("testing/",)
"""Parts of the package that no promise is about: what tests are written with."""

Lines = Mapping[str, Iterable[int]]
"""Executed lines by file, from the package on."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a breakage stands, in words that stay when lines move.

    `function` is its qualified name, or that of the constant, for what stands outside of functions.
    Of equal changes in one function, `number` counts which it is.
    """

    module: str
    function: str
    operator: str
    change: str
    number: int


@dataclass(frozen=True, slots=True)
class Trial:
    """A breakage of a module, and the promise whose tests should notice it."""

    promise: str
    place: Place
    breakage: Breakage

    @property
    def shown(self) -> str:
        """What is changed, and where."""
        place = self.place
        where = f"{place.module}:{self.breakage.line} {place.function}"
        return f"{where} {place.operator}: {place.change}"


@dataclass
class Module:
    """What there is to break in a module, and on which lines."""

    source: bytes
    places: dict[Place, Breakage] = field(default_factory=dict)
    lines: dict[int, list[Place]] = field(default_factory=dict)
    """By line; a constant of the module stands on every line of a function that reads it."""

    @classmethod
    def read(cls, package: Path, name: str) -> Module:
        """Read a module of the package; one that is gone has nothing to break."""
        path = package / name
        module = cls(path.read_bytes() if path.is_file() else b"")
        inside = find_body_lines(module.source)
        uses = find_uses(module.source)
        count: Counter[tuple[str, str, str]] = Counter()
        for one in find_breakages(module.source):
            function = one.name or module.functions.find(one.line)
            same = (function, one.operator, one.shown)
            count[same] += 1
            place = Place(name, *same, count[same])
            module.places[place] = one
            for line in uses.get(one.name, set()) if one.name else {one.line} & inside:
                module.lines.setdefault(line, []).append(place)
        return module

    @cached_property
    def functions(self) -> Functions:
        """The functions of the module."""
        return Functions(self.source)

    def find_lines(self, place: Place) -> set[int]:
        """Return the lines of which a test must execute one to notice a breakage."""
        return {line for line, places in self.lines.items() if place in places}


class Sample:
    """Draws breakages for promises from the lines that their tests executed."""

    def __init__(self, package: Path, executed: Mapping[str, Lines], seed: int) -> None:
        self._package = package
        self._seed = seed
        self._executed = executed
        self._count = Counter(
            (name, line)
            for found in executed.values()
            for name, lines in found.items()
            for line in lines
        )
        self._modules: dict[str, Module] = {}
        self._too_common = max(1, int(COMMON * len(executed)))

    def draw(self, promise: str, count: int = 1) -> list[Trial]:
        """Draw up to `count` breakages on different lines for a promise.

        A line that n of the promises execute has the weight 1/n². Which breakage of the line is
        tried, each operator of it first, is left to chance.
        """
        chance = random.Random(f"{self._seed}:{promise}")
        weights = {
            (name, line): self._count[name, line] ** -2.0
            for name, lines in sorted(self._executed[promise].items())
            if name.endswith(".py") and not name.startswith(LEFT_OUT)
            for line in sorted(lines)
            if self._count[name, line] <= self._too_common and line in self._read(name).lines
        }
        drawn: list[Trial] = []
        while weights and len(drawn) < count:
            ((name, line),) = chance.choices(list(weights), list(weights.values()))
            del weights[name, line]
            possible = self._read(name).lines[line]
            operator = chance.choice(sorted({one.operator for one in possible}))
            place = chance.choice([one for one in possible if one.operator == operator])
            drawn.append(Trial(promise, place, self._read(name).places[place]))
        return drawn

    def find(self, promise: str, place: Place) -> Trial | None:
        """Return a breakage that was drawn before, unless its code is gone."""
        breakage = self._read(place.module).places.get(place)
        return Trial(promise, place, breakage) if breakage else None

    def apply(self, trial: Trial) -> bytes:
        """Return the broken module."""
        return trial.breakage.apply(self._read(trial.place.module).source)

    def find_lines(self, trial: Trial) -> set[int]:
        """Return the lines of which a test must execute one to notice a breakage."""
        return self._read(trial.place.module).find_lines(trial.place)

    def _read(self, name: str) -> Module:
        if name not in self._modules:
            self._modules[name] = Module.read(self._package, name)
        return self._modules[name]
