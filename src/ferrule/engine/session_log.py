"""A session's log: events for the journal, events and pieces of text for observers.

Events wait in memory until something outside this process would follow from them; then they are
written together (`flush`). They leave the buffer only after the write, so a full disk loses
nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from hashlib import sha256
from json.encoder import encode_basestring as quote
from typing import Protocol

from ferrule.core.errors import JournalError
from ferrule.core.events import Event, Noticed
from ferrule.core.identity import Identity
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.storage.journal.protocols import Journal

from .live_events import ArgumentsDelta, Live, Observer, ReasoningDelta, TextDelta
from .write_batching import WriteBatch


class Outlet(Protocol):
    """Where everything in a session is published besides its observers (`engine.event_bus.bus`).

    Calls are quick and never raise.
    """

    def publish(self, item: Live) -> None:
        """Publish an event or a piece of text."""
        ...

    def on_flush(self) -> None:
        """Take note that everything published so far is in the journal."""
        ...

    @property
    def is_watched(self) -> bool:
        """Whether any subscriber wants the model's text as it arrives."""
        ...


class _WriteCount:
    """How often this process has written a session; shared by all logs of it."""

    __slots__ = ("__weakref__", "number")

    def __init__(self) -> None:
        self.number = 0


_COUNTS: weakref.WeakValueDictionary[tuple[int, str], _WriteCount] = weakref.WeakValueDictionary()
"""By the identity of the journal, which each log keeps alive, and the session."""


class SessionLog:
    """The log of one session. Implements `models.client.Sink`.

    Args:
        journal: Where its events are written.
        identity: The session's owner; `begin_run` names the run.
        together: Shares its writes with those of other sessions.
        connect: Makes what else its events are published to; None for nothing.
        recorded: Whether the session is in the journal.
    """

    def __init__(
        self,
        journal: Journal,
        identity: Identity,
        together: WriteBatch | None = None,
        *,
        connect: Callable[[SessionLog], Outlet] | None = None,
        recorded: bool = False,
    ) -> None:
        self.journal = journal
        self.identity = identity
        self.write_batch = together or WriteBatch.of(journal)
        self.outlet = None if connect is None else connect(self)
        self._observers: tuple[Observer, ...] = ()
        self._outlet_watched = False
        self._arrived: list[str] = []
        self.history_digest = HistoryDigest()
        self.is_recorded = recorded
        """Whether the session is in the journal: one that was opened and never used is not."""
        self.unwritten: list[Event] = []
        """Events that the journal does not have yet."""
        self._writes = _COUNTS.setdefault((id(journal), identity.session), _WriteCount())
        self._known_writes = self._writes.number

    @property
    def is_watched(self) -> bool:
        """Whether anyone wants the model's text as it arrives."""
        return bool(self._observers) or self._outlet_watched

    def begin_run(self, run: str) -> None:
        """Write what follows as the events of this run."""
        who = self.identity
        self.identity = Identity(who.tenant, who.user, who.session, run)

    def mark_written(self, count: int) -> None:
        """Take note that the first events that were unwritten are in the journal now."""
        # In place: another thread may add to the list meanwhile.
        del self.unwritten[:count]
        self._note_write()

    def _note_write(self) -> None:
        self._writes.number += 1
        self._known_writes = self._writes.number
        self.is_recorded = True

    def _require_own_end(self) -> None:
        """Refuse to write behind what another session object has written.

        Raises JournalError; what was to be written is dropped, since it belongs to no history.
        """
        if self.unwritten and self._known_writes != self._writes.number:
            self.unwritten.clear()
            raise JournalError(
                f"session `{self.identity.session}` was continued by another session object of "
                "this process, so this one no longer knows its end; nothing was written",
                code="session_continued_elsewhere",
                hint="use one object for each session, or take the session anew "
                "(`agent.session(id=..., resume=True)`) for each message",
            )

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
        """Add an event to the log and show it to observers. The next `flush` writes it."""
        self.unwritten.append(event)
        self.show(event)

    def flush(self) -> None:
        """Write all unwritten events to the journal.

        Raises JournalError, and keeps them, if that fails.
        """
        if self.unwritten:
            self._require_own_end()
            with self.write_batch.lock:
                # A thread may have written them while this one waited.
                if self.unwritten:
                    self._append()
        self._on_flush()

    def _append(self) -> None:
        self.journal.append(
            self.identity.session, self.identity.run, self.unwritten, identity=self.identity
        )
        self.unwritten = []
        self._note_write()

    def _on_flush(self) -> None:
        if self.outlet is not None:
            self.outlet.on_flush()
            # Read here, before each request to the model, and not for every piece of its answer.
            self._outlet_watched = self.outlet.is_watched

    async def flush_together(self) -> None:
        """Write all unwritten events, in one write with those of other sessions that wait too.

        The events are also written if it is cancelled while it waits for the others. Raises
        JournalError, and keeps them, if that fails.
        """
        self._require_own_end()
        if self.write_batch.is_remote:
            if self.unwritten:
                await self.write_batch.write(self)
            self._on_flush()
            return
        try:
            if len(self.write_batch.active_runs) > 1:
                await self.write_batch.write(self)
        finally:
            self.flush()

    def record(self, event: Event) -> None:
        """Add an event and write it at once, for what something outside this process follows from.

        Raises JournalError.
        """
        self.add(event)
        self.flush()

    def show(self, item: Live) -> None:
        """Show an item to the outlet and the observers. It is not journaled."""
        if self.outlet is not None:
            self.outlet.publish(item)
        for observer in self._observers:
            observer(item)

    def add_text(self, piece: str) -> None:
        """Show a piece of the answer, as the model client received it."""
        self._arrived.append(piece)
        self.show(TextDelta(piece))

    def take_arrived_text(self) -> str:
        """Return what arrived of an answer that has not ended, and begin anew."""
        if not self._arrived:
            return ""
        text = "".join(self._arrived).strip()
        self._arrived.clear()
        return text

    def add_reasoning(self, piece: str) -> None:
        """Show a piece of the model's reasoning, as the model client received it."""
        self.show(ReasoningDelta(piece))

    def add_arguments(self, call: int, tool: str, piece: str) -> None:
        """Show a piece of a call's arguments, as the model client received it."""
        self.show(ArgumentsDelta(call, tool, piece))

    def add_notices(self, notices: list[tuple[str, str]]) -> None:
        """Add notices that a model client kept because nobody was watching, and empty the list."""
        for topic, text in notices:
            self.notice(topic, text)
        notices.clear()

    def notice(self, topic: str, text: str) -> None:
        """Add a notice for a person: a retry, a truncation, a fallback, a change of mode."""
        self.add(Noticed(topic, text))


