"""A session's publisher on the bus: number, redact, encode and deliver its events in order."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import Protocol

from ferrule.core.events import Cancelled, LimitHit, ModelAnswered, ModelFailed, RunFinished
from ferrule.core.identity import Identity
from ferrule.engine.clock import Clock
from ferrule.engine.live_events import ArgumentsDelta, Progress, ReasoningDelta, TextDelta
from ferrule.storage.journal.protocols import Journal
from ferrule.tools.forking import make_rlock

from .argument_redaction import ArgumentsRedactor
from .events import (
    ApprovalRequested,
    ArgumentsPiece,
    BusEvent,
    EventRedactor,
    Item,
    OperatorSubscribed,
    Place,
    SessionKey,
    TapRemoved,
    redact,
    seal,
)
from .live_redaction import PieceRedactor

_Text = TextDelta | ReasoningDelta
_PIECES = (
    TextDelta,
    ReasoningDelta,
    ArgumentsPiece,
    Progress,
    ApprovalRequested,
    OperatorSubscribed,
    TapRemoved,
)
_INTERRUPTIONS = (ModelFailed, Cancelled, LimitHit, RunFinished)
_ANSWER_ENDS = (ModelAnswered, *_INTERRUPTIONS)


class Hub(Protocol):
    """The bus, as far as a feed needs it."""

    redactor: EventRedactor
    clock: Clock

    def deliver(self, feed: Feed, event: BusEvent, place: Place) -> None:
        """Deliver an event to its readers, and move the feed to `place`."""
        ...

    def wants_pieces(self, session: SessionKey) -> bool:
        """Whether a reader of this session wants the model's text as it arrives."""
        ...


class Feed:
    """Publishes what happens in one session, with numbers. Implements `session_log.Outlet`.

    Made by `Bus.feed`; safe to share between threads.
    """

    def __init__(
        self,
        bus: Hub,
        identity: Callable[[], Identity],
        journal: Journal | None,
        recorded: int,
        find_address: Callable[[str], str] | None = None,
    ) -> None:
        self.journal = journal
        self.place = Place(recorded)
        self.is_registered = False
        """Whether the bus knows the feed: from the first event that it publishes."""
        self.find_address = find_address
        """Returns the URL at which the session reaches a model; None if nobody knows."""
        self.epoch = token_hex(4)
        self._bus = bus
        self._identity = identity
        self._written = recorded
        self._lock = make_rlock()
        self._text = {kind: PieceRedactor(bus.redactor) for kind in (TextDelta, ReasoningDelta)}
        self._arguments: dict[int, ArgumentsRedactor] = {}
        """Of the calls that the model is writing, by their numbers in the answer."""

    def move(self, place: Place) -> Place:
        """Move to the place behind the event that is delivered, and return the place before it."""
        before, self.place = self.place, place
        return before

    def register(self) -> bool:
        """Take note that the bus knows it, and return whether that is new."""
        is_new = not self.is_registered
        self.is_registered = True
        return is_new

    def publish(self, item: Item) -> None:
        """Publish an item. Never raises for what readers do, and never waits for them."""
        with self._lock:
            if isinstance(item, TextDelta | ReasoningDelta):
                pieces = self._text[type(item)]
                self._publish_piece(type(item), lambda: pieces.add(item.text))
                return
            if isinstance(item, ArgumentsDelta):
                self._publish_arguments(item)
                return
            if isinstance(item, ModelAnswered):
                for kind, pieces in self._text.items():
                    self._publish_piece(kind, pieces.finish)
            elif isinstance(item, _INTERRUPTIONS):
                for pieces in self._text.values():
                    pieces.drop()
            if isinstance(item, _ANSWER_ENDS):
                # The answer has the arguments whole: what is still held of them is not missed.
                self._arguments.clear()
            self._publish(item, self._bus.redactor)

    def on_flush(self) -> None:
        """Take note that what was published is in the journal."""
        self._written = self.place.event

    @property
    def is_watched(self) -> bool:
        """Whether anyone wants text as it arrives: only then is the model asked to stream."""
        return self._bus.wants_pieces(self.key)

    @property
    def key(self) -> SessionKey:
        who = self._identity()
        return (who.tenant, who.user, who.session)

    @property
    def cursor(self) -> str:
        """The session's current position."""
        return f"{self.place}~{self._written}~{self.epoch}"

    def _publish_arguments(self, item: ArgumentsDelta) -> None:
        redactor = self._arguments.get(item.call)
        if redactor is None:
            redactor = self._arguments[item.call] = ArgumentsRedactor(self._bus.redactor)
        try:
            shown = redactor.add(item.text)
        except Exception:  # noqa: BLE001  boundary: a redactor that fails withholds the piece, which `_publish` reports
            self._publish(ArgumentsPiece(item.call, item.tool), _Withhold())
            return
        for name, text in shown:
            self._publish(ArgumentsPiece(item.call, item.tool, name, text), _PassThrough())

    def _publish_piece(self, kind: type[_Text], take: Callable[[], str]) -> None:
        try:
            shown = take()
        except Exception:  # noqa: BLE001  boundary: a redactor that fails withholds the piece, which `_publish` reports
            self._publish(kind(""), _Withhold())
        else:
            if shown:
                self._publish(kind(shown), _PassThrough())

    def _publish(self, item: Item, redactor: EventRedactor) -> None:
        kind, body = redact(item, redactor)
        before = self.place
        if isinstance(item, _PIECES):
            place = Place(before.event, before.piece + 1)
        else:
            place = Place(before.event + 1)
        event = seal(
            kind,
            body,
            identity=self._identity(),
            time=self._bus.clock.now(),
            place=place,
            cursor=f"{place}~{self._written}~{self.epoch}",
        )
        self._bus.deliver(self, event, place)


class _PassThrough:
    """Passes text that was redacted already, when enough of it had arrived."""

    needs_whole_lines = False

    def redact_json(self, text: str) -> str:
        return text

    def redact_text(self, text: str) -> str:
        return text

    def may_contain_secret(self, text: str) -> bool:
        return False


class _Withhold(_PassThrough):
    """Withholds text that could not be redacted."""

    def redact_json(self, text: str) -> str:
        raise ValueError("not redacted")
