"""Whatever is changed in a journal or an export, one thing at a time, is named where it was
changed.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import blake2s
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ferrule.core.errors import FerruleError, JournalError, SessionNotFound
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.storage.artifacts.files import FileArtifactStore
from ferrule.storage.artifacts.store import Scope
from ferrule.storage.audit.export import export_audit, read_export
from ferrule.storage.audit.verification import Verification, verify_file, verify_sessions
from ferrule.storage.export.archive import archive_sessions
from ferrule.storage.export.jsonl import export_jsonl, import_jsonl, read_jsonl
from ferrule.storage.journal import sqlite_integrity, sqlite_rows
from ferrule.storage.journal.sqlite import SqliteJournal

WORDS = st.sampled_from(["add", "note", "fail", "unknown", "wrong"])
SESSIONS = st.tuples(
    st.lists(st.lists(WORDS, min_size=1, max_size=3), max_size=3),
    st.lists(st.sampled_from(["once", "session", "deny"]), min_size=1, max_size=3),
)
BITS = 32
COLUMNS = ("run", "kind", "body", "hash", "names")


def examples(number: int) -> settings:
    return settings(
        max_examples=number,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )


@pytest.fixture(scope="module")
def journal_of_three(recorded: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A journal of three sessions, and the one in the middle."""
    path = tmp_path_factory.mktemp("kept") / "journal.db"
    with SqliteJournal(path) as journal:
        rounds = [["add", "note"], ["fail", "unknown"]]
        sessions = [recorded(journal, rounds, choices=("once", "deny")) for _ in range(3)]
    return path, sessions[1]


@pytest.fixture
def copy(journal_of_three: tuple[Path, str], tmp_path: Path) -> Path:
    return Path(shutil.copy(journal_of_three[0], tmp_path / "journal.db"))


