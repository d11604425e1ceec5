"""Convert Python values into JSON values, for results, hooks and events alike.

What is made here can always be written as JSON. JSON has no NaN and no infinite numbers: they
become the texts `NaN`, `Infinity` and `-Infinity`, wherever they came from (a tool's code, or a
number such as `1e999` in an answer of a server).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import inf, isfinite
from os import PathLike, fspath
from typing import Any, cast

_INFINITE = {inf: "Infinity", -inf: "-Infinity"}
_PLAIN = frozenset({str, int, bool, type(None)})


def to_json_value(value: Any, spelled: list[str] | None = None) -> Any:
    """Return a copy of a value that is made of JSON values.

    Text and JSON values stay as they are; enums, dataclasses, pydantic models, sets, dates, paths
    and the like are converted.

    Args:
        value: The value.
        spelled: Is given each number that became a text, since JSON does not have it.

    Raises:
        TypeError: The value has no faithful JSON form (bytes, open files, arbitrary objects).
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return to_json_value(value.value, spelled)
    if isinstance(value, float):
        return value if isfinite(value) else _spell(value, spelled)
    if isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value)
        return {str(key): to_json_value(item, spelled) for key, item in items.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json_value(item, spelled) for item in cast("list[Any]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_json_value(getattr(value, one.name), spelled) for one in fields(value)}
    return _convert_object(value, spelled)


def _spell(number: float, spelled: list[str] | None) -> str:
    text = _INFINITE.get(number, "NaN")
    if spelled is not None:
        spelled.append(text)
    return text


def _convert_object(value: Any, spelled: list[str] | None) -> Any:
    # Rare, and `uuid` and `decimal` would slow every start down.
    from datetime import date, time, timedelta
    from decimal import Decimal
    from uuid import UUID

    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return to_json_value(dump(mode="json"), spelled)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (timedelta, UUID, Decimal)):
        return str(value)
    if isinstance(value, PathLike):
        return str(fspath(cast("PathLike[str]", value)))
    raise TypeError(
        f"a {type(value).__name__} cannot be written as JSON; return text, numbers, lists or dicts"
    )
