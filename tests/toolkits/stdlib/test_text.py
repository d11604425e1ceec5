"""`regex::match`, `strings::count_char`, `crypto::sha256`."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.errors import ToolFailed
from ferrule.toolkits.stdlib.text import match


def test_matches_come_with_places_groups_and_names(ask: Any) -> None:
    answer = ask("regex::match", pattern=r"(?P<year>\d{4})-(\d\d)?", text="é 2020-01, 1999-")
    assert answer.data == {
        "matches": [
            {"text": "2020-01", "start": 2, "end": 9, "groups": ["2020", "01"]},
            {"text": "1999-", "start": 11, "end": 16, "groups": ["1999", None]},
        ],
        "count": 2,
        "partial": False,
        "names": {"year": 1},
    }


def test_no_match_is_an_empty_list_and_more_than_the_limit_is_said(ask: Any) -> None:
    assert ask("regex::match", pattern="x", text="abc").data["matches"] == []
    cut = ask("regex::match", pattern="a", text="aaa", limit=2).data
    assert (cut["count"], cut["partial"]) == (2, True)
    whole = ask("regex::match", pattern="a", text="aa", limit=2).data
    assert (whole["count"], whole["partial"]) == (2, False)


def test_case_and_lines_are_options(ask: Any) -> None:
    assert ask("regex::match", pattern="A", text="a", ignore_case=True).data["count"] == 1
    assert ask("regex::match", pattern="^b$", text="a\nb", multiline=True).data["count"] == 1
    assert ask("regex::match", pattern="^b$", text="a\nb").data["count"] == 0


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|a)+$", "(a|aa)+$", "(.*)*b", "(?:a?){500}a{500}$"]
)
def test_a_pattern_that_would_hang_a_backtracking_engine_ends(ask: Any, pattern: str) -> None:
    # With Python's own engine this would not end in the life of the machine: that it returns is the
    # test.
    assert ask("regex::match", pattern=pattern, text="a" * 20_000 + "!").data["count"] == 0


@pytest.mark.parametrize(
    "pattern", ["(", "(?=a)", r"(a)\1", "(?:a{1000}){1000}", "a" * 2001, "\ud800"]
)
def test_a_pattern_that_cannot_be_had_is_refused_with_the_reason(pattern: str) -> None:
    with pytest.raises(ToolFailed, match="pattern") as refused:
        match.handler(pattern=pattern, text="a")
    assert refused.value.error_type == "validation_failed"


@given(
    st.sampled_from(["a+", "b", "(a)(b)?", "[^a]", "a|bb", "a*", "b?", "$", "a*$"]),
    st.text(alphabet="abcé😀", max_size=60),
)
def test_for_what_both_engines_know_the_matches_are_those_of_python(
    pattern: str, text: str
) -> None:
    found = match.handler(pattern=pattern, text=text, limit=1000)["matches"]
    expected = [
        (one.group(), one.start(), one.end(), list(one.groups()))
        for one in re.finditer(pattern, text)
    ]
    assert [(one["text"], one["start"], one["end"], one["groups"]) for one in found] == expected


def test_characters_are_counted(ask: Any) -> None:
    assert ask("strings::count_char", text="strawberry", char="r").data == 3
    assert ask("strings::count_char", text="Äpfel und Äste", char="Ä").data == 2
    assert ask("strings::count_char", text="", char="x").data == 0


@pytest.mark.parametrize("char", ["", "ab"])
def test_what_is_not_one_character_is_refused(ask: Any, char: str) -> None:
    answer = ask("strings::count_char", text="abab", char=char)
    assert answer.error_type == "validation_failed"
    assert "exactly one character" in answer.error_message


def test_the_hash_is_that_of_the_utf8_bytes(ask: Any) -> None:
    assert ask("crypto::sha256", text="").data == (
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )
    assert ask("crypto::sha256", text="é").data == hashlib.sha256("é".encode()).hexdigest()


def test_texts_beyond_the_bound_are_refused(ask: Any) -> None:
    for name, more in (("crypto::sha256", {}), ("regex::match", {"pattern": "y"})):
        answer = ask(name, text="x" * 1_000_001, **more)
        assert answer.error_type == "validation_failed"
        assert "1000000" in answer.error_message