def edited(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


def verified(path: Path, *sessions: str) -> Verification:
    with SqliteJournal(path) as journal:
        return verify_sessions(journal, sessions or None)


def test_an_untouched_journal_has_no_findings_and_says_what_it_cannot_know(
    journal_of_three: tuple[Path, str],
) -> None:
    done = verified(journal_of_three[0])
    assert (
        done.is_intact and len(done.sessions) == 3 and all(one.events > 5 for one in done.sessions)
    )
    assert ["computed again" in note for note in done.notes] == [True]
    assert json.loads(json.dumps(done.as_record()))["whole"] is True


@dataclass
class Tampering:
    """One change to a session's rows. Each method returns the index of the first row that is wrong.

    None: nothing was changed, as chance would have it.
    """

    db: sqlite3.Connection
    keys: list[int]
    draw: random.Random
    which: int

    def byte(self) -> int | None:
        column = self.draw.choice(COLUMNS)
        value, stored = self.db.execute(
            f"SELECT CAST({column} AS BLOB), typeof({column}) FROM records WHERE id = ?",
            (self.keys[self.which],),
        ).fetchone()
        if not value:
            return None
        changed = bytearray(value)
        changed[self.draw.randrange(len(changed))] ^= self.draw.randrange(1, 256)
        sql = f"UPDATE records SET {column} = CAST(? AS {stored}) WHERE id = ?"
        self.db.execute(sql, (bytes(changed), self.keys[self.which]))
        return self.which

    def time(self) -> int:
        sql = "UPDATE records SET time = time + ? WHERE id = ?"
        self.db.execute(sql, (self.draw.choice([-1, 1, 1000]), self.keys[self.which]))
        return self.which

    def delete(self) -> int:
        self.db.execute("DELETE FROM records WHERE id = ?", (self.keys[self.which],))
        return self.which

    def cut(self) -> int:
        sql = "DELETE FROM records WHERE id BETWEEN ? AND ?"
        self.db.execute(sql, (self.keys[self.which], self.keys[-1]))
        return self.which

    def swap(self) -> int | None:
        keys = self.keys
        which = self.which
        other = self.draw.randrange(len(keys))
        if other == which:
            return None
        for source, to in ((keys[which], -1), (keys[other], keys[which]), (-1, keys[other])):
            self.db.execute("UPDATE records SET id = ? WHERE id = ?", (to, source))
        return min(which, other)

    def insert(self) -> int:
        keys = self.keys
        which = self.which
        source = self.draw.randrange(len(keys))
        copied = "time, run, kind, body, hash, names"
        sql = f"SELECT {copied} FROM records WHERE id = ?"
        row = self.db.execute(sql, (keys[source],)).fetchone()
        for key in reversed(keys[which:]):
            self.db.execute("UPDATE records SET id = ? WHERE id = ?", (key + 1, key))
        values = (keys[which], *row)
        self.db.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        # A copy put before its own original is in its place; what follows it is not.
        return which + (source == which)

    def append(self) -> int:
        last = self.keys[-1]
        sql = (
            "INSERT INTO records SELECT ?, time, run, kind, body, hash, NULL FROM records"
            " WHERE id = ?"
        )
        self.db.execute(sql, (last + 1, last))
        return len(self.keys)

    def mark(self) -> int:
        sql = "UPDATE sessions SET seal = (SELECT substr(hash, 17) FROM records WHERE id = ?)"
        self.db.execute(sql, (self.keys[self.which],))
        return len(self.keys)

    def name(self) -> int:
        first = f"(SELECT names FROM records WHERE id = {self.keys[0]})"
        wrong = "'other'" if self.which == 0 else first
        sql = f"UPDATE records SET names = {wrong} WHERE id = ?"
        self.db.execute(sql, (self.keys[self.which],))
        return self.which


TAMPERINGS: list[Callable[[Tampering], int | None]] = [
    Tampering.byte,
    Tampering.byte,
    Tampering.byte,
    Tampering.time,
    Tampering.delete,
    Tampering.cut,
    Tampering.swap,
    Tampering.insert,
    Tampering.append,
    Tampering.mark,
    Tampering.name,
]
"""What can be done to a journal; bytes are changed most often."""


def change_at(db: sqlite3.Connection, keys: list[int], draw: random.Random) -> int:
    """Make one change to a session's rows; the number of the event that must be named."""
    index: int | None = None
    while index is None:
        tampering = Tampering(db, keys, draw, draw.randrange(len(keys)))
        index = draw.choice(TAMPERINGS)(tampering)
    return index + 1


@examples(40)
@given(SESSIONS, st.randoms(use_true_random=False))
def test_any_single_change_of_a_session_is_named_at_its_event(
    recorded: Any, told: tuple[Any, Any], draw: random.Random
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        with SqliteJournal(path) as journal:
            session = recorded(journal, *told)
            journal.verify(session)
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            keys = [key for (key,) in db.execute("SELECT id FROM records ORDER BY id")]
            db.execute("BEGIN")
            expected = change_at(db, keys, draw)
            db.execute("COMMIT")
        (finding, *_) = verified(path, session).findings
    assert (finding.session, finding.event) == (session, expected), finding.text


BESIDE = {
    "another owner": "UPDATE sessions SET user = 'eve' WHERE no = 2",
    "another tenant": "UPDATE sessions SET tenant = 'evil' WHERE no = 2",
    "a session struck from the table": "DELETE FROM sessions WHERE no = 2",
    "a session taken away": "DELETE FROM sessions WHERE no = 2; DELETE FROM records WHERE id >> 32 = 2",
    "another time of an end": "UPDATE sessions SET time = time + 1 WHERE no = 2",
    "another seal": "UPDATE sessions SET seal = (SELECT max(seal) FROM sessions WHERE no <> 2) WHERE no = 2",
    "one more trigger": (
        "CREATE TRIGGER forget AFTER INSERT ON records BEGIN DELETE FROM records WHERE id = "
        "new.id; END"
    ),
    "one more table": "CREATE TABLE notes (text)",
    "no index": "DROP INDEX runs",
    "events of nobody": (
        f"INSERT INTO records VALUES ({9 << BITS | 1}, 1, 'r', 'notice', '{{}}', x'00', "
        "'s9' || char(10) || 't' || char(10) || 'u')"
    ),
    "events before all": "INSERT INTO records VALUES (-5, 1, 'r', 'notice', '{}', x'00', NULL)",
    "a text stored as bytes": f"UPDATE records SET kind = CAST(kind AS BLOB) WHERE id = {2 << BITS | 3}",
}


@pytest.mark.parametrize("statements", BESIDE.values(), ids=list(BESIDE))
def test_what_no_chain_holds_is_checked_too(copy: Path, statements: str) -> None:
    edited(copy, *(statements.split("; ") if "BEGIN" not in statements else [statements]))
    assert not verified(copy).is_intact


@pytest.mark.proves("audit.verify.any-byte")
@examples(120)
@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_byte_of_the_file_is_either_noticed_or_means_nothing(
    journal_of_three: tuple[Path, str], where: float, flip: int
) -> None:
    data = bytearray(journal_of_three[0].read_bytes())
    data[int(where * len(data))] ^= flip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.db"
        path.write_bytes(bytes(data))
        try:
            with SqliteJournal(path) as journal:
                if not verify_sessions(journal).is_intact:
                    return
                assert read_all(journal) == before(journal_of_three[0])
        except FerruleError:
            return


def read_all(journal: SqliteJournal) -> Any:
    listed = sorted(journal.sessions(), key=lambda info: info.session)
    return [(info, list(journal.records(info.session))) for info in listed]


def before(path: Path, known: dict[Path, Any] = {}) -> Any:  # noqa: B006  read once for all examples
    if path not in known:
        with SqliteJournal(path) as journal:
            known[path] = read_all(journal)
    return known[path]


# ---- exports


@pytest.fixture(scope="module")
def exported(journal_of_three: tuple[Path, str]) -> list[str]:
    with SqliteJournal(journal_of_three[0]) as journal:
        return list(export_jsonl(journal.records(journal_of_three[1])))


@pytest.fixture(scope="module")
def audit_lines(journal_of_three: tuple[Path, str]) -> list[str]:
    with SqliteJournal(journal_of_three[0]) as journal:
        return list(export_audit(journal, [journal_of_three[1]]))


def tampered(lines: list[str], draw: random.Random) -> tuple[bytes, int]:
    """A file with one change, and the number of the line that must be named."""
    made = [line.encode() for line in lines]
    at = draw.randrange(1, len(made))
    kind = draw.choice(
        ["byte", "byte", "byte", "delete", "cut", "swap", "repeat", "blank", "tail", "space"]
    )
    if kind == "byte":
        line = bytearray(made[at])
        line[draw.randrange(len(line))] ^= draw.randrange(1, 256)
        made[at] = bytes(line)
    elif kind == "delete":
        del made[at]
    elif kind == "cut":
        del made[at:]
    elif kind == "swap":
        other = draw.randrange(1, len(made))
        if other == at:
            return tampered(lines, draw)
        made[at], made[other] = made[other], made[at]
        at = min(at, other)
    elif kind == "repeat":
        made.insert(at, made[draw.randrange(1, len(made))])
        if made[at] == made[at + 1]:
            at += 1
    elif kind == "blank":
        made.insert(at, b"\n")
    elif kind == "tail":
        at = len(made) - 1
        made[at] = made[at][: -draw.randrange(1, len(made[at]))]
    else:
        made[at] = made[at].replace(b":", b": ", 1)
    return b"".join(made), at + 1


@examples(150)
@given(draw=st.randoms(use_true_random=False))
def test_any_single_change_of_an_export_is_named_at_its_line_and_event(
    exported: list[str], journal_of_three: tuple[Path, str], draw: random.Random
) -> None:
    data, line = tampered(exported, draw)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        path.write_bytes(data)
        (finding,) = verify_file(path).findings
    assert re.search(rf"line {line}\b", finding.text) and finding.event == line - 1, finding.text
    # Of a first event that cannot be read nobody knows whose it is.
    assert finding.session == journal_of_three[1] or line == 2


def test_an_audit_export_says_at_its_end_how_much_it_holds(audit_lines: list[str]) -> None:
    records = [json.loads(line) for line in audit_lines]
    kinds = [record.get("type") for record in records]
    assert (records[-1]["sessions"], records[-1]["calls"]) == (1, kinds.count("call"))
    assert kinds.count("session") == 1 and kinds.count("call") > 1
    (session,) = (record for record in records if record.get("type") == "session")
    assert (session["tenant"], session["user"]) == ("local", "ann")


@examples(100)
@given(draw=st.randoms(use_true_random=False))
def test_any_single_change_of_an_audit_export_is_named_at_its_line(
    audit_lines: list[str], draw: random.Random
) -> None:
    data, line = tampered(audit_lines, draw)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "audit.jsonl"
        path.write_bytes(data)
        (finding,) = verify_file(path).findings
    assert re.search(rf"line {line}\b", finding.text), finding.text


@pytest.mark.parametrize(
    "change", [lambda line: line.replace("2", "0"), lambda line: line.replace("ends", "end_")]
)
def test_a_changed_first_line_is_refused(exported: list[str], tmp_path: Path, change: Any) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("".join([change(exported[0]), *exported[1:]]))
    try:
        assert "line 1" in verify_file(path).findings[0].text
    except JournalError as error:
        assert error.code in ("journal_newer", "journal_older")


OLDER = (
    ('{"ferrule":"journal","format":2}\n', ""),
    ('{"ferrule":"journal","format":2,"ends":true}\n', ',"end":true'),
)
"""The first line of exports without a seal, and what their last event carried."""


def without_seal(line: str, mark: str = "") -> str:
    """The last line of an export as a person with an editor left it."""
    return re.sub(r',"seal":"[0-9a-f]{32}"', mark, line)


@pytest.mark.parametrize(("header", "mark"), OLDER, ids=["unmarked", "marked"])
def test_exports_without_a_seal_are_checked_but_nothing_shows_where_they_end(
    exported: list[str], tmp_path: Path, header: str, mark: str
) -> None:
    path = tmp_path / "old.jsonl"
    old = [header, *exported[1:-1], without_seal(exported[-1], mark)]
    assert len(list(read_jsonl(old))) == len(exported) - 1
    cut = [*old[:-2], old[-2].replace(',"body":', f'{mark},"body":', 1)]
    for lines in (old, cut):
        path.write_text("".join(lines))
        (finding,) = verify_file(path).findings
        assert "line 1" in finding.text and "no seal" in finding.text
        assert (finding.session, finding.event) == ("", 0), "it is about the file"
    path.write_text("".join([*old[:3], old[3].replace("time", "tome"), *old[4:]]))
    assert "line 4" in verify_file(path).findings[0].text


def test_a_changed_seal_is_named_at_the_event_that_carries_it(
    exported: list[str], tmp_path: Path
) -> None:
    *lines, last = exported
    path = tmp_path / "changed.jsonl"
    path.write_text("".join([*lines, re.sub(r'(?<="seal":")[0-9a-f]{2}', "zz", last)]))
    (finding,) = verify_file(path).findings
    assert (finding.event, finding.text.partition(":")[0]) == (
        len(lines),
        f"line {len(exported)}",
    )


@pytest.mark.parametrize("kept", [1, 4, -2])
@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("", "are missing"),
        (',"end":true', "was changed"),
        (',"seal":"<of the last event>"', "wrong seal"),
        (f',"seal":"{"0" * 32}"', "wrong seal"),
        (',"seal":""', "wrong seal"),
    ],
)
def test_an_export_that_was_cut_and_ended_by_hand_is_found(
    exported: list[str], tmp_path: Path, kept: int, end: str, said: str
) -> None:
    (seal,) = re.findall(r'"seal":"([0-9a-f]{32})"', "".join(exported))
    end = end.replace("<of the last event>", seal)
    *lines, last = [exported[0], *exported[1:][:kept]]
    assert '"seal"' not in last
    path = tmp_path / "cut.jsonl"
    path.write_text("".join([*lines, last.replace(',"body":', f'{end},"body":', 1)]))
    (finding,) = verify_file(path).findings
    assert said in finding.text
    with SqliteJournal(":memory:") as journal, path.open() as file:
        with pytest.raises(JournalError, match=said):
            import_jsonl(journal, file)
        assert journal.sessions() == []


