"""Rank tools by field weights, fused with BM25: the strategy `hybrid` of systems.md §2.1.

Each word of the query adds to a tool's score: 10 if it is the whole name, else 7 if it is a part of
the name, else 5 if it occurs in the name; 2 if it occurs in the description and 1 if it occurs in a
parameter. If every word occurs in the name, 1 divided by the number of the name's parts is added.
Fusion is by reciprocal rank (Cormack, Clarke and Buettcher 2009; k = 60, ranks from 1) over the
BM25 list with weight 1 and this list with weight 2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ferrule.core.value_class import frozen

from .document import Document

WHOLE, PART, WITHIN, DESCRIPTION, PARAMETER = 10.0, 7.0, 5.0, 2.0, 1.0
FUSION = 60
_PARTS = re.compile(r"[_\-.:]+")


@frozen
class FieldTexts:
    """The searchable texts of one tool, in lower case."""

    name: str
    parts: tuple[str, ...]
    description: str
    parameters: str

    @staticmethod
    def from_document(document: Document) -> FieldTexts:
        name = document.name.lower()
        parts = tuple(part for part in _PARTS.split(name) if part)
        parameters = " ".join(map(": ".join, document.parameters))
        return FieldTexts(name, parts, document.description.lower(), parameters.lower())

    def score(self, query: Sequence[str]) -> float:
        total = 0.0
        all_in_name = bool(query)
        for word in query:
            in_name = self._score_in_name(word)
            all_in_name = all_in_name and in_name > 0
            total += in_name
            if word in self.description:
                total += DESCRIPTION
            if word in self.parameters:
                total += PARAMETER
        if all_in_name and self.parts:
            total += 1 / len(self.parts)
        return total

    def _score_in_name(self, word: str) -> float:
        if word == self.name:
            return WHOLE
        if word in self.parts:
            return PART
        return WITHIN if word in self.name else 0.0


def fuse_ranks(lists: Iterable[tuple[float, Sequence[int]]]) -> dict[int, float]:
    """Score documents by the sum of weight / (60 + rank) over lists of (weight, documents)."""
    found: dict[int, float] = {}
    for weight, ranked in lists:
        for rank, number in enumerate(ranked, 1):
            found[number] = found.get(number, 0.0) + weight / (FUSION + rank)
    return found
