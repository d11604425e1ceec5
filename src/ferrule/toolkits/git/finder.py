"""Which operation of git is meant: whole words, what people mean by them, and how rare a word is
among operations.

A request becomes words (lower case, no plural or verb endings, no words like `the`), then each word
counts for an operation by where it stands there: in its name most, then among the words people use
for it, then in its description. A word that many operations share counts little (inverse document
frequency). Phrases with a meaning of their own ("am I on", "up to date") are read first. No letters
inside of words: `in` does not find `list`.

Deterministic: the same request gives the same order, and equal scores keep the catalog's order.
Scoring after BM25's idea of rarity (Robertson and Zaragoza, 2009), without its length terms: the
texts are all short.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ferrule.permissions.commands.program_facts import listed

from .catalog import Operation

_STOP = listed("""
    a all am an and any are as at be by can could did do does for from git give had has have how i if in into is it its
    let like list me my need of on or our please see show tell that the their them then there these this those to us
    want was we were what which will with would you your""")

_FIELDS = (("name", 6.0), ("words", 3.0), ("description", 1.0))

_INTENTS: tuple[tuple[str, str, float], ...] = (
    (
        r"\b(?:am i|are we|i am|we are)\b.*\bon\b|\bbranch\b.*\b(?:am i|are we) (?:on|in)\b",
        "current_branch",
        12,
    ),
    (r"\b(?:left|anything|something|nothing|ready|still)\b.*\bto commit\b", "status", 12),
    (r"\b(?:is|are)\b.*\b(?:clean|dirty)\b|\bnot (?:yet )?committed\b", "status", 8),
    (r"\b(?:who|when)\b.*\b(?:wrote|committed|changed|change|touched|did)\b", "log", 8),
    (r"\b(?:create|make|new|start|open)\b.*\bbranch\b", "switch", 8),
    (
        r"\b(?:go|jump|change|move|get|back)\b.*\bto\b.*\b(?:branch|main|master|develop)\b",
        "switch",
        6,
    ),
    (
        r"\bwithout (?:a )?merge commit\b|\bfast[- ]?forward\b|\bup[- ]to[- ]date with\b",
        "pull_ff_only",
        8,
    ),
    (r"\bwithout (?:merging|changing|touching)\b", "fetch", 6),
    (
        r"\bwhere\b.*\b(?:fork|forked|diverge|diverged|split|part|parted|branched)\b",
        "merge_base",
        8,
    ),
    (r"\bon(?:to)? (?:the )?(?:top|tip)\b", "rebase", 6),
)
"""(phrase as an expression over the request, operation, weight)."""


@dataclass(frozen=True, slots=True)
class Match:
    """An operation and how well it fits; 0 means: nothing of the request was found in it."""

    operation: Operation
    score: float


def find(query: str, operations: Iterable[Operation], most: int = 5) -> list[Match]:
    """The operations that a request may mean, best first. A request without words gives all, in
    their own order.
    """
    known = list(operations)
    words = stems(query)
    if not words and not _phrases(query):
        return [Match(operation, 0.0) for operation in known][:most]
    index = [_Text.of(operation) for operation in known]
    rarity = _rarity(words, index)
    phrases = _phrases(query)
    matches = [
        Match(text.operation, text.score(words, rarity) + phrases.get(text.operation.name, 0.0))
        for text in index
    ]
    found = sorted((match for match in matches if match.score > 0), key=lambda match: -match.score)
    return found[:most]


def _phrases(query: str) -> dict[str, float]:
    lowered = " ".join(query.lower().split())
    found: dict[str, float] = {}
    for expression, operation, weight in _INTENTS:
        if re.search(expression, lowered):
            found[operation] = max(weight, found.get(operation, 0.0))
    return found


def stems(text: str) -> list[str]:
    """Words of a text without their endings, each once, in order; words that say nothing are left
    out.
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    return list(dict.fromkeys(stem(word) for word in words if word not in _STOP))


def stem(word: str) -> str:
    """A word without the endings that only inflect it: `branches` and `branch`, `committed` and
    `commit` are one.
    """
    for ending, put in (
        ("ies", "y"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("sses", "ss"),
        ("ing", ""),
        ("ed", ""),
        ("s", ""),
    ):
        if (
            word.endswith(ending)
            and len(word) - len(ending) >= 3
            and not word.endswith(("ss", "us", "is"))
        ):
            base = word.removesuffix(ending) + put
            doubled = (
                len(base) > 3
                and base[-1] == base[-2]
                and base[-1] not in "lsz"
                and ending in ("ing", "ed")
            )
            base = base[:-1] if doubled else base
            return (
                base.removesuffix("e") if ending in ("ing", "ed", "s") and len(base) > 4 else base
            )
    return word.removesuffix("e") if len(word) > 4 else word


@dataclass(frozen=True, slots=True)
class _Text:
    operation: Operation
    fields: Mapping[str, frozenset[str]]

    @staticmethod
    def of(operation: Operation) -> _Text:
        return _Text(
            operation,
            {
                "name": frozenset(stems(operation.name.replace("_", " "))),
                "words": frozenset(stems(operation.words)),
                "description": frozenset(stems(operation.tool.description)),
            },
        )

    def score(self, words: Sequence[str], rarity: Mapping[str, float]) -> float:
        total = 0.0
        for word in words:
            weight = max((w for name, w in _FIELDS if word in self.fields[name]), default=0.0)
            total += weight * rarity[word]
        named = self.fields["name"]
        # All of the name was said: `current branch`, `merge base`.
        return total + (4.0 if named and named <= set(words) else 0.0)


def _rarity(words: Sequence[str], index: Sequence[_Text]) -> dict[str, float]:
    everywhere = len(index)
    holding = {
        word: sum(any(word in field for field in text.fields.values()) for text in index)
        for word in words
    }
    return {word: math.log(1 + (everywhere - n + 0.5) / (n + 0.5)) for word, n in holding.items()}
