"""Journals as JSON lines: the format for taking sessions elsewhere and back, with the proof that
they are whole.

The first line is `{"ferrule":"journal","format":1,"ends":true}`. Every other line is an event:

    {"session":…,"seq":…,"time":…,"run":…,"tenant":…,"user":…,"kind":…,"hash":…,"body":{…}}

with the values that `hash_chain` hashes; `body` is compact JSON and stands last. Several sessions
may follow each other. Files of every earlier format load forever (tests/corpus).

`ends` says that the last event of each session carries `"end":true` before `body`, so that a tail
that was cut off is noticed, and that every line is spelled as it was written, so that no byte of it
can differ. Older files have neither; of them a cut at the end of a line is not seen. That a whole
session is gone is seen where the first line lists them (archives).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.core.errors import JournalError, SessionNotFound
from ferrule.core.events import FORMAT, Record, decode, encode
from ferrule.core.identity import Identity
from ferrule.storage.journal import hash_chain
from ferrule.storage.journal.sqlite import Journal

_KEYS = {
    "session": str,
    "seq": int,
    "time": int,
    "run": str,
    "tenant": str,
    "user": str,
    "kind": str,
    "hash": str,
}
_END = ',"end":true'
_BODY = ',"body":'


@dataclass(slots=True)
class _Last:
    """Where a session stands in a file that is being read."""

    seq: int
    hash: bytes
    owner: tuple[str, str]
    ended: bool = False


def jsonl(records: Iterable[Record], **about: Any) -> Iterator[str]:
    """The lines of an export, each with its newline. Bodies are passed on as they are stored, the
    events of a session must follow each other. `about` are further JSON values for the first line.
    """
    yield compact({"ferrule": "journal", "format": FORMAT, "ends": True, **about}) + "\n"
    waiting: Record | None = None
    for record in records:
        if waiting is not None:
            yield _line(waiting, last=waiting.session != record.session)
        waiting = record
    if waiting is not None:
        yield _line(waiting, last=True)


def _line(record: Record, *, last: bool) -> str:
    kind, body = encode(record.event)
    return _spelled(record, kind, record.body or compact(body), last)


def _spelled(record: Record, kind: str, text: str, last: bool) -> str:
    values = (
        record.session,
        record.seq,
        record.time,
        record.run,
        record.tenant,
        record.user,
        kind,
        record.hash,
    )
    head = json.dumps(dict(zip(_KEYS, values, strict=True)), separators=(",", ":"))
    return f"{head[:-1]}{_END if last else ''}{_BODY}{text}}}\n"


def read_jsonl(lines: Iterable[str]) -> Iterator[Record]:
    """The records of an export, each checked against the one before.

    Raises JournalError naming the line (and session and event) if it is no export, is newer, is
    broken, does not fit the chain, or if a session has no end.
    """
    last: dict[str, _Last] = {}
    number, ends = 0, False
    read: Record | None = None
    for number, line in enumerate(lines, 1):
        if number == 1:
            ends = check_header(line).get("ends") is True
        elif line.strip() or ends:
            read = _next(line, number, last, ends, read)
            yield read
    if not number:
        raise _refused(1, "the file is empty", "journal_foreign")
    if ends and not last:
        raise _refused(2, "no event follows")
    for session, at in last.items():
        if ends and not at.ended:
            missing = f"event {at.seq + 1} of `{session}` and what may follow it are missing"
            raise _refused(number + 1, missing, session=session, event=at.seq + 1)


def import_jsonl(
    journal: Journal, lines: Iterable[str], *, identity: Identity | None = None
) -> list[str]:
    """Add the sessions of an export to a journal; their names.

    Everything is checked before anything is written. With an `identity` they become sessions of its
    tenant and user (and get hashes of their own); without one they keep their owner and, byte for
    byte, their hashes. Raises JournalError if a session is already there or a line does not hold.
    """
    records = list(read_jsonl(lines))
    sessions = list(dict.fromkeys(record.session for record in records))
    for session in sessions:
        _refuse_present(journal, session)
    for session in sessions:
        mine = (record for record in records if record.session == session)
        for run, group in groupby(mine, key=lambda record: record.run):
            part = list(group)
            owner = identity or Identity(part[0].tenant, part[0].user, session, run)
            times = [record.time for record in part]
            journal.append(
                session, run, [record.event for record in part], identity=owner, at=times
            )
        journal.release(session)
    return sessions


def _refuse_present(journal: Journal, session: str) -> None:
    try:
        journal.head(session)
    except SessionNotFound:
        return
    raise JournalError(
        f"session `{session}` is already in this journal",
        code="journal_exists",
        hint="import into another journal (`--journal`)",
    )


def check_header(line: str) -> dict[str, Any]:
    """What the first line of an export says. Raises JournalError if it is none that this version
    reads.
    """
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or cast(dict[str, Any], header).get("ferrule") != "journal":
        raise _refused(1, "not a Ferrule export", "journal_foreign")
    header = cast(dict[str, Any], header)
    version = header.get("format")
    if type(version) is not int or not 0 < version <= FORMAT:
        raise _refused(1, f"format {version}, this version reads up to {FORMAT}", "journal_newer")
    if "ends" in header and line != compact(header) + "\n":
        raise _refused(1, "it was changed")
    return header


def _next(
    line: str, number: int, last: dict[str, _Last], ends: bool, before: Record | None
) -> Record:
    try:
        record = _record(line, number, last, ends)
        if (
            ends
            and before is not None
            and record.session != before.session
            and not last[before.session].ended
        ):
            raise _refused(number, f"event {before.seq + 1} of `{before.session}` is missing")
        return record
    except JournalError as error:
        if ends and before is not None and error.session != before.session:
            # Sessions follow each other whole: as long as one has no end, what is wrong is wrong
            # with it.
            error.event = 0 if not last[before.session].ended else error.event
        if not error.event:
            # The line does not even say which event it is: it stands where the next one should.
            error.session, error.event = (
                ("", 1) if before is None else (before.session, before.seq + 1)
            )
        raise


def _record(line: str, number: int, last: dict[str, _Last], ends: bool) -> Record:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise _refused(number, f"not JSON ({error})") from error
    if not isinstance(row, dict):
        raise _refused(number, "not an event")
    row = cast(dict[str, Any], row)
    wrong = [key for key, kind in _KEYS.items() if type(row.get(key)) is not kind]
    if wrong or not isinstance(row.get("body"), dict):
        raise _refused(number, f"`{(wrong or ['body'])[0]}` is missing or of a wrong type")
    session, seq = row["session"], row["seq"]
    owner = (row["tenant"], row["user"])
    at = last.setdefault(session, _Last(0, hash_chain.FIRST, owner))

    def broken(what: str, event: int = seq) -> JournalError:
        return _refused(number, f"event {seq} of `{session}` {what}", session=session, event=event)

    if owner != at.owner:
        raise broken("has another owner")
    if at.ended:
        raise broken("follows the end of the session", at.seq + 1)
    if seq != at.seq + 1:
        raise broken(f"where event {at.seq + 1} should be", at.seq + 1)
    # The body stands last in the line, as it was stored; spelled anew it could differ.
    text = line.rstrip().partition(_BODY)[2].removesuffix("}") or compact(row["body"])
    digest = _hashed(row, at.hash, text)
    if digest.hex() != row["hash"]:
        raise broken("was changed")
    at.seq, at.hash, at.ended = seq, digest, ends and row.get("end") is True
    event = decode(row["kind"], row["body"])
    owned = (row["tenant"], row["user"])
    record = Record(session, seq, row["time"], row["run"], event, row["hash"], *owned, text)
    if "end" in row and not ends:
        raise _refused(1, "it was changed: the events say that there are end marks")
    if ends and _spelled(record, row["kind"], text, at.ended) != line:
        raise broken("was changed")
    return record


def _hashed(row: dict[str, Any], previous: bytes, text: str) -> bytes:
    address = hash_chain.address(row["session"], row["run"], row["tenant"], row["user"])
    hash_chain.check_kind(row["kind"])
    spelled = f"{address}{row['kind']}\n{row['seq']}\n{row['time']}\n{text}"
    return hash_chain.link(previous, spelled.encode("utf-8", "replace"))


def _refused(
    number: int, what: str, code: str = "journal_corrupt", *, session: str = "", event: int = 0
) -> JournalError:
    error = JournalError(f"line {number}: {what}", code=code)
    error.session, error.event = session, event
    return error
