"""Ends an answer that repeats itself: small models loop, and would fill the window.

A text loops if its end is one block, said again and again: at least `MIN_REPEATS` times, and at
least `MIN_LENGTH` characters together. Blocks that differ in their numbers alone (`81. Fish`,
`82. Fish`) have to be more, and to have letters: what is read out of a log or a table looks alike.
Arguments of calls are not looked at: a call must not be cut.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

from ferrule.core.events import ModelAnswered, Usage
from ferrule.models.client import Sink

MIN_REPEATS = 5
"""Times that a block is said before it is a loop."""

MIN_COUNTED = 15
"""The same for blocks that differ in their numbers."""

MIN_LENGTH = 300
"""Characters of a loop. A rule of dashes or a short refrain has fewer."""

_LOOKED_AT = 4000
"""Characters of the end that are looked at, so blocks of up to 800 are found."""

_MIN_LETTERS = 3
"""Letters of a block whose numbers differ: `1, 2, 3` is no loop."""

_SIGN = re.compile(r"\d+|\D")

_EVERY = 48
"""Characters between two looks."""

NOTICE = ("repetition", "the answer repeated itself and was ended")


def find_loop(text: str) -> tuple[int, int] | None:
    """Return how long the loop at the end of a text is, and its first block; None without a loop.

    Both in characters.
    """
    end = text[-_LOOKED_AT:]
    exact = _find_period(end[::-1], MIN_REPEATS)
    if exact is not None:
        return exact
    # A number counts as one sign, whatever it is.
    signs = _SIGN.findall(end)
    counted = _find_period(["0" if sign.isdigit() else sign for sign in signs][::-1], MIN_COUNTED)
    if counted is None:
        return None
    length, period = counted
    looped = signs[len(signs) - length :]
    block = "".join(looped[:period])
    if sum(character.isalpha() for character in block) < _MIN_LETTERS:
        return None
    return len("".join(looped)), len(block)


def _find_period(reversed_end: Sequence[str], repeats: int) -> tuple[int, int] | None:
    """Return the longest repetition that a reversed end begins with, and its period.

    The prefix function gives the period of each beginning.
    """
    borders = [0] * len(reversed_end)
    found = None
    for place in range(1, len(reversed_end)):
        border = borders[place - 1]
        while border and reversed_end[place] != reversed_end[border]:
            border = borders[border - 1]
        if reversed_end[place] == reversed_end[border]:
            border += 1
        borders[place] = border
        length = place + 1
        period = length - border
        if length >= max(MIN_LENGTH, repeats * period):
            found = (length, period)
    return found


class RepetitionGuard:
    """A sink in front of another one; it calls `stop` when the answer's text loops."""

    def __init__(self, outer: Sink | None, notices: list[tuple[str, str]]) -> None:
        self.stop: Callable[[], object] = lambda: None
        self.loop: tuple[int, int] | None = None
        self.text = ""
        self.reasoning = ""
        self.pieces = 0
        self._outer = outer
        self._notices = notices
        self._looked = {"text": 0, "reasoning": 0}

    def add_text(self, piece: str) -> None:
        """Pass a piece on unless the text has looped."""
        if self.loop is not None:
            return
        self.text += piece
        if self._outer is not None:
            self._outer.add_text(piece)
        self._look("text", self.text)

    def add_reasoning(self, piece: str) -> None:
        """Pass a piece on unless the reasoning has looped."""
        if self.loop is not None:
            return
        self.reasoning += piece
        if self._outer is not None:
            self._outer.add_reasoning(piece)
        self._look("reasoning", self.reasoning)

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        """Pass a piece of a call's arguments on."""
        if self._outer is not None:
            self._outer.add_arguments(call, tool, piece)

    def notice(self, topic: str, text: str) -> None:
        """Pass a notice on, or keep it where nobody listens."""
        if self._outer is None:
            self._notices.append((topic, text))
        else:
            self._outer.notice(topic, text)

    def _look(self, kind: str, text: str) -> None:
        self.pieces += 1
        if len(text) - self._looked[kind] < _EVERY:
            return
        self._looked[kind] = len(text)
        self.loop = find_loop(text)
        if self.loop is not None:
            self.notice(*NOTICE)
            self.stop()

    def cut_text(self) -> str:
        """Return the text with what looped said once."""
        if self.loop is None or self._looked["text"] != len(self.text):
            return self.text
        length, period = self.loop
        return self.text[: len(self.text) - length + period]


async def ask_until_loop(
    ask: Callable[[Sink], Awaitable[ModelAnswered]],
    sink: Sink | None,
    notices: list[tuple[str, str]],
) -> ModelAnswered:
    """Ask a model; if its answer loops, end it, say so, and return what came before.

    Args:
        ask: Asks with a sink. It is cancelled when the answer loops.
        sink: Receives the answer while it arrives.
        notices: Where notices go without a sink.
    """
    guard = RepetitionGuard(sink, notices)
    asking = asyncio.ensure_future(ask(guard))
    guard.stop = asking.cancel
    try:
        return await asking
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if guard.loop is None or (current is not None and current.cancelling()):
            raise
    return ModelAnswered(
        guard.cut_text(),
        reasoning=guard.reasoning,
        usage=Usage(output=guard.pieces),
        stop="end",
    )
