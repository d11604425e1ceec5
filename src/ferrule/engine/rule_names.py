"""Names of tools in permission rules, compared with the tools that there are: a misspelled one
would decide nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import SequenceMatcher

from ferrule.core.errors import ConfigError
from ferrule.permissions.rules import Rule
from ferrule.tools.catalog import Catalog

_PLAIN = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
"""A name that belongs to no server and no namespace: `server__tool` and `space::name` may come
later.
"""
_SAME = 0.9
_SAME_WORD = 0.7


def check_rule_names(
    rules: Iterable[Rule], catalog: Catalog, more: Callable[[], Iterable[str]] = tuple
) -> None:
    """Raise ConfigError for a rule whose plain tool name is unknown and nearly that of a tool.

    A name that is like no other stays allowed: its tool may come from a file of another folder.
    `more` gives further names that a run may have; it is asked only if a name is not in the
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


def _is_unknown(rule: Rule, catalog: Catalog) -> bool:
    return not rule.kind and _PLAIN.fullmatch(rule.tool) is not None and rule.tool not in catalog


def _nearest(name: str, known: Iterable[str]) -> str:
    """The name that this one is surely meant to be, or empty."""
    alike = [one for one in known if _is_misspelled(name, one)]
    return max(alike, key=lambda one: (_alike(name, one), one), default="")


def _is_misspelled(name: str, known: str) -> bool:
    """Whether one is the other with a slip: `reed_file`; `git_stash_pop` and `git_stash_drop` are
    two names.
    """
    words = name.split("_")
    others = known.split("_")
    if len(words) != len(others):
        return _alike(name, known) >= _SAME
    return all(_alike(word, other) >= _SAME_WORD for word, other in zip(words, others, strict=True))


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
