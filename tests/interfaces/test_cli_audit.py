"""`ferrule audit` and `ferrule sessions archive`: what a person sees of the audit, and its exit
codes.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")


@pytest.fixture
def session(folder: Path, ferrule: Any, script: Any, a_call: Any) -> str:
    """A session in which a note was written, a file was refused, and a tool did not exist."""
    model = script(
        a_call("write_file", path="b.txt", content="hunter2"),
        a_call("read_file", path="note.txt"),
        {"say": "done"},
    )
    ferrule("run", "-m", model, "--yes-to", "write_file", "--deny", "Read(note.txt)", "go")
    return json.loads(ferrule("sessions", "list", "--json").out)[0]["session"]


def edited(state: Path, statement: str) -> None:
    with closing(sqlite3.connect(state / "state/journal.db")) as db, db:
        db.execute(statement)


def test_a_call_is_explained_in_words_and_as_json(ferrule: Any, session: str) -> None:
    listed = [line.split() for line in ferrule("audit", "calls", session[:10]).lines]
    assert [(row[1], row[2], row[3]) for row in listed] == [
        ("write_file", "person", "success"), ("read_file", "rule", "permission_denied"),
    ]  # fmt: skip
    wrote, read = (row[0] for row in listed)
    ran = ferrule("audit", "explain", wrote)
    assert ran.code == 0 and "allowed by --yes-to write_file" in ran.lines[0]
    assert (
        "yes, this once, by --yes-to write_file" in ran.out
        and "for these very arguments" in ran.out
    )
    assert (
        "the gate's own order" in ran.out
        and "mode default" in ran.out
        and "outcome    success" in ran.out
    )
    ran = ferrule("audit", "explain", read, "--session", session)
    assert ran.code == 4 and "refused by the rule `Read(note.txt)`" in ran.lines[0]
    assert "given on the command line" in ran.out
    record = json.loads(ferrule("audit", "explain", read, "--json").out)
    assert (record["schema"], record["outcome"], record["settled_by"]) == (
        "ferrule.audit.v1",
        "permission_denied",
        "rule",
    )
    assert record["decisions"][0]["layer"] == "flags"


def test_a_journal_that_is_gone_does_not_verify(
    ferrule: Any, session: str, own_folders: Path
) -> None:
    gone = own_folders / "state/journal.db"
    for place in gone.parent.glob("journal.db*"):
        place.unlink()
    ran = ferrule("audit", "verify")
    assert (ran.code, ran.out) == (1, "")
    assert f"no journal at `{gone}`" in ran.err and "put a copy back" in ran.err
    assert not gone.exists()


def test_a_call_that_is_not_there_or_not_clear_says_what_to_do(ferrule: Any, session: str) -> None:
    ran = ferrule("audit", "explain", "nope")
    assert ran.code == 2 and "audit calls SESSION" in ran.err
    ran = ferrule("audit", "explain", "call_")
    assert ran.code == 2 and "the beginning of several calls" in ran.err


def test_all_is_verified_and_what_does_not_hold_is_named_with_exit_code_1(
    ferrule: Any, session: str, own_folders: Path
) -> None:
    ran = ferrule("audit", "verify")
    assert ran.code == 0 and f"{session}: " in ran.out and "events verify" in ran.out
    assert "no checkpoint covers" in ran.err
    edited(own_folders, f"UPDATE records SET time = time + 1 WHERE id = {(1 << 32) + 4}")
    ran = ferrule("audit", "verify")
    assert (
        ran.code == 1
        and f"session `{session}`: event 4 was changed" in ran.err
        and "salvage" in ran.err
    )
    (found,) = json.loads(ferrule("audit", "verify", session, "--json").out)
    assert not found["whole"] and [(one["session"], one["event"]) for one in found["findings"]] == [
        (session, 4)
    ]


def test_sessions_verify_is_the_same_command(ferrule: Any, session: str) -> None:
    from ferrule.cli.sessions import audit, command

    assert command.sessions.commands["verify"] is audit.verify
    assert (
        ferrule("sessions", "verify", session).out == ferrule("audit", "verify", session).out != ""
    )


def test_exported_files_are_verified_too(ferrule: Any, session: str, folder: Path) -> None:
    ferrule("sessions", "export", session, "--format", "jsonl", "-o", "s.jsonl")
    ferrule("audit", "export", session, "-o", "a.jsonl")
    for name in ("s.jsonl", "a.jsonl"):
        assert ferrule("audit", "verify", name).code == 0
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join([*lines[:2], *lines[3:]]))
        ran = ferrule("audit", "verify", name)
        assert ran.code == 1 and "line 3" in ran.err
    (folder / "x.txt").write_text("hello\n")
    assert ferrule("audit", "verify", "x.txt").code == 1
    assert ferrule("audit", "verify", "nothing-here").code == 2


def test_an_export_takes_secrets_out_unless_it_is_asked_to_leave_them(
    ferrule: Any, script: Any, a_call: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-very-secret-value-1")
    model = script(
        a_call("write_file", path="b.txt", content="key sk-very-secret-value-1"), {"say": "x"}
    )
    ferrule("run", "-m", model, "--yes-to", "write_file", "go")
    clean, raw = ferrule("audit", "export").out, ferrule("audit", "export", "--raw").out
    assert "sk-very-secret-value-1" not in clean and "sk-very-secret-value-1" in raw
    (first,), (second,) = (
        [json.loads(line) for line in text.splitlines() if '"type":"call"' in line]
        for text in (clean, raw)
    )
    assert first["arguments_sha256"] == second["arguments_sha256"]


def test_what_was_signed_is_checked_with_the_public_key(
    ferrule: Any, session: str, own_folders: Path
) -> None:
    state = own_folders / "state"
    assert "ferrule audit key" in ferrule("audit", "sign").err
    made = ferrule("audit", "key")
    assert made.code == 0 and stat.S_IMODE((state / "keys/audit.pem").stat().st_mode) == 0o600
    public = str(state / "keys/audit.pem.pub")
    signed = ferrule("audit", "sign")
    assert signed.code == 0 and f"{session}: event " in signed.out
    assert "nothing new" in ferrule("audit", "sign").err
    ran = ferrule("audit", "verify", "--key", public)
    assert (
        ran.code == 0 and "signed up to event" in ran.out and "no checkpoint covers" not in ran.err
    )
    edited(own_folders, "DELETE FROM records WHERE id >> 32 = 1")
    edited(own_folders, "DELETE FROM sessions WHERE no = 1")
    assert ferrule("audit", "verify").code == 1
    ran = ferrule("audit", "verify", "--key", public)
    assert ran.code == 1 and f"session `{session}` is gone" in ran.err


def test_receipts_are_printed_as_json_lines(ferrule: Any, session: str) -> None:
    (line,) = ferrule("audit", "receipts", session).lines
    receipt = json.loads(line)
    assert receipt["session"] == session and [one["tool"] for one in receipt["tool_calls"]] == [
        "write_file",
        "read_file",
    ]
    assert "hunter2" not in line


def test_old_sessions_are_archived_listed_no_more_and_come_back(
    ferrule: Any, session: str, own_folders: Path, folder: Path
) -> None:
    assert ferrule("sessions", "archive").code == 2
    assert "nothing to archive" in ferrule("sessions", "archive", "--older-than", "30d").err
    assert ferrule("sessions", "archive", "--older-than", "a month").code == 2
    ran = ferrule("sessions", "archive", "--older-than", "0s", "--dry-run")
    assert ran.lines == [session]
    ran = ferrule("sessions", "archive", "--older-than", "0s", "-o", "old.jsonl.gz")
    assert ran.code == 0 and "of 1 sessions, sha256" in ran.out
    assert ferrule("sessions", "list").out == ""
    assert ferrule("audit", "verify", "old.jsonl.gz").code == 0
    ran = ferrule("audit", "verify")
    assert ran.code == 0 and f"{session}: " in ran.out and "are in the archive" in ran.out
    assert ferrule("sessions", "import", "old.jsonl.gz").out.split() == [session]
    assert ferrule("sessions", "verify", session).code == 0
    ran = ferrule("sessions", "archive", session)
    assert ran.code == 0 and list((own_folders / "state/archives").glob("*.jsonl.gz"))


def test_sessions_are_signed_when_they_are_closed_if_the_person_wants_that(
    ferrule: Any, script: Any, folder: Path, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_AUDIT_SIGN", "true")
    ran = ferrule("run", "-m", script({"say": "x"}), "go")
    assert ran.code == 2 and "ferrule audit key" in ran.err  # nothing runs unsigned
    ferrule("audit", "key")
    assert ferrule("run", "-m", script({"say": "x"}), "go").code == 0
    ran = ferrule("audit", "verify", "--key", str(own_folders / "state/keys/audit.pem.pub"))
    assert ran.code == 0 and "signed up to event" in ran.out and ran.err == ""


@pytest.mark.parametrize("name", ["deep.jsonl", "deep.jsonl.gz"])
def test_a_file_that_is_nested_too_deeply_is_an_error_and_no_defect(
    folder: Path, ferrule: Any, name: str
) -> None:
    data = b"[" * 100_000 + b"\n"
    (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    for command in (("sessions", "import"), ("sessions", "replay"), ("sessions", "verify")):
        ran = ferrule(*command, name)
        assert ran.code not in (0, 70) and "line 1: not a Ferrule export" in ran.err, command
