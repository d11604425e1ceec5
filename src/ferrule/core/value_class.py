"""The decorators for value classes: `frozen`, `mutable` and `options`.

To a type checker and to its callers `frozen` is `dataclass(frozen=True, slots=True)`: a change
raises `FrozenInstanceError`. What a field refers to is not frozen; use tuples and read-only
mappings. `mutable` is `dataclass(slots=True)`. `options` is `frozen` for what people write by name:
it explains names that it does not have.

Start-up is why this exists: `dataclass` reads each field and compiles each method it generates,
which is most of the time that these modules would take to load. Here all classes share functions
for equality, hash and representation. `__init__` is made when a class is first called or inspected,
of code that all classes of the same shape share; what `dataclasses` knows of a class is made when
it is first asked. `docs/decisions.md` has the measurements, with `msgspec` beside them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import cache
from inspect import signature
from types import CodeType, FunctionType
from typing import Any, TypeVar, cast, dataclass_transform

from .similar_names import explain_unknown_options

T = TypeVar("T")

_Declared = tuple[Any, Any, bool]
"""A field's annotation, what stands behind it (`MISSING` if nothing), and whether it is
keyword-only.
"""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """Make a value class of a class with annotated fields.

    Two values are equal if they have the same class and equal fields, those declared with
    `compare=False` apart. `order`, `hash` and `eq` are not supported, nor are annotations that are
    no text: the class's module imports `annotations` from `__future__`.
    """
    new_class = _add_methods(cls)
    new_class.__hash__ = _hash
    new_class.__setattr__ = _refuse_change
    new_class.__delattr__ = _refuse_change
    new_class.__setstate__ = _restore
    return new_class


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def options(cls: type[T]) -> type[T]:
    """Make a value class as `frozen` does, whose TypeError for an unknown option leads to others.

    It names the nearest options, lists all, and ends with the `unknown_hint` of the class.
    """
    new_class: Any = frozen(cls)
    new_class.__explains__ = True
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
    """Return the class made anew, with a slot for each field."""
    declared = _read_declarations(cls)
    body = {name: value for name, value in vars(cls).items() if name not in declared}
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    inherited = {name for base in cls.__mro__[1:] for name in vars(base).get("__slots__", ())}
    body["__slots__"] = tuple([name for name in declared if name not in inherited])
    body["__qualname__"] = cls.__qualname__
    body["__declared__"] = declared
    body["__fields__"] = tuple(
        [name for name, (_, value, _) in declared.items() if getattr(value, "compare", True)]
    )
    body["__match_args__"] = tuple(
        [name for name, (_, value, by_name) in declared.items() if not by_name and _is_given(value)]
    )
    body["__init__"] = _LazyInit()
    body["__eq__"] = _equal
    if cls.__repr__ is object.__repr__:
        body["__repr__"] = _repr
    for name in _LazyDataclass.NAMES:
        body[name] = _LazyDataclass(name)
    return type(cls)(cls.__name__, cls.__bases__, body)


def _read_declarations(cls: type) -> dict[str, _Declared]:
    """Return the declarations of a class's fields by name, those of its bases first."""
    declared: dict[str, _Declared] = {}
    for base in cls.__mro__[-1:0:-1]:
        namespace = vars(base)
        if "__declared__" in namespace:
            declared |= namespace["__declared__"]
        elif "__dataclass_fields__" in namespace:
            declared |= {
                item.name: (item.type, item, item.kw_only is True) for item in fields(base)
            }
    keyword_only = False
    for name, hint in cls.__annotations__.items():
        if hint == "KW_ONLY":
            keyword_only = True
        elif not hint.startswith("ClassVar"):
            value = vars(cls).get(name, MISSING)
            by_name = keyword_only
            if isinstance(value, Field) and value.kw_only is not MISSING:
                by_name = value.kw_only
            declared[name] = (hint, value, by_name)
    return declared


def _is_given(value: Any) -> bool:
    """Whether `__init__` takes a field: `__post_init__` sets one that it does not take."""
    return not isinstance(value, Field) or value.init


def list_fields(cls: Any) -> list[tuple[str, Any, Any, Mapping[Any, Any]]]:
    """Return name, annotation, default (or `MISSING`) and metadata of each field of a value class.

    As `dataclasses.fields` does, which reads the whole class when it is first asked.
    """
    return [
        (name, hint, _read_default(value)[0], getattr(value, "metadata", {}))
        for name, (hint, value, _) in cls.__declared__.items()
    ]


class _LazyInit:
    """A descriptor that replaces itself with the class's `__init__` on first access."""

    def __set_name__(self, owner: Any, name: str) -> None:
        self._class: Any = owner

    def __get__(self, instance: object, owner: type) -> Any:
        # Two threads may both make it; the results do the same.
        init: Any = _make_init(self._class)
        self._class.__init__ = init
        return init.__get__(instance, owner)


