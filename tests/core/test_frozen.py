"""Values: what `core.frozen` makes of a class."""

from __future__ import annotations

import pickle
from dataclasses import field, fields, replace
from typing import ClassVar

import pytest

from ferrule.core.frozen import frozen


@frozen
class Point:
    """Where."""

    kind: ClassVar[str] = "point"
    x: int
    y: int = 0
    tags: tuple[str, ...] = ()
    secret: str = field(default="", repr=False)


@frozen
class Named(Point):
    name: str = ""

    def __repr__(self) -> str:
        return f"<{self.name}>"


@pytest.mark.proves("core.values")
def test_values_are_equal_if_they_are_of_one_class_and_all_fields_are() -> None:
    assert Point(1, 2) == Point(1, y=2) and hash(Point(1, 2)) == hash(Point(1, 2))
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, secret="a") != Point(1, secret="b")
    assert Point(1) != Named(1) and Named(1) != Point(1)
    assert Point(1) != (1, 0, (), "")
    assert len({Point(1), Point(1), Point(2)}) == 2


@pytest.mark.proves("core.values")
def test_a_value_says_its_fields_but_those_that_are_not_to_be_shown_and_keeps_a_text_of_its_own() -> None:
    assert repr(Point(1, tags=("a",), secret="hush")) == "Point(x=1, y=0, tags=('a',))"
    assert repr(Named(1, name="here")) == "<here>"


@pytest.mark.proves("core.values")
def test_a_value_has_no_other_fields_and_can_be_taken_apart_copied_and_packed() -> None:
    point = Point(1, 2)
    with pytest.raises(AttributeError):
        point.colour = "red"  # pyright: ignore[reportAttributeAccessIssue]
    match point:
        case Point(x, y):
            assert (x, y) == (1, 2)
    assert replace(point, y=3) == Point(1, 3)
    assert [one.name for one in fields(point)] == ["x", "y", "tags", "secret"]
    assert pickle.loads(pickle.dumps(point)) == point
