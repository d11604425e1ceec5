"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import ferrule
from ferrule.core import invisible_characters
from ferrule.core.lazy_patterns import compile_lazily


def test_an_expression_does_what_a_compiled_one_does() -> None:
    words, compiled = (
        compile_lazily(r"(\w+)-(\d+)", re.IGNORECASE),
        re.compile(r"(\w+)-(\d+)", re.IGNORECASE),
    )
    assert words.sub(r"\2-\1", "a-1 b-2") == compiled.sub(r"\2-\1", "a-1 b-2")
    for _ in range(2):
        found = words.search("see Ab-12")
        assert found is not None and found.groups() == ("Ab", "12")
    assert (words.pattern, words.flags) == (compiled.pattern, compiled.flags)
    assert compile_lazily(rb"\d+").fullmatch(b"12") is not None


def test_an_expression_is_compiled_when_it_is_first_used() -> None:
    broken = compile_lazily("(")
    with pytest.raises(re.error, match="missing"):
        broken.search("")


def test_every_expression_of_the_package_can_be_compiled() -> None:
    """A bad one would be found at its first use only: here all are used."""
    found = 0
    for path in Path(ferrule.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if node.func.id == "compile_lazily" and isinstance(node.args[0], ast.Constant):
                assert isinstance(node.args[0].value, str | bytes)
                re.compile(node.args[0].value)
                found += 1
    assert found > 20
    assert (
        invisible_characters.escape_invisible("\u202e")
        == invisible_characters.escape_for_approval("\u202e")
        == r"\u202e"
    )
