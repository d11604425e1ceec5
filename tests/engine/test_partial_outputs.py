"""Values while they arrive: the type with what has come, and a cost that is linear in the bytes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NotRequired, TypedDict

import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from ferrule import Agent, OutputInvalid, PartialOutput, Scripted, Storage
from ferrule.engine.output import partial_conversion, partial_values
from ferrule.engine.output.output_type import parse_output_type
from ferrule.engine.output.partial_conversion import NOTHING
from ferrule.engine.output.partial_values import PartialValues
from ferrule.models.client import Capabilities
from ferrule.models.scripted import says

PLAIN = Capabilities(True, True, structured_with_tools=True)


class Size(Enum):
    SMALL = "small"
    SMALLER = "smaller"


class Item(BaseModel):
    name: str
    price: Decimal
    size: Size = Size.SMALL
    kind: Literal["a", "ab"] | None = None


class Order(BaseModel):
    title: str
    items: list[Item]
    note: str | None = None
    total: int = Field(alias="sum")


@dataclass
class Point:
    x: int
    label: str = "none"


class Row(TypedDict):
    key: str
    count: int


class Note(TypedDict):
    text: NotRequired[str]
    count: NotRequired[int]


class OwnNote(typing_extensions.TypedDict, total=False):
    text: str
    count: typing_extensions.Required[int]


def parts(output: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The values after each character of the text."""
    monkeypatch.setattr(partial_values, "FIRST_STEP", 1)
    parsed = parse_output_type(output)
    assert parsed is not None
    values = PartialValues(parsed)
    values._next = 1  # pyright: ignore[reportPrivateUsage]  parse after each character
    found: list[Any] = []
    for character in text:
        values._next = 0  # pyright: ignore[reportPrivateUsage]
        value = values.add(character)
        if value is not NOTHING:
            found.append(value)
    return found


def test_texts_grow_and_numbers_and_choices_come_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        '{"title":"Two","items":[{"name":"x","price":12.50,"size":"smaller","kind":"ab"},'
        '{"name":"y","price":3}],"sum":155}'
    )
    found = parts(Order, text, monkeypatch)
    assert all(isinstance(one, Order) for one in found)
    assert [one.title for one in found if one.title][:3] == ["T", "Tw", "Two"]
    seen = [item for one in found for item in one.items or ()]
    assert {item.price for item in seen} == {None, Decimal("12.5"), Decimal(3)}
    assert {item.size for item in seen if item.name == "x"} == {Size.SMALL, Size.SMALLER}
    assert {item.kind for item in seen} == {None, "ab"}
    # Nothing follows the last number, so it is not known to be whole.
    assert {one.total for one in found} == {None}
    assert found[-1].items[0] == Item(name="x", price=Decimal("12.5"), size=Size.SMALLER, kind="ab")


@pytest.mark.parametrize(
    ("output", "text", "last"),
    [
        (Point, '{"label":"here","x":5}', Point(None, "here")),  # pyright: ignore[reportArgumentType]
        (Row, '{"count":5,"key":"a"}', {"count": 5, "key": "a"}),
        (Note, '{"count":5,"text":"a"}', {"count": 5, "text": "a"}),
        (OwnNote, '{"count":5,"text":"a"}', {"count": 5, "text": "a"}),
        (list[OwnNote], '{"value":[{"count":5},{"text":"a', [{"count": 5}, {"text": "a"}]),
        (list[int], '{"value":[10,20,30]}', [10, 20]),
        (list[str], '["a","b"]', ["a", "b"]),
        (set[str], '{"value":["a","b"]}', {"a", "b"}),
        (dict[str, int], '{"a":1,"b":2}', {"a": 1}),
        (list[Point], '{"value":[{"x":1},{"x":2}]}', [Point(1), Point(None)]),  # pyright: ignore[reportArgumentType]
        ([Point, Row], '{"value":{"label":"here"}}', Point(None, "here")),  # pyright: ignore[reportArgumentType]
        ({"type": "object"}, '{"a":{"b":[1,2]}}', {"a": {"b": [1, 2]}}),
    ],
)
def test_partial_values_are_of_the_type(
    output: Any, text: str, last: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = parts(output, text, monkeypatch)
    assert found[-1] == last
    assert {type(one) for one in found} == {type(last)}


def test_text_before_the_value_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parts(Point, "I think {so}, well, a point:", monkeypatch) == []
    assert parts(Point, 'Here: ```json\n{"x":1,"label":"b"}', monkeypatch)[-1] == Point(1, "b")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        ),
        max_leaves=20,
    ),
    st.integers(1, 40),
)
def test_partial_values_of_any_json_never_fail(value: Any, size: int) -> None:
    parsed = parse_output_type({"type": "object"})
    assert parsed is not None
    text = json.dumps({"value": value})
    values = PartialValues(parsed)
    for start in range(0, len(text), size):
        found = values.add(text[start : start + size])
        assert found is NOTHING or set(found) <= {"value"}


