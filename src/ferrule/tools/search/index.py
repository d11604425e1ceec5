"""Index tools and search them with one of several strategies.

    default   the ranking of `default_ranking.py`
    bm25      BM25 over name, description and parameters (systems.md §2.1): no stems, ties by name
    hybrid    BM25 and field weights, fused (`field_weights.py`)
    regex     a regular expression over the same text, ranked by number of matches, then by name
    function  `(query, tools) -> names`, also as a dictionary or JSON text (`read_names`)

A query that is a tool's name, summary or description, word by word, finds that tool first, with any
strategy but an expression or a function.

The caller passes the tools that may be found, so no strategy can show a tool the run may not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from threading import RLock
from typing import Any, cast

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.tools.definition import Tool
from ferrule.tools.forking import cached_property
from ferrule.tools.safe_patterns import compile_pattern
from ferrule.tools.word_stems import first_sentence, tokens, words

from .bm25 import Bm25, top_documents
from .default_ranking import Ranking
from .document import Document, make_document
from .field_weights import FieldTexts, fuse_ranks
from .options import STRATEGIES

MAX_HITS = 20
"""Tools that one search returns at most."""
_BREADTH = 4
"""Length of each list of `hybrid`, as a multiple of `MOST`."""
_MAX_COUNT = 16
"""Matches of an expression that are counted in one tool."""
_MAX_QUERY = 200
"""Longest expression in characters, as in Anthropic's tool search; longer ones are refused."""
_SNIPPET = 160
_MAX_EXACT = 500
"""Characters of a text that are compared with a query as a whole."""

Strategy = Callable[[str, Sequence[Tool]], object]
"""A custom searcher. Sync; returns names, best first, in any form that `read_names` reads."""


@frozen
class SearchHit:
    """A tool that was found.

    `score` is 0 if the strategy gives none; `snippet` is the first sentence of the description.
    """

    name: str
    score: float = 0.0
    snippet: str = ""


class ToolIndex:
    """An index of the tools that may be found.

    What a strategy needs is built when it is first used. Threads may share an index. The cost of
    adding tools depends on their number, not on the size of the index.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._lock = RLock()
        self._positions: dict[str, int] = {}
        self._names: list[str] = []
        self._arrived: list[Tool] = []
        self._documents: list[Document] = []
        self._sorted: tuple[Tool, ...] | None = None
        self.add(*tools)

    def add(self, *tools: Tool) -> None:
        """Add tools; a tool whose name is already in the index is skipped."""
        with self._lock:
            new = {tool.full_name: tool for tool in tools if tool.full_name not in self._positions}
            documents = [make_document(tool) for tool in new.values()]
            # Before `_documents` grows: a part that is built later takes all documents there are.
            for name, grow in _GROWING.items():
                if name in self.__dict__:
                    grow(self.__dict__[name], documents)
            self._positions.update(
                zip(new, range(len(self._names), len(self._names) + len(new)), strict=True)
            )
            self._names += new
            self._arrived += new.values()
            self._documents += documents
            self._sorted = None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that may be found, by name."""
        with self._lock:
            if self._sorted is None:
                self._sorted = tuple(sorted(self._arrived, key=lambda tool: tool.full_name))
            return self._sorted

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def prepare(self, strategy: str = "default") -> None:
        """Build what the first search with this strategy would build."""
        with self._lock:
            for part in ("_exact", *_PARTS.get(strategy, ())):
                getattr(self, part)

    def search(
        self, query: str, strategy: str | Strategy = "default", limit: int = MAX_HITS
    ) -> list[SearchHit]:
        """Return the tools that match, best first.

        Raises:
            ConfigError: There is no such strategy.
            ValueError: A regular expression cannot be used; the text says why.
        """
        if not isinstance(strategy, str):
            return self._by_function(query, strategy, limit)
        if strategy not in STRATEGIES:
            raise ConfigError(
                f"there is no search strategy `{strategy}`", hint=f"use {', '.join(STRATEGIES)}"
            )
        with self._lock:
            scores: dict[int, float] = getattr(self, f"_{strategy}")(query)
            if strategy != "regex":
                scores = self._put_exact_first(query, scores)
            return [
                self._hit(number, score)
                for number, score in top_documents(scores, self._names, limit)
            ]

    def _hit(self, number: int, score: float) -> SearchHit:
        snippet = first_sentence(self._documents[number].description)
        return SearchHit(self._names[number], score, snippet[:_SNIPPET])

    def _put_exact_first(self, query: str, scores: dict[int, float]) -> dict[int, float]:
        """Return the scores with the tools that are exactly what was asked for above all others."""
        exact = self._exact.get(_read_words(query))
        if not exact:
            return scores
        best = max(scores.values(), default=0.0)
        # Among them the ranking decides, a name before a text.
        return scores | {
            number: best + place + scores.get(number, 0.0) / (best + 1)
            for number, place in exact.items()
        }

    @cached_property
    def _exact(self) -> _ExactTexts:
        found = _ExactTexts()
        found.add(self._documents)
        return found

    # ---- strategies

    @cached_property
    def _ranking(self) -> Ranking:
        return Ranking(self._documents)

    @cached_property
    def _words(self) -> Bm25:
        return Bm25([tokens(text) for text in self._texts])

    @cached_property
    def _texts(self) -> list[str]:
        return [document.text() for document in self._documents]

    @cached_property
    def _fields(self) -> list[FieldTexts]:
        return [FieldTexts.from_document(document) for document in self._documents]

    def _default(self, query: str) -> dict[int, float]:
        return self._ranking.scores(query)

    def _bm25(self, query: str) -> dict[int, float]:
        return self._words.scores(tokens(query))

    def _hybrid(self, query: str) -> dict[int, float]:
        asked = tokens(query)
        breadth = _BREADTH * MAX_HITS
        by_field = {number: fields.score(asked) for number, fields in enumerate(self._fields)}
        first = [number for number, _ in top_documents(self._bm25(query), self._names, breadth)]
        second = [number for number, _ in top_documents(by_field, self._names, breadth)]
        return fuse_ranks([(1.0, first), (2.0, second)])

    def _regex(self, query: str) -> dict[int, float]:
        if len(query) > _MAX_QUERY:
            raise ValueError(f"an expression of {len(query)} characters; at most {_MAX_QUERY}")
        # As bytes: texts of servers may hold halves of characters.
        encoded = query.encode("utf-8", "surrogatepass")
        matches = compile_pattern(encoded, ignore_case=True).finditer
        return {
            number: float(times)
            for number, text in enumerate(self._texts)
            if (
                times := sum(
                    1 for _ in islice(matches(text.encode("utf-8", "surrogatepass")), _MAX_COUNT)
                )
            )
        }

    def _by_function(self, query: str, strategy: Strategy, most: int) -> list[SearchHit]:
        wanted = [
            name for name in read_names(strategy(query, self.tools)) if name in self._positions
        ]
        return [self._hit(self._positions[name], 0.0) for name in dict.fromkeys(wanted)][:most]


