"""Between a wire that streams a model's text and the sink of the person: only what is certain to be
prose passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrule.core.events import ModelAnswered
from ferrule.core.lazy_patterns import expression
from ferrule.models.client import Sink

if TYPE_CHECKING:
    from ferrule.models.dialects import Reader, Reading

MAY_OPEN = expression("[<\\[{>|◁｜]")
"""Characters without which no mark opens: text that has none of them is prose, and no reader is
needed.
"""
MAY_CALL = expression("[{(]")
"""Characters without which no call is written in words, with marks or without."""


class PlainSink:
    """For answers that are almost always plain: text passes untouched until a mark could open, then
    a reader takes over.

    The reader is given what passed before, so it reads the same as if it had read from the start.
    """

    def __init__(
        self, make: Callable[[], Reader], outer: Sink | None, *, thinking: bool = False
    ) -> None:
        """`thinking`: the text may begin inside reasoning, so that none of it passes unread."""
        self._make = make
        self._thinking = thinking
        self._outer = outer
        self._passed: list[str] = []
        self._held = ""
        self._reading: ReadingSink | None = None

    def text(self, piece: str) -> None:
        if self._reading is not None:
            self._reading.text(piece)
        elif MAY_OPEN.search(piece) or self._thinking:
            self._begin().text(piece)
        else:
            self._passed.append(piece)
            self._show(piece)

    def reasoning(self, piece: str) -> None:
        self._thinking = False
        if self._reading is not None:
            self._reading.reasoning(piece)
        elif self._outer is not None:
            self._outer.reasoning(piece)

    def notice(self, topic: str, text: str) -> None:
        if self._outer is not None:
            self._outer.notice(topic, text)

    def finish(self, answer: ModelAnswered) -> Reading | None:
        """The reading of the whole answer; None if nothing in it could have been a mark."""
        if self._reading is None:
            if self._passed or not MAY_OPEN.search(answer.text):
                if self._held and self._outer is not None:
                    self._outer.text(self._held)
                return None
            self._begin()
        assert self._reading is not None
        return self._reading.finish(answer)

    def _show(self, piece: str) -> None:
        # White space waits: before a call it is no part of the prose.
        text = self._held + piece
        shown = text.rstrip()
        self._held = text[len(shown) :]
        if shown and self._outer is not None:
            self._outer.text(shown)

    def _begin(self) -> ReadingSink:
        reader = self._make()
        if not self._thinking:
            reader.reason_apart()
        passed = "".join(self._passed)
        # A reader also holds back what may become code (an open back-tick): that was shown all the
        # same.
        given = len(reader.feed(passed)) if passed else 0
        ahead = passed[given : len(passed) - len(self._held)]
        self._reading = ReadingSink(reader, self._outer, fed=bool(passed), ahead=ahead)
        return self._reading


class ReadingSink:
    """Feeds a reader. Reasoning and notices pass through; text passes as the reader lets it.

    `fed`: the reader was given text before; `ahead` is what the person saw of it and the reader
        still holds.
    """

    def __init__(
        self, reader: Reader, outer: Sink | None, *, fed: bool = False, ahead: str = ""
    ) -> None:
        self._reader = reader
        self._outer = outer
        self._fed = fed
        self._ahead = ahead

    def text(self, piece: str) -> None:
        self._fed = True
        self._show(self._reader.feed(piece))

    def _show(self, certain: str) -> None:
        """Pass words on, without those that were shown already."""
        if self._ahead and certain:
            pairs = zip(certain, self._ahead, strict=False)
            least = min(len(certain), len(self._ahead))
            shown = next((at for at, (a, b) in enumerate(pairs) if a != b), least)
            certain, self._ahead = certain[shown:], "" if certain[shown:] else self._ahead[shown:]
        if certain and self._outer is not None:
            self._outer.text(certain)

    def reasoning(self, piece: str) -> None:
        self._reader.reason_apart()
        if self._outer is not None:
            self._outer.reasoning(piece)

    def notice(self, topic: str, text: str) -> None:
        if self._outer is not None:
            self._outer.notice(topic, text)

    def finish(self, answer: ModelAnswered) -> Reading:
        """The reading of the whole answer; what was still held back reaches the person now."""
        if not self._fed and answer.text:
            self.text(answer.text)
        reading = self._reader.finish(cut=answer.stop == "length")
        if self._outer is not None and reading.reasoning:
            self._outer.reasoning(reading.reasoning)
        self._show(self._reader.remainder)
        return reading


def reasoned(answer: ModelAnswered, reading: Reading) -> str:
    """What the wire and the reader set apart as reasoning."""
    return "\n\n".join(part for part in (answer.reasoning, reading.reasoning) if part)


def stop_of(answer: ModelAnswered, *, calls: bool) -> str:
    """Why the model stopped, now that calls were found in its text (or were not)."""
    if answer.stop in ("length", "filter"):
        return answer.stop
    return "calls" if calls else "end"
