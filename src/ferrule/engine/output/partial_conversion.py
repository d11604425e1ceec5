"""Values that are still arriving, by type: what has come of each, converted once.

No code that a person wrote for a type runs: its objects are made of their fields, unchecked.

Each is given the same JSON value again and again, grown. What was whole before is not converted
again. The items of a long list are taken from their text (`GrowingList.take_text`) and are not
in later JSON.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from jiter import from_json

from ferrule.tools.pydantic_schemas import make_portable

from .own_code import runs_own_code

NOTHING: Any = object()
"""Stands for a value that has not arrived."""


class GrowingValue:
    """A value that is arriving: this one is shown as it is."""

    is_cut = False
    """Whether parts of it are not in what it is given any more (`GrowingList.take_text`)."""

    def take(self, value: Any, *, last: bool) -> Any:
        """Return what has arrived as its type, or NOTHING.

        Args:
            value: What has arrived.
            last: Whether it may still grow.
        """
        return value


class _GrowingText(GrowingValue):
    def take(self, value: Any, *, last: bool) -> Any:
        return value if isinstance(value, str) else NOTHING


class _WholeValue(GrowingValue):
    """A value that is nothing before it is whole."""

    def __init__(self, hint: Any) -> None:
        self._hint = hint

    def take(self, value: Any, *, last: bool) -> Any:
        return NOTHING if last else _validate(self._hint, value)


class GrowingList(GrowingValue):
    """A list, or a set."""

    brackets = "[]"

    def __init__(self, item: Any, build: Callable[[list[Any]], Any]) -> None:
        self._item = item
        self._build = build
        self._cut: list[Any] = []
        self._done: list[Any] = []
        self._known = 0
        self._growing = make_growing(item)

    @property
    def is_cut(self) -> bool:
        return bool(self._cut)

    def take(self, value: Any, *, last: bool) -> Any:
        """Return what has arrived. What was cut is not in the value."""
        if not isinstance(value, list):
            return NOTHING
        items = cast("list[Any]", value)
        whole = len(items) - 1 if last else len(items)
        if whole > self._known:
            self._done += self._convert_whole(items[self._known : whole])
            self._known = whole
            self._growing = make_growing(self._item)
        shown = [*self._cut, *self._done]
        if last and items:
            growing = self._growing.take(items[-1], last=True)
            shown += [] if growing is NOTHING else [growing]
        return self._build(shown)

    def take_text(self, text: bytes) -> bool:
        """Take all items that are whole and were not cut before, as JSON, and cut them.

        Returns:
            False if it is no JSON.
        """
        try:
            self._cut += _convert_text(list[self._item], text)
        except ValueError:
            return False
        self._done = []
        self._known = 0
        self._growing = make_growing(self._item)
        return True

    def _convert_whole(self, items: list[Any]) -> list[Any]:
        """Convert items at once, or one by one if one of them does not fit."""
        converted = _validate(list[self._item], items)
        if converted is not NOTHING:
            return converted
        each = (_convert_whole(self._item, item) for item in items)
        return [one for one in each if one is not NOTHING]


class GrowingMap(GrowingValue):
    """A dictionary whose members have any names, and one type."""

    brackets = "{}"

    def __init__(self, item: Any) -> None:
        self._item = item
        self._cut: dict[str, Any] = {}
        self._members = self._begin()

    @property
    def is_cut(self) -> bool:
        return bool(self._cut)

    def take(self, value: Any, *, last: bool) -> Any:
        """Return what has arrived. What was cut is not in the value."""
        members = self._members.take(value, last=last)
        return members if members is NOTHING else {**self._cut, **members}

    def take_text(self, text: bytes) -> bool:
        """Take all members that are whole and were not cut before, as JSON, and cut them.

        Returns:
            False if it is no JSON.
        """
        try:
            self._cut.update(_convert_text(dict[str, self._item], text))
        except ValueError:
            return False
        self._members = self._begin()
        return True

    def _begin(self) -> GrowingObject:
        return GrowingObject(lambda name: self._item, dict)


class GrowingObject(GrowingValue):
    """An object.

    Args:
        find_hint: Returns the type of a member.
        build: Makes the object of those members that arrived.
    """

    def __init__(
        self, find_hint: Callable[[str], Any], build: Callable[[dict[str, Any]], Any]
    ) -> None:
        self.growing: tuple[str, GrowingValue] | None = None
        """The member that may still grow."""
        self._find_hint = find_hint
        self._build = build
        self._done: dict[str, Any] = {}
        self._known = 0
        self._has_cut_member = False

    @property
    def is_cut(self) -> bool:
        return self._has_cut_member or (self.growing is not None and self.growing[1].is_cut)

    def take(self, value: Any, *, last: bool) -> Any:
        if not isinstance(value, dict):
            return NOTHING
        members = cast("dict[str, Any]", value)
        names = list(members)
        whole = len(names) - 1 if last else len(names)
        for name in names[self._known : whole]:
            member = self._finish(name, members[name])
            if member is not NOTHING:
                self._done[name] = member
        self._known = max(self._known, whole)
        shown = self._done.copy()
        if last and names:
            name = names[-1]
            if self.growing is None or self.growing[0] != name:
                self.growing = (name, make_growing(self._find_hint(name)))
            growing = self.growing[1].take(members[name], last=True)
            if growing is not NOTHING:
                shown[name] = growing
        return self._build(shown)

    def _finish(self, name: str, value: Any) -> Any:
        """Return a whole member. If parts of it were cut, only what took them has them."""
        if self.growing is not None and self.growing[0] == name and self.growing[1].is_cut:
            self._has_cut_member = True
            return self.growing[1].take(value, last=False)
        return _convert_whole(self._find_hint(name), value)


class _GrowingUnion(GrowingValue):
    """A union: the first member that what has arrived may be."""

    def __init__(self, hint: Any, members: Collection[Any]) -> None:
        self._hint = hint
        self._members = members
        self._chosen: GrowingValue | None = None

    def take(self, value: Any, *, last: bool) -> Any:
        if not last:
            return _validate(self._hint, value)
        if isinstance(value, dict) and self._chosen is None:
            names = set(cast("dict[str, Any]", value))
            fitting = [one for one in self._members if _may_have(one, names)]
            if len(fitting) != 1:
                return NOTHING
            self._chosen = make_growing(fitting[0])
        if self._chosen is not None:
            return self._chosen.take(value, last=True)
        if isinstance(value, str):
            return value if str in self._members else NOTHING
        for member in self._members:
            if isinstance(value, list) and get_origin(member) is list:
                return make_growing(member).take(value, last=True)
        return NOTHING


def _may_have(hint: Any, names: set[str]) -> bool:
    record = _read_record(hint)
    return record is not None and names <= set(record.hints)


@dataclasses.dataclass(frozen=True)
class _Record:
    """A class with named fields: their types by their names in JSON, and what makes an instance."""

    hints: Mapping[str, Any]
    build: Callable[[dict[str, Any]], Any]


_RECORDS: dict[type, _Record | None] = {}


def _read_record(hint: Any) -> _Record | None:
    if not isinstance(hint, type):
        return None
    record = cast("type[Any]", hint)
    if record not in _RECORDS:
        _RECORDS[record] = _describe_record(record)
    return _RECORDS[record]


def _describe_record(hint: type[Any]) -> _Record | None:
    from typing_extensions import is_typeddict

    if is_typeddict(hint):
        hints = get_type_hints(hint, include_extras=True)
        return _Record({name: _drop_qualifiers(one) for name, one in hints.items()}, dict)
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        names = [one.name for one in dataclasses.fields(hint) if one.init]
        return _Record(
            {name: hints[name] for name in names}, lambda got: _make_dataclass(hint, got)
        )
    return _read_model(hint)


def _drop_qualifiers(hint: Any) -> Any:
    """Return the type of a typed dict's member, without what says whether it must be there."""
    from typing_extensions import ReadOnly

    while get_origin(hint) in (NotRequired, Required, ReadOnly):
        hint = get_args(hint)[0]
    return hint


