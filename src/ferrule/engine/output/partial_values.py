"""Values while they arrive: the output type with what has come so far.

* Texts grow. Everything else (numbers, enumerations, dates, ...) is there only once it is whole,
  which is known when something follows it.
* What has not come is missing from dictionaries and lists; a field of an object has its default
  then, or None.
* The cost is linear in the bytes: the text is parsed again only when it has grown by a share of
  itself, and a part that is whole is converted once. Whole items of a long list or map are cut out
  of the text when they were converted, and not parsed again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from jiter import from_json

from ferrule.core.events import ModelAnswered, OutputChecked
from ferrule.engine.live_events import Live, PartialOutput, TextDelta

from .output_check import OutputCheck
from .output_type import VALUE, OutputType
from .partial_conversion import NOTHING, GrowingList, GrowingMap, GrowingObject, make_growing

FIRST_STEP = 32
"""Characters that must arrive before the text is parsed the first time, and between two times."""

EARLY_LENGTH = 8_192
"""Up to this length, text is parsed when it has grown by a quarter. Later, it is parsed when it
has grown by a half if whole items can be cut out of it, and else when it is two and a half times
as long.
"""

MAX_TRIES = 3
"""Places that are tried for the start of a list or map, and for the end of its whole items."""
MAX_COMMAS = 100
"""Commas that are looked at to find such an end."""

_START = re.compile(r"\{\s*[\"}]|\[")
_ITEM = re.compile(r'\s*(\{\s*("[^"\\]*")|[\["]|)')
_MEMBER = re.compile(r'\s*"(?:[^"\\]|\\.)*"\s*:\s*([{\["]|)')
_CLOSING = {"{": "}", "[": "]", '"': '"'}


class OutputStream:
    """The partial values of a run, made of its events as they happen."""

    def __init__(self, check: OutputCheck) -> None:
        self._check = check
        has_partial_values = check.output.hint is not None
        self._partial = PartialValues(check.output) if has_partial_values else None

    def take(self, item: Live) -> PartialOutput[Any] | None:
        """Take what happened. Return the value so far if it shows more of it."""
        if isinstance(item, OutputChecked):
            return None if item.problems else PartialOutput(self._check.value, final=True)
        if self._partial is None:
            return None
        if isinstance(item, TextDelta):
            value = self._partial.add(item.text)
            return None if value is NOTHING else PartialOutput(value)
        if isinstance(item, ModelAnswered):
            self._partial.reset()
        return None


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
        self._value = make_growing(self._output.hint)
        self._last: Any = NOTHING
        self._is_wrapped = False
        self._container: GrowingList | GrowingMap | None = None
        self._container_start: int | None = None

    def add(self, piece: str) -> Any:
        """Take a piece of the text. Return the value so far, or NOTHING if there is no new one."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length < self._next:
            return NOTHING
        self._text += "".join(self._pieces)
        self._pieces.clear()
        if self._length < EARLY_LENGTH:
            self._next = self._length + max(FIRST_STEP, self._length // 4)
            return self._convert()
        is_cut = self._cut_items()
        value = self._convert()
        # A list or map that has just begun has not been tried.
        is_cut = is_cut or self._find_container()[0] not in (None, self._container)
        self._next = self._length + (self._length // 2 if is_cut else self._length * 3 // 2)
        return value

    def _convert(self) -> Any:
        start = _START.search(self._text)
        if start is None:
            return NOTHING
        if start.start():
            self._text = self._text[start.start() :]
        try:
            found: Any = from_json(_encode(self._text), partial_mode="trailing-strings")
        except ValueError:
            return NOTHING
        if self._output.is_wrapped and isinstance(found, dict):
            members = cast("dict[str, Any]", found)
            self._is_wrapped = set(members) <= {VALUE}
            found = members.get(VALUE, NOTHING) if self._is_wrapped else members
        # A long text that has grown so much shows more; comparing it would cost too much.
        is_early = self._length < EARLY_LENGTH
        if found is NOTHING or (is_early and found == self._last):
            return NOTHING
        self._last = found if is_early else NOTHING
        return self._value.take(found, last=True)

    def _find_container(self) -> tuple[GrowingList | GrowingMap | None, list[str]]:
        """Return the outermost list or map that grows, and the names that lead to it."""
        names = [VALUE] if self._is_wrapped else []
        growing = self._value
        while isinstance(growing, GrowingObject) and growing.growing is not None:
            name, growing = growing.growing
            names.append(name)
        return growing if isinstance(growing, GrowingList | GrowingMap) else None, names

    def _cut_items(self) -> bool:
        """Convert the whole items of the list or map that grows, and cut them out of the text.

        Returns:
            Whether there is one, and where its last item begins could be told.
        """
        container, names = self._find_container()
        if container is None:
            return False
        brackets = container.brackets
        if container is not self._container:
            self._container = container
            self._container_start = _find_start(self._text, names, brackets)
        start = self._container_start
        if start is None:
            return False
        items = self._text[start:]
        for comma in islice(_find_commas(items, brackets), MAX_TRIES):
            if container.take_text(_encode(f"{brackets[0]}{items[:comma]}{brackets[1]}")):
                self._text = self._text[:start] + items[comma + 1 :]
                return True
            # The comma is within an item, such as a list of the same kind.
            self._container_start = None
        return False


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _find_start(text: str, names: list[str], brackets: str) -> int | None:
    """Return where the first item of a list or map begins.

    Args:
        text: JSON that is not at its end.
        names: The names of the members that lead to it, from the outermost object on.
        brackets: Those around it.
    """
    if not names:
        return 1
    name = re.escape(json.dumps(names[-1], ensure_ascii=False))
    for match in islice(re.finditer(rf"{name}\s*:\s*\{brackets[0]}", text), MAX_TRIES):
        # It is the one if the text is whole with it and the objects around it closed.
        try:
            found: Any = from_json(_encode(text[: match.end()] + brackets[1] + "}" * len(names)))
        except ValueError:
            continue
        for wanted in names:
            members = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
            found = members[wanted] if list(members)[-1:] == [wanted] else None
        if found in ([], {}):
            return match.end()
    return None


def _find_commas(items: str, brackets: str) -> Iterator[int]:
    """Yield commas that may stand between items, the last first.

    They have around them what stands around those between items, and may be within an item all the
    same: then what is before them is no whole list or map.
    """
    is_map = brackets == "{}"
    first = (_MEMBER if is_map else _ITEM).match(items)
    if first is None:
        return
    closing = _CLOSING.get(first[1][:1], "")
    name = "" if is_map else first[2] or ""
    if name:
        next_item = re.compile(r"\s*\{\s*" + re.escape(name))
    else:
        next_item = re.compile(r"\s*" + ('"' if is_map else re.escape(first[1])))
    comma = len(items)
    for _ in range(MAX_COMMAS):
        if name:
            comma = max(items.rfind(name, 0, comma), 0)
        comma = items.rfind(",", 0, comma)
        if comma < 0:
            return
        before = items[max(0, comma - 80) : comma].rstrip()
        if before.endswith(closing) and next_item.match(items, comma + 1):
            yield comma
