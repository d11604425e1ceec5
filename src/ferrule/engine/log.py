"""What a session says of itself: events into the journal, events and pieces to whoever watches.

Events wait in memory until something outside this process would follow from them; then they are
written together (`flush`). They leave the buffer only after the write: a full disk loses nothing.
"""

from __future__ import annotations

from ferrule.core.events import Event, Noticed
from ferrule.core.identity import Identity
from ferrule.store.journal import Journal

from .live import Live, Observer, ReasoningDelta, TextDelta


class Log:
    """One session's. Fulfils `models.wire.Sink`."""

    def __init__(self, journal: Journal, identity: Identity) -> None:
        self.journal = journal
        self.identity = identity
        self.observer: Observer | None = None
        self.begun = False
        """Whether the session is in the journal: one that was opened and never used is not."""
        self._unwritten: list[Event] = []

    def add(self, event: Event) -> None:
        """Remember an event and show it. Written by the next `flush`."""
        self._unwritten.append(event)
        if self.observer:
            self.observer(event)

    def flush(self) -> None:
        """Write what is unwritten. Raises JournalError, and keeps it, if that fails."""
        if self._unwritten:
            self.journal.append(
                self.identity.session, self.identity.run, self._unwritten, identity=self.identity
            )
            self._unwritten = []
            self.begun = True

    def show(self, item: Live) -> None:
        """Show something that is not journaled."""
        if self.observer:
            self.observer(item)

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
