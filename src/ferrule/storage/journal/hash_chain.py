r"""The hash chain of a session: what is hashed, how a chain is checked, what a row may contain.

The hash of an event is

    SHA-256( previous hash (32 bytes) || row )

    row = session \n run \n tenant \n user \n kind \n seq \n time \n body        in UTF-8

`seq` and `time` (ms since 1970) are decimal, `body` is the event's compact JSON exactly as stored.
The names before `body` contain no newline, so a row can be read in one way only. The hash before
the first event is 32 zero bytes. Lone surrogates cannot be stored as UTF-8: a body that has any is
written with `\u` escapes.

Beside its events, a session has a seal, which each append writes anew:

    seal = BLAKE2s( hash of the last event ), 16 bytes

What the chain shows: an event that was changed, removed, inserted or moved; and a tail that was cut
off, because the seal is not that of the event that is now the last one. What it cannot show: a
forger who computes hashes, for there is no key in them (one seal is enough to hide that a tail was
cut off), or an older copy of the journal put in place of this one. Against both, keep the hash of
`Journal.head` somewhere else and compare, or sign it (`audit.checkpoints`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2s, sha256
from typing import NoReturn

from ferrule.core.calls import ToolResult, encode_json, parse_json
from ferrule.core.errors import JournalError
from ferrule.core.events import CallEvaluated, Event, ToolAnswered

FIRST_HASH = bytes(32)
"""The hash before the first event."""


def hash_row(previous: bytes, row: bytes) -> bytes:
    """Return the hash of a row that follows `previous`."""
    return sha256(previous + row).digest()


def seal(digest: bytes) -> bytes:
    """Return the seal of a session whose last event has this hash."""
    # BLAKE2s: SHA-256 takes twice as long for so few bytes, and every append of a run computes it.
    return blake2s(digest, digest_size=16).digest()


def row_prefix(session: str, run: str, tenant: str, user: str) -> str:
    """Return the part of a row that all events of a run share.

    Raises:
        JournalError: A name is empty or contains a newline.
    """
    names = (session, run, tenant, user)
    if not session or any("\n" in name or "\0" in name for name in names):
        raise JournalError(
            f"unusable name in {names!r}: empty, or with a line break", code="journal_name"
        )
    return "\n".join(names) + "\n"


def check_kind(kind: str) -> None:
    """Refuse the kind of an unknown event if it would break the row. Raises JournalError."""
    if not kind or "\n" in kind or "\0" in kind:
        raise JournalError(f"unusable event kind: {kind!r}", code="journal_name")


def escape_surrogates(body: str) -> str:
    """Return a body that contains lone surrogates, which UTF-8 cannot hold, as pure ASCII JSON."""
    return json.dumps(parse_json(body), separators=(",", ":"))


def cap_result(event: Event, cap: int) -> Event:
    """Cut the event's result to `cap` bytes of text: a last check, after the dispatcher's own.

    The cut is on a character boundary, sets `partial`, is mentioned in `notes` and keeps the whole
    `size`.
    """
    if not isinstance(event, ToolAnswered | CallEvaluated) or event.result is None:
        return event
    result = event.result
    text = result.data if isinstance(result.data, str) else encode_json(result.data)
    message = result.error_message or ""
    if _size(text) <= cap and _size(message) <= cap:
        return event
    return replace(event, result=_cut(result, text, message, cap))


def _cut(result: ToolResult, text: str, message: str, cap: int) -> ToolResult:
    return replace(
        result,
        data=None if result.data is None else _head(text, cap),
        error_message=None if result.error_message is None else _head(message, cap),
        size=max(result.size, _size(text)),
        partial=True,
        notes=(*result.notes, f"[recorded up to {cap} bytes]"),
    )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _head(text: str, cap: int) -> str:
    # Cut in bytes; a character cut in two at the end is dropped, lone surrogates are kept.
    cut = text.encode("utf-8", "surrogatepass")[:cap]
    for _ in range(4):
        try:
            return cut.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            cut = cut[:-1]
    return cut.decode("utf-8", "ignore")


def check_rows(
    session: str, rows: Iterable[tuple[int, bytes | None, bytes]]
) -> Iterator[tuple[int, bytes]]:
    """Yield `(seq, hash)` of each of a session's rows that holds.

    Args:
        session: Id of the session.
        rows: `(seq, row, hash)`. The row is None if it is not stored as it was written.

    Raises:
        JournalError: An event does not hold (`journal_corrupt`). The message names the first one.
    """
    previous = FIRST_HASH
    expected = 1
    for seq, row, digest in rows:
        if seq != expected:
            raise_broken(session, expected, "is missing")
        if row is None:
            raise_broken(session, seq, "was changed")
        if sha256(previous + row).digest() != digest:
            raise_broken(session, seq, "was changed, moved or inserted")
        yield seq, digest
        previous = digest
        expected += 1


def check_end(session: str, seq: int, digest: bytes, mark: object) -> None:
    """Check that a session ends with this event. Raises JournalError (`journal_corrupt`)."""
    if not seq or mark != seal(digest):
        what = "and what may follow it are missing, or the seal of the session was changed"
        raise_broken(session, seq + 1, what)


def raise_broken(session: str, seq: int, what: str) -> NoReturn:
    """Raise the error for an event that does not hold."""
    before = f"events 1 to {seq - 1} are intact" if seq > 1 else "no event before it"
    error = JournalError(
        f"session `{session}`: event {seq} {what}; {before}",
        code="journal_corrupt",
        hint=(
            "`ferrule sessions salvage` keeps what is intact in a new journal and the old one aside"
        ),
    )
    error.session, error.event = session, seq
    raise error
