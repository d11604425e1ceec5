"""Checkpoints: a forger who computes the chain anew, a cut tail, a session taken away, an older
copy are noticed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ConfigError, JournalError
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.storage.audit.checkpoints import checkpoints_path, read_checkpoints, sign_heads
from ferrule.storage.audit.export import export_audit
from ferrule.storage.audit.signing import Signer, Verifier, public_key_path
from ferrule.storage.audit.verification import verify_file, verify_sessions
from ferrule.storage.export.jsonl import export_jsonl
from ferrule.storage.journal import hash_chain
from ferrule.storage.journal.sqlite import SqliteJournal

pytest.importorskip("cryptography")
ME = Identity("local", "ann", "s1", "r1")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "deep" / "audit.pem"
    Signer.create(path)
    return path


@pytest.fixture
def signer(key: Path) -> Signer:
    return Signer.load(key)


def added(path: Path, *texts: str, session: str = "s1") -> None:
    with SqliteJournal(path) as journal:
        journal.append(session, "r1", [Noticed("n", text) for text in texts], identity=ME)


def signed(path: Path, signer: Signer, now: int = 1000) -> int:
    with SqliteJournal(path) as journal:
        names = [info.session for info in journal.sessions()]
        return len(sign_heads(journal, checkpoints_path(path), signer, names, now=now))


def findings(path: Path, verifier: Verifier | None) -> list[str]:
    with SqliteJournal(path) as journal:
        points = read_checkpoints(checkpoints_path(path))
        return [
            one.text for one in verify_sessions(journal, points=points, verifier=verifier).findings
        ]


def forged(path: Path, seq: int, body: str) -> None:
    """Change an event and compute everything after it anew, as somebody who knows the format
    would.
    """
    db = sqlite3.connect(path)
    previous = hash_chain.FIRST_HASH
    tenant, user = db.execute("SELECT tenant, user FROM sessions WHERE no = 1").fetchone()
    sql = "SELECT id, run, kind, time, body FROM records WHERE id >> 32 = 1 ORDER BY id"
    run = ""
    for key, new_run, kind, time, text in db.execute(sql).fetchall():
        number = key & 0xFFFFFFFF
        run = new_run or run
        text = body if number == seq else text
        row = f"{hash_chain.row_prefix('s1', run, tenant, user)}{kind}\n{number}\n{time}\n{text}"
        previous = hash_chain.hash_row(previous, row.encode())
        db.execute("UPDATE records SET body = ?, hash = ? WHERE id = ?", (text, previous, key))
    db.execute("UPDATE sessions SET seal = ? WHERE no = 1", (hash_chain.seal(previous),))
    db.commit()
    db.close()


def test_a_key_is_its_owners_alone_and_never_replaced(key: Path, tmp_path: Path) -> None:
    assert (
        stat.S_IMODE(key.stat().st_mode) == 0o600
        and stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    )
    with pytest.raises(ConfigError, match="already"):
        Signer.create(key)
    lax = Path(shutil.copy(key, tmp_path / "lax.pem"))
    lax.chmod(0o640)
    with pytest.raises(ConfigError, match="others could read"):
        Signer.load(lax)
    assert (
        Verifier.load(public_key_path(key)).name == Signer.load(key).name == Verifier.load(key).name
    )


@pytest.mark.parametrize(
    "text", ["", "hello", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"]
)
def test_what_is_no_key_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "k.pem"
    path.write_text(text)
    path.chmod(0o600)
    for load in (Verifier.load, Signer.load):
        with pytest.raises(ConfigError, match=r"k\.pem"):
            load(path)
    with pytest.raises(ConfigError, match="cannot read"):
        Verifier.load(tmp_path / "none.pem")


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    path = tmp_path / "ec.pem"
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    path.write_bytes(public.public_bytes(*pem))
    with pytest.raises(ConfigError, match="another kind"):
        Verifier.load(path)


def test_a_signed_journal_verifies_and_says_what_is_not_signed_yet(
    path: Path, signer: Signer
) -> None:
    added(path, "one", "two")
    assert signed(path, signer) == 1 and signed(path, signer) == 0
    assert stat.S_IMODE(checkpoints_path(path).stat().st_mode) == 0o600
    added(path, "three")
    with SqliteJournal(path) as journal:
        points = read_checkpoints(checkpoints_path(path))
        done = verify_sessions(journal, points=points, verifier=signer.verifier)
    assert done.is_intact and [(one.events, one.signed) for one in done.sessions] == [(3, 2)]
    assert done.notes == ["session `s1`: events 3 to 3 are not signed"]


def test_a_chain_that_was_computed_anew_is_noticed_only_by_its_checkpoints(
    path: Path, signer: Signer
) -> None:
    added(path, "one", "two", "three")
    signed(path, signer)
    forged(path, 2, '{"topic":"n","text":"tow"}')
    with SqliteJournal(path) as journal:
        journal.verify("s1")
        assert verify_sessions(journal).is_intact  # no chain can show it
    (text,) = findings(path, signer.verifier)
    assert "event 3 is not the one that checkpoint 1 signed" in text
    (text,) = findings(path, None)
    assert "computed again" in text


def test_several_checkpoints_narrow_a_forgery_down(path: Path, signer: Signer) -> None:
    for text in ("one", "two", "three", "four"):
        added(path, text)
        signed(path, signer)
    forged(path, 3, '{"topic":"n","text":"?"}')
    assert [text.split(" is not")[0] for text in findings(path, signer.verifier)] == [
        "session `s1`: event 3", "session `s1`: event 4",
    ]  # fmt: skip


def test_a_tail_that_was_cut_off_and_an_older_copy_are_noticed(
    path: Path, signer: Signer, tmp_path: Path
) -> None:
    added(path, "one", "two")
    older = Path(shutil.copy(path, tmp_path / "older.db"))
    added(path, "three", "four")
    signed(path, signer)
    shutil.copy(older, path)
    (text,) = findings(path, signer.verifier)
    assert (
        "it ends with event 2" in text
        and "signed event 4: event 3 and what followed it were cut off" in text
    )


def test_a_session_that_was_taken_away_is_noticed(path: Path, signer: Signer) -> None:
    added(path, "one")
    added(path, "x", "y", session="s2")
    signed(path, signer)
    db = sqlite3.connect(path)
    db.executescript("DELETE FROM records WHERE id >> 32 = 2; DELETE FROM sessions WHERE no = 2")
    db.close()
    *_, text = findings(path, signer.verifier)
    assert "session `s2` is gone" in text and "its event 2" in text


def test_a_checkpoint_with_a_forged_signature_or_of_another_key_does_not_count(
    path: Path, signer: Signer, tmp_path: Path
) -> None:
    added(path, "one")
    signed(path, signer)
    row = json.loads(checkpoints_path(path).read_text())
    row["time"] = 5
    checkpoints_path(path).write_text(json.dumps(row, separators=(",", ":")) + "\n")
    (text,) = findings(path, signer.verifier)
    assert "the signature is not of this key" in text
    stranger = Signer.create(tmp_path / "other.pem")
    assert findings(path, stranger.verifier) == []
    with SqliteJournal(path) as journal:
        points = read_checkpoints(checkpoints_path(path))
        (one,) = verify_sessions(journal, points=points, verifier=stranger.verifier).sessions
    assert one.signed == 0


def test_what_contradicts_a_checkpoint_is_not_signed_again(path: Path, signer: Signer) -> None:
    added(path, "one", "two")
    signed(path, signer)
    forged(path, 1, '{"topic":"n","text":"?"}')
    added(path, "three")
    with pytest.raises(JournalError, match="computed again"):
        signed(path, signer)
    assert len(read_checkpoints(checkpoints_path(path))) == 1


TAMPERED: dict[str, Any] = {
    "a removed line": (lambda lines: [lines[0], lines[2]], 2),
    "a first line removed": (lambda lines: lines[1:], 1),
    "swapped lines": (lambda lines: [lines[1], lines[0], lines[2]], 1),
    "a repeated line": (lambda lines: [lines[0], lines[0], *lines[1:]], 2),
    "a changed line": (
        lambda lines: [lines[0], lines[1].replace('"seq":2', '"seq":1'), lines[2]],
        3,
    ),
    "a blank": (lambda lines: [lines[0].replace(",", ", ", 1), *lines[1:]], 1),
    "no newline": (lambda lines: [*lines[:2], lines[2][:-1]], 3),
    "other text": (lambda lines: [*lines[:2], "hello\n"], 3),
}


@pytest.mark.parametrize(("change", "line"), TAMPERED.values(), ids=list(TAMPERED))
def test_a_change_of_the_checkpoints_themselves_is_named_by_its_line(
    path: Path, signer: Signer, change: Any, line: int
) -> None:
    for number in range(3):
        added(path, str(number))
        signed(path, signer)
    checkpoints_path(path).write_text(
        "".join(change(checkpoints_path(path).read_text().splitlines(keepends=True)))
    )
    with pytest.raises(JournalError, match=f"line {line} ") as found:
        read_checkpoints(checkpoints_path(path))
    assert found.value.code == "checkpoints_corrupt"


def test_nobody_else_adds_a_checkpoint_while_one_is_signed(
    path: Path, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def sign(message: bytes) -> bytes:
        with (
            checkpoints_path(path).open("ab") as file,
            pytest.raises(BlockingIOError),
        ):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tried.append("refused")
        return bytes(64)

    monkeypatch.setattr(signer, "sign", sign)
    added(path, "one")
    assert signed(path, signer) == 1
    assert tried == ["refused"]


def test_an_export_is_checked_against_checkpoints_too(
    path: Path, signer: Signer, tmp_path: Path
) -> None:
    added(path, "one", "two")
    signed(path, signer)
    points = read_checkpoints(checkpoints_path(path))
    exported = tmp_path / "s1.jsonl"
    forged(path, 1, '{"topic":"n","text":"?"}')
    with SqliteJournal(path) as journal:
        exported.write_text("".join(export_jsonl(journal.records("s1"))))
    assert verify_file(exported).is_intact
    (finding,) = verify_file(exported, points=points, verifier=signer.verifier).findings
    assert "event 2 is not the one" in finding.text


def test_an_audit_export_that_was_written_anew_is_noticed_by_its_signature(
    recorded: Any, signer: Signer, tmp_path: Path
) -> None:
    with SqliteJournal(":memory:") as journal:
        session = recorded(journal, [["add"]])
        lines = list(export_audit(journal, [session], signer=signer))
        unsigned = list(export_audit(journal, [session]))
        other = list(export_audit(journal, [session], redact=str.upper))
    file = tmp_path / "audit.jsonl"
    file.write_text("".join(lines))
    assert verify_file(file, verifier=signer.verifier).is_intact
    for text in (unsigned, other, [*other[:-1], lines[-1]]):
        file.write_text("".join(text))
        assert not verify_file(file, verifier=signer.verifier).is_intact
    stranger = Signer.create(tmp_path / "other.pem")
    file.write_text("".join(lines))
    assert (
        "not signed with this key" in verify_file(file, verifier=stranger.verifier).findings[0].text
    )


def test_a_journal_without_checkpoints_reads_none(tmp_path: Path) -> None:
    assert read_checkpoints(tmp_path / "none") == []
    folder = tmp_path / "folder"
    os.mkdir(folder)
    with pytest.raises(JournalError, match="cannot read"):
        read_checkpoints(folder)
