"""Find tools by meaning, with any model that turns texts into vectors. Used only where configured.

    from ferrule.tools.search.embeddings import Embeddings, static_model
    Agent(..., tool_search={"strategy": Embeddings(static_model("models/my-static-model"))})

`Embeddings` takes a function from texts to vectors, which may use a model in this process, a server
or a table. A tool's score is the sum of its score in the default ranking, as a share of the best
score, and the cosine of its vector. Vectors alone are not enough, because names, versions and codes
mean nothing to them; and fusing by rank would lose how certain each of the two scores is. The
vector of a text is computed once and cached.

No model is included. `static_model` loads one that `model2vec` can read (Minish Lab, 2024), from a
folder and never from the network.
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

from .index import MAX_HITS, ToolIndex

Encode = Callable[[Sequence[str]], Sequence[Sequence[float]]]
"""Turns texts into vectors, one for each, all of the same length. May be slow: runs in a thread."""
Vector = tuple[float, ...]

RANKING_WEIGHT, MEANING_WEIGHT = 1.0, 1.0
_BATCH = 256
_MAX_CACHED = 20_000
"""Cached vectors; the oldest are dropped first."""


class Embeddings:
    """A searcher for the `strategy` of `tool_search`. Threads and sessions may share one.

    `encode` makes vectors; `ranking_weight` and `meaning_weight` are the weights of the two scores
    (`ranking_weight=0`: meaning alone). If `encode` raises, the search fails.
    """

    def __init__(
        self,
        encode: Encode,
        *,
        ranking_weight: float = RANKING_WEIGHT,
        meaning_weight: float = MEANING_WEIGHT,
    ) -> None:
        self._encode, self._own, self._meaning = encode, ranking_weight, meaning_weight
        self._lock = Lock()
        self._vectors: dict[str, Vector] = {}
        self._index: ToolIndex | None = None

    def __call__(
        self, query: str, tools: Sequence[Tool], state: Mapping[str, Any] | None = None
    ) -> list[str]:
        """Return full names, best first."""
        wanted = int((state or {}).get("limit", MAX_HITS))
        with self._lock:
            named = self._index_for(tools).search(query, limit=len(tools)) if self._own else []
            meant = self._cosines(query, tools)
        best = max((hit.score for hit in named), default=1.0)
        scores = {name: self._meaning * cosine for name, cosine in meant.items() if cosine > 0}
        for hit in named:
            scores[hit.name] = scores.get(hit.name, 0.0) + self._own * hit.score / best
        return heapq.nsmallest(wanted, scores, key=lambda name: (-scores[name], name))

    def _index_for(self, tools: Sequence[Tool]) -> ToolIndex:
        """Return the index of the last search if it has no other tools, or a new one."""
        index = self._index
        given = {id(tool) for tool in tools}
        if index is None or not {id(tool) for tool in index.tools} <= given:
            index = self._index = ToolIndex()
        index.add(*tools)
        return index

    def _cosines(self, query: str, tools: Sequence[Tool]) -> dict[str, float]:
        texts = {tool.full_name: embedding_text(tool) for tool in tools}
        self._cache_vectors([query, *texts.values()])
        asked = self._vectors[query]
        return {name: sum(map(mul, asked, self._vectors[text])) for name, text in texts.items()}

    def _cache_vectors(self, texts: Sequence[str]) -> None:
        new = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            made = self._encode(batch)
            if len(made) != len(batch):
                raise ConfigError(
                    f"an encoder made {len(made)} vectors of {len(batch)} texts",
                    hint="return one for each",
                )
            self._vectors.update(zip(batch, map(normalize, made), strict=True))
        spare = len(self._vectors) - max(_MAX_CACHED, len(texts))
        if spare > 0:
            needed = set(texts)
            for text in [text for text in self._vectors if text not in needed][:spare]:
                del self._vectors[text]


def embedding_text(tool: Tool) -> str:
    """Return the text of a tool that is embedded: its name as words, and its description."""
    return f"{' '.join(words(tool.full_name))}: {tool.description}"


def normalize(vector: Sequence[float]) -> Vector:
    """Return a vector of length 1 in the same direction; zeros stay zeros."""
    row = tuple(map(float, vector))
    length = math.sqrt(sum(map(mul, row, row)))
    return tuple(value / length for value in row) if length else row


class _Static(Protocol):
    def encode(self, sentences: Sequence[str]) -> Sequence[Sequence[float]]: ...


def static_model(folder: str | Path) -> Encode:
    """Load the encoder of a `model2vec` model from a folder.

    Raises:
        ConfigError: The folder or the library is missing.
    """
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise ConfigError(
            f"there is no folder `{path}` with an embedding model",
            hint="name the folder of a model2vec model",
        )
    try:
        from model2vec import StaticModel  # pyright: ignore[reportMissingImports, reportUnknownVariableType]  an extra
    except ImportError as error:
        raise ConfigError(
            "embeddings need the library `model2vec`", hint="pip install 'ferrule[embeddings]'"
        ) from error
    model = cast("_Static", StaticModel.from_pretrained(path))  # pyright: ignore[reportUnknownMemberType]  an extra
    return lambda texts: model.encode(list(texts))
