"""Recent events in memory for readers that come back, limited in number and in bytes.

Not a history: what falls out is read from the journal instead.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .events import BusEvent, Place, SessionKey


@dataclass(slots=True)
class _SessionEvents:
    events: deque[BusEvent] = field(default_factory=deque[BusEvent])
    gone: Place = Place()
    """The place of the last event that fell out."""
    owner: object = None
    """Kept alive as long as any of its events is kept."""


class Ring:
    """The newest events of all sessions together.

    Not safe to share between threads: the bus holds its lock around each use.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._order: deque[SessionKey] = deque()
        self._sessions: dict[SessionKey, _SessionEvents] = {}
        self._bytes = 0

    def add(self, session: SessionKey, event: BusEvent, before: Place, owner: object) -> None:
        """Keep an event that follows the one at `before`."""
        kept = self._sessions.get(session)
        if kept is None:
            kept = self._sessions[session] = _SessionEvents(gone=before)
        kept.owner = owner
        kept.events.append(event)
        self._order.append(session)
        self._bytes += len(event.data)
        while len(self._order) > self._most or self._bytes > self._most_bytes:
            self._drop_oldest()

    def forget(self, session: SessionKey) -> None:
        """Forget all events of a session."""
        kept = self._sessions.pop(session, None)
        if kept is not None:
            self._order = deque(one for one in self._order if one != session)
            self._bytes -= sum(len(event.data) for event in kept.events)

    def _drop_oldest(self) -> None:
        # The oldest of all is the oldest of its session.
        session = self._order.popleft()
        kept = self._sessions[session]
        event = kept.events.popleft()
        assert event.sequence is not None
        kept.gone = event.sequence
        self._bytes -= len(event.data)
        if not kept.events:
            del self._sessions[session]

    def since(self, session: SessionKey, place: Place) -> tuple[Place | None, list[BusEvent]]:
        """Return `(gone, events)`: the events behind `place`, and the last place that is not kept.

        `gone` is None if nothing of the session is kept.
        """
        kept = self._sessions.get(session)
        if kept is None:
            return None, []
        return kept.gone, [
            event for event in kept.events if event.sequence is not None and event.sequence > place
        ]