def test_an_export_ends_with_the_seal_of_the_journal(
    exported: list[str], journal_of_three: tuple[Path, str]
) -> None:
    path, session = journal_of_three
    with closing(sqlite3.connect(path)) as db, db:
        seals = {bytes(row[0]).hex() for row in db.execute("SELECT seal FROM sessions")}
    last = json.loads(exported[-1])
    assert last["session"] == session and last["seal"] in seals
    assert last["seal"] == blake2s(bytes.fromhex(last["hash"]), digest_size=16).hexdigest()


def test_a_file_of_another_kind_is_no_finding_but_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello\n")
    with pytest.raises(JournalError) as found:
        verify_file(path)
    assert found.value.code == "journal_foreign"


def test_redaction_replaces_texts_and_keeps_every_digest(
    journal_of_three: tuple[Path, str],
) -> None:
    def redact(text: str) -> str:
        return text.replace("milk", "[redacted]")

    with SqliteJournal(journal_of_three[0]) as journal:
        plain = list(read_export(export_audit(journal, [journal_of_three[1]])))
        clean_lines = list(export_audit(journal, [journal_of_three[1]], redact=redact))
    clean = list(read_export(clean_lines))
    assert "milk" not in "".join(clean_lines) and "[redacted]" in "".join(clean_lines)
    assert (plain[0]["redacted"], clean[0]["redacted"]) == (False, True)

    def digests(records: list[dict[str, Any]]) -> list[Any]:
        return [
            (
                one["arguments_sha256"],
                one["result_sha256"],
                [gate["digest"] for gate in one["decisions"]],
            )
            for one in records
            if one.get("type") == "call"
        ]

    assert digests(plain) == digests(clean) and len(digests(plain)) == 4
    assert "noted" not in "".join(clean_lines)  # what results said is never in it


