"""The audit as JSON lines, for somebody else: without what results said, redacted if asked for, and
whole or not by its own chain.

    {"ferrule":"audit","format":1,"redacted":…,"chain":…}
    {"type":"session","session":…,"tenant":…,"user":…,"events":…,"head":…,"chain":…}
    {"type":"call", … the fields of `audit.AuditedCall.as_record`, "chain":…}
    {"type":"end","lines":…,"sessions":…,"calls":…,"chain":…}

`chain` stands last in each line. It is the SHA-256, in hex, over the 32 bytes of the line's before
(zeros for the first) and the line's JSON without it, in UTF-8. The end line of a signed export also
holds `key` and `signature`: Ed25519 over `ferrule.audit-export.v1 \\n` and the `chain` of the line
before. `head` is the hash of the session's last event: with the journal at hand it ties the export
to what was recorded.

Redaction replaces texts, never digests: `arguments_sha256`, `result_sha256`, `digest` are those of
what was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, cast

from ferrule.core.errors import JournalError
from ferrule.storage.journal.sqlite import Journal

from .audit import calls
from .signing import Signer, Verifier

FORMAT = 1
Redact = Callable[[str], str]
"""A text without what must not leave. What it raises ends the export: nothing goes out unredacted.
"""

TEXTS = frozenset(
    {"arguments", "message", "reason", "note", "question", "rule", "grant", "program", "workspace"}
)
"""Fields of a record that hold words of others. `reads` and `writes` too: paths."""
_LISTS = frozenset({"reads", "writes"})
_PREFIX = b"ferrule.audit-export.v1\n"
_CHAIN = ',"chain":"'


def export_audit(
    journal: Journal,
    sessions: Iterable[str],
    *,
    redact: Redact | None = None,
    signer: Signer | None = None,
) -> Iterator[str]:
    """The lines of an export of these sessions, each with its newline. Each session's chain is
    checked before it is read.

    Raises SessionNotFound, JournalError.
    """
    chained = _Chain()
    yield chained.line({"ferrule": "audit", "format": FORMAT, "redacted": redact is not None})
    count = told = 0
    for session in sessions:
        journal.verify(session)
        events, head = journal.head(session)
        first = next(iter(journal.records(session)))
        owner = {"tenant": first.tenant, "user": first.user}
        yield chained.line(
            {"type": "session", "session": session, **owner, "events": events, "head": head}
        )
        count += 1
        for call in calls(journal.records(session)):
            record = call.as_record()
            yield chained.line(
                {"type": "call", **(record if redact is None else redacted(record, redact))}
            )
            told += 1
    end: dict[str, Any] = {
        "type": "end",
        "lines": chained.lines + 1,
        "sessions": count,
        "calls": told,
    }
    if signer is not None:
        end |= {
            "key": signer.name,
            "signature": signer.sign(_PREFIX + chained.hash.hex().encode()).hex(),
        }
    yield chained.line(end)


def redacted(record: dict[str, Any], redact: Redact) -> dict[str, Any]:
    """A record with its texts redacted, at every depth; digests, names, numbers and times stay."""

    def inside(name: str, value: Any) -> Any:
        if isinstance(value, str):
            return redact(value) if value and name in TEXTS | _LISTS else value
        if isinstance(value, dict):
            pairs = cast("dict[str, Any]", value).items()
            return {key: inside(key, item) for key, item in pairs}
        if isinstance(value, (list, tuple)):
            return [inside(name, item) for item in cast("list[Any]", value)]
        return value

    return {name: inside(name, value) for name, value in record.items()}


class _Chain:
    """Chains lines."""

    def __init__(self) -> None:
        self.hash = bytes(32)
        self.lines = 0

    def line(self, record: dict[str, Any]) -> str:
        text = json.dumps(record, separators=(",", ":"))
        return self.add(text)

    def add(self, text: str) -> str:
        self.hash = sha256(self.hash + text.encode()).digest()
        self.lines += 1
        return f'{text[:-1]}{_CHAIN}{self.hash.hex()}"}}\n'


def read_export(lines: Iterable[str], verifier: Verifier | None = None) -> Iterator[dict[str, Any]]:
    """The records of an export without their `chain`, first and last line too, each checked against
    the one before.

    Raises JournalError naming the line that was changed, removed, inserted or moved, or that the
    end is missing; with a `verifier`, also if its key did not sign the whole.
    """
    chained = _Chain()
    record: dict[str, Any] = {}
    for line in lines:
        if record.get("type") == "end":
            raise _refused(chained.lines + 1, "follows the end")
        before = chained.hash
        record = _record(line, chained)
        if record.get("type") == "end":
            _check_end(record, chained, before, verifier)
        yield record
    if record.get("type") != "end":
        raise _refused(chained.lines + 1, "and what may follow it are missing")


def _record(line: str, chained: _Chain) -> dict[str, Any]:
    text, _, _ = line.rpartition(_CHAIN)
    number = chained.lines + 1
    if not text or chained.add(text + "}") != line:
        raise _refused(number, "was changed, moved or inserted, or one before it was removed")
    try:
        record = json.loads(text + "}")
    except ValueError as error:
        raise _refused(number, f"is no JSON ({error})") from error
    if number == 1:
        _check_first(record)
    return record


def _check_first(record: dict[str, Any]) -> None:
    if record.get("ferrule") != "audit":
        raise _refused(1, "is not that of an audit export", "journal_foreign")
    if record.get("format") != FORMAT:
        raise _refused(
            1, f"says format {record.get('format')}, this version reads {FORMAT}", "journal_newer"
        )


def _check_end(
    record: dict[str, Any], chained: _Chain, before: bytes, verifier: Verifier | None
) -> None:
    if record.get("lines") != chained.lines:
        raise _refused(chained.lines, f"says that there are {record.get('lines')} lines")
    if verifier is None:
        return
    try:
        signature = bytes.fromhex(str(record.get("signature", "")))
    except ValueError:
        signature = b""
    if record.get("key") != verifier.name or not verifier.holds(
        _PREFIX + before.hex().encode(), signature
    ):
        raise _refused(chained.lines, "carries no signature of this key")


def _refused(number: int, what: str, code: str = "journal_corrupt") -> JournalError:
    return JournalError(f"line {number} {what}", code=code)