TEXTS = st.sampled_from(["a", '"},{"name"', '},\n{"', "],[", '\\"', "ä", ""])
ROWS = st.lists(
    st.fixed_dictionaries({"name": TEXTS, "price": st.integers(0, 9), "rows": st.just([])})
    | st.fixed_dictionaries({"name": TEXTS, "rows": st.lists(st.just({"name": "in", "rows": []}))})
    | st.just({"name": 5}),
    max_size=5,
)


class Nested(BaseModel):
    name: str
    price: int = 0
    rows: list[Nested] = []


class Shelf(BaseModel):
    title: str
    rows: list[Nested]
    by_name: dict[str, Nested] = {}
    places: list[int] = []
    end: str = ""


class Store(BaseModel):
    old: Shelf
    new: Shelf
    end: str = ""


def follow(output: Any, text: str, size: int) -> Any:
    """The last value of a text that arrives in pieces of a size, parsed after each."""
    parsed = parse_output_type(output)
    assert parsed is not None
    values = PartialValues(parsed)
    last: Any = NOTHING
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_values, "EARLY_LENGTH", 0)
        for start in range(0, len(text), size):
            values._next = 0  # pyright: ignore[reportPrivateUsage]
            last = values.add(text[start : start + size])
    return last


@settings(max_examples=30)
@given(TEXTS, ROWS, st.lists(st.integers(0, 99), max_size=5), st.sampled_from([None, 1]))
def test_values_are_the_same_whether_items_are_cut_out_or_not(
    title: str, rows: list[Any], places: list[int], indent: int | None
) -> None:
    by_name = {f"{place}{row['name']}": row for place, row in enumerate(rows)}
    shelf = {"title": title, "rows": rows, "by_name": by_name, "places": places, "end": "}]"}
    for output, value in (
        (Shelf, shelf),
        (Store, {"old": {"title": "", "rows": []}, "new": shelf, "end": "e"}),
        (list[Nested], {"value": rows}),
        (list[Nested], rows),
        (dict[str, Nested], by_name),
        (list[dict[str, Nested]], [by_name, by_name]),
        (list[str], [title, "b", title]),
        (list[list[str]], [[title], [], ["b", title]]),
    ):
        text = json.dumps(value, ensure_ascii=indent is None, indent=indent)
        assert follow(output, text, 5) == follow(output, text, len(text))


