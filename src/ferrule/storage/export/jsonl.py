"""Sessions as JSON lines, for taking them elsewhere and back, with proof that they are complete.

The first line is `{"ferrule":"journal","format":2,"ends":"sealed"}`. Every other line is an event:

    {"session":…,"seq":…,"time":…,"run":…,"tenant":…,"user":…,"kind":…,"hash":…,"body":{…}}

with the values that `hash_chain` hashes; `body` is compact JSON and comes last. Several sessions
may follow each other. Files of another format are refused.

`ends` says that the last event of each session, and no other, carries `"seal":…` before `body`: the
journal's seal of that event (`hash_chain`), so that a tail that was cut off is noticed, also if the
event that is now the last one was given an end mark by hand. It says too that every line is encoded
as it was written, so that no byte of it can differ. A file without it is read, but not verified: a
cut at the end of a line is not noticed there. A missing session is noticed if the first line lists
the sessions (archives).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import IO, Any, Literal, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import JournalError, SessionNotFound
from ferrule.core.events import FORMAT, JournalRecord, event_from_json, event_to_json
from ferrule.core.identity import Identity
from ferrule.storage.journal import hash_chain
from ferrule.storage.journal.protocols import Journal

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
_BODY = ',"body":'
MAX_LINE = 64 << 20
"""Bytes of a line that are read: far more than an event has."""
_Ends = Literal["", "marked", "sealed"]
"""How the last event of a session is known: by its seal, in older files by a mark or not at all."""


@dataclass(slots=True)
class _SessionEnd:
    """The end of a session in a file that is being read."""

    seq: int
    hash: bytes
    owner: tuple[str, str]
    ended: bool = False


def export_jsonl(records: Iterable[JournalRecord], **about: Any) -> Iterator[str]:
    """Yield the lines of an export, each with its newline.

    Bodies are passed on as they are stored. The events of a session must follow each other. `about`
    contains further JSON values for the first line.
    """
    yield encode_json({"ferrule": "journal", "format": FORMAT, "ends": "sealed", **about}) + "\n"
    waiting: JournalRecord | None = None
    for record in records:
        if waiting is not None:
            yield _encode_record(waiting, last=waiting.session != record.session)
        waiting = record
    if waiting is not None:
        yield _encode_record(waiting, last=True)


def _encode_record(record: JournalRecord, *, last: bool) -> str:
    kind, body = event_to_json(record.event)
    end = _format_end("sealed", bytes.fromhex(record.hash)) if last else ""
    return _format_line(record, kind, record.body or encode_json(body), end)


def _format_end(ends: _Ends, digest: bytes) -> str:
    """Return the mark of the last event of a session, which has this hash."""
    if ends == "sealed":
        return f',"seal":"{hash_chain.seal(digest).hex()}"'
    return ',"end":true'


def _format_line(record: JournalRecord, kind: str, text: str, end: str) -> str:
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
    return f"{head[:-1]}{end}{_BODY}{text}}}\n"


def split_lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of an export.

    A small file that was made to harm can unpack to one line of gigabytes, so a line is bounded.

    Raises:
        JournalError: A line is longer than `MAX_LINE`.
    """
    number = 0
    while line := file.readline(MAX_LINE):
        number += 1
        if len(line) == MAX_LINE and not line.endswith(b"\n"):
            raise _build_refusal(number, f"it has more than {MAX_LINE} bytes")
        yield line


def read_jsonl(lines: Iterable[str]) -> Iterator[JournalRecord]:
    """Yield the records of an export, each checked against the one before.

    Raises:
        JournalError: The file is not an export, is newer, is damaged, does not fit the chain, or a
            session has no end. The error names the line, the session and the event.
    """
    last: dict[str, _SessionEnd] = {}
    number = 0
    ends: _Ends = ""
    record: JournalRecord | None = None
    for number, line in enumerate(lines, 1):
        if number == 1:
            ends = _read_ends(check_header(line))
        elif line.strip() or ends:
            record = _read_line(line, number, last, ends, record)
            yield record
    if not number:
        raise _build_refusal(1, "the file is empty", "journal_foreign")
    if ends and not last:
        raise _build_refusal(2, "no event follows")
    for session, end in last.items():
        if ends and not end.ended:
            missing = f"event {end.seq + 1} of `{session}` and what may follow it are missing"
            raise _build_refusal(number + 1, missing, session=session, event=end.seq + 1)


