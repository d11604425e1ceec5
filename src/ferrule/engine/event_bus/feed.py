"""The way of a session onto the bus: what happens in it is numbered, redacted, encoded and handed
on, in its order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from secrets import token_hex
from typing import Protocol

from ferrule.core.events import Cancelled, LimitHit, ModelAnswered, ModelFailed, RunFinished
from ferrule.core.identity import Identity
from ferrule.engine.clock import Clock
from ferrule.engine.live_events import Progress, ReasoningDelta, TextDelta
from ferrule.storage.journal.protocols import Journal

from .events import (
    ApprovalAsked,
    BusEvent,
    Item,
    OperatorSubscribed,
    Place,
    Redacts,
    SessionKey,
    TapRemoved,
    redacted,
    sealed,
)
from .live_redaction import Pieces

_Text = TextDelta | ReasoningDelta
_UNNUMBERED = (TextDelta, ReasoningDelta, Progress, ApprovalAsked, OperatorSubscribed, TapRemoved)
_BROKEN_OFF = (ModelFailed, Cancelled, LimitHit, RunFinished)


class Hub(Protocol):
    """What a feed needs of the bus."""

    redactor: Redacts
    clock: Clock

    def hand_on(self, feed: Feed, event: BusEvent, place: Place) -> None:
        """To whoever it is for; moves the feed to `place`."""
        ...

    def wants_pieces(self, session: SessionKey) -> bool:
        """Whether a reader of this session wants words as they arrive."""
        ...


class Feed:
    """The way of one session onto the bus: numbers what happens in it. Fulfils `log.Outlet`. Made
    by `Bus.feed`; safe to share.
    """

    def __init__(
        self, bus: Hub, identity: Callable[[], Identity], journal: Journal | None, recorded: int
    ) -> None:
        self.journal = journal
        self.place = Place(recorded)
        self.known = False
        """Whether the bus knows it: from what it publishes first."""
        self.epoch = token_hex(4)
        self._bus = bus
        self._identity = identity
        self._written = recorded
        self._lock = threading.RLock()
        self._text = {kind: Pieces(bus.redactor) for kind in (TextDelta, ReasoningDelta)}

    def publish(self, item: Item) -> None:
        """Tell whoever watches. Never raises for what they do, and never waits for them."""
        with self._lock:
            if isinstance(item, TextDelta | ReasoningDelta):
                self._piece(type(item), lambda pieces: pieces.add(item.text))
                return
            if isinstance(item, ModelAnswered):
                for kind in self._text:
                    self._piece(kind, Pieces.rest)
            elif isinstance(item, _BROKEN_OFF):
                for pieces in self._text.values():
                    pieces.drop()
            self._out(item, self._bus.redactor)

    def flushed(self) -> None:
        """What was published is in the journal."""
        self._written = self.place.event

    @property
    def watched(self) -> bool:
        """Whether anybody wants words as they arrive: only then is the model asked to send them
        so.
        """
        return self._bus.wants_pieces(self.key)

    @property
    def key(self) -> SessionKey:
        who = self._identity()
        return (who.tenant, who.user, who.session)

    @property
    def cursor(self) -> str:
        """Where this session is now."""
        return f"{self.place}~{self._written}~{self.epoch}"

    def _piece(self, kind: type[_Text], take: Callable[[Pieces], str]) -> None:
        try:
            shown = take(self._text[kind])
        except Exception:  # noqa: BLE001  boundary: a redactor that fails withholds the piece, which `_out` reports
            self._out(kind(""), _Withheld())
        else:
            if shown:
                self._out(kind(shown), _Passed())

    def _out(self, item: Item, redactor: Redacts) -> None:
        kind, body = redacted(item, redactor)
        who, before = self._identity(), self.place
        piece = isinstance(item, _UNNUMBERED)
        place = Place(before.event, before.piece + 1) if piece else Place(before.event + 1)
        now, cursor = self._bus.clock.now(), f"{place}~{self._written}~{self.epoch}"
        self._bus.hand_on(
            self, sealed(kind, body, identity=who, time=now, place=place, cursor=cursor), place
        )


class _Passed:
    """For text that was redacted already, when it was whole enough for that."""

    by_line = False

    def body(self, text: str) -> str:
        return text

    def text(self, text: str) -> str:
        return text

    def may_hold(self, text: str) -> bool:
        return False


class _Withheld(_Passed):
    """For text that could not be."""

    def body(self, text: str) -> str:
        raise ValueError("not redacted")
