"""Similar names: what a misspelled name may mean, and the question that suggests it.

`difflib` is imported inside the functions: only a misspelled name needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MAX_NAME_LENGTH = 200
"""Longer names are compared by their beginning: comparing takes the product of the lengths."""


def find_similar_names(
    name: str, known: Iterable[str], *, count: int = 1, cutoff: float = 0.6
) -> list[str]:
    """Return the known names that are most like this one, best first, whatever their case.

    Those with the same letters in another order, as in `modle`, come before all others.

    Args:
        name: The name that is not known, from whoever wrote it.
        known: The names that there are.
        count: How many to return at the most.
        cutoff: How alike they must be, from 0 to 1.
    """
    from difflib import get_close_matches

    spellings: dict[str, str] = {}
    for one in known:
        spellings.setdefault(one.casefold(), one)
    wrong = name[:_MAX_NAME_LENGTH].casefold()
    swapped = [one for one in spellings if sorted(one) == sorted(wrong)]
    near = dict.fromkeys([*swapped, *get_close_matches(wrong, spellings, count, cutoff)])
    return [spellings[one] for one in near][:count]


def suggest_names(
    name: str, known: Iterable[str], otherwise: str = "", *, count: int = 1, cutoff: float = 0.6
) -> str:
    """Return "did you mean `…`?" with the names most like this one; `otherwise` if none is.

    For the arguments see `find_similar_names`.
    """
    near = find_similar_names(name, known, count=count, cutoff=cutoff)
    return ask_about(near) if near else otherwise


def ask_about(names: Iterable[str]) -> str:
    """Return the question whether one of these names was meant."""
    return f"did you mean {' or '.join(f'`{name}`' for name in names)}?"


def explain_unknown_options(unknown: Sequence[str], options: Sequence[str]) -> str:
    """Return what is wrong with options that do not exist, and the nearest that do."""
    near = dict.fromkeys(
        match for name in unknown for match in find_similar_names(name, options, count=2)
    )
    named = ", ".join(f"`{name}`" for name in unknown)
    meant = f"{ask_about(near)} " if near else ""
    return f"unexpected {named}; {meant}there are: {', '.join(options)}"


def measure_similarity(one: str, other: str) -> float:
    """Return how alike two names are, from 0 to 1."""
    from difflib import SequenceMatcher

    return SequenceMatcher(None, one, other).ratio()