class _LazyDataclass:
    """A descriptor for what `dataclasses` knows of a class; it replaces itself on first access."""

    NAMES = ("__dataclass_fields__", "__dataclass_params__")

    def __init__(self, name: str) -> None:
        self._name = name

    def __set_name__(self, owner: Any, name: str) -> None:
        self._class: Any = owner

    def __get__(self, instance: object, owner: type) -> Any:
        declared = self._class.__declared__
        hints = self._class.__annotations__
        own = {name: declared[name][1] for name in hints if name in declared}

        def fill(body: dict[str, Any]) -> None:
            body.update({name: value for name, value in own.items() if value is not MISSING})
            body["__annotations__"] = hints
            body["__doc__"] = "Of the same fields."
            body["__module__"] = self._class.__module__

        namespace = cast("dict[str, Any]", vars(self._class))
        bases = namespace.get("__orig_bases__", self._class.__bases__)
        make: Any = dataclass(init=False, repr=False, eq=False)
        twin = make(types.new_class(self._class.__name__, bases, {}, fill))
        for name in self.NAMES:
            setattr(self._class, name, getattr(twin, name))
        return getattr(twin, self._name)


def _make_init(new_class: Any) -> Callable[..., None]:
    """Make the `__init__` of `dataclass`: a parameter per field, keyword-only ones last."""
    given = {name: one for name, one in new_class.__declared__.items() if _is_given(one[1])}
    positional = [name for name, (_, _, by_name) in given.items() if not by_name]
    keyword_only = [name for name, (_, _, by_name) in given.items() if by_name]
    scope: dict[str, Any] = {"MISSING": MISSING}
    defaults: dict[str, Any] = {}
    makers = ""
    for index, name in enumerate([*positional, *keyword_only]):
        value, factory = _read_default(given[name][1])
        makers += "v" if factory is MISSING else "f"
        if factory is not MISSING:
            scope[f"make{index}"] = factory
        if value is not MISSING or factory is not MISSING:
            defaults[name] = value
        scope[f"set{index}"] = getattr(new_class, name).__set__
    required = [name for name in positional if name not in defaults]
    if required != positional[: len(required)]:
        raise TypeError(f"{new_class.__qualname__}: a field without a default follows one with it")
    explains = getattr(new_class, "__explains__", False)
    code = _compile_init(makers, len(keyword_only), hasattr(new_class, "__post_init__"), explains)
    qualified = f"{new_class.__qualname__}.__init__"
    names = ("self", *positional, *keyword_only)
    names += code.co_varnames[len(names) :]
    code = code.replace(co_varnames=names, co_qualname=qualified)
    tail = tuple([defaults.pop(name) for name in positional if name in defaults])
    init = FunctionType(code, scope, "__init__", tail)
    init.__kwdefaults__ = defaults
    init.__qualname__ = qualified
    if explains:
        scope["refuse"] = _refuse_unknown
        shown = signature(init)
        parameters = [one for one in shown.parameters.values() if one.name != _UNKNOWN]
        init.__signature__ = shown.replace(parameters=parameters)  # type: ignore[attr-defined]
    return init


_UNKNOWN = "unknown_options"


def _refuse_unknown(value: Any, unknown: Mapping[str, object]) -> None:
    names = [name for name, (_, one, _) in value.__declared__.items() if _is_given(one)]
    said = explain_unknown_options(list(unknown), names)
    hint = getattr(value, "unknown_hint", "")
    raise TypeError(f"{type(value).__name__}: {said}{'; ' if hint else ''}{hint}")


def _read_default(value: Any) -> tuple[Any, Any]:
    """Return the default that stands behind a field's annotation, and the factory of one."""
    if not isinstance(value, Field):
        return value, MISSING
    declared = cast("Field[Any]", value)
    return declared.default, declared.default_factory


@cache
def _compile_init(makers: str, keyword_only: int, has_end: bool, explains: bool) -> CodeType:
    """Compile the `__init__` of all classes of a shape.

    Args:
        makers: A letter per parameter: `f` if a factory makes its default, else `v`.
        keyword_only: How many of the last parameters are keyword-only.
        has_end: Whether `__post_init__` follows.
        explains: Whether unknown names are explained.
    """
    names = [f"a{index}" for index in range(len(makers))]
    body = [
        f"set{index}(self, make{index}() if a{index} is MISSING else a{index})"
        if maker == "f"
        else f"set{index}(self, a{index})"
        for index, maker in enumerate(makers)
    ]
    if has_end:
        body.append("self.__post_init__()")
    if keyword_only:
        names.insert(len(names) - keyword_only, "*")
    if explains:
        names.append(f"**{_UNKNOWN}")
        body.insert(0, f"if {_UNKNOWN}: refuse(self, {_UNKNOWN})")
    scope: dict[str, Any] = {}
    lines = "\n ".join(body) or "pass"
    exec(f"def __init__({','.join(['self', *names])}):\n {lines}", scope)
    return scope["__init__"].__code__


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
