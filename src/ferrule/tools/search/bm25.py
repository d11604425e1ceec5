"""BM25 (Robertson and Zaragoza 2009) over short documents, with an inverted index that grows.

score(d) = sum over the query's words of  idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / mean))
idf      = ln(1 + (N - n + 0.5) / (n + 0.5))                          k1 = 1.5, b = 0.75

What a word is worth depends on all documents, so it is worked out when the word is asked for, and
again after documents came.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

K1, B = 1.5, 0.75

Impacts = Mapping[int, float]
"""Documents that hold a word, and how much it says of each."""


def rarity(documents: int, holding: int) -> float:
    """The weight of a word that `holding` of so many documents hold."""
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))


def saturated(count: float, k1: float = K1) -> float:
    """Ten times a word says more than once, and less than ten times as much."""
    return count * (k1 + 1) / (count + k1)


def impacts(counts: Mapping[int, int], norms: Sequence[float]) -> Impacts:
    """What a word says of documents that hold it so many times."""
    return {number: count * (K1 + 1) / (count + norms[number]) for number, count in counts.items()}


def norms(lengths: Sequence[int]) -> list[float]:
    """What a document's length makes of k1, for documents of so many words."""
    mean = sum(lengths) / max(len(lengths), 1) or 1.0
    return [K1 * (1 - B + B * length / mean) for length in lengths]


class Bm25:
    """Documents are lists of words, known by their position."""

    def __init__(self, documents: Iterable[Sequence[str]] = ()) -> None:
        self.size = 0
        self._holding: defaultdict[str, list[int]] = defaultdict(list)
        self._lengths: list[int] = []
        self._norms: list[float] = []
        self._impacts: dict[str, Impacts] = {}
        self.add(documents)

    def add(self, documents: Iterable[Sequence[str]]) -> None:
        """More documents; the work is that for the new ones."""
        holding = self._holding
        for number, words in enumerate(documents, self.size):
            for word in words:
                holding[word].append(number)
            self._lengths.append(len(words))
        self.size = len(self._lengths)
        self._impacts.clear()
        self._norms.clear()

    def rarity(self, word: str) -> float:
        """The weight of one word; that of a word no document holds is the greatest there is."""
        return rarity(self.size, len(self._worth(word)))

    def scores(self, query: Iterable[str], *, common: float = 1.0) -> dict[int, float]:
        """What each document is worth that holds a word of the query; a word that comes twice
        counts twice.

        Words that more than the share `common` of the documents hold are passed over: they cost
        most and say least.
        """
        found: dict[int, float] = {}
        for word in query:
            worth = self._worth(word)
            if not worth or len(worth) > common * self.size:
                continue
            weight = rarity(self.size, len(worth))
            for number, impact in worth.items():
                found[number] = found.get(number, 0.0) + weight * impact
        return found

    def _worth(self, word: str) -> Impacts:
        worth = self._impacts.get(word)
        if worth is None:
            if word not in self._holding:
                return {}
            if not self._norms:
                self._norms = norms(self._lengths)
            worth = self._impacts[word] = impacts(Counter(self._holding[word]), self._norms)
        return worth


def best(scores: Mapping[int, float], names: Sequence[str], most: int) -> list[tuple[int, float]]:
    """The documents with the highest scores, ties by name, none with a score of 0."""
    kept = ((number, score) for number, score in scores.items() if score > 0)
    return heapq.nsmallest(most, kept, key=lambda pair: (-pair[1], names[pair[0]]))