class HistoryDigest:
    """The digest of a history: proof of what a model was shown, small enough for the journal.

        SHA-256( line of message 1 || line of message 2 || ... )

    A line is a message as compact JSON in UTF-8 (lone surrogates replaced) with a newline:
    `["user", text]`, `["assistant", text, [[id, tool, arguments], ...], reasoning, raw]` or
    `["tool", call id, tool, text, success]`, with `, [at, sha256]` for each medium. System text
    and tools are not part of it: they are in
    the session's first event. Only messages that are new since the last time are hashed; after a
    compaction, which makes another list of them, everything the model is sent from then on.
    """

    def __init__(self) -> None:
        self._hash = sha256()
        self._count = 0
        self._history: Sequence[Message] = ()

    def digest(self, history: Sequence[Message]) -> str:
        """Return the digest of a whole history as 64 hexadecimal digits.

        If it is the same list as the last time, it must only have grown.
        """
        if history is not self._history:
            self._hash = sha256()
            self._count = 0
            self._history = history
        for message in history[self._count :]:
            self._hash.update(_digest_line(message).encode("utf-8", "replace"))
        self._count = len(history)
        return self._hash.hexdigest()


def _digest_line(message: Message) -> str:
    # Written by hand: this runs for every message, and an encoder costs more than all of it.
    if isinstance(message, ToolMessage):
        parts = [quote(message.call_id), quote(message.tool), quote(message.text)]
        success = "true" if message.success else "false"
        return f'["tool",{",".join(parts)},{success}{_digest_media(message)}]\n'
    if isinstance(message, AssistantMessage):
        calls = ",".join(
            [f"[{quote(one.id)},{quote(one.tool)},{quote(one.arguments)}]" for one in message.calls]
        )
        raw = "null" if message.raw is None else quote(message.raw)
        parts = [quote(message.text), f"[{calls}]", quote(message.reasoning), raw]
        return f'["assistant",{",".join(parts)}]\n'
    return f'["user",{quote(message.text)}{_digest_media(message)}]\n'


def _digest_media(message: UserMessage | ToolMessage) -> str:
    return "".join([f",[{one.at},{quote(one.sha256)}]" for one in message.media])
