"""Finding tools by meaning: a strategy of one's own around any model that turns texts into vectors.
Nothing uses it by itself.

    from ferrule.tools.search.embeddings import Embeddings, static_model
    Agent(..., tool_search={"strategy": Embeddings(static_model("models/my-static-model"))})

`Embeddings` takes a function from texts to vectors, so a model in this process, a server or a table
may be behind it. A tool's score is what the default ranking gives it, as a share of the best, and
the cosine of its vector, added up: names, versions and codes mean nothing to a vector, and fusing
by rank would lose how sure each of the two is. A vector is made once for a text and kept.

Not here: a model. `static_model` loads one that `model2vec` can read (Minish Lab, 2024), from a
folder and never from a network.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from operator import mul
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, cast

from ferrule.core.errors import ConfigError
from ferrule.tools.definition import Tool
from ferrule.tools.word_stems import words

from .index import MOST, Index

Encode = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Texts to vectors, one for each, all of the same length. May be slow; called in a thread of the
run.
"""
Vector = tuple[float, ...]

OWN, MEANING = 1.0, 1.0
_BATCH = 256
_KEPT = 20_000
"""Vectors that are kept; the oldest go first."""


class Embeddings:
    """A searcher for `tool_search`'s `strategy`. Threads and sessions may share one.

    `encode` makes vectors; `own` and `meaning` weigh the two scores (`own=0`: meaning alone). What
    `encode` raises fails the search.
    """

    def __init__(self, encode: Encode, *, own: float = OWN, meaning: float = MEANING) -> None:
        self._encode, self._own, self._meaning = encode, own, meaning
        self._lock = Lock()
        self._vectors: dict[str, Vector] = {}
        self._index: Index | None = None

    def __call__(
        self, query: str, tools: Sequence[Tool], state: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Full names, best first."""
        wanted = int((state or {}).get("limit", MOST))
        with self._lock:
            named = self._indexed(tools).search(query, most=len(tools)) if self._own else []
            meant = self._cosines(query, tools)
        best = max((hit.score for hit in named), default=1.0)
        scores = {name: self._meaning * near for name, near in meant.items() if near > 0}
        for hit in named:
            scores[hit.name] = scores.get(hit.name, 0.0) + self._own * hit.score / best
        return heapq.nsmallest(wanted, scores, key=lambda name: (-scores[name], name))

    def _indexed(self, tools: Sequence[Tool]) -> Index:
        """The index of the last search, if these are the same tools or more."""
        index = self._index
        given = {id(tool) for tool in tools}
        if index is None or not {id(tool) for tool in index.tools} <= given:
            index = self._index = Index()
        index.add(*tools)
        return index

    def _cosines(self, query: str, tools: Sequence[Tool]) -> dict[str, float]:
        texts = {tool.full_name: text_of(tool) for tool in tools}
        self._learn([query, *texts.values()])
        asked = self._vectors[query]
        return {name: sum(map(mul, asked, self._vectors[text])) for name, text in texts.items()}

    def _learn(self, texts: Sequence[str]) -> None:
        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            made = self._encode(batch)
            if len(made) != len(batch):
                raise ConfigError(
                    f"an encoder made {len(made)} vectors of {len(batch)} texts",
                    hint="return one for each",
                )
            self._vectors.update(zip(batch, map(unit, made), strict=True))
        spare = len(self._vectors) - max(_KEPT, len(texts))
        if spare > 0:
            needed = set(texts)
            for text in [one for one in self._vectors if one not in needed][:spare]:
                del self._vectors[text]


def text_of(tool: Tool) -> str:
    """What of a tool is made a vector of: its name in words, and its description."""
    return f"{' '.join(words(tool.full_name))}: {tool.description}"


def unit(vector: Sequence[float]) -> Vector:
    """A vector of length 1 in the same direction; zeros stay zeros."""
    row = tuple(map(float, vector))
    length = math.sqrt(sum(map(mul, row, row)))
    return tuple(value / length for value in row) if length else row


class _Static(Protocol):
    def encode(self, sentences: Sequence[str]) -> Sequence[Sequence[float]]: ...


def static_model(folder: str | Path) -> Encode:
    """The encoder of a model in a folder that `model2vec` can read. Raises ConfigError if either is
    missing.
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise ConfigError(
            f"there is no folder `{place}` with an embedding model",
            hint="name the folder of a model2vec model",
        )
    try:
        from model2vec import StaticModel  # pyright: ignore[reportMissingImports, reportUnknownVariableType]  an extra
    except ImportError as error:
        raise ConfigError(
            "embeddings need the library `model2vec`", hint="pip install 'ferrule[embeddings]'"
        ) from error
    model = cast("_Static", StaticModel.from_pretrained(place))  # pyright: ignore[reportUnknownMemberType]  an extra
    return lambda texts: model.encode(list(texts))