def _read_model(hint: type) -> _Record | None:
    from pydantic import BaseModel, RootModel

    if not issubclass(hint, BaseModel) or issubclass(hint, RootModel):
        return None
    fields = hint.model_fields
    names = {field.alias or name: name for name, field in fields.items()}
    hints = {alias: fields[name].annotation for alias, name in names.items()}
    missing = {name: None for name, field in fields.items() if field.is_required()}
    own_code = runs_own_code(hint)

    def build(got: dict[str, Any]) -> Any:
        arrived = {names[alias]: value for alias, value in got.items() if alias in names}
        if not own_code:
            return hint.model_construct(set(arrived), **(missing | arrived))
        made = object.__new__(hint)
        object.__setattr__(made, "__dict__", _find_defaults(hint) | missing | arrived)
        object.__setattr__(made, "__pydantic_fields_set__", set(arrived))
        object.__setattr__(made, "__pydantic_extra__", None)
        private = {name: one.default for name, one in hint.__private_attributes__.items()}
        object.__setattr__(made, "__pydantic_private__", private or None)
        return made

    return _Record(hints, build)


def _find_defaults(model: Any) -> dict[str, Any]:
    """Return the defaults of a model's fields; None where a function makes them."""
    return {
        name: None if one.default_factory else one.default
        for name, one in model.model_fields.items()
        if not one.is_required()
    }


