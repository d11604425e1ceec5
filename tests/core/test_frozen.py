"""Values: what `core.value_class` makes of a class."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import KW_ONLY, FrozenInstanceError, asdict, field, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from ferrule.core.value_class import frozen, mutable

T = TypeVar("T")


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


def test_a_value_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match="`x` cannot be changed"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="`y` cannot be changed"):
        del point.y  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="`z` cannot be changed"):
        point.z = 3  # type: ignore[attr-defined]
    assert point == Point(1)


def test_values_are_equal_if_they_are_of_one_class_and_all_fields_are() -> None:
    assert Point(1, 2) == Point(1, y=2) and hash(Point(1, 2)) == hash(Point(1, 2))
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, secret="a") != Point(1, secret="b")
    assert Point(1) != Named(1) and Named(1) != Point(1)
    assert Point(1) != (1, 0, (), "")
    assert len({Point(1), Point(1), Point(2)}) == 2


def test_a_value_says_its_fields_but_those_that_are_not_to_be_shown_and_keeps_a_text_of_its_own() -> (
    None
):
    assert repr(Point(1, tags=("a",), secret="hush")) == "Point(x=1, y=0, tags=('a',))"
    assert repr(Named(1, name="here")) == "<here>"


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


@frozen
class Parcel(Point):
    _: KW_ONLY
    to: str
    holds: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        if not self.to:
            raise ValueError("nobody")


class Letter(Parcel):
    """Not one of values itself."""


def test_a_value_is_made_of_its_fields_as_any_class_of_data_is() -> None:
    first, second = Parcel(1, to="a"), Parcel(1, to="a")
    assert first == second and first.holds == [] and first.holds is not second.holds
    assert Parcel(2, 3, ("t",), "s", holds=["x"], to="b").holds == ["x"]
    assert Letter(4, to="c").x == 4
    with pytest.raises(ValueError, match="nobody"):
        Parcel(1, to="")
    make: Any = Parcel
    with pytest.raises(
        TypeError, match=r"Parcel.__init__\(\) missing 1 required keyword-only argument: 'to'"
    ):
        make(1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
        make(1, to="a", weight=3)


def test_who_looks_at_a_class_of_values_before_it_was_called_sees_what_it_takes() -> None:
    @frozen
    class Fresh:
        name: str
        size: int = 3
        seen: tuple[str, ...] = ()

    assert str(inspect.signature(Fresh)) == "(name, size=3, seen=())"
    assert Fresh("a").size == 3


def test_who_asks_for_the_fields_of_a_class_of_values_first_gets_those_of_its_bases_too() -> None:
    @frozen
    class Base(Generic[T]):
        name: str
        hidden: int = field(default=1, compare=False)

    @frozen
    class Derived(Base[T]):
        size: int = 3
        made: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "made", self.size + 1)

    assert [one.name for one in fields(Derived)] == ["name", "hidden", "size", "made"]
    derived: Any = Derived("a")
    assert asdict(derived) == {"name": "a", "hidden": 1, "size": 3, "made": 4}
    assert Derived("a", 2) == Derived("a") and Derived("a", size=2) != Derived("a")
    assert Derived.__match_args__ == ("name", "hidden", "size")
    assert [one.name for one in fields(Base)] == ["name", "hidden"]


def test_a_field_without_a_default_may_not_follow_one_with_it() -> None:
    @frozen
    class Wrong:
        size: int = 3
        name: str  # pyright: ignore[reportGeneralTypeIssues]

    with pytest.raises(TypeError, match="Wrong: a field without a default follows one with it"):
        Wrong(1, "a")


@mutable
class Basket:
    """What is changed while it is used."""

    owner: str
    holds: list[str] = field(default_factory=list[str])


def test_a_mutable_value_takes_changes_has_no_hash_and_is_made_and_compared_as_any_other() -> None:
    first, second = Basket("ann"), Basket("ann")
    first.holds.append("egg")
    assert first != second and second.holds == []
    second.holds = ["egg"]
    assert first == second and repr(first) == "Basket(owner='ann', holds=['egg'])"
    assert pickle.loads(pickle.dumps(first)) == first and replace(first, owner="bob").owner == "bob"
    with pytest.raises(AttributeError):
        first.colour = "red"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)
