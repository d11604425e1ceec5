"""Rank tools by the sum of several scores: the default strategy.

    fields    BM25F (Zaragoza et al. 2004) over stems, with a weight for each field of a tool
    plain     BM25 over the whole text as written: names of things, versions, codes
    pieces    BM25 over groups of four letters of name and first sentence: other forms of a word,
              compounds, typing errors
    values    enumerated values of parameters that are in the query
    kinds     kinds of values in the query, recognised by their form: an address, a date, a file
    synonyms  BM25F for words that mean the same as one of the query; a document that has the word
              itself gets no more for a synonym

Synonyms are the groups of `synonyms.txt`, English words from software and everyday business. The
file is for people to edit: a group a line, members divided by commas, a member of several words
stands for all of them together. A word may be in several groups.

Words that people ask with (`REQUEST_STEMS`) count less. The weights were fitted to one half of the
requests over public function catalogs, checked on the other half, and rounded: what matters is that
the scores compensate for each other. `benchmarks/search.py` prints the results on both halves. Not
covered: meaning without a common word or a known synonym, and languages other than English beyond
`plain`.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files

from ferrule.tools.word_stems import content_stems, stem, stems, tokens

from .bm25 import Impacts, rarity
from .document import Document
from .inverted_index import InvertedIndex
from .word_pieces import split_pieces

_WORDS_OF_ASKING = """
need want would like wish hope help please tell know show give provide see look find check
interested able sure make think go try appreciate kindly assist assistance thank hello hi hey okay
ok now well really something someone anything much many
"""

REQUEST_STEMS = frozenset(map(stem, _WORDS_OF_ASKING.split()))
"""Stems of words that people ask with; few tools are about them."""

_MONTH = "january|february|march|april|june|july|august|september|october|november|december"
_FILE = "csv|docx?|jpe?g|json|log|md|pdf|png|py|svg|toml|txt|xlsx?|xml|ya?ml|zip"
_KINDS = (
    (r"https?://|www\.", "url"),
    (r"\S@\S+\.\w", "email"),
    (rf"\b\d{{4}}-\d\d-\d\d|\b\d{{1,2}}/\d{{1,2}}/\d{{2,4}}|\b(?:{_MONTH})\b", "date"),
    (r"\b\d{1,2}:\d\d|\b\d{1,2} ?[ap]m\b", "time"),
    (r"[$€£¥] ?\d|\b(?:dollars|euros|eur|gbp|usd)\b", "price amount currency"),
    (rf"[\w-]\.(?:{_FILE})\b", "file"),
    (r"\d\.\d{3,}[°\s]*[ns]?,\s*-?\d+\.\d{3,}", "coordinate latitude longitude"),
)
_SIGNS = tuple(
    (re.compile(sign, re.IGNORECASE), tuple(map(stem, names.split()))) for sign, names in _KINDS
)

WEIGHTS = {
    "fields": 0.8,
    "plain": 1.0,
    "pieces": 0.05,
    "values": 2.4,
    "kinds": 0.3,
    "synonyms": 0.5,
}
_REQUEST_WORD_WEIGHT = 0.3
"""Weight of a word that people ask with, relative to other words."""


class Ranking:
    """An index of documents, identified by their position; `add` costs only the new ones."""

    def __init__(self, documents: Iterable[Document] = ()) -> None:
        self._index = InvertedIndex()
        self.add(documents)

    def add(self, documents: Iterable[Document]) -> None:
        self._index.add(documents)

    def scores(self, query: str) -> dict[int, float]:
        """Score the documents that have anything in common with a query."""
        asked = Counter(content_stems(query) or stems(query))
        weight = {
            word: self._index.rarity(word)
            * (_REQUEST_WORD_WEIGHT if word in REQUEST_STEMS else 1.0)
            for word in asked
        }
        scale = 1 / math.sqrt(sum(weight.values()) or 1.0)
        found: dict[int, float] = {}
        for word, times in asked.items():
            gain = (1 + math.log(times)) * scale * weight[word]
            _add_weighted(found, self._index.field_impacts(word), WEIGHTS["fields"] * gain)
            _add_weighted(
                found,
                dict.fromkeys(self._index.documents_with_value(word), 1.0),
                WEIGHTS["values"] * gain,
            )
        self._by_bm25(tokens(query), self._index.word_impacts, WEIGHTS["plain"] * scale, found)
        self._by_bm25(split_pieces(query), self._index.piece_impacts, WEIGHTS["pieces"], found)
        self._by_synonyms(query, scale, found)
        for word in value_kinds(query):
            _add_weighted(
                found, self._index.field_impacts(word), WEIGHTS["kinds"] * self._index.rarity(word)
            )
        return found

    def _by_synonyms(self, query: str, scale: float, found: dict[int, float]) -> None:
        for part, others in find_synonyms(stems(query)):
            said = self._impacts_of(part)
            meant: dict[int, float] = {}
            for other in others:
                for number, value in self._impacts_of(other).items():
                    if number not in said:
                        meant[number] = max(value, meant.get(number, 0.0))
            is_asking = all(word in REQUEST_STEMS for word in part)
            gain = WEIGHTS["synonyms"] * scale * (_REQUEST_WORD_WEIGHT if is_asking else 1.0)
            _add_weighted(found, meant, gain)

    def _impacts_of(self, part: Words) -> dict[int, float]:
        """Return the weights of the documents that have all words of a part."""
        rows = [(self._index.field_impacts(word), self._index.rarity(word)) for word in part]
        first, rarity_of_first = rows[0]
        if len(rows) == 1:
            return {number: value * rarity_of_first for number, value in first.items()}
        return {
            number: sum(impacts[number] * rare for impacts, rare in rows) / len(rows)
            for number in first
            if all(number in impacts for impacts, _ in rows)
        }

    def _by_bm25(
        self,
        words: Iterable[str],
        worth: Callable[[str], Impacts],
        gain: float,
        found: dict[int, float],
    ) -> None:
        for word, times in Counter(words).items():
            impacts = worth(word)
            if impacts:
                _add_weighted(found, impacts, times * gain * rarity(self._index.size, len(impacts)))


def _add_weighted(found: dict[int, float], more: Mapping[int, float], weight: float) -> None:
    for number, value in more.items():
        found[number] = found.get(number, 0.0) + weight * value


def value_kinds(query: str) -> list[str]:
    """Return stems that name the kinds of values in a request.

    A tool that takes an address, a date or a file mentions it somewhere.
    """
    found: list[str] = []
    for sign, kind_stems in _SIGNS:
        if sign.search(query):
            found += kind_stems
    return found


Words = tuple[str, ...]
"""Stems that stand for one thing together."""

_LONGEST = 3
"""Words of the longest member that is found in a request."""


def find_synonyms(request: Sequence[str]) -> Iterator[tuple[Words, tuple[Words, ...]]]:
    """Iterate over the parts of a request that are members of groups, with the other members.

    `request` are the stems of all words in order. Of members that begin at the same word the
    longest counts; parts do not overlap.
    """
    groups = read_groups()
    start = 0
    while start < len(request):
        for length in range(_LONGEST, 0, -1):
            part = tuple(request[start : start + length])
            if part in groups:
                yield part, groups[part]
                start += len(part)
                break
        else:
            start += 1


@cache
def read_groups() -> Mapping[Words, tuple[Words, ...]]:
    """Return the content stems of the other members of its groups, by the stems of a member."""
    text = (files("ferrule.tools.search") / "synonyms.txt").read_text(encoding="utf-8")
    found: defaultdict[Words, dict[Words, None]] = defaultdict(dict)
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        members = [tuple(stems(member)) for member in line.split(",")]
        contents = [tuple(content_stems(member) or stems(member)) for member in line.split(",")]
        for member in members:
            found[member].update(dict.fromkeys(contents))
    return {
        member: tuple(other for other in others if other != member)
        for member, others in found.items()
    }
