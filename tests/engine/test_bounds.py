"""What a handler returned becomes a result of bounded size."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ferrule.engine.result_bounds import bound_text
from ferrule.tools.json_conversion import to_json_value

OUTPUT_CAP = 64 * 1024


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    where: Path


class Order(BaseModel):
    article: str
    day: date


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ("text", "text"),
        (None, None),
        ((1, 2), [1, 2]),
        ({3}, [3]),
        ({1: "a"}, {"1": "a"}),
        (Point(1, Path("a/b")), {"x": 1, "where": "a/b"}),
        (Order(article="nut", day=date(2026, 1, 2)), {"article": "nut", "day": "2026-01-02"}),
        (date(2026, 1, 2), "2026-01-02"),
        ([Colour.RED], ["red"]),
    ],
)
def test_values_of_programs_become_json(value: Any, form: Any) -> None:
    assert to_json_value(value) == form


@pytest.mark.parametrize("value", [b"bytes", object(), {"deep": [b""]}, (n for n in ()), Point])
def test_what_has_no_honest_json_form_is_refused_with_its_type(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        to_json_value(value)


@pytest.mark.proves("bounds.cut-at-64-kib")
def test_seventy_thousand_bytes_are_cut_at_the_cap_and_the_notice_names_it() -> None:
    cut = bound_text("x" * 70_000, OUTPUT_CAP)
    assert (cut.data, cut.size, cut.partial) == ("x" * 65_536, 70_000, True)
    assert cut.notes == ("[output truncated at 65536 bytes of 70000]",)


@pytest.mark.proves("bounds.character-boundary")
@pytest.mark.parametrize("character", ["é", "€", "𝄞"])
@pytest.mark.parametrize("shift", range(4))
def test_a_character_is_never_split(character: str, shift: int) -> None:
    whole = "x" * shift + character * 40_000
    cut = bound_text(whole, OUTPUT_CAP)
    assert whole.startswith(cut.data)
    assert OUTPUT_CAP - 4 < len(cut.data.encode()) <= OUTPUT_CAP


@pytest.mark.proves("bounds.cut-at-64-kib")
def test_what_fits_exactly_is_not_cut() -> None:
    assert bound_text("x" * OUTPUT_CAP, OUTPUT_CAP).partial is False
    assert bound_text("x" * (OUTPUT_CAP + 1), OUTPUT_CAP).partial is True


@given(st.text(), st.integers(0, 60))
def test_cutting_twice_is_cutting_once(text: str, cap: int) -> None:
    once = bound_text(text, cap)
    assert len(once.data.encode()) <= cap
    assert once.size == len(text.encode())
    assert once.partial == (once.data != text)
    assert bound_text(once.data, cap).data == once.data


@pytest.mark.proves("bounds.cut-at-64-kib")
def test_a_large_object_becomes_the_beginning_of_its_json_text_and_says_so() -> None:
    cut = bound_text({"rows": ["x" * 100] * 1000}, 1000)
    assert isinstance(cut.data, str) and cut.data.startswith('{"rows":["xxx')
    assert cut.partial and len(cut.notes) == 1


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(codec=None))
    | st.just("\udcff"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(values, st.sampled_from([8, 60, OUTPUT_CAP]))
def test_lone_surrogates_never_leave_this_place(value: Any, cap: int) -> None:
    kept = bound_text(value, cap)
    json.dumps(kept.data, ensure_ascii=False).encode("utf-8")
    assert len(kept.data.encode() if isinstance(kept.data, str) else b"") <= cap


def test_a_file_name_that_is_not_utf_8_is_shown_with_a_question_mark() -> None:
    assert bound_text("a\udcff.txt", 100).data == "a?.txt"
    assert bound_text({"name": ["a\udcff.txt"]}, 100).data == {"name": ["a?.txt"]}
