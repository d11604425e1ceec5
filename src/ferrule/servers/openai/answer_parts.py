"""The pieces of an answer: text, thinking, news, calls, and an end.

Both ways of answering (`agents`, `model_relay`) emit their answer in these, one after another; a
stream and a whole answer are two forms of the same sequence (`responses`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ferrule.core.calls import Call
from ferrule.core.events import Usage


@dataclass(frozen=True, slots=True)
class Words:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thoughts:
    """A piece of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class News:
    """Something that is not part of the answer, as JSON: a call of the agent and its outcome."""

    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls for the client to make. Their ids are new."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end. `more` is JSON for programs that know Ferrule."""

    finish: Literal["stop", "length", "tool_calls", "content_filter"]
    usage: Usage
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


Piece = Words | Thoughts | News | Calls
Emit = Callable[[Piece], None]
Work = Callable[[Emit], Awaitable[Ended]]
"""Makes an answer and emits its pieces. Raises Refused or FerruleError; cancelling it ends the
work.
"""


class Stopper:
    """Passes text on until a stop text comes, which is dropped with everything after it.

    Without stop texts, everything passes. Text that could be the beginning of a stop text waits
    until that is known.
    """

    def __init__(self, stops: Sequence[str], emit: Emit) -> None:
        self._stops = stops
        self._emit = emit
        self._held = ""
        self.stopped = False

    def __call__(self, piece: Piece) -> None:
        if not self._stops or not isinstance(piece, Words):
            self._emit(piece)
        elif not self.stopped:
            self._held += piece.text
            self._look()

    def close(self) -> None:
        """Pass on the text that waits, because no more follows."""
        if not self.stopped:
            self._pass(len(self._held))

    def _look(self) -> None:
        found = _first(self._held, self._stops)
        if found is not None:
            self._pass(found)
            self.stopped = True
            return
        begun = max(_overlap(self._held, stop) for stop in self._stops)
        self._pass(len(self._held) - begun)

    def _pass(self, count: int) -> None:
        if count:
            self._emit(Words(self._held[:count]))
        self._held = self._held[count:]


def cut(text: str, stops: Sequence[str]) -> str:
    """Return what a `Stopper` passes of a whole text."""
    return text[: _first(text, stops)]


def _first(text: str, stops: Sequence[str]) -> int | None:
    """Return the start of the stop text that is complete first.

    So the result does not depend on the pieces in which a text arrives.
    """
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of the text could begin the stop text."""
    most = min(len(text), len(stop) - 1)
    return next((size for size in range(most, 0, -1) if text.endswith(stop[:size])), 0)
