"""Patterns mean the same in every release of Python that is supported.

The possessive quantifiers of Python 3.11.0 to 3.11.4 match text that they must not, and Debian 12
has 3.11.2 (https://github.com/python/cpython/issues/106052). Atomic groups are not affected.
"""

from __future__ import annotations

import ast
import importlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from source import MODULES

_parser: Any = importlib.import_module("re._parser")
_FUNCTIONS = ("compile", "match", "search", "fullmatch", "finditer", "findall", "sub", "split")


def read_pattern(node: ast.expr) -> str | None:
    """Return the text of a pattern, with `x` for each inserted expression; None if it has none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(piece.value) if isinstance(piece, ast.Constant) else "x" for piece in node.values
        )
    return None


def has_possessive_quantifier(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = list[Any](_parser.parse(pattern))
    except Exception:  # an inserted expression completes it
        return False
    return "POSSESSIVE_REPEAT" in repr(parsed)


def find_patterns(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and text of every pattern that is given to `re`."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            continue
        module = node.func.value
        is_pattern = isinstance(module, ast.Name) and module.id == "re"
        if is_pattern and node.func.attr in _FUNCTIONS:
            text = read_pattern(node.args[0])
            if text is not None:
                yield node.lineno, text


@pytest.mark.parametrize("pattern", [r'(?:a|"b*+")*', r"\w++-", r"[ab]?+c", r"(?:ab){1,3}+"])
def test_a_possessive_quantifier_is_found(pattern: str) -> None:
    assert has_possessive_quantifier(pattern)


@pytest.mark.parametrize("pattern", [r"(?>[^/]*?a)", r"[*+]\++", r"a+?", r"[-+*]+"])
def test_other_patterns_are_not_mistaken_for_one(pattern: str) -> None:
    assert not has_possessive_quantifier(pattern)


def test_no_pattern_has_a_possessive_quantifier() -> None:
    patterns = [
        (f"{module.shown}:{line}", text)
        for module in MODULES
        for line, text in find_patterns(module.tree)
    ]
    assert len(patterns) > 300
    assert [place for place, text in patterns if has_possessive_quantifier(text)] == []
