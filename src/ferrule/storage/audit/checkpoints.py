r"""Checkpoints: signed states of sessions, in a file beside the journal.

Each line is one JSON object, written only after the session's whole chain was checked:

    {"ferrule":"checkpoint","format":1,"session":…,"seq":…,"hash":…,"time":…,"key":…,"previous":…,
     "signature":…}

`hash` is that of event `seq` (the last one then), `time` ms since 1970, `key` the name of the key
(`signing`), `previous` the SHA-256 of the line before without its newline (64 zeros for the first).
`signature` is Ed25519, in hex, over

    ferrule.checkpoint.v1 \n the line's JSON without `signature`, compact, in UTF-8

Checkpoints show what the chain cannot: a forger who computed a session's chain again, a tail that
was cut off, a session or a whole journal that was replaced by an older copy, each up to the last
checkpoint.

They do not show: anything done by whoever has the private key; changes before the first checkpoint
(a copy that was put in place earlier is what was signed); events after the last one; that the last
lines of this file were cut off. Against the latter, keep a copy of the file, or of its last line,
elsewhere.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import encode_json, parse_json
from ferrule.core.errors import JournalError
from ferrule.core.value_class import frozen
from ferrule.storage import paths
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal

from .signing import Signer, Verifier

FORMAT = 1
NO_PREVIOUS = "0" * 64
_PREFIX = b"ferrule.checkpoint.v1\n"
_KINDS = {
    "session": str,
    "seq": int,
    "hash": str,
    "time": int,
    "key": str,
    "previous": str,
    "signature": str,
}


@frozen
class Checkpoint:
    """One signed state of a session. `line` is its place in the file, counted from 1."""

    session: str
    seq: int
    hash: str
    time: int
    key: str
    previous: str
    signature: str
    line: int

    @property
    def message(self) -> bytes:
        """The bytes that are signed."""
        return _PREFIX + encode_json(self._build_body()).encode("utf-8", "surrogatepass")

    def to_line(self) -> str:
        """Return the line, without its newline."""
        return encode_json({**self._build_body(), "signature": self.signature})

    def _build_body(self) -> dict[str, Any]:
        return {
            "ferrule": "checkpoint",
            "format": FORMAT,
            "session": self.session,
            "seq": self.seq,
            "hash": self.hash,
            "time": self.time,
            "key": self.key,
            "previous": self.previous,
        }


def checkpoints_path(journal: Path) -> Path:
    """Return the default path of a journal's checkpoints."""
    return journal.with_name(journal.name + ".checkpoints")


def checkpoints_path_of(journal: Journal) -> Path:
    """Return the default path of the checkpoints of any journal.

    Those of a journal that is not a file are in the user's state folder.
    """
    file = journal.path if isinstance(journal, SqliteJournal) else None
    return checkpoints_path(file or paths.state() / "journal")


