"""Compaction: which part of a session's history the model is sent, and what replaces the rest.

Rules of this file, each a promise with a test:

* The messages that are sent depend only on the full history and on the events `context.compacted`
  and `context.restored`: the same events give the same messages. The full history is kept, so
  undoing a compaction restores it byte for byte.
* The messages that are sent stay valid for every provider: a call and its result are both sent or
  both left out, no result changes its place, and the first message is a person's. An event that
  would break this changes nothing.
* The last message is never changed: it is the one that the model is about to answer.

An elided result keeps its place as a stub, a short text that says how the result can be read. A
summary follows the person's own messages from the part that it replaces. A later summary replaces
an earlier one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .events import ContextCompacted
from .media import add_captions
from .messages import AssistantMessage, Message, ToolMessage, UserMessage


class Compaction:
    """The compaction of one session.

    Messages are numbered from 1 in the full history. The messages that are sent start with a
    prefix (the head and what follows it up to the last changed message); all after it is unchanged.
    """

    def __init__(self) -> None:
        self.is_undone = False
        """True if a person restored the full history."""
        self._reset()

    def _reset(self) -> None:
        self.through = 0
        """The messages 1 to this one are not sent."""
        self._head: list[Message] = []
        self._stubs: dict[int, str] = {}
        self._originals: list[Message] = []
        self._prefix_length = 0

    @property
    def is_active(self) -> bool:
        """True if anything is left out."""
        return bool(self._originals)

    @property
    def stub_count(self) -> int:
        """The number of results that are sent as stubs."""
        return len(self._stubs)

    @property
    def head_length(self) -> int:
        """The number of messages at the start that replace others: kept ones and the summary."""
        return len(self._head)

    def message_number(self, index: int) -> int:
        """Return the number in the full history of the sent message at `index`, behind the head."""
        return index + 1 + self.through - self.head_length

    def is_stub(self, number: int) -> bool:
        """Return whether a result is already elided."""
        return number in self._stubs

    def full_history(self, sent: Sequence[Message]) -> list[Message]:
        """Return all messages of the session, given those that are sent."""
        return [*self._originals, *sent[self._prefix_length :]]

    def apply(self, event: ContextCompacted, sent: list[Message]) -> list[Message]:
        """Return what is sent from now on: a new list, or `sent` if the event does not fit."""
        history = self.full_history(sent)
        if not _fits(event, history, self.through):
            return sent
        self.is_undone = False
        stubs = self._stubs | dict(zip(event.elided, event.stubs, strict=True))
        if event.through:
            self.through = event.through
            kept = [replace_media(history[number - 1]) for number in event.kept]
            self._head = [*kept, UserMessage(event.text)]
        self._stubs = {number: text for number, text in stubs.items() if number > self.through}

        last_changed = max((self.through, *self._stubs))
        self._originals = history[:last_changed]
        prefix = list(self._head)
        for number in range(self.through + 1, last_changed + 1):
            prefix.append(self._apply_stub(number, history[number - 1]))
        self._prefix_length = len(prefix)
        return [*prefix, *history[last_changed:]]

    def restore(self, sent: list[Message]) -> list[Message]:
        """Undo all compaction and return the full history as a new list."""
        history = self.full_history(sent)
        self._reset()
        self.is_undone = True
        return history

    def _apply_stub(self, number: int, message: Message) -> Message:
        if number in self._stubs and isinstance(message, ToolMessage):
            # A reference and a caption of each medium stay.
            text = self._stubs[number]
            return replace_media(replace(message, text=text))
        return message


def replace_media(message: Message) -> Message:
    """Return a message with captions and references in place of its media."""
    if isinstance(message, AssistantMessage) or not message.media:
        return message
    return replace(message, text=add_captions(message.text, message.media), media=())


def can_leave_out(history: Sequence[Message], count: int) -> bool:
    """Return whether the first `count` messages can be left out.

    They can if no call is separated from its result and at least one message is left.
    """
    if not 0 < count < len(history) or isinstance(history[count], ToolMessage):
        return False
    last = history[count - 1]
    return not (isinstance(last, AssistantMessage) and last.calls)


def _fits(event: ContextCompacted, history: Sequence[Message], through: int) -> bool:
    if len(event.elided) != len(event.stubs):
        return False
    if not event.elided and not event.through:
        return False
    if event.through and (event.through < through or not can_leave_out(history, event.through)):
        return False
    if list(event.kept) != sorted(set(event.kept)):
        return False
    for number in event.elided:
        if not 0 < number < len(history) or not isinstance(history[number - 1], ToolMessage):
            return False
    for number in event.kept:
        if not 0 < number <= event.through or not isinstance(history[number - 1], UserMessage):
            return False
    return True
