"""Checkpoints: signed statements of where sessions stood, in a file beside the journal.

Each line is one JSON object, written only after the session's whole chain was checked:

    {"ferrule":"checkpoint","format":1,"session":…,"seq":…,"hash":…,"time":…,"key":…,"previous":…,"signature":…}

`hash` is that of event `seq` (the last one then), `time` ms since 1970, `key` the name of the key
(`signing`), `previous` the SHA-256 of the line before without its newline (64 zeros for the first).
`signature` is Ed25519, in hex, over

    ferrule.checkpoint.v1 \\n the line's JSON without `signature`, compact, in UTF-8

What checkpoints show that the chain cannot: a forger who computed a session's chain anew, a tail
that was cut off, a session or a whole journal that was replaced by an older copy, each up to the
last checkpoint.

What they do not show: anything by whoever has the private key; what was changed before the first
checkpoint (a copy that was put in place earlier is what was signed); events after the last one;
that the last lines of this file were cut off. Against the latter, keep a copy of the file, or of
its last line, elsewhere.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.core.errors import JournalError
from ferrule.core.frozen import frozen
from ferrule.storage.journal.sqlite import Journal, SqliteJournal
from ferrule.storage.paths import private_folder, state

from .signing import Signer, Verifier

FORMAT = 1
FIRST = "0" * 64
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
    """One signed head. `line` is its place in the file, counted from 1."""

    session: str
    seq: int
    hash: str
    time: int
    key: str
    previous: str
    signature: str
    line: int = 0

    @property
    def message(self) -> bytes:
        """What is signed."""
        return _PREFIX + compact(self._unsigned()).encode("utf-8", "surrogatepass")

    def spelled(self) -> str:
        """The line, without its newline."""
        return compact({**self._unsigned(), "signature": self.signature})

    def _unsigned(self) -> dict[str, Any]:
        head = {"ferrule": "checkpoint", "format": FORMAT, "session": self.session, "seq": self.seq}
        return {
            **head,
            "hash": self.hash,
            "time": self.time,
            "key": self.key,
            "previous": self.previous,
        }


def beside(journal: Path) -> Path:
    """Where the checkpoints of a journal lie if nothing else is said."""
    return journal.with_name(journal.name + ".checkpoints")


def place_of(journal: Journal) -> Path:
    """The same for any journal: those of one that is no file lie in the person's state folder."""
    file = journal.path if isinstance(journal, SqliteJournal) else None
    return beside(file or state() / "journal")


def read_checkpoints(path: Path) -> list[Checkpoint]:
    """All checkpoints of a file; none if it is not there. Signatures are not checked here.

    Raises JournalError naming the line that is broken, or does not follow the one before.
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
        raise _broken(path, len(lines), "was cut off")
    points: list[Checkpoint] = []
    previous = FIRST
    for number, line in enumerate(lines[:-1], 1):
        point = _parsed(path, number, line)
        if point.previous != previous:
            raise _broken(
                path,
                number,
                "does not follow the line before: lines were changed, removed or inserted",
            )
        points.append(point)
        previous = sha256(line).hexdigest()
    return points


def _parsed(path: Path, number: int, line: bytes) -> Checkpoint:
    try:
        row: Any = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict) or cast("dict[str, Any]", row).get("ferrule") != "checkpoint":
        raise _broken(path, number, "is no checkpoint")
    row = cast("dict[str, Any]", row)
    if row.get("format") != FORMAT or any(
        type(row.get(name)) is not kind for name, kind in _KINDS.items()
    ):
        raise _broken(path, number, "is no checkpoint that this version reads")
    point = Checkpoint(**{name: row[name] for name in _KINDS}, line=number)
    if point.spelled().encode("utf-8", "surrogatepass") != line:
        raise _broken(path, number, "was changed")
    return point


def _broken(path: Path, number: int, what: str) -> JournalError:
    return JournalError(f"checkpoints `{path}`: line {number} {what}", code="checkpoints_corrupt")


def sign_heads(
    journal: Journal, path: Path, signer: Signer, sessions: Sequence[str], *, now: int
) -> list[Checkpoint]:
    """Sign where these sessions stand now (`now` in ms since 1970), each after its chain and all
    its checkpoints were checked.

    Heads that this key has signed already are left out. Durable when it returns. Raises
    JournalError, and signs nothing of that session and those after it, where something does not
    hold.
    """
    private_folder(path.parent)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = read_checkpoints(path)
        last = (
            sha256(known[-1].spelled().encode("utf-8", "surrogatepass")).hexdigest()
            if known
            else FIRST
        )
        made: list[Checkpoint] = []
        for session in sessions:
            mine = [point for point in known if point.session == session]
            for wrong in contradictions(journal, session, mine, signer.verifier):
                raise JournalError(wrong, code="checkpoint_contradicted")
            seq, digest = journal.head(session)
            if any(
                (point.seq, point.hash, point.key) == (seq, digest, signer.name) for point in mine
            ):
                continue
            blank = Checkpoint(
                session, seq, digest, now, signer.name, last, "", len(known) + len(made) + 1
            )
            point = _signed(blank, signer)
            line = point.spelled().encode("utf-8", "surrogatepass")
            file.write(line + b"\n")
            last = sha256(line).hexdigest()
            made.append(point)
        file.flush()
        os.fsync(file.fileno())
    return made


def _signed(blank: Checkpoint, signer: Signer) -> Checkpoint:
    values = (blank.session, blank.seq, blank.hash, blank.time, blank.key, blank.previous)
    return Checkpoint(*values, signer.sign(blank.message).hex(), blank.line)


def signature_holds(point: Checkpoint, verifier: Verifier) -> bool:
    """Whether this key signed this checkpoint."""
    try:
        signature = bytes.fromhex(point.signature)
    except ValueError:
        return False
    return point.key == verifier.name and verifier.holds(point.message, signature)


def contradictions(
    journal: Journal, session: str, points: Iterable[Checkpoint], verifier: Verifier | None
) -> Iterator[str]:
    """Check a session's chain, and what was signed of it; a sentence for each checkpoint that is
    contradicted.

    With a `verifier`, also whether the signatures are of its key; checkpoints of other keys are
    left alone then. Raises JournalError where the chain itself does not hold, SessionNotFound.
    """
    journal.verify(session)
    signed: dict[int, list[Checkpoint]] = {}
    for point in points:
        if verifier is not None and point.key != verifier.name:
            continue
        if verifier is not None and not signature_holds(point, verifier):
            yield (
                f"checkpoint {point.line}, of event {point.seq} of `{session}`: the signature is "
                "not of this key"
            )
        signed.setdefault(point.seq, []).append(point)
    if signed:
        yield from compared(session, signed, ((r.seq, r.hash) for r in journal.records(session)))


def compared(
    session: str, signed: dict[int, list[Checkpoint]], events: Iterable[tuple[int, str]]
) -> Iterator[str]:
    """A sentence for each checkpoint that the events `(seq, hash)` of a session contradict."""
    seq = 0
    for seq, digest in events:
        for point in signed.get(seq, ()):
            if point.hash != digest:
                yield (
                    f"session `{session}`: event {seq} is not the one that checkpoint "
                    f"{point.line} signed:"
                    f" it or one before it was replaced, and the chain computed anew"
                )
    for missing in sorted(number for number in signed if number > seq):
        point = signed[missing][0]
        yield (
            f"session `{session}`: it ends with event {seq}, and checkpoint {point.line} "
            f"signed event {missing}:"
            f" event {seq + 1} and what followed it were cut off"
        )
