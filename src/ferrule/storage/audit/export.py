r"""The audit as JSON lines for others: without results, redacted on demand, chained by hashes.

    {"ferrule":"audit","format":1,"redacted":…,"chain":…}
    {"type":"session","session":…,"tenant":…,"user":…,"events":…,"head":…,"chain":…}
    {"type":"call", … the fields of `audit.AuditedCall.as_record`, "chain":…}
    {"type":"end","lines":…,"sessions":…,"calls":…,"chain":…}

`chain` is last in each line. It is the SHA-256, in hex, over the 32 bytes of the `chain` of the
line before (zeros for the first) and the line's JSON without it, in UTF-8. The end line of a signed
export also contains `key` and `signature`: Ed25519 over `ferrule.audit-export.v1 \n` and the
`chain` of the line before. `head` is the hash of the session's last event: it ties the export to
the journal.

Redaction replaces texts, never digests: `arguments_sha256`, `result_sha256`, `digest` are those of
what was recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, cast

from ferrule.core.calls import parse_json
from ferrule.core.errors import JournalError
from ferrule.storage.journal.protocols import Journal

from .audit import audit_calls
from .signing import Signer, Verifier

FORMAT = 1
Redact = Callable[[str], str]
"""Removes secrets from a text. If it raises, the export ends: nothing is exported unredacted."""

TEXTS = frozenset(
    {"arguments", "message", "reason", "note", "question", "rule", "grant", "program", "workspace"}
)
"""Fields of a record that contain texts of others; so do `reads` and `writes`, which are paths."""
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
    """Yield the lines of an export of these sessions, each with its newline.

    Each session's chain is checked before the session is read.

    Raises:
        SessionNotFound, JournalError: A session cannot be found or does not verify.
    """
    chain = _Chain()
    yield chain.line({"ferrule": "audit", "format": FORMAT, "redacted": redact is not None})
    session_count = 0
    call_count = 0
    for session in sessions:
        yield chain.line(_session_record(journal, session))
        session_count += 1
        for call in audit_calls(journal.records(session)):
            record = call.as_record()
            if redact is not None:
                record = redact_record(record, redact)
            yield chain.line({"type": "call", **record})
            call_count += 1
    end: dict[str, Any] = {
        "type": "end",
        "lines": chain.lines + 1,
        "sessions": session_count,
        "calls": call_count,
    }
    if signer is not None:
        end["key"] = signer.name
        end["signature"] = signer.sign(_PREFIX + chain.hash.hex().encode()).hex()
    yield chain.line(end)


def _session_record(journal: Journal, session: str) -> dict[str, Any]:
    journal.verify(session)
    events, head = journal.head(session)
    first = next(iter(journal.records(session)))
    return {
        "type": "session",
        "session": session,
        "tenant": first.tenant,
        "user": first.user,
        "events": events,
        "head": head,
    }


def redact_record(record: dict[str, Any], redact: Redact) -> dict[str, Any]:
    """Return a record with all texts redacted; digests, names, numbers and times stay."""

    def redact_value(name: str, value: Any) -> Any:
        if isinstance(value, str):
            return redact(value) if value and name in TEXTS | _LISTS else value
        if isinstance(value, dict):
            items = cast("dict[str, Any]", value).items()
            return {key: redact_value(key, item) for key, item in items}
        if isinstance(value, (list, tuple)):
            return [redact_value(name, item) for item in cast("list[Any]", value)]
        return value

    return {name: redact_value(name, value) for name, value in record.items()}


class _Chain:
    """Appends the chain to lines."""

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
    """Yield the records of an export without `chain`, first and last line too, each checked.

    Raises:
        JournalError: A line was changed, removed, inserted or moved (the message names it), the end
            is missing, or the key of `verifier` did not sign the export.
    """
    chain = _Chain()
    record: dict[str, Any] = {}
    for line in lines:
        if record.get("type") == "end":
            raise _build_refusal(chain.lines + 1, "follows the end")
        before = chain.hash
        record = _read_line(line, chain)
        if record.get("type") == "end":
            _check_end(record, chain, before, verifier)
        yield record
    if record.get("type") != "end":
        raise _build_refusal(chain.lines + 1, "and what may follow it are missing")


def _read_line(line: str, chain: _Chain) -> dict[str, Any]:
    text, _, _ = line.rpartition(_CHAIN)
    number = chain.lines + 1
    if not text or chain.add(text + "}") != line:
        raise _build_refusal(number, "was changed, moved or inserted, or one before it was removed")
    try:
        record = parse_json(text + "}")
    except ValueError as error:
        raise _build_refusal(number, f"is not JSON ({error})") from error
    if number == 1:
        _check_first(record)
    return record


def _check_first(record: dict[str, Any]) -> None:
    if record.get("ferrule") != "audit":
        raise _build_refusal(1, "is not the first line of an audit export", "journal_foreign")
    version = record.get("format")
    if version != FORMAT:
        what = f"says format {version}, this version reads {FORMAT}"
        raise _build_refusal(1, what, "journal_newer")


def _check_end(
    record: dict[str, Any], chain: _Chain, before: bytes, verifier: Verifier | None
) -> None:
    if record.get("lines") != chain.lines:
        raise _build_refusal(chain.lines, f"says that there are {record.get('lines')} lines")
    if verifier is None:
        return
    try:
        signature = bytes.fromhex(str(record.get("signature", "")))
    except ValueError:
        signature = b""
    is_signed = verifier.is_valid(_PREFIX + before.hex().encode(), signature)
    if record.get("key") != verifier.name or not is_signed:
        raise _build_refusal(chain.lines, "is not signed with this key")


def _build_refusal(number: int, what: str, code: str = "journal_corrupt") -> JournalError:
    return JournalError(f"line {number} {what}", code=code)
