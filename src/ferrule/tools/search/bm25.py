"""Rank short documents by BM25 (Robertson and Zaragoza 2009), with an inverted index that grows.

score(d) = sum over the query's words of  idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / mean))
idf      = ln(1 + (N - n + 0.5) / (n + 0.5))                          k1 = 1.5, b = 0.75

The weight of a word depends on all documents, so it is computed when a query has the word, and
again after documents were added.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

K1, B = 1.5, 0.75

Impacts = Mapping[int, float]
"""Documents that contain a word, and the word's weight in each."""


def rarity(documents: int, holding: int) -> float:
    """Return the weight (idf) of a word that `holding` of `documents` contain."""
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))


def saturate(count: float, k1: float = K1) -> float:
    """Dampen a word count: ten occurrences weigh more than one, but less than ten times as much."""
    return count * (k1 + 1) / (count + k1)


def term_impacts(counts: Mapping[int, int], norms: Sequence[float]) -> Impacts:
    """Return the weight of a word in documents, by how often each contains it."""
    return {number: count * (K1 + 1) / (count + norms[number]) for number, count in counts.items()}


def length_norms(lengths: Sequence[int]) -> list[float]:
    """Return k1 scaled by document length, for documents with these numbers of words."""
    mean = sum(lengths) / max(len(lengths), 1) or 1.0
    return [K1 * (1 - B + B * length / mean) for length in lengths]


class Bm25:
    """A BM25 index. Documents are lists of words and are identified by their position."""

    def __init__(self, documents: Iterable[Sequence[str]] = ()) -> None:
        self.size = 0
        self._postings: defaultdict[str, list[int]] = defaultdict(list)
        self._lengths: list[int] = []
        self._norms: list[float] = []
        self._impacts: dict[str, Impacts] = {}
        self.add(documents)

    def add(self, documents: Iterable[Sequence[str]]) -> None:
        """Add documents; the work is proportional to the new ones."""
        postings = self._postings
        for number, words in enumerate(documents, self.size):
            for word in words:
                postings[word].append(number)
            self._lengths.append(len(words))
        self.size = len(self._lengths)
        self._impacts.clear()
        self._norms.clear()

    def rarity(self, word: str) -> float:
        """Return the weight of a word; a word in no document has the largest weight."""
        return rarity(self.size, len(self._worth(word)))

    def scores(self, query: Iterable[str]) -> dict[int, float]:
        """Score the documents that contain a word of the query; a repeated word counts again."""
        found: dict[int, float] = {}
        for word in query:
            worth = self._worth(word)
            if not worth:
                continue
            weight = rarity(self.size, len(worth))
            for number, impact in worth.items():
                found[number] = found.get(number, 0.0) + weight * impact
        return found

    def _worth(self, word: str) -> Impacts:
        worth = self._impacts.get(word)
        if worth is None:
            if word not in self._postings:
                return {}
            if not self._norms:
                self._norms = length_norms(self._lengths)
            worth = self._impacts[word] = term_impacts(Counter(self._postings[word]), self._norms)
        return worth


def top_documents(
    scores: Mapping[int, float], names: Sequence[str], limit: int
) -> list[tuple[int, float]]:
    """Return the documents with the highest scores, ties by name, none with a score of 0."""
    positive = ((number, score) for number, score in scores.items() if score > 0)
    return heapq.nsmallest(limit, positive, key=lambda pair: (-pair[1], names[pair[0]]))
