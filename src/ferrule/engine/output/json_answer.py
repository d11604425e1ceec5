"""Find the one JSON value in a model's answer. Nothing is repaired and nothing is guessed.

* Text before and after the value is ignored, and so are fences around it and reasoning before it.
* Two different values, a value that ends in the middle, and a name that stands twice in one object
  are problems: the model is told of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from decimal import Decimal
from typing import Any, cast

from ferrule.core.calls import encode_json
from ferrule.core.value_class import frozen

_REASONING = re.compile(r"^\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OBJECT_START = re.compile(r"\{\s*[\"}]")
_OBJECT_OR_LIST_START = re.compile(r"\{\s*[\"}]|\[\s*[\]\[{\"\-0-9tfn]")
MAX_SHOWN = 60
"""Characters of an answer that a problem shows."""


@frozen
class JsonAnswer:
    """The value of an answer: its JSON text and the value itself, or the problem with it.

    `is_text` is true if the answer has no JSON at all. Numbers that a `float` would change are text
    in `value` (`has_exact_numbers`).
    """

    text: str = ""
    value: Any = None
    problem: str = ""
    is_text: bool = False
    has_exact_numbers: bool = False

    @property
    def exact_text(self) -> str:
        """The JSON with numbers that a `float` would change as text, for types with more digits."""
        return encode_json(self.value) if self.has_exact_numbers else self.text


class _InvalidJson(ValueError):
    """Valid for Python's parser and not for us."""


def find_json(answer: str, *, lists: bool = True) -> JsonAnswer:
    """Return the JSON value in an answer.

    Args:
        answer: What the model wrote.
        lists: Whether a list within other text counts; otherwise only objects do.
    """
    text = _REASONING.sub("", answer, count=1).strip()
    if not text:
        return JsonAnswer(problem="the answer is empty")
    reader = _Reader()
    try:
        value = reader.decoder.decode(text)
        return JsonAnswer(text, value, has_exact_numbers=reader.has_exact_numbers)
    except _InvalidJson as error:
        return JsonAnswer(problem=str(error))
    except (ValueError, RecursionError):
        return _find_within(text, lists, _Reader())


def drop_nulls(value: Any, paths: Iterable[Sequence[str | int]]) -> Any:
    """Return a copy of a value without the nulls at these places; None if there are none."""
    copied: Any = None
    for path in paths:
        if not path or not isinstance(path[-1], str):
            continue
        copied = deepcopy(value) if copied is None else copied
        holder: Any = copied
        for step in path[:-1]:
            try:
                holder = holder[step]
            except (LookupError, TypeError):
                # The path goes through a member of a union, which has no place in the value.
                holder = None
        if isinstance(holder, dict) and cast("dict[str, Any]", holder).get(path[-1], 0) is None:
            del holder[path[-1]]
    return copied


def _find_within(text: str, lists: bool, reader: _Reader) -> JsonAnswer:
    """Return the one value within other text."""
    start = _OBJECT_OR_LIST_START if lists else _OBJECT_START
    found: list[JsonAnswer] = []
    match = start.search(text)
    while match:
        try:
            value, end = reader.decoder.raw_decode(text, match.start())
        except _InvalidJson as error:
            return JsonAnswer(problem=str(error))
        except (ValueError, RecursionError) as error:
            # What follows may be a part of it: nothing of that is taken.
            return JsonAnswer(problem=f"the JSON is not valid: {_describe(error)}")
        part = text[match.start() : end]
        found.append(JsonAnswer(part, value, has_exact_numbers=reader.has_exact_numbers))
        match = start.search(text, end)
    if not found:
        return JsonAnswer(
            text, problem=f"there is no JSON in it, found {_shorten(text)}", is_text=True
        )
    # Compared as text: for Python, `1` and `true` are equal.
    if any(_canonical(one) != _canonical(found[0]) for one in found[1:]):
        return JsonAnswer(problem=f"{len(found)} different values were given; give exactly one")
    return found[0]


def _canonical(answer: JsonAnswer) -> str:
    return json.dumps(answer.value, sort_keys=True)


class _Reader:
    """A JSON parser that is stricter than Python's, and keeps numbers as they were written."""

    def __init__(self) -> None:
        self.has_exact_numbers = False
        self.decoder = json.JSONDecoder(
            object_pairs_hook=_read_object,
            parse_float=self._read_float,
            parse_constant=_refuse_constant,
        )

    def _read_float(self, digits: str) -> float | str:
        number = float(digits)
        if len(digits) < 16 or Decimal(repr(number)) == Decimal(digits):
            return number
        self.has_exact_numbers = True
        return digits


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _InvalidJson(f"`{twice}` stands twice in one object")
    return read


def _refuse_constant(name: str) -> Any:
    raise _InvalidJson(f"`{name}` is not a number in JSON")


def _describe(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at line {error.lineno}, column {error.colno}"
    return str(error) or type(error).__name__


def _shorten(text: str) -> str:
    shown = encode_json(text[: MAX_SHOWN + 1])
    return shown if len(text) <= MAX_SHOWN else f'{encode_json(text[:MAX_SHOWN])[:-1]}..."'
