"""What a session says of itself: events into the journal, events and pieces to whoever watches.

Events wait in memory until something outside this process would follow from them; then they are
written together (`flush`). They leave the buffer only after the write: a full disk loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from json.encoder import encode_basestring as quote
from typing import Protocol

from ferrule.core.events import Event, Noticed
from ferrule.core.identity import Identity
from ferrule.core.messages import AssistantMessage, Message, ToolMessage
from ferrule.storage.journal.protocols import Journal

from .live_events import Live, Observer, ReasoningDelta, TextDelta
from .write_batching import Together


class Outlet(Protocol):
    """Where all that a session says goes besides its observer (`engine.event_bus.bus`). Calls are
    quick and never raise.
    """

    def publish(self, item: Live) -> None:
        """Something happened."""
        ...

    def flushed(self) -> None:
        """What happened so far is in the journal."""
        ...

    @property
    def watched(self) -> bool:
        """Whether anybody there wants a model's words as they arrive."""
        ...


class Log:
    """One session's. Fulfils `models.client.Sink`."""

    def __init__(
        self, journal: Journal, identity: Identity, together: Together | None = None
    ) -> None:
        self.journal = journal
        self.identity = identity
        self.together = together or Together(journal)
        self.outlet: Outlet | None = None
        self._observers: tuple[Observer, ...] = ()
        self._outlet_watched = False
        self.shown = Shown()
        self.begun = False
        """Whether the session is in the journal: one that was opened and never used is not."""
        self.unwritten: list[Event] = []
        """What the journal does not have yet."""

    @property
    def watched(self) -> bool:
        """Whether anybody wants a model's words as they arrive."""
        return bool(self._observers) or self._outlet_watched

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Show everything that happens from now on to `observer` too.

        Returns:
            A function that stops it. Calling it again does nothing.
        """

        def notify(item: Live) -> None:
            observer(item)

        self._observers = (*self._observers, notify)

        def stop() -> None:
            self._observers = tuple(one for one in self._observers if one is not notify)

        return stop

    def add(self, event: Event) -> None:
        """Remember an event and show it. Written by the next `flush`."""
        self.unwritten.append(event)
        self.show(event)

    def flush(self) -> None:
        """Write what is unwritten. Raises JournalError, and keeps it, if that fails."""
        if self.unwritten:
            self.journal.append(
                self.identity.session, self.identity.run, self.unwritten, identity=self.identity
            )
            self.unwritten, self.begun = [], True
        if self.outlet is not None:
            self.outlet.flushed()
            # Read here, before each request to the model, rather than for every piece of its answer.
            self._outlet_watched = self.outlet.watched

    async def kept(self) -> None:
        """`flush`, with the events of other sessions that are at this point too. Also if it is
        cancelled while it waits for them.
        """
        try:
            if self.together.running > 1:
                await self.together.write(self)
        finally:
            self.flush()

    def record(self, event: Event) -> None:
        """Remember an event and write it at once: something outside this process follows from it.
        Raises JournalError.
        """
        self.add(event)
        self.flush()

    def show(self, item: Live) -> None:
        """Show something to the outlet and the observers. It is not journaled."""
        if self.outlet is not None:
            self.outlet.publish(item)
        for observer in self._observers:
            observer(item)

    def text(self, piece: str) -> None:
        """A piece of the answer, from the wire."""
        self.show(TextDelta(piece))

    def reasoning(self, piece: str) -> None:
        """A piece of the model's thinking, from the wire."""
        self.show(ReasoningDelta(piece))

    def take(self, notices: list[tuple[str, str]]) -> None:
        """Notices that a wire kept because nobody watched; the list is emptied."""
        for topic, text in notices:
            self.notice(topic, text)
        notices.clear()

    def notice(self, topic: str, text: str) -> None:
        """Something a person should know: a retry, a truncation, a fallback, a change of mode."""
        self.add(Noticed(topic, text))


class Shown:
    """The digest of a history: proof of what a model was shown, small enough to stand in the
    journal.

        SHA-256( line of message 1 || line of message 2 || ... )

    A line is a message as compact JSON in UTF-8 (lone surrogates replaced) with a newline:
    `["user", text]`, `["assistant", text, [[id, tool, arguments], ...], reasoning, raw]` or
    `["tool", call id, tool, text, success]`. System text and tools are not part of it: they stand
    in the session's first event. Only messages that are new since the last time are hashed; after a
    compaction, which makes another list of them, all that the model is sent from then on.
    """

    def __init__(self) -> None:
        self._hash = sha256()
        self._count = 0
        self._history: Sequence[Message] = ()

    def digest(self, history: Sequence[Message]) -> str:
        """Of all of a history, as 64 hexadecimal digits. The same list has only grown since the
        last time.
        """
        if history is not self._history:
            self._hash, self._count, self._history = sha256(), 0, history
        for message in history[self._count :]:
            # Written by hand: this runs for every message, and an encoder costs more than all of
            # it.
            if isinstance(message, ToolMessage):
                parts = [quote(message.call_id), quote(message.tool), quote(message.text)]
                line = f'["tool",{",".join(parts)},{"true" if message.success else "false"}]\n'
            elif isinstance(message, AssistantMessage):
                calls = ",".join(
                    [
                        f"[{quote(one.id)},{quote(one.tool)},{quote(one.arguments)}]"
                        for one in message.calls
                    ]
                )
                raw = "null" if message.raw is None else quote(message.raw)
                line = f'["assistant",{quote(message.text)},[{calls}],{quote(message.reasoning)},{raw}]\n'
            else:
                line = f'["user",{quote(message.text)}]\n'
            self._hash.update(line.encode("utf-8", "replace"))
        self._count = len(history)
        return self._hash.hexdigest()
