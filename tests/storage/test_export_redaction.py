"""Records without the secrets in them, and exports made of them."""

from __future__ import annotations

import json

import pytest

from ferrule import Identity, JournalError
from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.events import JournalRecord, ModelAnswered, RunStarted, ToolAnswered, Unknown
from ferrule.permissions.redaction import Redactor
from ferrule.storage.export.jsonl import export_jsonl, read_jsonl
from ferrule.storage.export.redaction import redact_records
from ferrule.storage.export.transcripts import write_markdown, write_screenplay, write_transcript
from ferrule.storage.journal.sqlite import SqliteJournal

ADA = Identity("acme", "ada", "s1", "r1")
KEY = "ghp_" + "a1B2" * 9
EVENTS = [
    RunStarted(f"use {KEY}", "openai:x"),
    ModelAnswered(f"I will use {KEY}", (ToolCall("c", "fetch", f'{{"token":"{KEY}","url":"u"}}'),)),
    ToolAnswered(ToolResult("c", "fetch", True, {"password": "hunter2 hunter2", "n": 1})),
]


def test_no_export_of_redacted_records_holds_a_secret() -> None:
    journal = SqliteJournal(":memory:")
    journal.append("s1", "r1", EVENTS, identity=ADA)
    for export in (export_jsonl, write_transcript, write_markdown, write_screenplay):
        plain = "".join(export(journal.records("s1")))
        shown = "".join(export(redact_records(journal.records("s1"), Redactor())))
        assert KEY in plain
        assert KEY not in shown
        assert "hunter2" not in shown
        assert "[redacted sha256:" in shown
    assert [r.hash for r in redact_records(journal.records("s1"), Redactor())] == [
        r.hash for r in journal.records("s1")
    ]


def test_records_that_come_from_no_journal_are_redacted_too() -> None:
    made = [
        JournalRecord("s1", seq, 0, "r1", event, "", "t", "u")
        for seq, event in enumerate(EVENTS, 1)
    ]
    found = list(redact_records(made, Redactor()))
    assert [type(record.event) for record in found] == [type(event) for event in EVENTS]
    text = "".join(record.body for record in found)
    assert "[redacted sha256:" in text and KEY not in text and "hunter2" not in text


def test_what_is_no_secret_stays_as_the_journal_has_it() -> None:
    odd = '{"input": "go",  "model": "openai:x", "of": "a later version"}'
    (found,) = redact_records(
        [JournalRecord("s1", 1, 0, "r1", RunStarted("go", "openai:x"), "", "t", "u", odd)],
        Redactor(),
    )
    assert found.body == odd


def test_a_redacted_export_cannot_pass_as_the_recording() -> None:
    journal = SqliteJournal(":memory:")
    journal.append("s1", "r1", EVENTS, identity=ADA)
    lines = list(export_jsonl(redact_records(journal.records("s1"), Redactor())))
    with pytest.raises(JournalError, match="was changed"):
        list(read_jsonl(lines))


@pytest.mark.proves("redaction.fails-closed")
def test_an_event_that_cannot_be_redacted_is_left_out_of_an_export_and_that_is_said() -> None:
    class Broken(Redactor):
        def redact_json(self, text: str) -> str:
            raise RuntimeError(text)

    journal = SqliteJournal(":memory:")
    journal.append("s1", "r1", EVENTS, identity=ADA)
    records = list(redact_records(journal.records("s1"), Broken()))
    assert records[0].event == Unknown(
        "audit.redaction_failed", {"of": "run.started", "error": "RuntimeError"}
    )
    assert KEY not in "".join(export_jsonl(records))
    assert json.loads(records[0].body)["of"] == "run.started"