def _make_dataclass(cls: Any, got: Mapping[str, Any]) -> Any:
    made = object.__new__(cls)
    for one in dataclasses.fields(cls):
        value = got.get(one.name, NOTHING)
        if value is NOTHING and one.default_factory is not dataclasses.MISSING:
            value = one.default_factory()
        elif value is NOTHING:
            value = None if one.default is dataclasses.MISSING else one.default
        object.__setattr__(made, one.name, value)
    return made


def make_growing(hint: Any) -> GrowingValue:
    """Return the place of a value of this type."""
    origin = get_origin(hint)
    if origin is Annotated:
        return make_growing(get_args(hint)[0])
    if hint in (Any, object, None):
        return GrowingValue()
    if hint is str:
        return _GrowingText()
    if origin in (Union, UnionType):
        return _make_union(hint)
    arguments = get_args(hint)
    if origin in (list, set, frozenset) or hint in (list, set, frozenset):
        return GrowingList(arguments[0] if arguments else Any, origin or hint)
    if origin is dict or hint is dict:
        item = arguments[1] if arguments else Any
        return GrowingMap(item)
    record = _read_record(hint)
    if record is None:
        return _WholeValue(hint)
    return GrowingObject(lambda name: record.hints.get(name, Any), record.build)


def _make_union(hint: Any) -> GrowingValue:
    members = [one for one in get_args(hint) if one is not NoneType]
    return make_growing(members[0]) if len(members) == 1 else _GrowingUnion(hint, members)


def _convert_whole(hint: Any, value: Any) -> Any:
    """Return a whole value as its type; as far as that goes if it does not fit."""
    converted = _validate(hint, value)
    return make_growing(hint).take(value, last=False) if converted is NOTHING else converted


def _convert_text(hint: Any, text: bytes) -> Any:
    """Return JSON as its type; as far as that goes if it does not fit.

    Raises:
        ValueError: It is no JSON.
    """
    from pydantic import ValidationError

    if runs_own_code(hint):
        return make_growing(hint).take(from_json(text), last=False)
    try:
        return _find_adapter(hint).validate_json(text)
    except ValidationError:
        return make_growing(hint).take(from_json(text), last=False)


def _validate(hint: Any, value: Any) -> Any:
    from pydantic import ValidationError

    if runs_own_code(hint):
        return NOTHING
    try:
        return _find_adapter(hint).validate_python(value)
    except ValidationError:
        return NOTHING


_ADAPTERS: dict[Any, Any] = {}


def _find_adapter(hint: Any) -> Any:
    from pydantic import TypeAdapter

    try:
        found = _ADAPTERS.get(hint)
    except TypeError:
        return TypeAdapter(make_portable(hint))
    if found is None:
        found = _ADAPTERS[hint] = TypeAdapter(make_portable(hint))
    return found
