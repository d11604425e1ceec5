"""Field weights and fusion: the strategy `hybrid`, as systems.md §2.1 gives it.

Each word of the query counts for a tool by the best place it has in the name (the whole name 10, a
part of it 7, within it 5), and for standing within the description (2) and within a parameter (1).
If every word is in the name there is 1 divided by the number of its parts on top. Fusion is by
reciprocal rank (Cormack, Clarke and Buettcher 2009; k = 60, ranks from 1) over the BM25 list once
and this list twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ferrule.core.frozen import frozen

from .document import Document

WHOLE, PART, WITHIN, DESCRIPTION, PARAMETER = 10.0, 7.0, 5.0, 2.0, 1.0
FUSION = 60
_PARTS = re.compile(r"[_\-.:]+")


@frozen
class Fields:
    """One tool, in lower case."""

    name: str
    parts: tuple[str, ...]
    description: str
    parameters: str

    @staticmethod
    def of(document: Document) -> Fields:
        name = document.name.lower()
        parts = tuple(part for part in _PARTS.split(name) if part)
        rows = " ".join(map(": ".join, document.parameters))
        return Fields(name, parts, document.description.lower(), rows.lower())

    def score(self, query: Sequence[str]) -> float:
        total, named = 0.0, bool(query)
        for word in query:
            place = self._named(word)
            named = named and place > 0
            total += place
            total += DESCRIPTION if word in self.description else 0.0
            total += PARAMETER if word in self.parameters else 0.0
        return total + (1 / len(self.parts) if named and self.parts else 0.0)

    def _named(self, word: str) -> float:
        if word == self.name:
            return WHOLE
        if word in self.parts:
            return PART
        return WITHIN if word in self.name else 0.0


def fused(lists: Iterable[tuple[float, Sequence[int]]]) -> dict[int, float]:
    """Documents by the sum of weight / (60 + rank) over ranked lists, given as (weight,
    documents).
    """
    found: dict[int, float] = {}
    for weight, ranked in lists:
        for rank, number in enumerate(ranked, 1):
            found[number] = found.get(number, 0.0) + weight / (FUSION + rank)
    return found
