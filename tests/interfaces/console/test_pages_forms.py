"""Forms made from schemas give back the values that were typed; pictures say in words and numbers
what they show.
"""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.console.charts import Series, days_up_to, draw_columns, scale_ticks
from ferrule.console.run_chart import draw_waterfall
from ferrule.console.schema_form import ADDITIONAL, PREFIX, build_fields, read_values
from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.events import (
    CallEvaluated,
    ModelAnswered,
    PersonAnswered,
    RunFinished,
    RunStarted,
    ToolAnswered,
)
from ferrule.core.identity import Identity
from ferrule.storage.journal.sqlite import SqliteJournal

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "Words.", "maxLength": 9},
        "count": {"type": "integer", "minimum": 1},
        "share": {"type": "number", "default": 0.5},
        "on": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
        "way": {"enum": ["up", 2, None]},
        "list": {"type": "array", "items": {"type": "string"}},
        "command": {"anyOf": [{"type": "string"}, {"type": "array"}]},
        "place": {"$ref": "#/$defs/Place"},
    },
    "required": ["text", "count"],
    "$defs": {"Place": {"type": "object", "properties": {"x": {"type": "number"}}}},
}
KINDS = {
    "text": "text",
    "count": "integer",
    "share": "number",
    "on": "boolean",
    "way": "choice",
    "list": "json",
    "command": "either",
    "place": "json",
}


def test_a_schema_becomes_fields_of_the_right_kind_with_what_must_be_given_first() -> None:
    fields = build_fields(SCHEMA)
    assert {field.name: field.kind for field in fields} == KINDS
    assert [field.name for field in fields[:2]] == ["text", "count"] and [
        f.required for f in fields
    ] == [True] * 2 + [False] * 6
    by_name = {field.name: field for field in fields}
    assert by_name["way"].choices == ('"up"', "2") and by_name["share"].value == "0.5"
    assert (by_name["text"].hint, by_name["count"].hint) == ("at most 9 characters", "at least 1")


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "minLength": 2, "pattern": "^a"}, "at least 2 characters, like ^a"),
        ({"type": "number", "exclusiveMinimum": 0, "maximum": 7}, "more than 0, at most 7"),
        ({"type": "integer", "exclusiveMaximum": 3}, "less than 3"),
    ],
)
def test_a_field_says_what_its_schema_asks_of_it(shape: dict[str, Any], hint: str) -> None:
    (field,) = build_fields({"type": "object", "properties": {"value": shape}})
    assert field.hint == hint


@given(
    st.fixed_dictionaries(
        {"text": st.text(), "count": st.integers()},
        optional={
            "share": st.floats(allow_nan=False, allow_infinity=False),
            "on": st.booleans(),
            "way": st.sampled_from(["up", 2]),
            "list": st.lists(st.text()),
            "command": st.one_of(st.lists(st.text()), st.sampled_from(["ls -l", "12", "true"])),
            "place": st.dictionaries(st.text(), st.integers()),
        },
    )
)
def test_values_that_fill_a_form_come_back_out_of_it(values: dict[str, Any]) -> None:
    fields = build_fields(SCHEMA, values)
    # Browsers send line ends as CR LF, and a CR of its own is none that anybody typed.
    wanted = json.loads(json.dumps(values))
    wanted["text"] = wanted["text"].replace("\r\n", "\n")
    read, typed, problems = read_values(
        fields, {PREFIX + field.name: field.value for field in fields}
    )
    assert (read, problems) == (wanted, [])
    assert [field.name for field in typed] == [field.name for field in fields]


def test_what_is_left_empty_is_left_out_and_what_is_no_json_is_named() -> None:
    fields = build_fields(SCHEMA)
    form = {
        PREFIX + "text": "",
        PREFIX + "count": "many",
        PREFIX + "list": "[1",
        ADDITIONAL: '{"extra": [1]}',
    }
    values, _, problems = read_values(fields, form)
    assert values == {"text": "", "extra": [1]}
    assert [problem.partition(":")[0] for problem in problems] == [
        "`count` must be a number",
        "`list` must be JSON",
    ]


