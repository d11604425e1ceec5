"""The ranking that is used unless another is asked for: several views of a tool, added up.

    fields    BM25F (Zaragoza et al. 2004): words as stems, each place in a tool with a weight of its own
    plain     BM25 over the whole text as it is written: names of things, versions, codes
    pieces    BM25 over runs of four letters of name and first sentence: other forms of a word, compounds, typing errors
    synonyms  words of the name that mean the same as a word of the query
    covered   how much of a tool's name the query says, by the rarity of its words
    pairs     neighbouring words of the name that are neighbours in the query, too
    values    values that a parameter may have and the query names

The weights were fitted once to requests over public function catalogs (logistic loss over pairs; no weight below zero) and are
rounded: what matters is that the views make up for each other. `benchmarks/search.py` prints what that is worth.
Not here: meaning without a common word or synonym, and languages other than English beyond the plain text.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from ferrule.tools.words import content, first_sentence, stem, stems, tokens, words

from .bm25 import Bm25, rarity, saturated
from .document import Document
from .synonyms import SYNONYMS

_PLACES = {"name": (3.0, 0.4), "first": (1.5, 0.5), "rest": (1.0, 0.6), "parameter": (1.0, 0.6), "about": (0.5, 0.7), "value": (0.7, 0.7)}  # fmt: skip
"""Weight of a word in a place, and how much a long place is discounted."""
_K1 = 1.2
_WEIGHTS = {"fields": 0.5, "plain": 0.9, "pieces": 0.03, "synonyms": 1.5, "covered": 1.5, "pairs": 0.5, "values": 4.0}  # fmt: skip
_PIECE = 4
_BEGINNING = 120
"""Characters of a description that are taken apart into pieces."""
_COMMON = 0.25
"""Words and pieces that more than this share of all tools hold cost most and say least."""


class Ranking:
    """An index of documents, known by their position."""

    def __init__(self, documents: Sequence[Document]) -> None:
        self._size = len(documents)
        places = [_places(document) for document in documents]
        self._plain = Bm25([tokens(document.text()) for document in documents])
        self._pieces = Bm25(
            [_pieces(f"{d.name} {first_sentence(d.description)[:_BEGINNING]}") for d in documents]
        )
        self._fields = self._weighed(places)
        self._names = [frozenset(place["name"]) for place in places]
        self._named: dict[str, list[int]] = {}
        for number, name in enumerate(self._names):
            for word in name:
                self._named.setdefault(word, []).append(number)
        self._pairs = [frozenset(_pairs(place["name"])) for place in places]
        self._values = _holding([place["value"] for place in places])

    def scores(self, query: str) -> dict[int, float]:
        """What each document is worth for a query; those that have nothing of it are not there."""
        asked = content(query) or stems(query)
        weight = {word: self._rarity(word) for word in set(asked)}
        scale = 1 / math.sqrt(sum(weight.values()) or 1.0)
        found: dict[int, float] = {}
        for word, times in Counter(asked).items():
            self._by_words(word, (1 + math.log(times)) * scale, found)
        for number, score in self._plain.scores(tokens(query), common=_COMMON).items():
            found[number] = found.get(number, 0.0) + _WEIGHTS["plain"] * scale * score
        for number, score in self._pieces.scores(_pieces(query), common=_COMMON).items():
            found[number] = found.get(number, 0.0) + _WEIGHTS["pieces"] * score
        self._by_synonyms(weight, scale, found)
        self._by_names(weight, frozenset(_pairs(asked)), found)
        return found

    def _rarity(self, word: str) -> float:
        return rarity(self._size, len(self._fields.get(word, ())))

    def _by_words(self, word: str, factor: float, found: dict[int, float]) -> None:
        gain = self._rarity(word) * factor
        for number, impact in self._fields.get(word, ()):
            found[number] = found.get(number, 0.0) + _WEIGHTS["fields"] * gain * impact
        for number in self._values.get(word, ()):
            found[number] = found.get(number, 0.0) + _WEIGHTS["values"] * gain

    def _by_synonyms(self, asked: dict[str, float], scale: float, found: dict[int, float]) -> None:
        for word in asked:
            for other in SYNONYMS.get(word, ()):
                if other in asked:
                    continue
                gain = _WEIGHTS["synonyms"] * scale * self._rarity(other)
                for number in self._named.get(other, ()):
                    found[number] = found.get(number, 0.0) + gain

    def _by_names(
        self, asked: dict[str, float], pairs: frozenset[tuple[str, str]], found: dict[int, float]
    ) -> None:
        for number in {number for word in asked for number in self._named.get(word, ())}:
            name = self._names[number]
            whole = sum(asked.get(word) or self._rarity(word) for word in name)
            said = sum(weight for word, weight in asked.items() if word in name)
            gain = _WEIGHTS["covered"] * said / (whole or 1.0)
            gain += _WEIGHTS["pairs"] * len(self._pairs[number] & pairs)
            found[number] = found.get(number, 0.0) + gain

    def _weighed(self, places: Sequence[dict[str, list[str]]]) -> dict[str, list[tuple[int, float]]]:
        count = max(len(places), 1)
        mean = {key: sum(len(place[key]) for place in places) / count or 1.0 for key in _PLACES}
        impacts: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
        for number, place in enumerate(places):
            total: dict[str, float] = {}
            for key, (weight, discount) in _PLACES.items():
                norm = weight / (1 - discount + discount * len(place[key]) / mean[key])
                for word, times in Counter(place[key]).items():
                    total[word] = total.get(word, 0.0) + norm * times
            for word, value in total.items():
                impacts[word].append((number, saturated(value, _K1)))
        return dict(impacts)


def _places(document: Document) -> dict[str, list[str]]:
    first = first_sentence(document.description)
    rest = document.description.strip()[len(first) :]
    return {
        "name": stems(document.name),
        "first": content(first),
        "rest": content(rest) + [stem(word) for label in document.labels for word in words(label)],
        "parameter": content(" ".join(one.name for one in document.parameters)),
        "about": content(" ".join(one.description for one in document.parameters)),
        "value": content(" ".join(value for one in document.parameters for value in one.values)),
    }


def _pieces(text: str) -> list[str]:
    joined = f"#{'#'.join(words(text)).lower()}#"
    return [joined[start : start + _PIECE] for start in range(len(joined) - _PIECE + 1)]


def _pairs(row: Sequence[str]) -> Iterator[tuple[str, str]]:
    return itertools.pairwise(row)


def _holding(rows: Sequence[Sequence[str]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        for word in set(row):
            found.setdefault(word, []).append(number)
    return found
