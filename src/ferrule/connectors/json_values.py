"""JSON of strangers, taken as the shape it should have: what has another one counts as empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def mapping_of(value: Any) -> Mapping[str, Any]:
    """An object, or an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def list_of(value: Any) -> list[Any]:
    """A list, or an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def objects_of(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list."""
    return [mapping_of(one) for one in list_of(value) if isinstance(one, Mapping)]


def text_of(value: Any) -> str:
    """A text, or an empty one."""
    return value if isinstance(value, str) else ""
