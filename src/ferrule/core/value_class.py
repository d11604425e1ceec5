"""The decorators for value classes: `frozen` and `mutable`.

To a type checker and to its callers `frozen` is `dataclass(frozen=True, slots=True)`: a change
raises `FrozenInstanceError`. What a field refers to is not frozen; use tuples and read-only
mappings. `mutable` is `dataclass(slots=True)`.

Start-up is why this exists: `dataclass` compiles each method it generates, which is most of the
time that these modules would take to load. Here all classes share functions for equality, hash and
representation, and `__init__` is generated when a class is first called or inspected.
`docs/decisions.md` has the measurements, with `msgspec` beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a value class of a class with annotated fields.

    Two values are equal if they have the same class and equal fields, those declared with
    `compare=False` apart. `order`, `hash` and `eq` are not supported.
    """
    new_class = _add_methods(cls)
    new_class.__hash__ = _hash
    new_class.__setattr__ = _refuse_change
    new_class.__delattr__ = _refuse_change
    new_class.__setstate__ = _restore
    return new_class


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[T]) -> type[T]:
    """Make a class with annotated fields that can be changed; it has no hash.

    Else as `frozen`.
    """
    new_class = _add_methods(cls)
    new_class.__hash__ = None
    return new_class


def _add_methods(cls: type) -> Any:
    make_slots: Any = dataclass(init=False, repr=False, eq=False, slots=True)
    new_class: Any = make_slots(cls)
    new_class.__fields__ = tuple([item.name for item in fields(new_class) if item.compare])
    new_class.__init__ = _LazyInit(new_class)
    new_class.__eq__ = _equal
    if cls.__repr__ is object.__repr__:
        new_class.__repr__ = _repr
    return new_class


class _LazyInit:
    """A descriptor that replaces itself with the generated `__init__` on first access."""

    def __init__(self, new_class: Any) -> None:
        self._class = new_class

    def __get__(self, instance: object, owner: type) -> Any:
        # Two threads may both generate it; the results do the same.
        init: Any = _generate_init(self._class)
        self._class.__init__ = init
        return init.__get__(instance, owner)


def _generate_init(new_class: Any) -> Callable[..., None]:
    """Generate the `__init__` of `dataclass`: a parameter per field, keyword-only ones last."""
    scope: dict[str, Any] = {"MISSING": MISSING}
    positional = ["self"]
    keyword_only = ["*"]
    body: list[str] = []
    for item in fields(new_class):
        name = item.name
        if not item.init:
            continue  # `__post_init__` sets it, with `object.__setattr__`
        parameter = name
        value = name
        if item.default is not MISSING:
            scope[f"_{name}"] = item.default
            parameter = f"{name}=_{name}"
        elif item.default_factory is not MISSING:
            scope[f"_{name}"] = item.default_factory
            parameter = f"{name}=MISSING"
            value = f"_{name}() if {name} is MISSING else {name}"
        parameters = keyword_only if item.kw_only else positional
        parameters.append(parameter)
        scope[f"_set_{name}"] = getattr(new_class, name).__set__
        body.append(f"_set_{name}(self, {value})")
    if hasattr(new_class, "__post_init__"):
        body.append("self.__post_init__()")
    if len(keyword_only) > 1:
        positional += keyword_only
    exec(f"def __init__({','.join(positional)}): {'; '.join(body) or 'pass'}", scope)
    init = scope["__init__"]
    init.__qualname__ = f"{new_class.__qualname__}.__init__"
    return init


def _equal(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    names = self.__fields__
    return [getattr(self, name) for name in names] == [getattr(other, name) for name in names]


def _hash(self: Any) -> int:
    return hash(tuple([getattr(self, name) for name in self.__fields__]))


def _repr(self: Any) -> str:
    shown = [f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_change(self: Any, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"{type(self).__name__} is frozen: `{name}` cannot be changed")


def _restore(self: Any, state: tuple[None, dict[str, Any]]) -> None:
    """Set the fields of a value that `copy` or `pickle` makes."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)
