"""Between a wire that streams a model's text and the sink of the person: only what is certain to be prose passes."""

from __future__ import annotations

from ferrule.core.events import ModelAnswered
from ferrule.models.dialects import Reader, Reading
from ferrule.models.wire import Sink


class ReadingSink:
    """Feeds a reader. Reasoning and notices pass through; text passes as the reader lets it."""

    def __init__(self, reader: Reader, outer: Sink | None) -> None:
        self._reader = reader
        self._outer = outer
        self._fed = False

    def text(self, piece: str) -> None:
        self._fed = True
        certain = self._reader.feed(piece)
        if certain and self._outer is not None:
            self._outer.text(certain)

    def reasoning(self, piece: str) -> None:
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
        if self._outer is not None:
            if reading.reasoning:
                self._outer.reasoning(reading.reasoning)
            if self._reader.remainder:
                self._outer.text(self._reader.remainder)
        return reading


def reasoned(answer: ModelAnswered, reading: Reading) -> str:
    """What the wire and the reader set apart as reasoning."""
    return "\n\n".join(part for part in (answer.reasoning, reading.reasoning) if part)


def stop_of(answer: ModelAnswered, *, calls: bool) -> str:
    """Why the model stopped, now that calls were found in its text (or were not)."""
    if answer.stop in ("length", "filter"):
        return answer.stop
    return "calls" if calls else "end"
