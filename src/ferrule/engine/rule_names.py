"""Compare tool names in permission rules with the existing tools: a misspelled one does nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher

from ferrule.core.errors import ConfigError
from ferrule.permissions.rules import PermissionRule
from ferrule.tools.catalog import Catalog

_PLAIN = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
"""A name without server or namespace; `server__tool` and `space::name` may be added later."""
_MIN_RATIO = 0.9
_MIN_WORD_RATIO = 0.7


def check_rule_names(
    rules: Iterable[PermissionRule], catalog: Catalog, more: Callable[[], Iterable[str]] = tuple
) -> None:
    """Raise ConfigError for a rule whose plain tool name is unknown and nearly that of a tool.

    A name that resembles no other is allowed: its tool may come from a file of another folder.
    `more` gives further names that a run may have; it is called only if a name is not in the
    catalog.
    """
    unknown = [rule for rule in rules if _is_unknown(rule, catalog)]
    if not unknown:
        return
    known = {*(tool.full_name for tool in catalog), *more()}
    for rule in unknown:
        near = _nearest(rule.tool, known)
        if near and rule.tool not in known:
            raise ConfigError(
                f"rule `{rule.text}` ({rule.list}): there is no tool `{rule.tool}`",
                hint=f"did you mean `{near}`?",
            )


def _is_unknown(rule: PermissionRule, catalog: Catalog) -> bool:
    return not rule.kind and _PLAIN.fullmatch(rule.tool) is not None and rule.tool not in catalog


def _nearest(name: str, known: Iterable[str]) -> str:
    """Return the name that this one most likely misspells, or ""."""
    alike = [one for one in known if _is_misspelled(name, one)]
    return max(alike, key=lambda one: (_similarity(name, one), one), default="")


def _is_misspelled(name: str, known: str) -> bool:
    """Whether one name is a misspelling of the other, as `reed_file` is.

    `git_stash_pop` and `git_stash_drop` are two different names.
    """
    words = name.split("_")
    others = known.split("_")
    if len(words) != len(others):
        return _similarity(name, known) >= _MIN_RATIO
    return all(
        _similarity(word, other) >= _MIN_WORD_RATIO
        for word, other in zip(words, others, strict=True)
    )


def _similarity(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
