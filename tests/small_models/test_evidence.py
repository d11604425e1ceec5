"""What a request says by itself about the arguments of a call: dates, lists, units, labels, places.
No model is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule_local.small_models.argument_filling import ArgumentFiller
from ferrule_local.small_models.dates import (
    Date,
    find_dates,
    find_relative_dates,
    find_times,
    format_date,
    is_calendar_name,
    requested_format,
    requested_time_format,
)
from ferrule_local.small_models.evidence import find_values_in_description
from ferrule_local.small_models.request import Request
from ferrule_local.small_models.units import is_unit_for


class NoModel:
    """Says what it was asked, and fails."""

    async def complete(self, prompt: str, *, grammar: str, max_tokens: int) -> str:
        raise AssertionError(f"the model was asked: {prompt.splitlines()[-1]} {grammar}")

    async def embed(self, texts: Sequence[str], *, keep: bool = False) -> list[list[float]]:
        raise AssertionError("the model was asked for vectors")


def part(kind: str, about: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, "description": about, **more}


def array(items: dict[str, Any], about: str = "") -> dict[str, Any]:
    return {"type": "array", "items": items, "description": about}


async def filled(
    request: str, required: Sequence[str], tool: str = "act", **properties: Any
) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return await ArgumentFiller(NoModel(), tool, "Act.", schema).fill(request)


@pytest.mark.parametrize(
    ("request_text", "about", "value"),
    [
        ("Prune the hedge on March 4th, 2021", "The day, as yyyy-mm-dd", "2021-03-04"),
        ("Prune the hedge on 4 March 2021", "Day of the work (MM-DD-YYYY)", "03-04-2021"),
        ("Prune the hedge on 2021/03/04", "dd.mm.yyyy", "04.03.2021"),
        ("Prune the hedge in April 2021", "In 'mm-yyyy' format", "04-2021"),
        ("Prune the hedge on March 4th, 2021", "When to work", "2021-03-04"),
        ("Prune the hedge in April 2021", "When to work", "April 2021"),
        ("Prune the hedge tomorrow", "When to work", "tomorrow"),
    ],
)
async def test_a_date_is_written_in_the_form_that_the_parameter_asks_for(
    request_text: str, about: str, value: str
) -> None:
    assert await filled(request_text, ["work_date"], work_date=part("string", about)) == {
        "work_date": value
    }


@given(st.dates())
def test_a_date_survives_being_written_and_read(day: Any) -> None:
    wanted = Date(day.year, day.month, day.day)
    text = format_date(wanted, ("-", "y", "m", "d"))
    assert [found for _, _, found in find_dates(f"on {text} at noon")] == [wanted]


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("at 2pm", (14, 0)),
        ("at 12 a.m.", (0, 0)),
        ("at 12 pm", (12, 0)),
        ("at 7:45 PM", (19, 45)),
        ("at 07:30", (7, 30)),
        ("at 9 in the evening", (21, 0)),
        ("at 9 in the morning", (9, 0)),
        ("at 25:00", None),
        ("at 10:75", None),
        ("at 10", None),
    ],
)
def test_a_time_of_day_is_read(text: str, time: tuple[int, int] | None) -> None:
    assert [(hour, minute) for _, hour, minute in find_times(text)] == ([time] if time else [])


@pytest.mark.parametrize(
    ("about", "form"),
    [
        ("as YYYY-MM-DD HH:MM:SS", " {hour:02}:{minute:02}:00"),
        ("as YYYY-MM-DDTHH:MM", "T{hour:02}:{minute:02}"),
        ("such as 2021-03-04T10:00:00Z", "T{hour:02}:{minute:02}:00Z"),
        ("as YYYY-MM-DD", None),
    ],
)
def test_the_form_of_a_time_is_read_from_a_description(about: str, form: str | None) -> None:
    assert requested_time_format(about) == form


def test_a_date_without_a_year_has_that_of_another_one() -> None:
    found = [day for _, _, day in find_dates("from May 3 to 5 June 2023")]
    assert found == [Date(2023, 5, 3), Date(2023, 6, 5)]
    assert list(find_dates("from May 3 to June 5")) == []


def test_a_month_first_unless_it_cannot_be() -> None:
    assert [day for _, _, day in find_dates("on 03/04/2021 or 16/04/2021")] == [
        Date(2021, 3, 4),
        Date(2021, 4, 16),
    ]
    assert list(find_dates("on 13/14/2021")) == []


def test_days_as_seen_from_today_and_names_of_the_calendar() -> None:
    text = "tomorrow, or next Friday"
    assert [text[a:b] for a, b in find_relative_dates(text)] == ["tomorrow", "next Friday"]
    assert [is_calendar_name(word) for word in ("March", "sep", "Monday", "Marching")] == [
        True,
        True,
        True,
        False,
    ]


def test_the_form_of_a_date_is_read_from_a_description() -> None:
    assert requested_format("Start, as MM/DD/YYYY") == ("/", "m", "d", "y")
    assert requested_format("the month of the year") is None


async def test_every_choice_of_a_list_that_is_named_is_taken() -> None:
    what = array(part("string", enum=["height", "age", "leaf_color", "price"]))
    made = await filled("Tell me the leaf color and height of an oak", ["what"], what=what)
    assert made == {"what": ["leaf_color", "height"]}


async def test_an_optional_list_of_choices_nobody_named_is_left_out() -> None:
    what = array(part("string", enum=["height", "age"]))
    assert await filled("Describe an oak", [], what=what) == {}


async def test_things_counted_up_become_a_list() -> None:
    made = await filled(
        "Water with roses, tall grass and moss", ["plants"], plants=array(part("string"))
    )
    assert made == {"plants": ["roses", "tall grass", "moss"]}


async def test_a_list_written_as_json_is_taken_as_it_stands() -> None:
    table = array(array(part("integer")))
    made = await filled("Plant in the beds [[1, 2], [3, 4]]", ["beds"], beds=table)
    assert made == {"beds": [[1, 2], [3, 4]]}


async def test_numbers_in_a_list_of_numbers_are_all_of_one_type() -> None:
    made = await filled("Average of 4, 5 and 6.5", ["rows"], rows=array(part("number")))
    assert made == {"rows": [4.0, 5.0, 6.5]}
    assert all(isinstance(v, float) for v in made["rows"])


async def test_a_number_goes_to_the_parameter_that_is_measured_in_its_unit() -> None:
    made = await filled(
        "Warm up 40 kg to 20 °C",
        ["temperature", "mass"],
        temperature=part("integer", "Wanted temperature"),
        mass=part("integer", "Mass of the thing"),
    )
    assert made == {"temperature": 20, "mass": 40}


async def test_numbers_named_first_and_given_after_go_in_the_order_of_their_names() -> None:
    made = await filled(
        "Dig with depth and width of 3 and 7",
        ["width", "depth"],
        width=part("integer"),
        depth=part("integer"),
    )
    assert made == {"width": 7, "depth": 3}


async def test_a_number_beside_an_optional_parameters_word_is_its_own() -> None:
    made = await filled(
        "Dig at a speed of 9 to a depth of 3",
        ["depth"],
        depth=part("integer"),
        speed=part("integer"),
    )
    assert made == {"depth": 3, "speed": 9}


@pytest.mark.parametrize(
    ("request_text", "made"),
    [
        ("Show the first 20 lines", {"line_end": 20}),
        ("Show it from line 20", {"line_start": 20}),
    ],
)
async def test_the_first_lines_have_an_end(request_text: str, made: dict[str, int]) -> None:
    slots = {"line_start": part("integer"), "line_end": part("integer")}
    assert await filled(request_text, [], **slots) == made


async def test_a_year_is_no_amount() -> None:
    made = await filled(
        "Count 7 trees in 2019", ["trees"], trees=part("integer"), year=part("integer")
    )
    assert made == {"trees": 7, "year": 2019}


@pytest.mark.parametrize(
    ("about", "value"),
    [("Rate in percent", 5), ("The rate", 0.05), ("Rate, e.g. 0.05 for 5 percent", 0.05)],
)
async def test_percent_is_a_share_unless_percent_is_asked_for(about: str, value: float) -> None:
    assert await filled("Grow at a rate of 5%", ["rate"], rate=part("number", about)) == {
        "rate": value
    }


@pytest.mark.parametrize(
    ("request_text", "name", "about", "value"),
    [
        (
            "Change the color of my hat to green",
            "material",
            "The stuff, e.g. 'felt', 'straw'",
            None,
        ),
        ("Sell a straw hat", "material", "The stuff, e.g. 'felt', 'straw'", "straw"),
        ("Sell a hat of any detail", "level", "Can be 'rough' or 'detailed'", "detailed"),
        ("Set the material to felt", "material", "", "felt"),
        ("The song 'Blue' by Ada Lovelace", "artist", "", "Ada Lovelace"),
        ("Look for hats in Oslo", "city", "", "Oslo"),
        ("Look for hats in Lyon", "location", "", "Lyon"),
        ("Look for a leather hat", "hat_type", "", "leather"),
    ],
)
async def test_an_optional_text_is_taken_where_the_request_says_which(
    request_text: str, name: str, about: str, value: str | None
) -> None:
    made = await filled(request_text, [], **{name: part("string", about)})
    assert made == ({} if value is None else {name: value})


async def test_a_quoted_text_is_not_cut_down_to_a_value_that_the_description_names() -> None:
    text = part("string", "What to write, e.g. 'hello'")
    assert await filled("Write 'hello there'", ["text"], text=text) == {"text": "hello there"}


async def test_where_it_begins_and_where_it_ends_are_told_apart() -> None:
    made = await filled(
        "Carry the pot to Bergen from Oslo",
        ["from_city", "to_city"],
        from_city=part("string"),
        to_city=part("string"),
    )
    assert made == {"from_city": "Oslo", "to_city": "Bergen"}


async def test_an_amount_is_in_the_unit_it_is_converted_from() -> None:
    unit = part("string", "A unit, e.g. 'gallon', 'bucket', 'cup'")
    made = await filled(
        "How many cups are in 3 buckets?", ["from_unit", "to_unit"], to_unit=unit, from_unit=unit
    )
    assert made == {"from_unit": "bucket", "to_unit": "cup"}


async def test_a_switch_is_as_the_request_says_whatever_its_default() -> None:
    wet = part("boolean", default=True)
    assert await filled("Dig, assuming wet soil", [], wet_soil=wet) == {"wet_soil": True}
    assert await filled("Dig, without wet soil", [], wet_soil=wet) == {"wet_soil": False}
    assert await filled("Dig", [], wet_soil=wet) == {}


@pytest.mark.parametrize(
    ("about", "value"),
    [
        ("For example, 1 for Oslo, 2 for Bergen", {"town_id": 2}),
        ("'1' represents Oslo, and '2' represents Bergen", {"town_id": 2}),
        ("For example, 1 corresponds to Oslo, 2 to Bergen", {"town_id": 2}),
        ("1 for Oslo, 3 for Narvik", {}),
    ],
)
@pytest.mark.parametrize("choices", [None, [1, 2, 3]])
async def test_a_number_stands_for_what_the_description_says(
    about: str, value: Any, choices: list[int] | None
) -> None:
    town = part("integer", about) | ({} if choices is None else {"enum": choices})
    assert await filled("Look for hats in Bergen", [], town_id=town) == value


@pytest.mark.parametrize(
    ("choices", "place"),
    [([1, 3], "Bergen"), (["1", "2"], "Bergen"), ([True, False], "Oslo")],
)
async def test_a_number_that_is_no_choice_stands_for_nothing(
    choices: list[Any], place: str
) -> None:
    town = {"description": "1 for Oslo, 2 for Bergen", "enum": choices}
    assert await filled(f"Look for hats in {place}", [], town_id=town) == {}


async def test_an_object_is_filled_from_what_is_free() -> None:
    bed = {"type": "object", "properties": {"width": part("integer"), "height": part("integer")}}
    made = await filled("A bed of width 4 and height 2", ["bed"], bed=bed)
    assert made == {"bed": {"width": 4, "height": 2}}


@pytest.mark.parametrize(
    ("request_text", "names"),
    [
        ("Ask Mr. Hill at the Bank of Norway", ["Mr. Hill", "Bank of Norway"]),
        ("Water the rose garden", []),
        ("Rename leaf_color, then Oslo", ["leaf_color", "Oslo"]),
    ],
)
def test_names_are_read_whole(request_text: str, names: list[str]) -> None:
    assert [span.text for span in Request(request_text).names][-len(names) or 99 :] == names


def test_a_formula_is_one_piece_and_an_equation_of_a_number_is_none() -> None:
    assert [f.text for f in Request("Draw 2x^2 + 5x - 3 for x = 4").formulas] == ["2x^2 + 5x - 3"]


def test_units_know_what_they_measure() -> None:
    assert is_unit_for("kilogram", frozenset(["mass"])) is True
    assert is_unit_for("kilogram", frozenset(["temperatur"])) is False
    assert is_unit_for("kilogram", frozenset(["seed"])) is None


def test_a_description_lists_values_quoted_or_after_for_example() -> None:
    assert find_values_in_description("The soil, e.g. sand, clay or loam") == [
        "sand",
        "clay",
        "loam",
    ]
    assert find_values_in_description("Either 'wet' or 'dry'.") == ["wet", "dry"]
    assert find_values_in_description("Which bed, like `bed_1`") == ["bed_1"]
    assert find_values_in_description("Place, e.g. Oslo, NO") == ["Oslo, NO"]
    assert find_values_in_description("Zone, such as Europe/Oslo") == ["Europe/Oslo"]


@given(st.text(max_size=80))
def test_any_text_is_a_request(text: str) -> None:
    request = Request(text)
    assert all(
        0 <= s.first <= s.last < len(request.atoms) for s in (*request.names, *request.formulas)
    )
    assert all(d.last < len(request.atoms) for d, _ in request.dates)
