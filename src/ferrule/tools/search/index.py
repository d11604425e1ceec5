"""An index over tools and the strategies that search it.

    default   the ranking of `ranking.py`
    bm25      BM25 over name, description and parameters, as systems.md §2.1 gives it: no stems, ties by name
    hybrid    BM25 and field weights, fused (`fields.py`)
    regex     a regular expression over the same text, ranked by the number of its matches, then by name
    a function of one's own: `(query, tools) -> names`, also as a dictionary or JSON text (`names_in`)

Whoever asks gives the tools that may be found, so no strategy can show what a run may not use.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from threading import RLock
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.frozen import frozen
from ferrule.tools.definition import Tool
from ferrule.tools.safe_patterns import compile_regex
from ferrule.tools.word_stems import first_sentence, tokens

from .bm25 import Bm25, best
from .document import Document, document_of
from .field_weights import Fields, fused
from .ranking import Ranking

MOST = 20
"""Tools that one search finds at the most."""
_BREADTH = 4
"""How many times that many each list of `hybrid` holds."""
_COUNTED = 16
"""Matches of an expression in one tool that are counted."""
_QUERY = 200
"""Characters of an expression; more is refused (the bound of Anthropic's tool search)."""
_SNIPPET = 160

Strategy = Callable[[str, Sequence[Tool]], object]
"""A searcher of one's own. Sync; returns names, best first, in any shape that `names_in` reads."""
STRATEGIES = ("default", "bm25", "hybrid", "regex")


@frozen
class Hit:
    """A tool that was found. `snippet` is the first sentence of its description; 0 is the score
    where there is none.
    """

    name: str
    score: float = 0.0
    snippet: str = ""


class Index:
    """Made of the tools that may be found. What a strategy needs is built when it is first used.

    Threads may share one. Tools that join cost what they are, not what is there already.
    """

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._lock = RLock()
        self._places: dict[str, int] = {}
        self._names: list[str] = []
        self._arrived: list[Tool] = []
        self._documents: list[Document] = []
        self._sorted: tuple[Tool, ...] | None = None
        self.add(*tools)

    def add(self, *tools: Tool) -> None:
        """Tools that may be found from now on. One whose name is there already is passed over."""
        with self._lock:
            new = {tool.full_name: tool for tool in tools if tool.full_name not in self._places}
            documents = [document_of(tool) for tool in new.values()]
            # Before anything counts them: a lazily built part takes all documents there are.
            for name, grow in _GROWING.items():
                if name in self.__dict__:
                    grow(self.__dict__[name], documents)
            self._places.update(
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
        return name in self._places

    def prepare(self, strategy: str = "default") -> None:
        """Build now what the first search with this strategy would build."""
        with self._lock:
            for part in _PARTS.get(strategy, ()):
                getattr(self, part)

    def search(
        self, query: str, strategy: str | Strategy = "default", most: int = MOST
    ) -> list[Hit]:
        """The tools that fit, best first, at most `most`. Raises ConfigError for a strategy there
        is not, ValueError for an expression that cannot be used (its text says why).
        """
        if not isinstance(strategy, str):
            return self._by_function(query, strategy, most)
        if strategy not in STRATEGIES:
            raise ConfigError(
                f"there is no search strategy `{strategy}`", hint=f"use {', '.join(STRATEGIES)}"
            )
        with self._lock:
            scores = getattr(self, f"_{strategy}")(query)
            return [self._hit(number, score) for number, score in best(scores, self._names, most)]

    def _hit(self, number: int, score: float) -> Hit:
        snippet = first_sentence(self._documents[number].description)
        return Hit(self._names[number], score, snippet[:_SNIPPET])

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
    def _fields(self) -> list[Fields]:
        return [Fields.of(document) for document in self._documents]

    def _default(self, query: str) -> dict[int, float]:
        return self._ranking.scores(query)

    def _bm25(self, query: str) -> dict[int, float]:
        return self._words.scores(tokens(query))

    def _hybrid(self, query: str) -> dict[int, float]:
        asked, breadth = tokens(query), _BREADTH * MOST
        by_field = {number: fields.score(asked) for number, fields in enumerate(self._fields)}
        first = [number for number, _ in best(self._bm25(query), self._names, breadth)]
        second = [number for number, _ in best(by_field, self._names, breadth)]
        return fused([(1.0, first), (2.0, second)])

    def _regex(self, query: str) -> dict[int, float]:
        if len(query) > _QUERY:
            raise ValueError(f"an expression of {len(query)} characters; at most {_QUERY}")
        compile_regex(query)
        left = dict(enumerate(self._texts))
        found: dict[int, float] = {}
        for times in range(1, _COUNTED + 1):
            # The engine says whether an expression is found, not how often: so many times one after
            # another is one expression.
            matches = compile_regex(f"(?i)(?:(?:{query})[\\s\\S]*?){{{times}}}")
            left = {number: text for number, text in left.items() if matches(text)}
            found.update(dict.fromkeys(left, float(times)))
        return found

    def _by_function(self, query: str, strategy: Strategy, most: int) -> list[Hit]:
        wanted = [name for name in names_in(strategy(query, self.tools)) if name in self._places]
        return [self._hit(self._places[name], 0.0) for name in dict.fromkeys(wanted)][:most]


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
    "_fields": lambda fields, new: fields.extend(map(Fields.of, new)),
}
"""What is built when it is first used, and how it grows once it is there."""


def names_in(answer: object) -> list[str]:
    """The names in what a strategy of one's own returned: a list of names or of dictionaries with
    `tool_name` or `name`, a dictionary with `tool_names` or `ranked`, or one of these as JSON text.
    Raises ConfigError for anything else.
    """
    if isinstance(answer, str):
        try:
            answer = json.loads(answer)
        except ValueError:
            answer = None
    if isinstance(answer, Mapping):
        given = cast("Mapping[str, Any]", answer)
        answer = given.get("tool_names", given.get("ranked"))
    if isinstance(answer, (list, tuple)):
        names = [_name_in(one) for one in cast("Sequence[object]", answer)]
        if None not in names:
            return cast("list[str]", names)
    raise ConfigError(
        "a search strategy must return names of tools",
        hint="return a list of names, or a dictionary with `tool_names`",
    )


def _name_in(one: object) -> str | None:
    if isinstance(one, Mapping):
        given = cast("Mapping[str, Any]", one)
        one = given.get("tool_name", given.get("name"))
    return one if isinstance(one, str) else None
