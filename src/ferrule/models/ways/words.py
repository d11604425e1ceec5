"""Words of names, descriptions and requests, made comparable. Pure; English suffixes only."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from .spans import FUNCTION_WORDS

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[A-Za-z]+|\d+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")


def stem(word: str) -> str:
    """A word without its commonest endings: `searching`, `searches`, `searched` are one."""
    word = word.lower()
    for ending, least in (
        ("ations", 5),
        ("ation", 5),
        ("ing", 4),
        ("ies", 4),
        ("ed", 4),
        ("es", 4),
        ("s", 3),
    ):
        if word.endswith(ending) and len(word) - len(ending) >= least - 1 and not word.endswith("ss"):
            word = word[: -len(ending)]
            if ending == "ies":
                word += "y"
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def stems(text: str) -> list[str]:
    """Every word of a text, names (`snake_case`, `camelCase`, `a.b`) taken apart, as stems, in order."""
    return [stem(word) for word in _WORD.findall(_CAMEL.sub(" ", text))]


def content(text: str) -> list[str]:
    """The stems of a text that are not function words."""
    return [stem(word) for word in _WORD.findall(_CAMEL.sub(" ", text)) if word.lower() not in FUNCTION_WORDS]


def first_sentence(text: str) -> str:
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0].rstrip(".").replace("\n", " ")


class Lexicon:
    """BM25 (Robertson and Zaragoza 2009; k1 1.5, b 0.75) over a few short documents."""

    def __init__(self, documents: Mapping[str, Sequence[str]]) -> None:
        self._counts = {name: Counter(words) for name, words in documents.items()}
        self._lengths = {name: len(words) for name, words in documents.items()}
        self._mean = sum(self._lengths.values()) / max(len(documents), 1) or 1.0
        self._spread = Counter(word for counts in self._counts.values() for word in counts)

    def score(self, query: Sequence[str], name: str) -> float:
        """How well a document answers the query; 0 without a common word."""
        counts, total = self._counts[name], 0.0
        norm = 1.5 * (0.25 + 0.75 * self._lengths[name] / self._mean)
        for word in set(query):
            if count := counts.get(word, 0):
                rare = math.log(
                    1 + (len(self._counts) - self._spread[word] + 0.5) / (self._spread[word] + 0.5)
                )
                total += rare * count * 2.5 / (count + norm)
        return total
