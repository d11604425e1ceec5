"""The pieces of an answer: text, thinking, news, calls, and an end.

Both ways of answering (`agents`, `model_relay`) emit their answer in these, one after another; a
stream and a whole answer are two forms of the same sequence (`responses`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from ferrule.core.calls import ToolCall
from ferrule.core.events import Usage
from ferrule.core.value_class import frozen


@frozen
class TextPiece:
    """A piece of the answer's text."""

    text: str


@frozen
class ThinkingPiece:
    """A piece of the model's thinking."""

    text: str


@frozen
class NewsPiece:
    """Something that is not part of the answer, as JSON: a call of the agent and its outcome."""

    value: Mapping[str, Any]


@frozen
class CallsPiece:
    """Calls for the client to make. Their ids are new."""

    calls: tuple[ToolCall, ...]


@frozen
class AnswerEnd:
    """The end. `more` is JSON for programs that know Ferrule."""

    finish: Literal["stop", "length", "tool_calls", "content_filter"]
    usage: Usage
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])


Piece = TextPiece | ThinkingPiece | NewsPiece | CallsPiece
Emit = Callable[[Piece], None]
Work = Callable[[Emit], Awaitable[AnswerEnd]]
"""Makes an answer and emits its pieces. Raises Refused or FerruleError; cancelling it ends the
work.
"""


class StopFilter:
    """Passes text on until a stop text comes, which is dropped with everything after it.

    Without stop texts, everything passes. Text that could be the beginning of a stop text waits
    until that is known.
    """

    def __init__(self, stops: Sequence[str], emit: Emit) -> None:
        self._stops = stops
        self._emit = emit
        self._held = ""
        self.is_stopped = False

    def __call__(self, piece: Piece) -> None:
        if not self._stops or not isinstance(piece, TextPiece):
            self._emit(piece)
        elif not self.is_stopped:
            self._held += piece.text
            self._look()

    def close(self) -> None:
        """Pass on the text that waits, because no more follows."""
        if not self.is_stopped:
            self._pass(len(self._held))

    def _look(self) -> None:
        found = _find_stop(self._held, self._stops)
        if found is not None:
            self._pass(found)
            self.is_stopped = True
            return
        begun = max(_overlap(self._held, stop) for stop in self._stops)
        self._pass(len(self._held) - begun)

    def _pass(self, count: int) -> None:
        if count:
            self._emit(TextPiece(self._held[:count]))
        self._held = self._held[count:]


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """Return what a `StopFilter` passes of a whole text."""
    return text[: _find_stop(text, stops)]


def _find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Return the start of the stop text that is complete first.

    So the result does not depend on the pieces in which a text arrives.
    """
    found = [(at + len(stop), at) for stop in stops if (at := text.find(stop)) >= 0]
    return min(found)[1] if found else None


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of the text could begin the stop text."""
    most = min(len(text), len(stop) - 1)
    return next((size for size in range(most, 0, -1) if text.endswith(stop[:size])), 0)
