"""Typed access to JSON from other systems: a value of the wrong type counts as empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def mapping_or_empty(value: Any) -> Mapping[str, Any]:
    """Return a value if it is an object, else an empty mapping."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def list_or_empty(value: Any) -> list[Any]:
    """Return a value if it is a list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def objects_in(value: Any) -> list[Mapping[str, Any]]:
    """Return the objects in a list, leaving out everything else."""
    return [mapping_or_empty(item) for item in list_or_empty(value) if isinstance(item, Mapping)]


def text_or_empty(value: Any) -> str:
    """Return a value if it is text, else an empty string."""
    return value if isinstance(value, str) else ""
