"""The output types: each with a value as JSON, another value, and one that does not fit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, Optional
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, RootModel
from typing_extensions import TypedDict


class Asked(NamedTuple):
    """An output type; `value` is what `good` means."""

    name: str
    type: Any
    good: str
    value: Any
    other: str
    bad: str


class Flat(BaseModel):
    name: str
    age: int
    height: float
    married: bool
    city: str | None = None


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    code: str
    count: int


class Line(BaseModel):
    text: str
    price: Decimal


class Invoice(BaseModel):
    number: str
    lines: list[Line]
    paid: date | None = None


class Tree(BaseModel):
    label: str
    children: list[Tree] = []


class Linked(BaseModel):
    value: int
    next: Optional[Linked] = None  # noqa: UP045  as people write it


@dataclass
class Point:
    x: float
    y: float


@dataclass
class Path:
    name: str
    points: list[Point]
    closed: bool = False


class Row(TypedDict):
    key: str
    count: int
    note: NotRequired[str]


class Table(TypedDict):
    title: str
    rows: list[Row]


class Colour(Enum):
    RED = "red"
    GREEN = "green"
    REDDISH = "reddish"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


Many = Enum("Many", {f"ITEM_{number}": f"item-{number}" for number in range(200)})


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


class Owner(BaseModel):
    name: str
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Bounded(BaseModel):
    share: Annotated[float, Field(ge=0, le=1)]
    code: Annotated[str, Field(pattern=r"^[A-Z]{3}$")]
    tags: Annotated[list[str], Field(min_length=1, max_length=3)]


class Times(BaseModel):
    day: date
    at: datetime
    hour: time
    lasts: timedelta


class Named(BaseModel):
    model_config = ConfigDict(populate_by_name=False)
    kind: str = Field(alias="Art des Dings")
    size: int = Field(alias="größe")


class Words(RootModel[list[str]]):
    """A list of words."""


class Deep(BaseModel):
    a: dict[str, dict[str, list[dict[str, int]]]]


class Wide(BaseModel):
    f0: int
    f1: int
    f2: str
    f3: str
    f4: bool
    f5: bool
    f6: float
    f7: list[int]
    f8: dict[str, str]
    f9: None


def _of(name: str, asked: Any, value: Any, good: Any, other: Any, bad: Any) -> Asked:
    texts = [one if isinstance(one, str) else json.dumps(one) for one in (good, other, bad)]
    return Asked(name, asked, texts[0], value, texts[1], texts[2])


FLAT = {"name": "Ada", "age": 36, "height": 1.7, "married": True, "city": None}
OBJECT = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
EXACT = "0.1234567890123456789012345"
BIG = 10**40 + 1

ASKED: list[Asked] = [
    _of("flat model", Flat, Flat(**FLAT), FLAT, {**FLAT, "age": 37}, {**FLAT, "age": "old"}),
    _of(
        "strict model",
        Strict,
        Strict(code="a", count=1),
        {"code": "a", "count": 1},
        {"code": "b", "count": 1},
        {"code": "a"},
    ),
    _of(
        "nested model",
        Invoice,
        Invoice(number="7", lines=[Line(text="x", price=Decimal("9.50"))], paid=date(2026, 1, 2)),
        '{"number":"7","lines":[{"text":"x","price":"9.50"}],"paid":"2026-01-02"}',
        {"number": "8", "lines": []},
        {"number": "7", "lines": [{"text": "x"}]},
    ),
    _of(
        "recursive model",
        Tree,
        Tree(label="a", children=[Tree(label="b")]),
        {"label": "a", "children": [{"label": "b"}]},
        {"label": "c"},
        {"label": "a", "children": [{}]},
    ),
    _of(
        "linked list",
        Linked,
        Linked(value=1, next=Linked(value=2)),
        {"value": 1, "next": {"value": 2}},
        {"value": 3},
        {"value": "x"},
    ),
    _of("dataclass", Point, Point(1.5, 2.0), {"x": 1.5, "y": 2.0}, {"x": 0, "y": 0}, {"x": 1}),
    _of(
        "nested dataclass",
        Path,
        Path("p", [Point(0.5, 1.5)]),
        {"name": "p", "points": [{"x": 0.5, "y": 1.5}]},
        {"name": "q", "points": []},
        {"name": "p", "points": 5},
    ),
    _of(
        "typed dict",
        Row,
        {"key": "k", "count": 2},
        {"key": "k", "count": 2},
        {"key": "l", "count": 2},
        {"key": "k"},
    ),
    _of(
        "nested typed dict",
        Table,
        {"title": "t", "rows": [{"key": "k", "count": 2, "note": "n"}]},
        {"title": "t", "rows": [{"key": "k", "count": 2, "note": "n"}]},
        {"title": "u", "rows": []},
        {"title": "t", "rows": [{"key": "k"}]},
    ),
    _of("integer", int, 42, {"value": 42}, {"value": 43}, {"value": "many"}),
    _of("big integer", int, BIG, f'{{"value":{BIG}}}', {"value": 1}, {"value": 1.5}),
    _of("number", float, 2.5, {"value": 2.5}, {"value": 3.5}, {"value": "x"}),
    _of("boolean", bool, True, {"value": True}, {"value": False}, {"value": "perhaps"}),
    _of(
        "exact decimal",
        Decimal,
        Decimal(EXACT),
        f'{{"value":{EXACT}}}',
        {"value": 1},
        {"value": "x"},
    ),
    _of(
        "date",
        date,
        date(2026, 2, 28),
        {"value": "2026-02-28"},
        {"value": "2026-03-01"},
        {"value": "2026-02-30"},
    ),
    _of(
        "times",
        Times,
        Times(
            day=date(2026, 1, 2),
            at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
            hour=time(5, 6),
            lasts=timedelta(hours=1),
        ),
        {"day": "2026-01-02", "at": "2026-01-02T03:04:00Z", "hour": "05:06:00", "lasts": "PT1H"},
        {"day": "2026-01-03", "at": "2026-01-02T03:04:00Z", "hour": "05:06:00", "lasts": "PT1H"},
        {"day": "soon"},
    ),
    _of(
        "uuid",
        UUID,
        UUID(int=5),
        {"value": str(UUID(int=5))},
        {"value": str(UUID(int=6))},
        {"value": "5"},
    ),
    _of(
        "choice",
        Literal["yes", "no", "none"],
        "no",
        {"value": "no"},
        {"value": "yes"},
        {"value": "nay"},
    ),
    _of("choice of numbers", Literal[1, 2, 3], 2, {"value": 2}, {"value": 3}, {"value": 4}),
    _of(
        "enumeration", Colour, Colour.RED, {"value": "red"}, {"value": "reddish"}, {"value": "blue"}
    ),
    _of("number enumeration", Level, Level.HIGH, {"value": 2}, {"value": 1}, {"value": 9}),
    _of(
        "enumeration of 200",
        Many,
        Many("item-150"),
        {"value": "item-150"},
        {"value": "item-15"},
        {"value": "item-200"},
    ),
    _of(
        "list of integers",
        list[int],
        [1, 2, 3],
        {"value": [1, 2, 3]},
        {"value": [1]},
        {"value": [1, "x"]},
    ),
    _of(
        "list of models",
        list[Strict],
        [Strict(code="a", count=1)],
        {"value": [{"code": "a", "count": 1}]},
        {"value": []},
        {"value": [{"code": "a", "count": None}]},
    ),
    _of(
        "list of lists",
        list[list[int]],
        [[1], [2, 3]],
        {"value": [[1], [2, 3]]},
        {"value": [[]]},
        {"value": [1]},
    ),
    _of("set", set[str], {"a", "b"}, {"value": ["a", "b"]}, {"value": ["a"]}, {"value": "a b"}),
    _of(
        "pair", tuple[int, str], (1, "a"), {"value": [1, "a"]}, {"value": [2, "a"]}, {"value": [1]}
    ),
    _of("map", dict[str, int], {"a": 1, "b": 2}, {"a": 1, "b": 2}, {"a": 1}, {"a": "x"}),
    _of(
        "map of models",
        dict[str, Point],
        {"a": Point(1, 2)},
        {"a": {"x": 1, "y": 2}},
        {"b": {"x": 1, "y": 2}},
        {"a": {"x": 1}},
    ),
    _of(
        "deep map",
        Deep,
        Deep(a={"b": {"c": [{"d": 1}]}}),
        {"a": {"b": {"c": [{"d": 1}]}}},
        {"a": {}},
        {"a": {"b": {"c": [{"d": "x"}]}}},
    ),
    _of(
        "union of models",
        [Point, Strict],
        Strict(code="a", count=1),
        {"value": {"code": "a", "count": 1}},
        {"value": {"x": 1, "y": 2}},
        {"value": {"code": "a"}},
    ),
    _of(
        "union by kind",
        Owner,
        Owner(name="o", pet=Dog(kind="dog", tricks=["sit"])),
        {"name": "o", "pet": {"kind": "dog", "tricks": ["sit"]}},
        {"name": "o", "pet": {"kind": "cat", "lives": 9}},
        {"name": "o", "pet": {"kind": "cow"}},
    ),
    _of(
        "optional model",
        Point | None,
        Point(1, 2),
        {"value": {"x": 1, "y": 2}},
        {"value": None},
        {"value": {"x": 1}},
    ),
    _of("number or list", int | list[int], [1], {"value": [1]}, {"value": 1}, {"value": "x"}),
    _of(
        "constraints",
        Bounded,
        Bounded(share=0.5, code="ABC", tags=["t"]),
        {"share": 0.5, "code": "ABC", "tags": ["t"]},
        {"share": 1, "code": "ABC", "tags": ["t"]},
        {"share": 1.5, "code": "ABC", "tags": ["t"]},
    ),
    _of(
        "names of other languages",
        Named,
        Named(**{"Art des Dings": "Öl", "größe": 3}),
        {"Art des Dings": "Öl", "größe": 3},
        {"Art des Dings": "水", "größe": 3},
        {"kind": "x", "size": 3},
    ),
    _of(
        "root model", Words, Words(["a", "b"]), {"value": ["a", "b"]}, {"value": []}, {"value": [1]}
    ),
    _of(
        "wide model",
        Wide,
        Wide(f0=1, f1=2, f2="a", f3="b", f4=True, f5=False, f6=1.5, f7=[1], f8={"a": "b"}, f9=None),
        {
            "f0": 1,
            "f1": 2,
            "f2": "a",
            "f3": "b",
            "f4": True,
            "f5": False,
            "f6": 1.5,
            "f7": [1],
            "f8": {"a": "b"},
            "f9": None,
        },
        {
            "f0": 2,
            "f1": 2,
            "f2": "a",
            "f3": "b",
            "f4": True,
            "f5": False,
            "f6": 1.5,
            "f7": [1],
            "f8": {"a": "b"},
            "f9": None,
        },
        {"f0": 1},
    ),
    _of("JSON Schema", OBJECT, {"n": 1}, {"n": 1}, {"n": 2}, {"n": "x"}),
    _of(
        "JSON Schema of a list",
        {"type": "array", "items": OBJECT},
        [{"n": 1}],
        {"value": [{"n": 1}]},
        {"value": []},
        {"value": [{}]},
    ),
]
