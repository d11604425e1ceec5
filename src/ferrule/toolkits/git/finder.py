"""Finds the git operation that a request means: by whole words, synonyms and their rarity.

A request becomes words (lower case, no plural or verb endings, no words like `the`). Each word
counts for an operation by where it occurs there: in its name most, then among its synonyms, then in
its description. A word that many operations share counts little (inverse document frequency).
Phrases with a meaning of their own ("am I on", "up to date") are read first. No parts of words:
`in` does not find `list`.

Deterministic: the same request gives the same order, and equal scores keep the catalog's order.
Scoring follows BM25's idea of rarity (Robertson and Zaragoza, 2009), without its length terms: the
texts are all short.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence

from ferrule.core.value_class import frozen
from ferrule.permissions.command_analysis.program_facts import word_set

from .catalog import Operation

_STOP_WORDS = word_set("""
    a all am an and any are as at be by can could did do does for from git give had has have how i
    if in into is it its let like list me my need of on or our please see show tell that the their
    them then there these this those to us want was we were what which will with would you your""")

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


@frozen
class Match:
    """An operation and how well it fits; 0 means that nothing of the request was found in it."""

    operation: Operation
    score: float


def find_operations(
    query: str, operations: Iterable[Operation], max_results: int = 5
) -> list[Match]:
    """Return the operations that a request may mean, best first.

    A request without words returns all, in their own order.
    """
    known = list(operations)
    words = stem_words(query)
    phrases = _match_phrases(query)
    if not words and not phrases:
        return [Match(operation, 0.0) for operation in known][:max_results]
    index = [_Text.of(operation) for operation in known]
    rarity = _find_rarities(words, index)
    matches = [
        Match(text.operation, text.score(words, rarity) + phrases.get(text.operation.name, 0.0))
        for text in index
    ]
    found = sorted((match for match in matches if match.score > 0), key=lambda match: -match.score)
    return found[:max_results]


def _match_phrases(query: str) -> dict[str, float]:
    lowered = " ".join(query.lower().split())
    found: dict[str, float] = {}
    for expression, operation, weight in _INTENTS:
        if re.search(expression, lowered):
            found[operation] = max(weight, found.get(operation, weight))
    return found


def stem_words(text: str) -> list[str]:
    """Return the words of a text without their endings, each once, in order, without stop words."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return list(dict.fromkeys(stem(word) for word in words if word not in _STOP_WORDS))


def stem(word: str) -> str:
    """Remove endings that only inflect a word.

    `branches` and `branch`, `committed` and `commit` become the same.
    """
    for ending, replacement in _ENDINGS:
        if not word.endswith(ending) or word.endswith(("ss", "us", "is")):
            continue
        if len(word) - len(ending) < 3:
            continue
        base = word.removesuffix(ending) + replacement
        is_verb = ending in ("ing", "ed")
        if is_verb and len(base) > 3 and base[-1] == base[-2] and base[-1] not in "lsz":
            base = base[:-1]
        if (is_verb or ending == "s") and len(base) > 4:
            base = base.removesuffix("e")
        return base
    return word.removesuffix("e") if len(word) > 4 else word


_ENDINGS = (
    ("ies", "y"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("sses", "ss"),
    ("ing", ""),
    ("ed", ""),
    ("s", ""),
)


@frozen
class _Text:
    operation: Operation
    fields: Mapping[str, frozenset[str]]

    @staticmethod
    def of(operation: Operation) -> _Text:
        return _Text(
            operation,
            {
                "name": frozenset(stem_words(operation.name.replace("_", " "))),
                "words": frozenset(stem_words(operation.words)),
                "description": frozenset(stem_words(operation.tool.description)),
            },
        )

    def score(self, words: Sequence[str], rarity: Mapping[str, float]) -> float:
        total = 0.0
        for word in words:
            weights = [weight for name, weight in _FIELDS if word in self.fields[name]]
            weight = max(weights, default=0.0)
            total += weight * rarity[word]
        named = self.fields["name"]
        if named and named <= set(words):
            total += 4.0  # The whole name occurs: `current branch`, `merge base`.
        return total


def _find_rarities(words: Sequence[str], index: Sequence[_Text]) -> dict[str, float]:
    return {word: _word_rarity(word, index) for word in words}


def _word_rarity(word: str, index: Sequence[_Text]) -> float:
    count = sum(any(word in field for field in text.fields.values()) for text in index)
    return math.log(1 + (len(index) - count + 0.5) / (count + 0.5))
