"""BM25 (Robertson and Zaragoza 2009) over short documents, with an inverted index.

score(d) = sum over the query's words of  idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * |d| / mean))
idf      = ln(1 + (N - n + 0.5) / (n + 0.5))                          k1 = 1.5, b = 0.75
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

K1, B = 1.5, 0.75


def rarity(documents: int, holding: int) -> float:
    """The weight of a word that `holding` of so many documents hold."""
    return math.log(1 + (documents - holding + 0.5) / (holding + 0.5))


def saturated(count: float, k1: float = K1) -> float:
    """Ten times a word says more than once, and less than ten times as much."""
    return count * (k1 + 1) / (count + k1)


class Bm25:
    """Documents are lists of words, known by their position."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        mean = sum(map(len, documents)) / max(len(documents), 1) or 1.0
        self.size = len(documents)
        impacts: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, words in enumerate(documents):
            k1 = K1 * (1 - B + B * len(words) / mean)
            once = (K1 + 1) / (1 + k1)
            for word, count in Counter(words).items():
                impacts[word].append((number, once if count == 1 else count * (K1 + 1) / (count + k1)))
        self._impacts = dict(impacts)

    def rarity(self, word: str) -> float:
        """The weight of one word; that of a word no document holds is the greatest there is."""
        return rarity(self.size, len(self._impacts.get(word, ())))

    def scores(self, query: Iterable[str], *, common: float = 1.0) -> dict[int, float]:
        """What each document is worth that holds a word of the query; a word that comes twice counts twice.

        Words that more than the share `common` of the documents hold are passed over: they cost most and say least.
        """
        found: dict[int, float] = {}
        for word in query:
            impacts = self._impacts.get(word)
            if impacts is None or len(impacts) > common * self.size:
                continue
            weight = rarity(self.size, len(impacts))
            for number, impact in impacts:
                found[number] = found.get(number, 0.0) + weight * impact
        return found


def best(scores: Mapping[int, float], names: Sequence[str], most: int) -> list[tuple[int, float]]:
    """The documents with the highest scores, ties by name, none with a score of 0."""
    kept = ((number, score) for number, score in scores.items() if score > 0)
    return heapq.nsmallest(most, kept, key=lambda pair: (-pair[1], names[pair[0]]))
