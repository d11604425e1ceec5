"""Convert Python values into JSON values, for results, hooks and events alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from os import PathLike, fspath
from typing import Any, cast

_PLAIN = frozenset({str, int, float, bool, type(None)})


def to_json_value(value: Any) -> Any:
    """Return a copy of a value that is made of JSON values.

    Text and JSON values stay as they are; enums, dataclasses, pydantic models, sets, dates, paths
    and the like are converted.

    Raises:
        TypeError: The value has no faithful JSON form (bytes, open files, arbitrary objects).
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return to_json_value(value.value)
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value)
        return {str(key): to_json_value(item) for key, item in items.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_json_value(item) for item in cast("list[Any]", value)]
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: to_json_value(getattr(value, one.name)) for one in fields(value)}
    return _convert_object(value)


def _convert_object(value: Any) -> Any:
    # Rare, and `uuid` and `decimal` would slow every start down.
    from datetime import date, time, timedelta
    from decimal import Decimal
    from uuid import UUID

    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return to_json_value(dump(mode="json"))
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, (timedelta, UUID, Decimal)):
        return str(value)
    if isinstance(value, PathLike):
        return str(fspath(cast("PathLike[str]", value)))
    raise TypeError(
        f"a {type(value).__name__} cannot be written as JSON; return text, numbers, lists or dicts"
    )
