"""JSON lines: out and in is the same session, with its proof; the files of the corpus load."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.core.errors import JournalError
from ferrule.core.events import Noticed, RunFinished, RunStarted, Unknown
from ferrule.core.identity import Identity
from ferrule.core.machine import Machine
from ferrule.storage.export.jsonl import export_jsonl, import_jsonl, read_jsonl
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.journal_conformance import ME, STORY

CORPUS = sorted((Path(__file__).parent.parent / "corpus").glob("v*/*.jsonl"))


def exported(*sessions: str) -> list[str]:
    ticks = iter(range(1_000, 10_000, 7))
    with SqliteJournal(":memory:", now=lambda: next(ticks) / 1000) as journal:
        for session in sessions or ("s1",):
            journal.append(session, "r1", STORY, identity=ME)
            odd = [RunStarted("half \ud83d ä"), Unknown("future.kind", {"x": [1.5, None]})]
            journal.append(session, "r2", odd, identity=ME)
        return [
            line
            for session in sessions or ("s1",)
            for line in export_jsonl(journal.records(session))
        ]


@pytest.mark.proves("export.jsonl-round-trip")
def test_a_session_comes_back_byte_for_byte_with_its_times_and_hashes() -> None:
    lines = exported()
    with SqliteJournal(":memory:") as journal:
        assert import_jsonl(journal, lines) == ["s1"]
        journal.verify("s1")
        assert list(export_jsonl(journal.records("s1"))) == lines


def test_several_sessions_may_stand_in_one_file() -> None:
    lines = exported("s1", "s2")
    header = lines[0]
    together = [header, *(line for line in lines if line != header)]
    with SqliteJournal(":memory:") as journal:
        assert import_jsonl(journal, together) == ["s1", "s2"]
        assert [
            line for name in ("s1", "s2") for line in export_jsonl(journal.records(name))
        ] == lines


def test_an_import_can_belong_to_the_one_who_imports() -> None:
    you = Identity("elsewhere", "you", "any", "any")
    with SqliteJournal(":memory:") as journal:
        import_jsonl(journal, exported(), identity=you)
        journal.verify("s1")
        assert journal.sessions(tenant="local") == []
        (info,) = journal.sessions(tenant="elsewhere", user="you")
        assert info.opened == 1_000 and info.runs == 2
        kept = [record.event for record in read_jsonl(exported())]
        assert [record.event for record in journal.records("s1")] == kept


def test_an_imported_session_is_free_for_another_writer(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as importer, SqliteJournal(tmp_path / "j.db") as other:
        import_jsonl(importer, exported())
        other.append("s1", "r3", [RunStarted("go on")], identity=ME)
        other.verify("s1")


def test_a_session_that_is_there_is_not_overwritten() -> None:
    with SqliteJournal(":memory:") as journal:
        journal.append("s1", "r1", [Noticed("n", "mine")], identity=ME)
        with pytest.raises(JournalError) as found:
            import_jsonl(journal, exported())
        assert found.value.code == "journal_exists" and journal.head("s1")[0] == 1


def edit(
    number: int, change: Callable[[dict[str, object]], object]
) -> Callable[[list[str]], list[str]]:
    def edited(lines: list[str]) -> list[str]:
        row = json.loads(lines[number - 1])
        change(row)
        return [
            *lines[: number - 1],
            json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n",
            *lines[number:],
        ]

    return edited


BROKEN: dict[str, tuple[Callable[[list[str]], list[str]], str]] = {
    "nothing": (lambda lines: [], "line 1: the file is empty"),
    "no header": (lambda lines: lines[1:], "line 1: not a Ferrule export"),
    "other text": (lambda lines: ["hello\n", *lines], "line 1: not a Ferrule export"),
    "newer": (lambda lines: ['{"ferrule":"journal","format":99}', *lines[1:]], "line 1: format 99"),
    "missing line": (
        lambda lines: [*lines[:3], *lines[4:]],
        "line 4: event 4 of `s1` where event 3 should be",
    ),
    "swapped lines": (
        lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
        "line 3: event 3 of `s1`",
    ),
    "repeated line": (lambda lines: [*lines[:3], lines[2], *lines[3:]], "line 4: event 2 of `s1`"),
    "cut line": (lambda lines: [*lines[:-1], lines[-1][:50]], "line 10: not JSON"),
    "changed body": (
        edit(3, lambda row: row.update(body={"text": "other"})),
        "line 3: event 2 of `s1` was changed",
    ),
    "changed time": (
        edit(4, lambda row: row.update(time=5)),
        "line 4: event 3 of `s1` was changed",
    ),
    "changed kind": (
        edit(4, lambda row: row.update(kind="notice")),
        "line 4: event 3 of `s1` was changed",
    ),
    "changed owner": (
        edit(4, lambda row: row.update(user="you")),
        "line 4: event 3 of `s1` has another owner",
    ),
    "wrong type": (
        edit(4, lambda row: row.update(seq="3")),
        "line 4: `seq` is missing or of a wrong type",
    ),
    "no body": (edit(4, lambda row: row.pop("body")), "line 4: `body` is missing"),
    "a list": (lambda lines: [lines[0], "[]\n"], "line 2: not an event"),
}


@pytest.mark.proves("journal.tamper-evident")
@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_export_is_refused_by_line_and_nothing_is_written(
    change: Callable[[list[str]], list[str]], message: str
) -> None:
    with SqliteJournal(":memory:") as journal:
        with pytest.raises(JournalError) as found:
            import_jsonl(journal, change(exported()))
        assert message in found.value.detail
        assert journal.sessions() == []


@pytest.mark.proves("journal.old-files-load")
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_files_of_every_earlier_format_load_verify_and_rebuild_a_run(path: Path) -> None:
    with path.open(encoding="utf-8") as file, SqliteJournal(":memory:") as journal:
        (session,) = import_jsonl(journal, file)
        journal.verify(session)
        loaded = list(journal.records(session))
        machine = Machine()
        machine.rebuild([record.event for record in loaded])
        assert machine.history and not machine.open_calls()
        assert isinstance(loaded[-1].event, RunFinished)
        assert [record.event for record in loaded if isinstance(record.event, Unknown)] == [
            Unknown("a.kind.of.the.future", {"kept": True})
        ]


@pytest.mark.parametrize(("format", "code"), [(1, "journal_older"), (3, "journal_newer")])
def test_an_export_of_another_format_is_refused_and_nothing_is_imported(
    format: int, code: str
) -> None:
    header, *rest = exported()
    lines = [header.replace('"format":2', f'"format":{format}'), *rest]
    with SqliteJournal(":memory:") as journal:
        with pytest.raises(JournalError, match=f"format {format}, this version reads only 2") as no:
            import_jsonl(journal, lines)
        assert no.value.code == code and not journal.sessions()


def test_the_corpus_is_there() -> None:
    assert len(CORPUS) >= 1