def read_checkpoints(path: Path) -> list[Checkpoint]:
    """Return all checkpoints of a file, none if it does not exist. Signatures are not checked here.

    Raises:
        JournalError: A line is damaged, or does not follow the one before. The message names it.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(
            f"cannot read the checkpoints `{path}`: {error.strerror}", code="checkpoints"
        ) from error
    if lines and lines[-1]:
        raise _build_error(path, len(lines), "was cut off")
    points: list[Checkpoint] = []
    previous = NO_PREVIOUS
    for number, line in enumerate(lines[:-1], 1):
        point = _parse_line(path, number, line)
        if point.previous != previous:
            what = "does not follow the line before: lines were changed, removed or inserted"
            raise _build_error(path, number, what)
        points.append(point)
        previous = sha256(line).hexdigest()
    return points


def _parse_line(path: Path, number: int, line: bytes) -> Checkpoint:
    try:
        row: Any = parse_json(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or cast("dict[str, Any]", row).get("ferrule") != "checkpoint":
        raise _build_error(path, number, "is not a checkpoint")
    row = cast("dict[str, Any]", row)
    is_typed = all(type(row.get(name)) is kind for name, kind in _KINDS.items())
    if row.get("format") != FORMAT or not is_typed:
        raise _build_error(path, number, "is not a checkpoint that this version can read")
    point = Checkpoint(**{name: row[name] for name in _KINDS}, line=number)
    if _encode(point) != line:
        raise _build_error(path, number, "was changed")
    return point


def _encode(point: Checkpoint) -> bytes:
    return point.to_line().encode("utf-8", "surrogatepass")


def _build_error(path: Path, number: int, what: str) -> JournalError:
    return JournalError(f"checkpoints `{path}`: line {number} {what}", code="checkpoints_corrupt")


def sign_heads(
    journal: Journal, path: Path, signer: Signer, sessions: Sequence[str], *, now: int
) -> list[Checkpoint]:
    """Sign the current state of these sessions, after checking their chains and checkpoints.

    States that this key has signed already are left out. The lines are on disk when it returns.

    Args:
        journal: The journal.
        path: The file of checkpoints; it is made if it is missing.
        signer: The key to sign with.
        sessions: Ids of sessions.
        now: The time in ms since 1970.

    Raises:
        JournalError: Something does not hold. That session and those after it are not signed.
    """
    paths.make_private_folder(path.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = read_checkpoints(path)
        previous = sha256(_encode(known[-1])).hexdigest() if known else NO_PREVIOUS
        signed: list[Checkpoint] = []
        for session in sessions:
            earlier = [point for point in known if point.session == session]
            for contradiction in find_contradictions(journal, session, earlier, signer.verifier):
                raise JournalError(contradiction, code="checkpoint_contradicted")
            seq, digest = journal.head(session)
            state = (seq, digest, signer.name)
            if any((point.seq, point.hash, point.key) == state for point in earlier):
                continue
            line_number = len(known) + len(signed) + 1
            unsigned = Checkpoint(session, seq, digest, now, signer.name, previous, "", line_number)
            point = replace(unsigned, signature=signer.sign(unsigned.message).hex())
            line = _encode(point)
            file.write(line + b"\n")
            previous = sha256(line).hexdigest()
            signed.append(point)
        file.flush()
        os.fsync(file.fileno())
    return signed


def is_signed_by(point: Checkpoint, verifier: Verifier) -> bool:
    """Return whether this key signed this checkpoint."""
    try:
        signature = bytes.fromhex(point.signature)
    except ValueError:
        return False
    return point.key == verifier.name and verifier.is_valid(point.message, signature)


def find_contradictions(
    journal: Journal, session: str, points: Iterable[Checkpoint], verifier: Verifier | None
) -> Iterator[str]:
    """Check a session's chain against its checkpoints; yield a sentence for each contradicted one.

    With a `verifier`, the signatures must be of its key, and checkpoints of other keys are ignored.

    Raises:
        JournalError: The chain itself does not hold.
        SessionNotFound: There is no such session.
    """
    journal.verify(session)
    signed: dict[int, list[Checkpoint]] = {}
    for point in points:
        if verifier is not None and point.key != verifier.name:
            continue
        if verifier is not None and not is_signed_by(point, verifier):
            yield (
                f"checkpoint {point.line}, of event {point.seq} of `{session}`: the signature is "
                "not of this key"
            )
        signed.setdefault(point.seq, []).append(point)
    if signed:
        yield from compare_events(
            session, signed, ((r.seq, r.hash) for r in journal.records(session))
        )


def compare_events(
    session: str, signed: dict[int, list[Checkpoint]], events: Iterable[tuple[int, str]]
) -> Iterator[str]:
    """Yield a sentence for each checkpoint that contradicts a session's events `(seq, hash)`."""
    seq = 0
    for seq, digest in events:
        for point in signed.get(seq, ()):
            if point.hash != digest:
                yield (
                    f"session `{session}`: event {seq} is not the one that checkpoint "
                    f"{point.line} signed: it or one before it was replaced, and the chain was "
                    "computed again"
                )
    for missing in sorted(number for number in signed if number > seq):
        point = signed[missing][0]
        yield (
            f"session `{session}`: it ends with event {seq}, and checkpoint {point.line} signed "
            f"event {missing}: event {seq + 1} and what followed it were cut off"
        )
