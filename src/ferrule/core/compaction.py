"""Compaction: what of a session's history is left out of what its model is sent, and what stands in
its place.

Rules of this file, each a promise with a test:

* What is sent is a function of the whole history and of the events `context.compacted` and
  `context.restored`: the same events give the same messages. The whole history is kept beside it,
  so that undoing gives it back as it was, byte for byte.
* What is sent stays valid for every wire: a call and its result are both sent or both left out, no
  result loses its place, and the first message is a person's. An event that would break this
  changes nothing.
* The last message is never touched: it is what the model is about to answer.

Results that are elided keep their place and say how they can be read. A summary stands behind the
person's own words from the part that it stands for. A later summary takes the place of an earlier
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .events import ContextCompacted
from .messages import AssistantMessage, Message, ToolMessage, UserMessage


class Compaction:
    """What is compacted in one session. `through`: the messages 1 to this one are not sent.
    `undone`: a person wanted it so.
    """

    def __init__(self) -> None:
        self.undone = False
        self._forget()

    def _forget(self) -> None:
        self.through = 0
        self._head: list[Message] = []
        self._stubs: dict[int, str] = {}
        self._whole: list[Message] = []
        self._sent = 0

    @property
    def active(self) -> bool:
        """Whether anything is left out."""
        return bool(self._whole)

    @property
    def elided(self) -> int:
        """How many results are sent as stubs."""
        return len(self._stubs)

    @property
    def head(self) -> int:
        """How many messages of what is sent stand for others: the person's words that were kept,
        and the summary.
        """
        return len(self._head)

    def number(self, index: int) -> int:
        """The number, in the whole history, of the message at `index` of what is sent; for those
        behind the head.
        """
        return index + 1 + self.through - self.head

    def is_stub(self, number: int) -> bool:
        """Whether a result is elided already."""
        return number in self._stubs

    def whole(self, sent: Sequence[Message]) -> list[Message]:
        """All messages of the session, from what is sent of them."""
        return [*self._whole, *sent[self._sent :]]

    def take(self, event: ContextCompacted, sent: list[Message]) -> list[Message]:
        """What is sent from now on: a new list, or the same one if the event does not fit."""
        whole = self.whole(sent)
        if not _fits(event, whole, self.through):
            return sent
        self.undone = False
        stubs = self._stubs | dict(zip(event.elided, event.stubs, strict=True))
        if event.through:
            self.through = event.through
            self._head = [*(whole[number - 1] for number in event.kept), UserMessage(event.text)]
        self._stubs = {number: text for number, text in stubs.items() if number > self.through}
        upto = max((self.through, *self._stubs))
        self._whole = whole[:upto]
        rest = enumerate(whole[self.through : upto], self.through + 1)
        prefix = [*self._head, *(self._shown(number, message) for number, message in rest)]
        self._sent = len(prefix)
        return [*prefix, *whole[upto:]]

    def restore(self, sent: list[Message]) -> list[Message]:
        """The whole history: a new list."""
        whole = self.whole(sent)
        self._forget()
        self.undone = True
        return whole

    def _shown(self, number: int, message: Message) -> Message:
        if number in self._stubs and isinstance(message, ToolMessage):
            return replace(message, text=self._stubs[number])
        return message


def closed(history: Sequence[Message], count: int) -> bool:
    """Whether the first `count` messages can go without tearing a call from its result; something
    must be left.
    """
    if not 0 < count < len(history) or isinstance(history[count], ToolMessage):
        return False
    last = history[count - 1]
    return not (isinstance(last, AssistantMessage) and last.calls)


def _fits(event: ContextCompacted, whole: Sequence[Message], through: int) -> bool:
    if len(event.elided) != len(event.stubs) or not (event.elided or event.through):
        return False
    if event.through and not (event.through >= through and closed(whole, event.through)):
        return False
    results = all(
        0 < n < len(whole) and isinstance(whole[n - 1], ToolMessage) for n in event.elided
    )
    kept, ordered = event.kept, sorted(set(event.kept)) == list(event.kept)
    words = all(0 < n <= event.through and isinstance(whole[n - 1], UserMessage) for n in kept)
    return results and ordered and words
