"""Find words in documents with several fields: an inverted index by field, which grows.

A posting is the number of a document, once per occurrence, so adding a document only appends. The
weights of a word change with every new document; they are computed when a query has the word, and
cached until the next document is added.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from ferrule.tools.word_stems import first_sentence, stems

from .bm25 import Impacts, length_norms, rarity, saturate, term_impacts
from .document import Document
from .word_pieces import PieceTable, StemTable, split_runs

PLACES = {
    "name": (1.8, 0.4),
    "first": (0.9, 0.5),
    "rest": (1.0, 0.6),
    "parameter": (1.0, 0.6),
    "about": (0.8, 0.7),
    "value": (0.7, 0.7),
}
"""Weight of a word in a field, and how much a long field is discounted."""
_K1 = 1.2
_SPOKEN = "spoken"
"""The name as written; the field `name` has its stems."""
_COMMON = 0.4
"""BM25 skips words and pieces in more than this share of all documents.

They cost most and say least.
"""
_PLAIN = (_SPOKEN, "first", "rest", "parameter", "about")
_BEGINNING = (_SPOKEN, "first")


class InvertedIndex:
    """An index of documents, identified by their position; `add` costs only the new ones."""

    def __init__(self) -> None:
        self.size = 0
        self._runs = StemTable()
        self._pieces = PieceTable()
        self._rows = {place: defaultdict[str, list[int]](list) for place in (*PLACES, _SPOKEN)}
        self._holding = Counter[str]()
        """Number of documents that contain a stem anywhere."""
        self._lengths: dict[str, list[int]] = {view: [] for view in (*PLACES, "plain", "pieces")}
        self._drop_caches()

    def add(self, documents: Iterable[Document]) -> None:
        for number, document in enumerate(documents, self.size):
            self._add_document(number, document)
            self.size = number + 1
        self._drop_caches()

    def _add_document(self, number: int, document: Document) -> None:
        lengths = self._lengths
        name_stems = stems(document.name)
        seen = set(name_stems)
        first = first_sentence(document.description)
        given = document.parameters
        parts = (
            ("first", first),
            ("rest", document.description.strip()[len(first) :]),
            ("parameter", " ".join([name for name, _ in given])),
            ("about", " ".join([about for _, about in given])),
            ("value", " ".join(document.values)),
        )
        spoken = split_runs(document.name)
        plain = len(spoken)
        stems_of_run = self._runs.__getitem__
        for place, text in parts:
            found = split_runs(text) if text else []
            field_stems = list(chain.from_iterable(map(stems_of_run, found)))
            seen.update(field_stems)
            lengths[place].append(len(field_stems))
            if place in _PLAIN:
                plain += len(found)
            self._post(place, number, found)
            if place == "first":
                lengths["pieces"].append(sum(map(self._pieces.__getitem__, spoken + found)))
        lengths["plain"].append(plain)
        self._add_name(number, name_stems, spoken)
        self._holding.update(seen)

    def _add_name(self, number: int, name: list[str], spoken: list[str]) -> None:
        self._lengths["name"].append(len(name))
        self._post("name", number, name)
        self._post(_SPOKEN, number, spoken)
        for run in spoken:
            # Looked up so that the run is known even if only a name has it.
            _ = self._runs[run]

    def _post(self, place: str, number: int, words: list[str]) -> None:
        rows = self._rows[place]
        for word in words:
            rows[word].append(number)

    def _drop_caches(self) -> None:
        self._norms: dict[str, list[float]] = {}
        self._impacts: dict[tuple[str, str], Impacts] = {}

    # ---- queries

    def iter_documents(self, place: str, words: Iterable[str]) -> Iterator[int]:
        """Iterate over documents with one of these words in a field, once per occurrence."""
        rows = self._rows[place]
        return chain.from_iterable([rows[word] for word in words if word in rows])

    def documents_with_value(self, stem: str) -> set[int]:
        """Return documents with an enumerated parameter value of this stem."""
        return set(self.iter_documents("value", self._runs.stems.get(stem, ())))

    def rarity(self, stem: str) -> float:
        """Return the weight of a stem by the number of documents that contain it."""
        return rarity(self.size, self._holding[stem])

    def field_impacts(self, stem: str) -> Impacts:
        """Return the BM25F weights of a stem over all fields."""
        worth = self._impacts.get(("fields", stem))
        if worth is None:
            total: dict[int, float] = {}
            for place, rows in self._by_place(stem):
                (weight, discount), lengths = PLACES[place], self._lengths[place]
                mean = sum(lengths) / self.size or 1.0
                for number in chain.from_iterable(rows):
                    # The longer a field, the less a word in it weighs.
                    value = weight / (1 - discount + discount * lengths[number] / mean)
                    total[number] = total.get(number, 0.0) + value
            worth = {number: saturate(value, _K1) for number, value in total.items()}
            if worth:
                self._impacts["fields", stem] = worth
        return worth

    def word_impacts(self, word: str) -> Impacts:
        """Return the BM25 weights of a word in lower case over the text without values.

        A word in too many documents has no weight.
        """
        return self._bm25("plain", _PLAIN, word, self._runs.words)

    def piece_impacts(self, piece: str) -> Impacts:
        """Return the BM25 weights of a piece over name and first sentence."""
        return self._bm25("pieces", _BEGINNING, piece, self._pieces.runs)

    def _bm25(
        self, view: str, places: Iterable[str], word: str, forms: Mapping[str, list[str]]
    ) -> Impacts:
        worth = self._impacts.get((view, word))
        if worth is None:
            runs_with_word = forms.get(word)
            if runs_with_word is None:
                # Not cached: there is no bound on words that only queries have.
                return {}
            counts = Counter(
                chain.from_iterable(
                    [self.iter_documents(place, runs_with_word) for place in places]
                )
            )
            is_common = len(counts) > _COMMON * self.size
            computed: Impacts = {} if is_common else term_impacts(counts, self._norm(view))
            self._impacts[view, word] = computed
            return computed
        return worth

    def _by_place(self, stem: str) -> Iterator[tuple[str, list[list[int]]]]:
        """Iterate over fields that contain a stem, with the postings of its forms there."""
        forms = self._runs.stems.get(stem, ())
        for place in PLACES:
            postings = self._rows[place]
            wanted = (stem,) if place == "name" else forms
            rows = [postings[form] for form in wanted if form in postings]
            if rows:
                yield place, rows

    def _norm(self, view: str) -> list[float]:
        found = self._norms.get(view)
        if found is None:
            found = self._norms[view] = length_norms(self._lengths[view])
        return found
