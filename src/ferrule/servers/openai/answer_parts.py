"""What an answer is made of, whoever makes it: words, thoughts, news, calls, and an end.

Both ways of answering (`agents`, `model_relay`) say their answer in these, one after another; a
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
    """A piece of what the model thinks aloud."""

    text: str


@dataclass(frozen=True, slots=True)
class News:
    """Something on the way that is no part of the answer: a call of the agent and what became of
    it. JSON.
    """

    value: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls that the client is to make. Their ids are new."""

    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The end. `more` is what only programs that know Ferrule read, as JSON."""

    finish: Literal["stop", "length", "tool_calls", "content_filter"]
    usage: Usage
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


Piece = Words | Thoughts | News | Calls
Emit = Callable[[Piece], None]
Work = Callable[[Emit], Awaitable[Ended]]
"""Makes an answer, telling its pieces as they come. Raises Refused or FerruleError; cancelling it
ends what it does.
"""


class Stopper:
    """Lets words pass until one of the stop texts comes, which does not pass, nor anything after
    it. With none, all passes.

    Words that could be the beginning of one wait until it is known.
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
        """Nothing comes any more: what waits passes."""
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
    """What a `Stopper` lets pass of a whole text."""
    return text[: _first(text, stops)]


def _first(text: str, stops: Sequence[str]) -> int | None:
    """Where the stop text begins that is the first to be complete: so it does not matter in which
    pieces a text comes.
    """
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of the text could begin the stop."""
    most = min(len(text), len(stop) - 1)
    return next((size for size in range(most, 0, -1) if text.endswith(stop[:size])), 0)
