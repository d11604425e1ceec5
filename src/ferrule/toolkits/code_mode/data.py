"""Values that leave a script: they become JSON data, or are refused.

They are counted, so that a small value cannot become a large one on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed

MAX_DEPTH = 100
"""Most levels of nested values."""
MAX_DIGITS = 4_000
"""Most digits of a whole number: Python writes no longer ones."""


class _Counter:
    """Counts how many values and characters there may still be.

    A list that contains itself twice, sixty times over, has 2 ** 60 values.
    """

    def __init__(self, nodes: int, where: str) -> None:
        self.nodes = nodes
        self.left = nodes
        self.characters = 64 * nodes
        self.where = where

    def take(self, value: object, depth: int) -> None:
        self.left -= 1
        if isinstance(value, str):
            self.characters -= len(value)
        if self.left < 0 or self.characters < 0 or depth > MAX_DEPTH:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"{self.where} is too large (more than {self.nodes} values, "
                f"{64 * self.nodes} characters or {MAX_DEPTH} levels); pass the part that is "
                f"needed",
            )


def to_data(value: object, where: str, nodes: int) -> Any:
    """Convert a value to JSON: tuples and sets become lists, keys become text.

    Raises:
        RetryCall: It contains something that is not data; the message names `where`.
        ToolFailed: `limit` if it is too large.
    """
    return _convert(value, _Counter(nodes, where), 0)


def _convert(value: object, counter: _Counter, depth: int) -> Any:
    counter.take(value, depth)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and value.bit_length() < MAX_DIGITS * 3:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, (list, tuple)):
        return [_convert(item, counter, depth + 1) for item in cast("list[object]", value)]
    if isinstance(value, (set, frozenset)):
        items = [_convert(item, counter, depth + 1) for item in cast("set[object]", value)]
        return sorted(items, key=repr)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {
            _convert_key(key, counter, depth + 1): _convert(item, counter, depth + 1)
            for key, item in pairs
        }
    if isinstance(value, (int, float)):
        raise RetryCall(
            f"{counter.where} holds a number that JSON does not have (too long, infinite, or "
            "none); make it text"
        )
    raise RetryCall(
        f"{counter.where} holds a {type(value).__name__}, which is not data; make it text, a "
        "number, a list or a dictionary"
    )


def _convert_key(key: object, counter: _Counter, depth: int) -> str:
    counter.take(key, depth)
    if isinstance(key, str):
        return key
    if key is None or isinstance(key, (bool, int, float)):
        return str(key)
    raise RetryCall(f"{counter.where} has a {type(key).__name__} as a key; keys of data are text")