@pytest.mark.parametrize("many", ["rows", "by_name", "places"])
@pytest.mark.parametrize("is_second", [False, True])
def test_the_work_is_linear_in_the_bytes(
    many: str, is_second: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    converted: list[int] = []
    from_json = partial_values.from_json
    convert, validate = partial_conversion._convert_text, partial_conversion._validate  # pyright: ignore[reportPrivateUsage]

    def count_parsed(text: bytes, **options: Any) -> Any:
        parsed.append(len(text))
        return from_json(text, **options)

    def count_converted(hint: Any, text: bytes) -> Any:
        converted.append(len(text))
        return convert(hint, text)

    def count_values(hint: Any, value: Any) -> Any:
        converted.append(len(json.dumps(value)))
        return validate(hint, value)

    monkeypatch.setattr(partial_values, "from_json", count_parsed)
    monkeypatch.setattr(partial_conversion, "_convert_text", count_converted)
    monkeypatch.setattr(partial_conversion, "_validate", count_values)
    rows = [{"name": f"item {number}", "price": number} for number in range(6_000)]
    value = {"rows": rows, "by_name": {row["name"]: row for row in rows}, "places": [7] * 70_000}
    shelf = {"title": "many", many: value[many], "end": "1"}
    # The first shelf has a list of that name, too.
    store = {"old": {"title": "", "rows": [], "by_name": {}, "places": []}, "new": shelf}
    text = json.dumps(store if is_second else shelf)
    assert len(text) > 200 * 1_000
    output = parse_output_type(Store if is_second else Shelf)
    assert output is not None
    values = PartialValues(output)
    found = [values.add(text[start : start + 10]) for start in range(0, len(text), 10)]
    shelves = [one.new if is_second else one for one in found if one is not NOTHING]
    # Without items cut out, 1.4 times the bytes are parsed.
    assert sum(parsed) < 0.3 * len(text)
    assert sum(converted) < 1.1 * len(text)
    shown = [len(getattr(one, many, None) or ()) for one in shelves]
    assert len(shown) > 25
    assert shown == sorted(shown)
    assert shown[-1] > 0.6 * len(value[many])


def test_a_list_after_a_long_one_grows_too() -> None:
    rows = [{"name": f"item {number}", "price": number} for number in range(1_000)]
    shelf = {"title": "many", "rows": rows, "by_name": {row["name"]: row for row in rows}}
    output = parse_output_type(Shelf)
    assert output is not None
    values = PartialValues(output)
    found = [values.add(piece) for piece in json.dumps(shelf)]
    shown = [len(one.by_name or ()) for one in found if one is not NOTHING]
    assert len([count for count in shown if count]) >= 2


def test_a_text_whose_items_cannot_be_told_apart_is_parsed_as_it_doubles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[int] = []
    tried: list[int] = []
    from_json, convert = partial_values.from_json, partial_conversion._convert_text  # pyright: ignore[reportPrivateUsage]

    def count_parsed(text: bytes, **options: Any) -> Any:
        parsed.append(len(text))
        return from_json(text, **options)

    def count_tried(hint: Any, text: bytes) -> Any:
        tried.append(len(text))
        return convert(hint, text)

    monkeypatch.setattr(partial_values, "from_json", count_parsed)
    monkeypatch.setattr(partial_conversion, "_convert_text", count_tried)
    inner = [{"name": f"item {number}", "rows": []} for number in range(6_000)]
    text = json.dumps({"title": "x", "rows": [{"name": "all", "rows": inner}]})
    output = parse_output_type(Shelf)
    assert output is not None
    values = PartialValues(output)
    found = [values.add(text[start : start + 10]) for start in range(0, len(text), 10)]
    assert sum(parsed) < 2.5 * len(text)
    assert len(tried) == 3
    last = [one for one in found if one is not NOTHING][-1]
    assert len(last.rows[0].rows) > 2_000


@pytest.mark.parametrize("mode", ["schema", "grammar", "prompt"])
def test_a_stream_gives_partial_values_and_the_checked_one_at_the_end(mode: str) -> None:
    good = '{"title": "One long title of an order", "items": [{"name": "x", "price": 5}], "sum": 5}'
    model = Scripted(
        [says('{"title": "a bad one of some length", "items": 5}'), says(good)], capabilities=PLAIN
    )
    agent = Agent(model, output_type=Order, output_mode=mode, storage=Storage(journal=":memory:"))

    async def story() -> list[PartialOutput[Order]]:
        return [one async for one in agent.stream("go") if isinstance(one, PartialOutput)]

    found = asyncio.run(story())
    assert [one.final for one in found] == [False] * (len(found) - 1) + [True]
    assert len(found) > 2
    assert found[0].output.title.startswith("a bad one")
    assert found[-1].output.total == 5
    assert found[-2].output.title == "One long title of an order"


def test_a_stream_that_ends_with_an_error_raises_it_after_the_partial_values() -> None:
    model = Scripted(
        [says('{"title": "a bad one of some length", "items": 5}')], capabilities=PLAIN
    )
    agent = Agent(model, output_type=Order, output_retries=0, storage=Storage(journal=":memory:"))
    found: list[Any] = []

    async def story() -> None:
        async for one in agent.stream("go"):
            found.append(one)

    with pytest.raises(OutputInvalid):
        asyncio.run(story())
    assert any(isinstance(one, PartialOutput) and not one.final for one in found)
