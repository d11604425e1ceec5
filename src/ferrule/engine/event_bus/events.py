"""Events of the bus: an event or a piece of one session, encoded once, without secrets.

An event of the journal has the number that it has there, even before it is written: a session has
one writer. Pieces (text as it arrives, lines of progress) are never stored; they are numbered
behind the event before them. So the place of an event is the same in every process, and event 12 is
followed by 12.1 or 13.

    {"v":1,"kind":…,"tenant":…,"user":…,"session":…,"run":…,"time":…,"sequence":"12.1","cursor":…,"payload":{…}}

`time` is ms since 1970: when it happened, or, for events that were read from the journal, when they
were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from json.encoder import encode_basestring
from typing import Any, ClassVar, NamedTuple, Protocol, get_args

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import FerruleError
from ferrule.core.events import Event, JournalRecord, dump_event
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.engine.live_events import ArgumentsDelta, Live, Progress, ReasoningDelta, TextDelta
from ferrule.storage.journal.hash_chain import escape_surrogates

FORMAT = 1
"""Version of the encoded form."""

DROPPED = "bus.dropped"
"""Tells a subscriber that was too slow which events it missed."""
CLOSED = "bus.closed"
"""The last event of a subscription that the bus ended; `reason` says why."""
OPERATOR = "bus.operator"
"""Somebody subscribed as an operator: who, to what, and why."""
REDACTION_FAILED = "audit.redaction_failed"
"""Replaces an event whose payload could not be redacted: `of` is its kind."""

PIECES: dict[type, str] = {
    TextDelta: "piece.text",
    ReasoningDelta: "piece.reasoning",
    Progress: "piece.progress",
}
KINDS = frozenset(
    {str(cls.kind) for cls in get_args(Event)}
    | set(PIECES.values())
    | {
        "piece.arguments",
        "approval.requested",
        "bus.tap_removed",
        DROPPED,
        CLOSED,
        OPERATOR,
        REDACTION_FAILED,
    }
)
"""All kinds of events, except those that a later version wrote."""


SessionKey = tuple[str, str, str]
"""Tenant, user, session."""


class CursorError(FerruleError):
    """A subscription cannot start where requested: `cursor_unknown` or `cursor_too_old`."""

    code = "cursor_unknown"
    exit_code = 2


class EventRedactor(Protocol):
    """Removes secrets (`permissions.redaction.Redactor`). Used from several threads.

    If it raises, the payload is withheld.
    """

    @property
    def needs_whole_lines(self) -> bool:
        """Whether a secret may contain spaces."""
        ...

    def redact_json(self, text: str) -> str:
        """Remove secrets from JSON text."""
        ...

    def redact_text(self, text: str) -> str:
        """Remove secrets from text."""
        ...

    def may_contain_secret(self, text: str) -> bool:
        """Whether the text may contain a secret, or the beginning of one in its last line."""
        ...


class Place(NamedTuple):
    """A position in a session: the number of the event, and of the piece behind it.

    Piece 0 is the event itself.
    """

    event: int = 0
    piece: int = 0

    def __str__(self) -> str:
        return f"{self.event}.{self.piece}" if self.piece else str(self.event)

    @staticmethod
    def parse(text: str) -> Place:
        """Parse a place. Raises CursorError."""
        event, _, piece = text.partition(".")
        if not (_is_number(event) and (not piece or _is_number(piece))):
            raise CursorError(
                f"no such place: {text[:40]!r}", hint="give a cursor back as it was received"
            )
        return Place(int(event), int(piece or 0))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


@frozen
class ApprovalRequested:
    """A person is asked for an approval, as subscribers see it.

    The approver gets the request itself, unredacted.
    """

    kind: ClassVar[str] = "approval.requested"
    call_id: str
    tool: str
    risk: str
    reason: str
    digest: str
    labels: tuple[str, ...] = ()
    preview: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])


@frozen
class OperatorSubscribed:
    """See `OPERATOR`. `tenant`, `user` and `session` say to what; "" means all of them."""

    kind: ClassVar[str] = OPERATOR
    operator: str
    reason: str = ""
    tenant: str = ""
    user: str = ""
    session: str = ""


@frozen
class TapRemoved:
    """A tap of the bus raised and was removed; for operators."""

    kind: ClassVar[str] = "bus.tap_removed"
    error: str


@frozen
class ArgumentsPiece:
    """A piece of the arguments of a call that the model is still writing.

    Nothing of it has been checked, and the call may never be made.

    Attributes:
        call: Tells the calls of one answer apart.
        tool: The name of the tool, as the model was given it.
        name: The member of the arguments that it belongs to.
        text: What the member's text goes on with, without JSON's escapes; JSON of any other value.
    """

    kind: ClassVar[str] = "piece.arguments"
    call: int
    tool: str
    name: str = ""
    text: str = ""


Item = Live | ArgumentsPiece | ApprovalRequested | OperatorSubscribed | TapRemoved
"""What a feed publishes."""


@frozen
class BusEvent:
    """One event or piece. Immutable, shared by all that receive it.

    Attributes:
        kind: The kind of event.
        identity: Whose it is; None for what the bus tells one subscriber alone.
        time: Seconds since 1970.
        sequence: Its place in its session; None as for `identity`.
        cursor: Given to `subscribe`, it continues behind this event.
        data: The encoded form, in UTF-8.
    """

    kind: str
    identity: Identity | None
    time: float
    sequence: Place | None
    cursor: str
    data: bytes

    @property
    def payload(self) -> dict[str, Any]:
        """The event's own fields, as JSON values without secrets.

        It is parsed from `data` each time: keep it if you need it twice.
        """
        return parse_json(self.data)["payload"]


def describe(item: Item) -> tuple[str, str]:
    """Return `(kind, body)` of an item, including secrets.

    Raises TypeError for what has no JSON form.
    """
    if isinstance(item, Progress):
        tail = {"is_tail": True} if item.is_tail else {}
        return PIECES[Progress], encode_json({"call_id": item.call_id, "text": item.text, **tail})
    if isinstance(item, TextDelta | ReasoningDelta):
        return PIECES[type(item)], encode_json({"text": item.text})
    if isinstance(item, ArgumentsDelta):
        raise TypeError("JSON text of arguments is published as `ArgumentsPiece`")
    if isinstance(item, ArgumentsPiece):
        # By name: listing the fields takes longer than the rest, and a call has thousands.
        shown = {"call": item.call, "tool": item.tool, "name": item.name, "text": item.text}
        return item.kind, encode_json(shown)
    if isinstance(item, ApprovalRequested | OperatorSubscribed | TapRemoved):
        shown = {one.name: getattr(item, one.name) for one in fields(item)}
        return item.kind, encode_json(shown)
    return dump_event(item)


def redact(item: Item, redactor: EventRedactor) -> tuple[str, str]:
    """Return `(kind, body)` without secrets.

    If that fails for any reason, the payload is withheld and the kind is `FAILED`.
    """
    kind = "unknown"
    try:
        kind, body = describe(item)
        return kind, redactor.redact_json(body)
    except Exception as error:  # noqa: BLE001  boundary: what could not be redacted is not shown, nor what an error says of it
        return REDACTION_FAILED, encode_json({"of": kind, "error": type(error).__name__})


def seal(
    kind: str,
    body: str,
    *,
    identity: Identity | None,
    time: float,
    place: Place | None,
    cursor: str = "",
) -> BusEvent:
    """Build the event with its encoded form."""
    who = identity
    names = ("", "", "", "") if who is None else (who.tenant, who.user, who.session, who.run)
    tenant, user, session, run = map(encode_basestring, names)
    sequence = "" if place is None else place
    head = (
        f'{{"v":{FORMAT},"kind":{encode_basestring(kind)},'
        f'"tenant":{tenant},"user":{user},"session":{session},"run":{run},'
        f'"time":{int(time * 1000)},"sequence":"{sequence}","cursor":"{cursor}","payload":'
    )
    try:
        data = f"{head}{body}}}".encode()
    except UnicodeEncodeError:
        data = escape_surrogates(f"{head}{body}}}").encode()
    return BusEvent(kind, who, time, place, cursor, data)


@frozen
class LostEvents:
    """Events of a session that a reader missed: the first, the last and how many."""

    session: SessionKey
    first: Place
    last: Place
    count: int


def count_lost(lost: Sequence[LostEvents], time: float) -> BusEvent:
    """Build the notice about lost events."""
    ranges = [
        {
            **dict(zip(("tenant", "user", "session"), one.session, strict=True)),
            "first": str(one.first),
            "last": str(one.last),
            "count": one.count,
        }
        for one in lost
    ]
    body = encode_json({"count": sum(one.count for one in lost), "ranges": ranges})
    return seal(DROPPED, body, identity=None, time=time, place=None)


def from_record(record: JournalRecord, redactor: EventRedactor) -> BusEvent:
    """Build the event of a journal's record."""
    kind, body = redact(record.event, redactor)
    who = Identity(record.tenant, record.user, record.session, record.run)
    place = Place(record.seq)
    return seal(kind, body, identity=who, time=record.time / 1000, place=place, cursor=str(place))