@settings(max_examples=25)
@given(
    st.recursive(
        st.none() | st.booleans() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_no_schema_breaks_the_form(anything: Any) -> None:
    for field in build_fields({"type": "object", "properties": {"x": anything}}):
        assert field.name == "x"


# ---- pictures


def parsed(picture: str) -> ElementTree.Element:
    return ElementTree.fromstring(
        re.sub(r' (hidden|download|open|tabindex="0")(?=[ >])', "", picture)
    )


def test_columns_say_what_they_show_and_have_the_numbers_as_a_table() -> None:
    days = days_up_to("2026-03-02", 4)
    assert days == ["2026-02-27", "2026-02-28", "2026-03-01", "2026-03-02"]
    shown = draw_columns(
        "Tokens <b>",
        days,
        [Series("in & out", "pic-1", [0, 4, 0, 6]), Series("none", "pic-2", [0] * 4)],
        "{:g}".format,
    )
    tree = parsed(shown)
    svg = drawings(tree)[0]
    title, description = svg.find("title"), svg.find("desc")
    assert title is not None and description is not None and title.text == "Tokens <b>"
    assert description.text == "4 days from 2026-02-27 to 2026-03-02; in & out: 10 in all"
    assert svg.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert len(list(svg.iter("rect"))) == 2
    cells = ["".join(one.itertext()) for one in tree.iter("tr")]
    assert cells == ["Dayin & outTotal", "2026-02-2844", "2026-03-0266"]
    assert "style=" not in shown and "<script" not in shown


def drawings(tree: Any) -> list[Any]:
    """The two drawings of a chart: for a screen, and for a telephone."""
    wide, narrow = [one for one in tree.iter("svg") if one.get("role") == "img"]
    assert (wide.get("class"), narrow.get("class")) == ("pic pic-wide", "pic pic-narrow")
    return [wide, narrow]


def assert_within(drawing: Any, width: int) -> None:
    """All bars, and all texts by about seven units a letter, lie within a drawing."""
    for bar in drawing.iter("rect"):
        assert 0 <= float(bar.get("x")) <= width - float(bar.get("width"))
    for text in drawing.iter("text"):
        x, half = float(text.get("x")), 3.5 * len(text.text)
        assert x - (half if text.get("text-anchor") == "middle" else 2 * half) >= -1
        assert x + (half if text.get("text-anchor") == "middle" else 0) <= width


def test_columns_are_as_high_as_their_values_and_stand_over_the_names_of_their_days() -> None:
    days = days_up_to("2026-03-02", 20)
    first = [0.0] * 18 + [4.0, 6.0]
    second = [0.0] * 19 + [4.0]
    shown = draw_columns(
        "Tokens", days, [Series("in", "pic-1", first), Series("out", "pic-2", second)], str
    )
    svg, narrow = drawings(parsed(shown))
    places = ("x", "y", "width", "height")
    columns = [[float(one.get(name, "")) for name in places] for one in svg.iter("rect")]
    (early, below, above) = columns
    assert [round(one[3] / 4) for one in (early, below, above)] == [20, 30, 20]
    # One column on the other, and all on the line of zero.
    assert above[1] + above[3] == pytest.approx(below[1])
    assert early[1] + early[3] == pytest.approx(below[1] + below[3]) == 240 - 28
    assert below[0] == above[0] > early[0] + early[2]
    # Twenty days between the numbers at the left and the margin at the right.
    assert (early[0], early[2]) == pytest.approx((64 + 18.12 * 27, 0.76 * 27), abs=0.06)
    (axis, *_) = svg.iter("line")
    assert (axis.get("x1"), axis.get("x2"), axis.get("y1")) == ("64", "604", "212.0")
    zero = next(one for one in svg.iter("text") if one.get("text-anchor") == "end")
    assert (zero.get("x"), zero.get("y"), zero.text) == ("56", "216.0", "0.0")
    named = {str(one.text): one for one in svg.iter("text") if one.get("text-anchor") == "middle"}
    assert list(named) == [day[5:] for day in days[3::4]]
    middle = below[0] + below[2] / 2
    assert float(named["03-02"].get("x", "")) == pytest.approx(middle, abs=0.2)
    assert_within(narrow, 310)
    # A telephone has room for the name of every seventh day.
    assert [one.text for one in narrow.iter("text") if one.get("text-anchor") == "middle"] == [
        day[5:] for day in days[5::7]
    ]


def test_of_nothing_there_is_no_picture() -> None:
    assert draw_columns("Tokens", ["2026-03-01"], [Series("in", "pic-1", [0])], str) == ""


@given(st.integers(1, 10**9))
def test_lines_of_a_picture_of_counts_lie_at_whole_numbers(most: int) -> None:
    lines = scale_ticks(most, whole=True)
    assert lines == [round(line) for line in lines] and lines[-1] >= most


@given(st.floats(0, 1e15))
def test_lines_are_few_and_reach_the_highest_value(most: float) -> None:
    lines = scale_ticks(most)
    assert 2 <= len(lines) <= 8 and lines[0] == 0 and lines[-1] >= most * (1 - 1e-9)
    assert lines == sorted(set(lines))


def test_a_waterfall_has_a_bar_for_each_step_and_escapes_names() -> None:
    call = ToolCall("c1", "<b>tool", "{}")
    events = [
        (0, RunStarted("go")),
        (2000, ModelAnswered("", (call,), stop="calls")),
        (2000, CallEvaluated("c1", "ask")),
        (5000, PersonAnswered("c1", "once")),
        (
            6000,
            ToolAnswered(ToolResult("c1", "<b>tool", False, None, ErrorType.TIMEOUT, "no", 1000)),
        ),
        (6000, RunFinished("done")),
    ]
    with SqliteJournal(":memory:") as journal:
        identity = Identity("local", "ada", "s1", "r1")
        journal.append(
            "s1",
            "r1",
            [event for _, event in events],
            identity=identity,
            times=[1 + time for time, _ in events],
        )
        shown = draw_waterfall(journal.records("s1"))
        assert draw_waterfall(journal.records("s1"), run="other") == ""
    tree = parsed(shown)
    svg, narrow = drawings(tree)
    for drawing in (svg, narrow):
        kinds = [one.get("class") for one in drawing.iter("rect")]
        assert kinds == ["pic-model", "pic-person", "pic-bad"]
    assert_within(narrow, 310)
    assert (
        "the model: 1 times, 2.0 s; a person: 1 times, 3.0 s; tools: 1 times, 1.0 s; 1 of "
        "them refused or failed."
    ) in shown
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter("tr")]
    assert rows[1:] == [
        ["model", "0 ms", "2.0 s", "success"],
        ["waiting: <b>tool", "2.0 s", "3.0 s", "once"],
        ["<b>tool", "5.0 s", "1.0 s", "timeout"],
    ]


@pytest.mark.parametrize("milliseconds", [1, 40, 401, 999, 6000, 61_000, 3_600_000, 500_000_000])
def test_a_waterfall_of_any_length_keeps_its_texts_inside(milliseconds: int) -> None:
    with SqliteJournal(":memory:") as journal:
        journal.append(
            "s1",
            "r1",
            [RunStarted("go"), ModelAnswered("", (), stop="end"), RunFinished("done")],
            identity=Identity("local", "ada", "s1", "r1"),
            times=[1, 1 + milliseconds, 1 + milliseconds],
        )
        wide, narrow = drawings(parsed(draw_waterfall(journal.records("s1"))))
    assert_within(wide, 620)
    assert_within(narrow, 310)