def test_an_export_ends_where_redaction_fails(journal_of_three: tuple[Path, str]) -> None:
    def broken(text: str) -> str:
        raise ValueError("cannot tell")

    with SqliteJournal(journal_of_three[0]) as journal:
        lines: Iterator[str] = export_audit(journal, [journal_of_three[1]], redact=broken)
        said = [next(lines), next(lines)]
        with pytest.raises(ValueError, match="cannot tell"):
            next(lines)
    assert "milk" not in "".join(said)


def test_a_session_that_is_not_there_is_no_finding(journal_of_three: tuple[Path, str]) -> None:
    with SqliteJournal(journal_of_three[0]) as journal, pytest.raises(SessionNotFound):
        verify_sessions(journal, ["nobody"])


def test_a_journal_in_memory_can_be_checked() -> None:
    with SqliteJournal(":memory:") as journal:
        assert verify_sessions(journal).is_intact
        journal.append(
            "s1", "r1", [Noticed("n", "x")], identity=Identity("local", "me", "s1", "r1")
        )
        assert [one.events for one in verify_sessions(journal).sessions] == [1]


@pytest.mark.parametrize("place", ["min", "max"])
def test_a_session_whose_events_were_all_removed_is_named(copy: Path, place: str) -> None:
    number = f"(SELECT {place}(no) FROM sessions)"
    with SqliteJournal(copy) as journal:
        db = sqlite3.connect(copy)
        (name,) = db.execute(f"SELECT session FROM sessions WHERE no = {number}").fetchone()
        db.close()
        assert name in [info.session for info in journal.sessions()]
    edited(copy, f"DELETE FROM records WHERE id >> {BITS} = {number}")
    found = verified(copy)
    assert not found.is_intact
    assert any(name in finding.text and "missing" in finding.text for finding in found.findings)


