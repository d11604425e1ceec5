"""Values: classes of fields that nobody changes once they are made.

What `dataclass(frozen=True, slots=True)` is to a type checker. At run time a change is not refused: what refuses it makes every
value slower to build, and most of the time that loading these modules takes goes into writing such methods, a compilation each. So
only `__init__` is compiled, and equality, hash and text are functions that all of them share.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class of annotated fields one of values, equal if they are of one class and all fields are."""
    made: Any = dataclass(repr=False, eq=False, slots=True)(cls)
    made.__fields__ = tuple([one.name for one in fields(made)])
    made.__eq__, made.__hash__ = _equal, _hash
    if cls.__repr__ is object.__repr__:
        made.__repr__ = _text
    return made


def _equal(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    names = self.__fields__
    return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]


def _hash(self: Any) -> int:
    return hash(tuple([getattr(self, name) for name in self.__fields__]))


def _text(self: Any) -> str:
    shown = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"