def import_jsonl(
    journal: Journal, lines: Iterable[str], *, identity: Identity | None = None
) -> list[str]:
    """Add the sessions of an export to a journal; return their names.

    Everything is checked before anything is written.

    Args:
        journal: The journal that gets them.
        lines: The lines of the export.
        identity: The sessions are given to its tenant and user, and get hashes of their own.
            Without one they keep their owner and, byte for byte, their hashes.

    Raises:
        JournalError: A session is already there, or a line does not hold.
    """
    records = list(read_jsonl(lines))
    sessions = list(dict.fromkeys(record.session for record in records))
    for session in sessions:
        _refuse_present(journal, session)
    for session in sessions:
        own_records = [record for record in records if record.session == session]
        for run, group in groupby(own_records, key=lambda record: record.run):
            batch = list(group)
            owner = identity or Identity(batch[0].tenant, batch[0].user, session, run)
            events = [record.event for record in batch]
            times = [record.time for record in batch]
            journal.append(session, run, events, identity=owner, times=times)
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
    """Parse the first line of an export.

    Raises:
        JournalError: This version cannot read it.
    """
    try:
        header = parse_json(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or cast(dict[str, Any], header).get("ferrule") != "journal":
        raise _build_refusal(1, "not a Ferrule export", "journal_foreign")
    header = cast(dict[str, Any], header)
    version = header.get("format")
    if version != FORMAT:
        is_older = type(version) is int and 0 < version < FORMAT
        code = "journal_older" if is_older else "journal_newer"
        raise _build_refusal(1, f"format {version}, this version reads only {FORMAT}", code)
    if "ends" in header and line != encode_json(header) + "\n":
        raise _build_refusal(1, "it was changed")
    return header


def is_sealed(line: str) -> bool:
    """Return whether the file with this first line shows where its sessions end.

    Raises:
        JournalError: This version cannot read it.
    """
    return _read_ends(check_header(line)) == "sealed"


def _read_ends(header: dict[str, Any]) -> _Ends:
    found = header.get("ends", False)
    if isinstance(found, bool):
        return "marked" if found else ""
    if found == "sealed":
        return "sealed"
    raise _build_refusal(1, f"ends of the kind `{found}` are not known here", "journal_newer")


def _read_line(
    line: str, number: int, last: dict[str, _SessionEnd], ends: _Ends, before: JournalRecord | None
) -> JournalRecord:
    """Read a line; an error that names no event gets the one that should be there."""
    try:
        record = _check_line(_parse_line(line, number), line, number, last, ends)
        if ends and before is not None and record.session != before.session:
            _check_ended(number, before, last)
        return record
    except JournalError as error:
        if before is None:
            error.event = error.event or 1
            raise
        # Sessions are complete before the next one starts: as long as one has no end, the problem
        # is in that one.
        is_unfinished = ends and not last[before.session].ended
        if not error.event or (is_unfinished and error.session != before.session):
            error.session = before.session
            error.event = before.seq + 1
        raise


def _check_ended(number: int, before: JournalRecord, last: dict[str, _SessionEnd]) -> None:
    if not last[before.session].ended:
        raise _build_refusal(number, f"event {before.seq + 1} of `{before.session}` is missing")


def _parse_line(line: str, number: int) -> dict[str, Any]:
    try:
        row: Any = parse_json(line)
    except ValueError as error:
        raise _build_refusal(number, f"not JSON ({error})") from error
    if not isinstance(row, dict):
        raise _build_refusal(number, "not an event")
    row = cast(dict[str, Any], row)
    wrong = [key for key, kind in _KEYS.items() if type(row.get(key)) is not kind]
    if not isinstance(row.get("body"), dict):
        wrong.append("body")
    if wrong:
        raise _build_refusal(number, f"`{wrong[0]}` is missing or of a wrong type")
    return row


def _check_line(
    row: dict[str, Any], line: str, number: int, last: dict[str, _SessionEnd], ends: _Ends
) -> JournalRecord:
    """Check an event against the one before in its session, and move `last` on."""
    session, seq = row["session"], row["seq"]
    owner = (row["tenant"], row["user"])
    end = last.setdefault(session, _SessionEnd(0, hash_chain.FIRST_HASH, owner))

    def build_event_refusal(what: str, event: int = seq) -> JournalError:
        return _build_refusal(
            number, f"event {seq} of `{session}` {what}", session=session, event=event
        )

    if owner != end.owner:
        raise build_event_refusal("has another owner")
    if end.ended:
        raise build_event_refusal("follows the end of the session", end.seq + 1)
    if seq != end.seq + 1:
        raise build_event_refusal(f"where event {end.seq + 1} should be", end.seq + 1)
    # The body comes last in the line, as it was stored; encoded again it could differ.
    body = line.rstrip().partition(_BODY)[2].removesuffix("}") or encode_json(row["body"])
    digest = _hash_row(row, end.hash, body)
    if digest.hex() != row["hash"]:
        raise build_event_refusal("was changed")
    end.seq = seq
    end.hash = digest
    event = event_from_json(row["kind"], row["body"])
    record = JournalRecord(session, seq, row["time"], row["run"], event, row["hash"], *owner, body)
    if not ends:
        if "end" in row or "seal" in row:
            raise _build_refusal(1, "it was changed: the events say that there are end marks")
        return record
    end.ended = "seal" in row if ends == "sealed" else row.get("end") is True
    mark = _format_end(ends, digest) if end.ended else ""
    if mark and mark not in line:
        raise build_event_refusal(
            "has a wrong seal: it was changed, or what followed it was cut off"
        )
    if _format_line(record, row["kind"], body, mark) != line:
        raise build_event_refusal("was changed")
    return record


def _hash_row(row: dict[str, Any], previous: bytes, body: str) -> bytes:
    address = hash_chain.row_prefix(row["session"], row["run"], row["tenant"], row["user"])
    hash_chain.check_kind(row["kind"])
    text = f"{address}{row['kind']}\n{row['seq']}\n{row['time']}\n{body}"
    return hash_chain.hash_row(previous, text.encode("utf-8", "replace"))


def _build_refusal(
    number: int, what: str, code: str = "journal_corrupt", *, session: str = "", event: int = 0
) -> JournalError:
    error = JournalError(f"line {number}: {what}", code=code)
    error.session = session
    error.event = event
    return error
