"""Journals as JSON lines: the format for taking sessions elsewhere and back, with the proof that they are whole.

The first line is `{"ferrule":"journal","format":1}`. Every other line is an event:

    {"session":…,"seq":…,"time":…,"run":…,"tenant":…,"user":…,"kind":…,"hash":…,"body":{…}}

with the values that `chain` hashes; `body` is compact JSON and stands last. Several sessions may follow
each other. Files of every earlier format load forever (tests/corpus).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.core.errors import JournalError, SessionNotFound
from ferrule.core.events import FORMAT, Record, decode, encode
from ferrule.core.identity import Identity

from . import chain
from .journal import Journal

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

_Last = dict[str, tuple[int, bytes, tuple[str, str]]]


def jsonl(records: Iterable[Record]) -> Iterator[str]:
    """The lines of an export, each with its newline. Bodies are passed on as they are stored."""
    yield compact({"ferrule": "journal", "format": FORMAT}) + "\n"
    for record in records:
        kind, body = encode(record.event)
        values = (
            record.session, record.seq, record.time, record.run, record.tenant, record.user, kind, record.hash
        )  # fmt: skip
        head = json.dumps(dict(zip(_KEYS, values, strict=True)), separators=(",", ":"))
        yield f'{head[:-1]},"body":{record.body or compact(body)}}}\n'


def read_jsonl(lines: Iterable[str]) -> Iterator[Record]:
    """The records of an export, each checked against the one before.

    Raises JournalError naming the line if it is no export, is newer, is broken, or does not fit the chain.
    """
    last: _Last = {}
    number = 0
    for number, line in enumerate(lines, 1):
        if number == 1:
            _check_header(line)
        elif line.strip():
            yield _record(line, number, last)
    if not number:
        raise _refused(1, "the file is empty", "journal_foreign")


def import_jsonl(journal: Journal, lines: Iterable[str], *, identity: Identity | None = None) -> list[str]:
    """Add the sessions of an export to a journal; their names.

    Everything is checked before anything is written. With an `identity` they become sessions of its tenant and user
    (and get hashes of their own); without one they keep their owner and, byte for byte, their hashes.
    Raises JournalError if a session is already there or a line does not hold.
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
            journal.append(session, run, [record.event for record in part], identity=owner, at=times)
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


def _check_header(line: str) -> None:
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or cast(dict[str, Any], header).get("ferrule") != "journal":
        raise _refused(1, "not a Ferrule export", "journal_foreign")
    version = cast(dict[str, Any], header).get("format")
    if not isinstance(version, int) or version > FORMAT:
        raise _refused(1, f"format {version}, this version reads up to {FORMAT}", "journal_newer")


def _record(line: str, number: int, last: _Last) -> Record:
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
    before, previous, opened_by = last.get(session, (0, chain.FIRST, owner))
    if owner != opened_by:
        raise _refused(number, f"event {seq} of `{session}` has another owner")
    if seq != before + 1:
        raise _refused(number, f"event {seq} of `{session}` where event {before + 1} should be")
    # The body stands last in the line, as it was stored; spelled anew it could differ.
    text = line.rstrip().partition(',"body":')[2].removesuffix("}") or compact(row["body"])
    address = chain.address(session, row["run"], row["tenant"], row["user"])
    chain.check_kind(row["kind"])
    digest = chain.link(
        previous, f"{address}{row['kind']}\n{seq}\n{row['time']}\n{text}".encode("utf-8", "replace")
    )
    if digest.hex() != row["hash"]:
        raise _refused(number, f"event {seq} of `{session}` was changed")
    last[session] = seq, digest, owner
    event = decode(row["kind"], row["body"])
    return Record(session, seq, row["time"], row["run"], event, row["hash"], row["tenant"], row["user"], text)


def _refused(number: int, what: str, code: str = "journal_corrupt") -> JournalError:
    return JournalError(f"line {number}: {what}", code=code)