class _ExactTexts:
    """Names, summaries and descriptions of tools, by their words."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, ...], dict[int, int]] = {}
        self._count = 0

    def add(self, documents: Iterable[Document]) -> None:
        for document in documents:
            description = document.description
            own_name = document.name.rpartition("::")[2].rpartition("__")[2]
            texts = {
                description: 1,
                first_sentence(description): 2,
                description.partition("\n")[0]: 2,
                own_name: 3,
                document.name: 4,
            }
            for text, place in texts.items():
                tools = self._places.setdefault(_read_words(text), {})
                tools[self._count] = max(place, tools.get(self._count, 0))
            self._count += 1

    def get(self, words: tuple[str, ...]) -> Mapping[int, int]:
        """Return the tools that have exactly these words, and how much that counts."""
        return self._places.get(words, {}) if words else {}


def _read_words(text: str) -> tuple[str, ...]:
    return tuple(word.lower() for word in words(text[:_MAX_EXACT]))


_PARTS = {
    "default": ("_ranking",),
    "bm25": ("_words",),
    "hybrid": ("_words", "_fields"),
    "regex": ("_texts",),
}
_GROWING: Mapping[str, Callable[[Any, list[Document]], None]] = {
    "_ranking": lambda ranking, new: ranking.add(new),
    "_words": lambda words, new: words.add(tokens(one.text()) for one in new),
    "_texts": lambda texts, new: texts.extend(one.text() for one in new),
    "_exact": lambda exact, new: exact.add(new),
    "_fields": lambda fields, new: fields.extend(map(FieldTexts.from_document, new)),
}
"""How each part that is built on first use takes more documents."""


def read_names(answer: object) -> list[str]:
    """Read the names in the answer of a custom strategy.

    The answer is a list of names or of dictionaries with `tool_name` or `name`, a dictionary with
    `tool_names` or `ranked`, or one of these as JSON text.

    Raises:
        ConfigError: The answer is anything else.
    """
    if isinstance(answer, str):
        try:
            answer = parse_json(answer)
        except ValueError:
            answer = None
    if isinstance(answer, Mapping):
        given = cast("Mapping[str, Any]", answer)
        answer = given.get("tool_names", given.get("ranked"))
    if isinstance(answer, (list, tuple)):
        names = [_read_name(item) for item in cast("Sequence[object]", answer)]
        if None not in names:
            return cast("list[str]", names)
    raise ConfigError(
        "a search strategy must return names of tools",
        hint="return a list of names, or a dictionary with `tool_names`",
    )


def _read_name(item: object) -> str | None:
    if isinstance(item, Mapping):
        given = cast("Mapping[str, Any]", item)
        item = given.get("tool_name", given.get("name"))
    return item if isinstance(item, str) else None
