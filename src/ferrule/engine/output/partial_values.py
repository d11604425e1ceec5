"""Values while they arrive: the output type with what has come so far.

* Texts grow. Everything else (numbers, enumerations, dates, ...) is there only once it is whole,
  which is known when something follows it.
* What has not come is missing from dictionaries and lists; a field of an object has its default
  then, or None.
* The cost is linear in the bytes: the text is parsed again only when it has grown by a share of
  itself, and a part that is whole is converted once.
"""

from __future__ import annotations

import dataclasses
import re
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

from .output_type import VALUE, OutputType

FIRST_STEP = 32
"""Characters that must arrive before the text is parsed the first time, and between two times."""

EARLY_LENGTH = 8_192
"""Up to this length, text is parsed when it has grown by a quarter; later, when it is two and a
half times as long.
"""

NOTHING: Any = object()
"""Stands for a value that has not arrived."""

_START = re.compile(r"\{\s*[\"}]|\[")


class PartialValues:
    """The values of one answer while its text arrives."""

    def __init__(self, output: OutputType) -> None:
        self._output = output
        self.reset()

    def reset(self) -> None:
        """Begin with another answer."""
        self._pieces: list[str] = []
        self._length = 0
        self._next = FIRST_STEP
        self._text = ""
        self._node = _make_node(self._output.hint)
        self._last: Any = NOTHING

    def add(self, piece: str) -> Any:
        """Take a piece of the text. Return the value so far, or NOTHING if there is no new one."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length < self._next:
            return NOTHING
        is_early = self._length < EARLY_LENGTH
        step = max(FIRST_STEP, self._length // 4) if is_early else self._length * 3 // 2
        self._next = self._length + step
        self._text = "".join(self._pieces)
        self._pieces = [self._text]
        return self._convert()

    def _convert(self) -> Any:
        start = _START.search(self._text)
        if start is None:
            return NOTHING
        text = self._text[start.start() :].encode("utf-8", "replace")
        try:
            found: Any = from_json(text, partial_mode="trailing-strings")
        except ValueError:
            return NOTHING
        if self._output.is_wrapped and isinstance(found, dict):
            members = cast("dict[str, Any]", found)
            found = members.get(VALUE, NOTHING) if set(members) <= {VALUE} else members
        # A long text that has grown so much shows more; comparing it would cost too much.
        is_early = self._length < EARLY_LENGTH
        if found is NOTHING or (is_early and found == self._last):
            return NOTHING
        self._last = found if is_early else NOTHING
        return self._node.take(found, last=True)


class _Node:
    """The place of a value that is arriving. It is given the same value again and again, grown."""

    def take(self, value: Any, *, last: bool) -> Any:
        """Return what has arrived as its type, or NOTHING.

        Args:
            value: What has arrived.
            last: Whether it may still grow.
        """
        return value


class _Text(_Node):
    def take(self, value: Any, *, last: bool) -> Any:
        return value if isinstance(value, str) else NOTHING


class _Whole(_Node):
    """A value that is nothing before it is whole."""

    def __init__(self, hint: Any) -> None:
        self._hint = hint

    def take(self, value: Any, *, last: bool) -> Any:
        return NOTHING if last else _validate(self._hint, value)


class _Items(_Node):
    def __init__(self, item: Any, build: Callable[[list[Any]], Any]) -> None:
        self._item = item
        self._build = build
        self._done: list[Any] = []
        self._growing = _make_node(item)

    def take(self, value: Any, *, last: bool) -> Any:
        if not isinstance(value, list):
            return NOTHING
        items = cast("list[Any]", value)
        whole = len(items) - 1 if last else len(items)
        if whole > len(self._done):
            self._done += self._convert_whole(items[len(self._done) : whole])
            self._growing = _make_node(self._item)
        shown = list(self._done)
        if last and items:
            shown.append(self._growing.take(items[-1], last=True))
        return self._build([item for item in shown if item is not NOTHING])

    def _convert_whole(self, items: list[Any]) -> list[Any]:
        """Convert items at once, or one by one if one of them does not fit."""
        converted = _validate(list[self._item], items)
        if converted is not NOTHING:
            return converted
        return [_convert_whole(self._item, item) for item in items]


class _Members(_Node):
    """An object: `hints` are the types of its members, `build` makes it of those that arrived."""

    def __init__(
        self, find_hint: Callable[[str], Any], build: Callable[[dict[str, Any]], Any]
    ) -> None:
        self._find_hint = find_hint
        self._build = build
        self._done: dict[str, Any] = {}
        self._growing: tuple[str, _Node] | None = None

    def take(self, value: Any, *, last: bool) -> Any:
        if not isinstance(value, dict):
            return NOTHING
        members = cast("dict[str, Any]", value)
        names = list(members)
        whole = len(names) - 1 if last else len(names)
        for name in names[len(self._done) : whole]:
            self._done[name] = _convert_whole(self._find_hint(name), members[name])
        shown = dict(self._done)
        if last and names:
            name = names[-1]
            if self._growing is None or self._growing[0] != name:
                self._growing = (name, _make_node(self._find_hint(name)))
            shown[name] = self._growing[1].take(members[name], last=True)
        return self._build({name: item for name, item in shown.items() if item is not NOTHING})


class _OneOf(_Node):
    """A union: the first member that what has arrived may be."""

    def __init__(self, hint: Any, members: Collection[Any]) -> None:
        self._hint = hint
        self._members = members
        self._chosen: _Node | None = None

    def take(self, value: Any, *, last: bool) -> Any:
        if not last:
            return _validate(self._hint, value)
        if isinstance(value, dict) and self._chosen is None:
            names = set(cast("dict[str, Any]", value))
            fitting = [one for one in self._members if _may_have(one, names)]
            if len(fitting) != 1:
                return NOTHING
            self._chosen = _make_node(fitting[0])
        if self._chosen is not None:
            return self._chosen.take(value, last=True)
        if isinstance(value, str):
            return value if str in self._members else NOTHING
        for member in self._members:
            if isinstance(value, list) and get_origin(member) is list:
                return _make_node(member).take(value, last=True)
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
    names = {field.alias or name: name for name, field in hint.model_fields.items()}
    hints = {alias: hint.model_fields[name].annotation for alias, name in names.items()}

    def build(got: dict[str, Any]) -> Any:
        arrived = {names[alias]: value for alias, value in got.items() if alias in names}
        missing = {
            name: None
            for name, field in hint.model_fields.items()
            if name not in arrived and field.is_required()
        }
        return hint.model_construct(set(arrived), **arrived, **missing)

    return _Record(hints, build)


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


def _make_node(hint: Any) -> _Node:
    """Return the place of a value of this type."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _make_node(get_args(hint)[0])
    if hint in (Any, object, None):
        return _Node()
    if hint is str:
        return _Text()
    if origin in (Union, UnionType):
        return _make_union(hint)
    arguments = get_args(hint)
    if origin in (list, set, frozenset) or hint in (list, set, frozenset):
        return _Items(arguments[0] if arguments else Any, origin or hint)
    if origin is dict or hint is dict:
        item = arguments[1] if arguments else Any
        return _Members(lambda name: item, dict)
    record = _read_record(hint)
    if record is None:
        return _Whole(hint)
    return _Members(lambda name: record.hints.get(name, Any), record.build)


def _make_union(hint: Any) -> _Node:
    members = [one for one in get_args(hint) if one is not NoneType]
    return _make_node(members[0]) if len(members) == 1 else _OneOf(hint, members)


def _convert_whole(hint: Any, value: Any) -> Any:
    """Return a whole value as its type; as far as that goes if it does not fit."""
    converted = _validate(hint, value)
    return _make_node(hint).take(value, last=False) if converted is NOTHING else converted


def _validate(hint: Any, value: Any) -> Any:
    from pydantic import ValidationError

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
