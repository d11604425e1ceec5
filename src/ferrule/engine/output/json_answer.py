"""Find the one JSON value in a model's answer. Nothing is repaired and nothing is guessed.

* Text before and after the value is ignored, and so are fences around it and reasoning before it.
* Two different values, a value that ends in the middle, and a name that stands twice in one object
  are problems: the model is told of them.
"""

from __future__ import annotations

import json
import re
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
    in `value`.
    """

    text: str = ""
    value: Any = None
    problem: str = ""
    is_text: bool = False

    @property
    def exact_text(self) -> str:
        """The JSON with numbers that a `float` would change as text, for types with more digits."""
        return encode_json(self.value) if _has_exact_number(self.value) else self.text


class _ExactNumber(str):
    """A number as it was written, because a `float` has fewer digits."""

    __slots__ = ()


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
    try:
        return JsonAnswer(text, _parse(text))
    except _InvalidJson as error:
        return JsonAnswer(problem=str(error))
    except (ValueError, RecursionError):
        return _find_within(text, lists)


def _find_within(text: str, lists: bool) -> JsonAnswer:
    """Return the one value within other text."""
    start = _OBJECT_OR_LIST_START if lists else _OBJECT_START
    found: list[JsonAnswer] = []
    match = start.search(text)
    while match:
        try:
            value, end = _DECODER.raw_decode(text, match.start())
        except _InvalidJson as error:
            return JsonAnswer(problem=str(error))
        except (ValueError, RecursionError) as error:
            # What follows may be a part of it: nothing of that is taken.
            return JsonAnswer(problem=f"the JSON is not valid: {_describe(error)}")
        found.append(JsonAnswer(text[match.start() : end], value))
        match = start.search(text, end)
    if not found:
        return JsonAnswer(
            text, problem=f"there is no JSON in it, found {_shorten(text)}", is_text=True
        )
    if any(one.text != found[0].text and one.value != found[0].value for one in found):
        return JsonAnswer(problem=f"{len(found)} different values were given; give exactly one")
    return found[0]


def _has_exact_number(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_has_exact_number(one) for one in cast("dict[str, Any]", value).values())
    if isinstance(value, list):
        return any(_has_exact_number(one) for one in cast("list[Any]", value))
    return isinstance(value, _ExactNumber)


def _parse(text: str) -> Any:
    return json.loads(text, **_HOOKS)


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _InvalidJson(f"`{twice}` stands twice in one object")
    return read


def _read_float(digits: str) -> float | _ExactNumber:
    number = float(digits)
    if len(digits) < 16 or Decimal(repr(number)) == Decimal(digits):
        return number
    return _ExactNumber(digits)


def _refuse_constant(name: str) -> Any:
    raise _InvalidJson(f"`{name}` is not a number in JSON")


_HOOKS: dict[str, Any] = {
    "object_pairs_hook": _read_object,
    "parse_float": _read_float,
    "parse_constant": _refuse_constant,
}
_DECODER = json.JSONDecoder(**_HOOKS)


def _describe(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg.lower()} at line {error.lineno}, column {error.colno}"
    return str(error) or type(error).__name__


def _shorten(text: str) -> str:
    shown = encode_json(text[: MAX_SHOWN + 1])
    return shown if len(text) <= MAX_SHOWN else f'{encode_json(text[:MAX_SHOWN])[:-1]}..."'
