"""Sinks that read tool calls out of a streamed reply and pass on what is certain to be prose.

They stand between a model client, which streams a model's text, and the sink of the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrule.core.events import ModelAnswered
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.vocabulary import AnswerStop
from ferrule.models import dialects
from ferrule.models.client import Sink

if TYPE_CHECKING:
    pass

COULD_OPEN_MARK = compile_lazily("[<\\[{>|◁｜]")
"""Matches text in which a mark could open. Other text is prose and needs no reader."""


class LazyReadingSink:
    """A sink for replies that are almost always plain prose.

    Text passes untouched until a mark could open; from then on a reader reads it. The reader is
    given what passed before, so it reads the same as if it had read from the start.
    """

    def __init__(
        self,
        make_reader: Callable[[], dialects.ReplyReader],
        outer: Sink | None,
        *,
        thinking: bool = False,
    ) -> None:
        """Set up the sink.

        Args:
            make_reader: Makes the reader, once one is needed.
            outer: The sink that prose and reasoning are passed on to.
            thinking: Whether the text may begin inside reasoning. Then none of it passes unread.
        """
        self._make_reader = make_reader
        self._thinking = thinking
        self._outer = outer
        self._passed: list[str] = []
        self._held = ""
        self._reading: ReadingSink | None = None

    def add_text(self, piece: str) -> None:
        if self._reading is not None:
            self._reading.add_text(piece)
        elif COULD_OPEN_MARK.search(piece) or self._thinking:
            self._start_reading().add_text(piece)
        else:
            self._passed.append(piece)
            self._pass_on(piece)

    def add_reasoning(self, piece: str) -> None:
        self._thinking = False
        if self._reading is not None:
            self._reading.add_reasoning(piece)
        elif self._outer is not None:
            self._outer.add_reasoning(piece)

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        if self._outer is not None:
            self._outer.add_arguments(call, tool, piece)

    def notice(self, topic: str, text: str) -> None:
        if self._outer is not None:
            self._outer.notice(topic, text)

    def finish(self, answer: ModelAnswered) -> dialects.Reading | None:
        """Return the reading of the whole answer; None if nothing in it could be a mark."""
        if self._reading is not None:
            return self._reading.finish(answer)
        if not self._passed and COULD_OPEN_MARK.search(answer.text):
            return self._start_reading().finish(answer)
        if self._held and self._outer is not None:
            self._outer.add_text(self._held)
        return None

    def _pass_on(self, piece: str) -> None:
        # White space waits: before a call it is no part of the prose.
        text = self._held + piece
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if shown and self._outer is not None:
            self._outer.add_text(shown)

    def _start_reading(self) -> ReadingSink:
        reader = self._make_reader()
        if not self._thinking:
            reader.expect_separate_reasoning()
        passed = "".join(self._passed)
        # The reader holds back more than this sink does (an open back-tick may become code). What
        # it holds back and the caller has already seen must not be shown a second time.
        certain = len(reader.feed(passed)) if passed else 0
        ahead = passed[certain : len(passed) - len(self._held)]
        self._reading = ReadingSink(reader, self._outer, fed=bool(passed), ahead=ahead)
        return self._reading


class ReadingSink:
    """A sink that feeds a reader.

    Reasoning and notices pass through; text passes as soon as the reader is certain of it.
    """

    def __init__(
        self,
        reader: dialects.ReplyReader,
        outer: Sink | None,
        *,
        fed: bool = False,
        ahead: str = "",
    ) -> None:
        """Set up the sink.

        Args:
            reader: Reads the reply.
            outer: The sink that prose and reasoning are passed on to.
            fed: Whether the reader was given text before.
            ahead: What was already shown of that text while the reader still holds it back.
        """
        self._reader = reader
        self._outer = outer
        self._fed = fed
        self._ahead = ahead

    def add_text(self, piece: str) -> None:
        self._fed = True
        self._pass_on(self._reader.feed(piece))

    def _pass_on(self, certain: str) -> None:
        """Pass text on, without what was shown already."""
        if self._ahead and certain:
            shown = _common_prefix(certain, self._ahead)
            certain = certain[shown:]
            self._ahead = "" if certain else self._ahead[shown:]
        if certain and self._outer is not None:
            self._outer.add_text(certain)

    def add_reasoning(self, piece: str) -> None:
        self._reader.expect_separate_reasoning()
        if self._outer is not None:
            self._outer.add_reasoning(piece)

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        if self._outer is not None:
            self._outer.add_arguments(call, tool, piece)

    def notice(self, topic: str, text: str) -> None:
        if self._outer is not None:
            self._outer.notice(topic, text)

    def finish(self, answer: ModelAnswered) -> dialects.Reading:
        """Return the reading of the whole answer, and pass on what was still held back."""
        if not self._fed and answer.text:
            self.add_text(answer.text)
        reading = self._reader.finish(cut=answer.stop == "length")
        if self._outer is not None and reading.reasoning:
            self._outer.add_reasoning(reading.reasoning)
        self._pass_on(self._reader.remainder)
        return reading


def _common_prefix(left: str, right: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    for at, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return at
    return min(len(left), len(right))


def join_reasoning(answer: ModelAnswered, reading: dialects.Reading) -> str:
    """Return the reasoning that the model client and the reader found, one below the other."""
    return "\n\n".join(part for part in (answer.reasoning, reading.reasoning) if part)


def stop_reason(answer: ModelAnswered, *, calls: bool) -> AnswerStop:
    """Return why the model stopped, now that it is known whether its text holds calls."""
    if answer.stop in ("length", "filter"):
        return answer.stop
    return "calls" if calls else "end"