def test_a_journal_that_is_being_written_is_not_called_changed(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer begins a session between any two looks at the file."""
    begun = 0

    def write(*_: Any) -> None:
        nonlocal begun
        begun += 1
        with SqliteJournal(copy) as other:
            name = f"new{begun}"
            other.append(
                name, "r", [Noticed("x", "y")], identity=Identity("local", "ann", name, "r")
            )

    looks = [
        "_schema_problems",
        "_structure_problems",
        "_events_without_session",
        "_sessions_without_events",
        "_missing_numbers",
        "_session_set_problems",
    ]
    for name in looks:
        real = getattr(sqlite_integrity, name)

        def look(db: sqlite3.Connection, real: Any = real) -> Iterator[str]:
            write()
            for found in real(db):
                yield found
                write()
            write()

        monkeypatch.setattr(sqlite_integrity, name, look)
    real_known = sqlite_integrity.read_session_numbers

    def known(db: sqlite3.Connection) -> set[int]:
        found = real_known(db)
        write()
        return found

    monkeypatch.setattr(sqlite_integrity, "read_session_numbers", known)
    assert verified(copy).findings == []
    assert begun > len(looks)
    assert verified(copy).is_intact


@pytest.mark.parametrize("at", range(8))
def test_a_session_that_is_archived_while_it_is_checked_is_not_called_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Another process archives everything before the `at`-th look into the events of a session."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        for name in ("s1", "s2"):
            me = Identity("local", "me", name, "r1")
            journal.append(
                name, "r1", [Noticed("n", str(number)) for number in range(300)], identity=me
            )
    looks = itertools.count()

    def looking(real: Any) -> Any:
        def look(*args: Any, **more: Any) -> Any:
            if next(looks) == at:
                with SqliteJournal(path) as other:
                    done = archive_sessions(other, ["s1", "s2"], tmp_path / "all.jsonl.gz")
                    assert done.sessions == ["s1", "s2"]
            return real(*args, **more)

        return look

    for module, name in (
        (sqlite_rows, "read_raw_page"),
        (sqlite_rows, "read_last_row"),
        (sqlite_integrity, "check_unhashed_columns"),
    ):
        monkeypatch.setattr(module, name, looking(getattr(module, name)))
    assert verified(path).findings == []
    assert next(looks) > at
    assert verified(path).is_intact


def test_a_kept_output_that_was_changed_is_named_and_one_that_is_gone_is_not(
    tmp_path: Path,
) -> None:
    store = FileArtifactStore(tmp_path / "artifacts")
    me = Identity("local", "ann", "s1", "r1")
    with SqliteJournal(":memory:") as journal:
        journal.append("s1", "r1", [Noticed("n", "x")], identity=me)
        mine = Scope(me.tenant, me.user, "s1")
        changed, gone, whole = (store.put(mine, [text], tool="t") for text in (b"1", b"2", b"3"))
        assert verify_sessions(journal, artifacts=store).is_intact
        (file,) = (tmp_path / "artifacts").rglob(changed.sha256)
        file.write_bytes(b"X")  # Of another size it would be missing.
        store.delete(mine, gone.reference)
        (finding,) = verify_sessions(journal, ["s1"], artifacts=store).findings
        assert changed.reference in finding.text and whole.reference not in finding.text


def test_a_small_file_that_unpacks_to_one_endless_line_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    piece = b"0" * (1 << 20)
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(80):
            file.write(piece)
    with pytest.raises(JournalError, match="line 1: it has more than 67108864 bytes"):
        verify_file(path)
