"""Pieces of a request are ranked as values of text slots, and given out to several slots."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ferrule_local.small_models.request import Request
from ferrule_local.small_models.slots import Slot, Value, read_slot
from ferrule_local.small_models.spans import Span
from ferrule_local.small_models.value_ranking import (
    RankedValue,
    RequestView,
    assign_values,
    find_candidates,
    find_close_values,
    load_weights,
    rank_candidates,
    rank_slots,
)


def text(name: str, about: str = "", *, required: bool = True, **more: Any) -> Slot:
    return read_slot(name, {"type": "string", "description": about, **more}, required)


def offered(slot: Slot, request: str) -> list[Any]:
    found = find_candidates(slot, RequestView(Request(request)), [slot])
    return [one.value.value if one.value else None for one in found]


def piece(value: str, first: int, last: int, score: float) -> RankedValue:
    return RankedValue(Value(value, Span(value, first, last, "run")), score)


def test_scores_are_log_probabilities_with_the_likeliest_first() -> None:
    slot = text("dish")
    candidates = find_candidates(slot, RequestView(Request("Cook green soup")), [slot])
    ranked = rank_candidates(candidates, {"length 3": 1.0})
    assert ranked[0].value is not None
    assert ranked[0].value.value == "Cook green soup"
    assert sum(math.exp(one.score) for one in ranked) == pytest.approx(1.0)


def test_two_slots_do_not_get_the_same_piece_even_if_it_is_likeliest_for_both() -> None:
    given = assign_values(
        {
            "a": [piece("Rome", 1, 1, -0.1), piece("Bonn", 3, 3, -3.0)],
            "b": [piece("Rome", 1, 1, -0.2), piece("Bonn", 3, 3, -1.0)],
        }
    )
    assert {name: one.value and one.value.value for name, one in given.items()} == {
        "a": "Rome",
        "b": "Bonn",
    }


def test_alike_pieces_go_in_the_order_of_the_slots() -> None:
    both = [piece("Rome", 1, 1, -0.7), piece("Bonn", 3, 3, -0.7)]
    given = assign_values({"second": both[::-1], "first": both})
    assert {name: one.value and one.value.value for name, one in given.items()} == {
        "second": "Rome",
        "first": "Bonn",
    }


def test_a_slot_that_no_piece_is_left_for_stays_open() -> None:
    only = [piece("Rome", 1, 1, -0.1), RankedValue(None, -9.0)]
    given = assign_values({"a": only, "b": only})
    assert sorted(one.value is None for one in given.values()) == [False, True]


def test_the_model_is_asked_only_between_two_that_are_about_as_likely() -> None:
    first, near, far = piece("a", 1, 1, -0.5), piece("b", 2, 2, -0.9), piece("c", 3, 3, -3.0)
    near_value, first_value = near.value, first.value
    assert near_value is not None
    assert find_close_values(first, [first, near, far], []) == [first_value, near_value]
    assert find_close_values(first, [first, near, far], [near_value]) == [first_value]
    assert find_close_values(first, [first, far], []) == [first_value]


def test_what_is_taken_is_not_offered_again() -> None:
    request = Request("Carry the pot to Bergen")
    request.take(next(span for span in request.spans if span.text == "Bergen"))
    slot = text("city")
    assert all(
        "Bergen" not in str(one.value and one.value.value)
        for one in rank_slots([slot], request, [slot])["city"]
    )


def test_an_optional_slot_is_left_out_unless_the_request_says_its_value_by_itself() -> None:
    assert offered(text("size", required=False), "Cook soup, size: 'large'")[0] == "large"
    assert offered(text("author", required=False), "A book by Ada Lovelace")[:1] != [None]
    assert None not in offered(text("author", required=False), "A book by Ada Lovelace")


@pytest.mark.parametrize(
    ("slot", "request_text"),
    [
        (text("seen_by", required=False), "A play seen by Ada Lovelace"),
        (text("email", required=False), "Write to ada@example.org"),
        (text("zone", "A zone such as Asia/Tokyo", required=False), "The time in Europe/Oslo"),
        (text("start_time", "as HH:MM", required=False), "A show at 2pm"),
    ],
)
def test_what_a_value_looks_like_or_stands_behind_says_whose_it_is(
    slot: Slot, request_text: str
) -> None:
    assert None in offered(slot, "Show me a play")
    assert None not in offered(slot, request_text)


def test_a_name_is_not_cut_before_the_word_that_says_whose_it_is() -> None:
    values = offered(text("museum_name"), "Go to the Royal Museum of Art")
    assert "Royal Museum of Art" in values
    assert "Royal" not in values


def test_only_an_optional_slot_may_be_left_out() -> None:
    assert None not in offered(text("dish"), "Cook green soup")
    assert None in offered(text("dish", required=False), "Cook green soup")


@pytest.mark.parametrize(
    ("slot", "request_text", "value"),
    [
        (text("start_time", "as HH:MM"), "Meet at half past two or at 2pm", "14:00"),
        (text("day", "as YYYY-MM-DD HH:MM:SS"), "Come on 4 March 2021", "2021-03-04 00:00:00"),
        (text("rooms", "How many, or 'any'"), "Book two rooms", "2"),
        (text("rooms", "How many, or 'any'"), "Book two rooms", "any"),
        (text("answer"), "Say it like this: good day to you", "good day to you"),
        (text("curve_function"), "Draw 2x^2 + 5x - 3", "2x^2 + 5x - 3"),
    ],
)
def test_values_in_another_form_are_offered_too(slot: Slot, request_text: str, value: str) -> None:
    assert value in offered(slot, request_text)


def test_a_quotation_is_not_cut_down_to_a_listed_value_inside_it() -> None:
    values = [
        one.value
        for one in find_candidates(
            text("text", "e.g. 'hello'"),
            RequestView(Request("Write 'hello there'")),
            [text("text", "e.g. 'hello'")],
        )
    ]
    assert all(value is None or value.span is None or value.value != "hello" for value in values)


def test_of_a_pasted_text_the_head_and_quotations_are_looked_at() -> None:
    request = Request("word " * 250 + "'quoted'")
    spans = RequestView(request).spans
    assert max(span.last - span.first for span in spans) == 13
    assert max(span.last for span in spans if span.kind != "quoted") == 199
    assert spans[-1].text == "quoted"


def test_weights_are_numbers_of_features_that_are_computed() -> None:
    slot = text("location", "The city, e.g. 'Oslo'", required=False)
    request = Request("Look for hats in Lyon, France")
    computed = {
        feature
        for one in find_candidates(slot, RequestView(request), [slot])
        for feature in one.features
    }
    assert len(computed & load_weights().keys()) >= 40
    assert all(math.isfinite(weight) for weight in load_weights().values())
