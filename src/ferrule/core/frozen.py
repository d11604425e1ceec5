"""Values: classes of fields that nobody changes once they are made.

What `dataclass(frozen=True, slots=True)` is to a type checker. At run time a change is not refused:
what refuses it makes every value slower to build. Most of the time that loading these modules would
take goes into writing methods, a compilation each. So equality, hash and text are functions that
all these classes share, and `__init__` is written when a class is first called or looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a class of annotated fields one of values, equal if they are of one class and all fields
    are.
    """
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    made.__fields__ = tuple([one.name for one in fields(made)])
    made.__init__ = _Unwritten(made)
    made.__eq__, made.__hash__ = _equal, _hash
    if cls.__repr__ is object.__repr__:
        made.__repr__ = _text
    return made


class _Unwritten:
    """Stands where the `__init__` of a class will be, until somebody asks for it."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __get__(self, instance: object, owner: type) -> Any:
        # Two threads may both write it; what they write does the same.
        init: Any = _init_of(self._made)
        self._made.__init__ = init
        return init.__get__(instance, owner)


def _init_of(made: Any) -> Callable[..., None]:
    """What `dataclass` would have written: a parameter for each field, those of `kw_only` after the
    others.
    """
    scope: dict[str, Any] = {}
    positional, by_name, body = ["self"], ["*"], list[str]()
    for one in fields(made):
        name, value = one.name, one.name
        parameter = name
        if one.default is not MISSING:
            scope[f"_{name}"] = one.default
            parameter = f"{name}=_{name}"
        elif one.default_factory is not MISSING:
            scope[f"_{name}"], scope["MISSING"] = one.default_factory, MISSING
            parameter, value = f"{name}=MISSING", f"_{name}() if {name} is MISSING else {name}"
        (by_name if one.kw_only else positional).append(parameter)
        body.append(f"self.{name}={value}")
    if hasattr(made, "__post_init__"):
        body.append("self.__post_init__()")
    head = ",".join(positional + (by_name if len(by_name) > 1 else []))
    exec(f"def __init__({head}): {'; '.join(body) or 'pass'}", scope)
    init = scope["__init__"]
    init.__qualname__ = f"{made.__qualname__}.__init__"
    return init


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
