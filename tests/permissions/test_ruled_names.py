"""Deny rules for paths as lists of names that may not be created: they say no less than the
rules.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.permissions.path_denials import make_creation_patterns
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.rule_matching import RuleMatcher, normalise_path
from ferrule.permissions.rules import RuleSet

ROOT = "/home/me/work"
HOME = "/home/me"
WORDS = ("a", "b", "ab", "x.py", "src")
PIECES = ("a", "b", "*", "**", "a*", "?", "[ab]", "*.py", "src", "A")

paths = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map("/".join)
starts = st.sampled_from(("", "/", "./", "~/", "~/work/", f"/{ROOT}/", "//", "//**/"))


def _joined(start: str, parts: list[str], end: str) -> str:
    return start + "/".join(parts) + end


pieces = st.lists(st.sampled_from(PIECES), min_size=1, max_size=4)
specifiers = st.builds(_joined, starts, pieces, st.sampled_from(("", "/", "/**")))


@given(specifiers, paths)
def test_what_a_rule_denies_may_not_be_created(specifier: str, path: str) -> None:
    rules = RuleSet.parse(deny=[f"Edit({specifier})"], root=ROOT).deny
    patterns = make_creation_patterns(rules, ROOT, HOME)
    matcher = RuleMatcher(rules[0], ROOT, HOME)
    denies = matcher._matches_path  # pyright: ignore[reportPrivateUsage]  what the gate asks; none: every path (`Edit(*)`)
    if denies is None or denies(normalise_path(path, ROOT, HOME)):
        assert ProtectedNames(reserved=patterns).check(path, write=True) is not None


@pytest.mark.parametrize(
    ("specifier", "patterns"),
    [
        ("private/**", ("/private",)),
        ("src/*.py", ("/src/*.py",)),
        ("*.lock", ("*.lock",)),
        ("./*.lock", ("/*.lock",)),
        ("~/work/a/**", ("/a",)),
        ("~/other/**", ()),
        ("//home/**", ("*",)),
        ("a/**/b", ("/a/**/b",)),
    ],
)
def test_a_rule_names_what_lies_below_the_workspace(
    specifier: str, patterns: tuple[str, ...]
) -> None:
    rules = RuleSet.parse(deny=[f"Edit({specifier})"], root=ROOT).deny
    assert make_creation_patterns(rules, ROOT, HOME) == patterns
