"""Ranks files and definitions by use, and picks those that fit into a number of tokens. No I/O.

A file passes its rank on to the files that define the names it uses, as PageRank has it (Brin and
Page, 1998): what is used by much that is used itself comes first. A name that several files define
passes it to each in equal parts. A definition has its part of what its file receives.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping

from ferrule.core.value_class import frozen

from .store import Found

MOST_DEFINERS = 8
"""A name that more files define (`get`, `run`) says nothing about which one is meant."""
_DAMPING = 0.85
_ROUNDS = 25
_BYTES_PER_TOKEN = 3.5
_OWN = 1.0
"""What a file passes on to all, beside the weights of the names it uses: a file that uses few
names, or weak ones, says little about them.
"""
WEAK = 0.03
"""The measure of a name that says little."""
_MEDIUM = 0.5
_SHORT = 4
_LONG = 8
_FOREIGN = frozenset({"vendor", "vendored", "third_party", "node_modules", "testdata", "fixtures"})
"""Folders of code that others wrote, or that is there to be read by tests."""
_FAMILIES = {
    **dict.fromkeys(("javascript", "typescript", "tsx"), "javascript"),
    **dict.fromkeys(("c", "cpp"), "c"),
    **dict.fromkeys(("java", "kotlin", "scala"), "java"),
}
"""Languages whose code uses names of each other's."""

Link = tuple[int, int, str, int, int]
"""User, definer, name, bytes of packed lines of uses, number of files that define the name."""


@frozen
class Ranking:
    """The rank of each file, and of each name in the files that define it."""

    files: Mapping[int, float]
    names: Mapping[tuple[int, str], float]


def rank(files: Mapping[int, tuple[str, str]], links: Iterable[Link]) -> Ranking:
    """Rank files and the names they define.

    Args:
        files: Path and language of each file, by its id. A name links files of one family of
            languages.
        links: What links files.
    """
    numbers = list(files)
    family = {number: _FAMILIES.get(language, language) for number, (_, language) in files.items()}
    foreign = {
        number for number, (path, _) in files.items() if not _FOREIGN.isdisjoint(path.split("/"))
    }
    edges: dict[int, dict[int, float]] = {number: defaultdict(float) for number in numbers}
    weights: list[tuple[int, int, str, float]] = []
    for user, definer, name, size, definers in links:
        if user == definer or user not in edges or definer not in edges:
            continue
        if family[user] != family[definer]:
            continue
        weight = math.sqrt(size) / definers * measure_name(name)
        if definer in foreign:
            weight *= WEAK
        edges[user][definer] += weight
        weights.append((user, definer, name, weight))
    ranks = _spread(numbers, edges)
    totals = {number: sum(below.values()) + _OWN for number, below in edges.items()}
    names: dict[tuple[int, str], float] = defaultdict(float)
    users: dict[tuple[int, str], int] = defaultdict(int)
    for user, definer, name, weight in weights:
        names[definer, name] += ranks[user] * weight / totals[user]
        users[definer, name] += 1
    # Else a single use in one important file would weigh more than uses all over.
    spread = {key: value * math.sqrt(users[key]) for key, value in names.items()}
    return Ranking(ranks, spread)


def measure_name(name: str) -> float:
    """Return how much a name says: a common word names many things, a compound one."""
    if name.startswith("_") or len(name) < _SHORT:
        return WEAK
    if "_" in name or name.lower() != name:
        return 1.0 if len(name) >= _LONG else _MEDIUM
    return WEAK


def _spread(numbers: list[int], edges: Mapping[int, Mapping[int, float]]) -> dict[int, float]:
    count = max(1, len(numbers))
    ranks = dict.fromkeys(numbers, 1 / count)
    shares: dict[int, list[tuple[int, float]]] = {}
    kept = dict.fromkeys(numbers, 1.0)
    for user, below in edges.items():
        total = sum(below.values()) + _OWN
        shares[user] = [(definer, weight / total) for definer, weight in below.items()]
        kept[user] = _OWN / total
    for _ in range(_ROUNDS):
        # What a file does not pass on by names goes to all.
        idle = sum(ranks[number] * kept[number] for number in numbers)
        base = (1 - _DAMPING + _DAMPING * idle) / count
        following = dict.fromkeys(numbers, base)
        for user, below in shares.items():
            passed = _DAMPING * ranks[user]
            for definer, share in below:
                following[definer] += passed * share
        ranks = following
    return ranks


def estimate_tokens(text: str) -> int:
    """Return roughly how many tokens a text takes."""
    return math.ceil(len(text.encode()) / _BYTES_PER_TOKEN)


def choose(found: Iterable[Found], ranking: Ranking, budget: int) -> list[Found]:
    """Return the definitions with the highest ranks that fit into a number of tokens.

    They come file by file, the file with the highest of them first, in the order of the text.
    """
    ranked = sorted(
        found,
        key=lambda one: (-ranking.names.get((one.file, one.definition.name), 0.0), one.path),
    )
    chosen: dict[str, list[Found]] = {}
    taken = 0
    for one in ranked:
        cost = estimate_tokens(f"  {one.definition.line}: {one.definition.head}\n")
        if one.path not in chosen:
            cost += estimate_tokens(f"\n{one.path}\n")
        if taken + cost > budget:
            break
        taken += cost
        chosen.setdefault(one.path, []).append(one)
    return [
        one
        for rows in chosen.values()
        for one in sorted(rows, key=lambda found: found.definition.line)
    ]
