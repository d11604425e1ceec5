"""Events to rows and back: what the journals in SQLite and PostgreSQL have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import count
from typing import Any, NoReturn

from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError, JournalError
from ferrule.core.events import (
    CallEvaluated,
    Event,
    JournalRecord,
    ToolAnswered,
    Unknown,
    dump_event,
    event_from_json,
)
from ferrule.core.identity import Identity
from ferrule.core.limits import OUTPUT_CAP
from ferrule.core.value_class import mutable

from . import hash_chain
from .sqlite_database import SEQ_BITS

_WITH_RESULTS = frozenset({ToolAnswered, CallEvaluated})


@mutable
class WriterState:
    """The end of a session that this journal writes.

    `no` is 0 until the first event is written. `row_prefix` is the part of a row that all events of
    the run share (`hash_chain.row_prefix`); `last_run` is the run of the last event.
    """

    no: int
    seq: int
    hash: bytes
    owner: tuple[str, str]
    run: str = ""
    identity: Identity | None = None
    row_prefix: str = ""
    last_run: str | None = None


class EventChain:
    """Makes the records and rows of new events, with a journal's clock and its cap for results.

    `now` is the clock in seconds since 1970.

    Raises:
        ConfigError: `max_result_bytes` is more than `OUTPUT_CAP`.
    """

    def __init__(self, now: Callable[[], float], max_result_bytes: int) -> None:
        if max_result_bytes > OUTPUT_CAP:
            raise ConfigError(f"max_result_bytes = {max_result_bytes}: at most {OUTPUT_CAP}")
        self._now = now
        self._cap = max_result_bytes

    def extend(
        self,
        session: str,
        writing: WriterState,
        events: Sequence[Event],
        times: Sequence[int] | None = None,
    ) -> tuple[list[Event], list[tuple[Any, ...]]]:
        """Return the events as they will be kept and their rows, and move `writing` to the new end.

        Each event is hashed with the one before (see `hash_chain`). A row is `(key, time, run,
        kind, body, hash, names)`, as SQLite's table of records has it: `run` is None where it is
        that of the event before, `names` in all events but the first. `times` holds a time (ms
        since 1970) per event; without it the time is now.

        Raises:
            JournalError: The name of an unknown event kind cannot be stored.
            TypeError, ValueError, KeyError: An event is not JSON (see `not_json_error`).
        """
        kept: list[Event] = []
        rows: list[tuple[Any, ...]] = []
        time = int(self._now() * 1000)
        key = writing.no << SEQ_BITS
        seq = writing.seq
        previous = writing.hash
        run = writing.run
        address = writing.row_prefix
        new_run = None if run == writing.last_run else run
        names = None if seq else "\n".join((session, *writing.owner))
        for event in events:
            seq += 1
            if times is not None:
                time = times[len(rows)]
            kind, body = dump_event(event)
            # A character is at most 4 bytes, and JSON only makes a text longer: most results never
            # have to be measured.
            if type(event) in _WITH_RESULTS and len(body) * 4 > self._cap:
                event = hash_chain.cap_result(event, self._cap)
                kind, body = dump_event(event)
            elif type(event) is Unknown:
                hash_chain.check_kind(kind)
            try:
                row = f"{address}{kind}\n{seq}\n{time}\n{body}".encode()
            except UnicodeEncodeError:
                body = hash_chain.escape_surrogates(body)
                row = f"{address}{kind}\n{seq}\n{time}\n{body}".encode()
            previous = sha256(previous + row).digest()
            rows.append((key | seq, time, new_run, kind, body, previous, names))
            new_run = names = None
            kept.append(event)
        writing.seq = seq
        writing.hash = previous
        writing.last_run = run
        return kept, rows


def make_records(
    session: str, run: str, writing: WriterState, kept: Sequence[Event], rows: Sequence[Any]
) -> list[JournalRecord]:
    """Return the records of new events, from what `EventChain.extend` returned."""
    tenant, user = writing.owner
    first = writing.seq - len(rows) + 1
    return [
        JournalRecord(session, seq, time, run, event, digest.hex(), tenant, user, body)
        for seq, event, (_, time, _, _, body, digest, _) in zip(
            count(first), kept, rows, strict=False
        )
    ]


def check_times(events: Sequence[Event], times: Sequence[int] | None) -> None:
    """Raise ValueError unless there is one time per event, or none at all."""
    if times is not None and len(times) != len(events):
        raise ValueError("`at` needs one time per event")


def not_json_error(error: Exception) -> JournalError:
    """Return the error for an event that cannot be written as JSON."""
    return JournalError(f"an event is not JSON: {error}", code="journal_event")


def read_records(
    session: str,
    after: int,
    read_page: Callable[[int], list[tuple[Any, ...]]],
    broken: Callable[[str, int, str], NoReturn],
) -> Iterator[JournalRecord]:
    """Yield a session's events after number `after`, oldest first.

    Args:
        session: Id of the session.
        after: Number of the event before the first; 0 begins at the beginning.
        read_page: Returns some rows from a number on, none at the end. A row is `(seq, time, run,
            kind, body, hash, tenant, user)`; the body is text or its bytes in UTF-8.
        broken: Raises the error for an event that is missing or cannot be read.
    """
    expected = max(after, 0) + 1
    while page := read_page(expected):
        for seq, time, run, kind, body, digest, tenant, user in page:
            if seq != expected:
                broken(session, expected, "is missing")
            try:
                text = body.decode() if isinstance(body, bytes) else body
                event = event_from_json(kind, parse_json(text))
                digest_text = digest.hex()
            except (ValueError, TypeError, AttributeError):
                broken(session, seq, "cannot be read")
            yield JournalRecord(session, seq, time, run, event, digest_text, tenant, user, text)
            expected += 1
