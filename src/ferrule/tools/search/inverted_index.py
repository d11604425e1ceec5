"""Where words stand in documents that have several places: an inverted index by place, which grows.

A posting is the number of a document, once per occurrence, so that adding a document is appending.
What a word is worth changes with every document that comes; it is worked out when the word is asked
for, and kept until the next one comes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from ferrule.tools.word_stems import first_sentence, stems

from .bm25 import Impacts, impacts, norms, rarity, saturated
from .document import Document
from .vocabulary import Pieced, Stemmed, runs

PLACES = {
    "name": (1.8, 0.4),
    "first": (0.9, 0.5),
    "rest": (1.0, 0.6),
    "parameter": (1.0, 0.6),
    "about": (0.8, 0.7),
    "value": (0.7, 0.7),
}
"""Weight of a word in a place, and how much a long place is discounted."""
_K1 = 1.2
_SPOKEN = "spoken"
"""The name as it is written; as place `name` it is held by stems."""
_COMMON = 0.4
"""Words and pieces that more than this share of all documents hold cost most and say least: BM25
passes them over.
"""
_PLAIN = (_SPOKEN, "first", "rest", "parameter", "about")
_BEGINNING = (_SPOKEN, "first")


class Inverted:
    """Documents are known by their position. The work of `add` is that for the new ones."""

    def __init__(self) -> None:
        self.size = 0
        self.names: list[list[str]] = []
        """The stems of each name."""
        self._runs, self._pieces = Stemmed(), Pieced()
        self._rows = {place: defaultdict[str, list[int]](list) for place in (*PLACES, _SPOKEN)}
        self._holding = Counter[str]()
        """How many documents hold a stem anywhere."""
        self._lengths: dict[str, list[int]] = {view: [] for view in (*PLACES, "plain", "pieces")}
        self._forget()

    def add(self, documents: Iterable[Document]) -> None:
        for number, document in enumerate(documents, self.size):
            self._take(number, document)
        self.size = len(self.names)
        self._forget()

    def _take(self, number: int, document: Document) -> None:
        lengths, seen = self._lengths, set(row := stems(document.name))
        first = first_sentence(document.description)
        given = document.parameters
        parts = (
            ("first", first),
            ("rest", document.description.strip()[len(first) :]),
            ("parameter", " ".join([name for name, _ in given])),
            ("about", " ".join([about for _, about in given])),
            ("value", " ".join(document.values)),
        )
        spoken = runs(document.name)
        plain, stemmed = len(spoken), self._runs.__getitem__
        for place, text in parts:
            found = runs(text) if text else []
            said = list(chain.from_iterable(map(stemmed, found)))
            seen.update(said)
            lengths[place].append(len(said))
            plain += len(found) if place in _PLAIN else 0
            self._post(place, number, found)
            if place == "first":
                lengths["pieces"].append(sum(map(self._pieces.__getitem__, spoken + found)))
        lengths["plain"].append(plain)
        self._take_name(number, row, spoken)
        self._holding.update(seen)

    def _take_name(self, number: int, name: list[str], spoken: list[str]) -> None:
        self.names.append(name)
        self._lengths["name"].append(len(name))
        self._post("name", number, name)
        self._post(_SPOKEN, number, spoken)
        for run in spoken:
            # Known from now on, also if nothing but a name says it.
            _ = self._runs[run]

    def _post(self, place: str, number: int, words: list[str]) -> None:
        rows = self._rows[place]
        for word in words:
            rows[word].append(number)

    def _forget(self) -> None:
        self._norms: dict[str, list[float]] = {}
        self._worth: dict[tuple[str, str], Impacts] = {}

    # ---- what is there

    def found(self, place: str, words: Iterable[str]) -> Iterator[int]:
        """Documents that hold one of these words in a place, once per occurrence."""
        rows = self._rows[place]
        return chain.from_iterable([rows[word] for word in words if word in rows])

    def valued(self, stem: str) -> set[int]:
        """Documents with a parameter that may have a value of this stem."""
        return set(self.found("value", self._runs.stems.get(stem, ())))

    def rarity(self, stem: str) -> float:
        """The weight of a stem by how many documents hold it anywhere."""
        return rarity(self.size, self._holding[stem])

    def fields(self, stem: str) -> Impacts:
        """BM25F over the places, by stem."""
        worth = self._worth.get(("fields", stem))
        if worth is None:
            total: dict[int, float] = {}
            for place, rows in self._by_place(stem):
                (weight, discount), lengths = PLACES[place], self._lengths[place]
                mean = sum(lengths) / self.size or 1.0
                for number in chain.from_iterable(rows):
                    # The longer a place, the less a word in it says.
                    said = weight / (1 - discount + discount * lengths[number] / mean)
                    total[number] = total.get(number, 0.0) + said
            worth = {number: saturated(value, _K1) for number, value in total.items()}
            if worth:
                self._worth["fields", stem] = worth
        return worth

    def plain(self, word: str) -> Impacts:
        """BM25 over the whole text without values, by words in lower case; nothing for a word that
        is everywhere.
        """
        return self._bm25("plain", _PLAIN, word, self._runs.words)

    def pieces(self, piece: str) -> Impacts:
        """BM25 over the pieces of name and first sentence."""
        return self._bm25("pieces", _BEGINNING, piece, self._pieces.runs)

    def _bm25(
        self, view: str, places: Iterable[str], word: str, forms: Mapping[str, list[str]]
    ) -> Impacts:
        worth = self._worth.get((view, word))
        if worth is None:
            said = forms.get(word)
            if said is None:
                # Not kept: what queries say that no document does has no bound.
                return {}
            counts = Counter(chain.from_iterable([self.found(place, said) for place in places]))
            common = len(counts) > _COMMON * self.size
            worth = self._worth[view, word] = {} if common else impacts(counts, self._norm(view))
        return worth

    def _by_place(self, stem: str) -> Iterator[tuple[str, list[list[int]]]]:
        """Places that hold a stem, and the postings of its forms there."""
        forms = self._runs.stems.get(stem, ())
        for place in PLACES:
            held = self._rows[place]
            rows = [held[form] for form in ((stem,) if place == "name" else forms) if form in held]
            if rows:
                yield place, rows

    def _norm(self, view: str) -> list[float]:
        found = self._norms.get(view)
        if found is None:
            found = self._norms[view] = norms(self._lengths[view])
        return found
