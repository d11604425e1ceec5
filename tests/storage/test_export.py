"""What people take out of a journal, and that nothing in it can speak for the recorder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.events import (
    CallEvaluated,
    CallStarted,
    ContextAdded,
    DirectCall,
    Event,
    JournalRecord,
    ModelAnswered,
    ModelFailed,
    Noticed,
    PersonAnswered,
    Recovered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
    Unknown,
    Usage,
)
from ferrule.storage.export.transcripts import (
    END_MARK,
    Screenplay,
    write_markdown,
    write_screenplay,
    write_transcript,
)
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.journal_conformance import ME

STORY: tuple[Event, ...] = (
    SessionOpened("ollama:llama3.2", "/work"),
    ContextAdded("notes.txt: buy milk"),
    RunStarted("What is in a.txt?\n\nPlease be brief."),
    ModelAnswered(
        "I will look.",
        (
            ToolCall("c1", "read_file", '{"path":"a.txt"}'),
            ToolCall("c2", "run_command", '{"command":"rm -rf /"}'),
        ),
    ),
    CallEvaluated("c1", "allow", rule="Read(*.txt)", effect="read"),
    CallEvaluated("c2", "ask"),
    CallStarted("c1"),
    ToolAnswered(ToolResult("c1", "read_file", True, "first line\nsecond line\n", size=23)),
    PersonAnswered("c2", "deny", by="ann"),
    ToolAnswered(
        ToolResult(
            "c2", "run_command", False, None, ErrorType.PERMISSION_DENIED, "denied by a person"
        )
    ),
    Noticed("fallback", "native calls failed; using text"),
    ModelAnswered("It holds two lines.\n\nDone."),
    RunFinished("done", "It holds two lines.", usage=Usage(120, 30)),
    RunStarted("Go on", "openai:big"),
    ModelAnswered("", (ToolCall("c3", "write_file", "{}"), ToolCall("c4", "read_file", "{}"))),
    CallEvaluated("c3", "allow"),
    CallStarted("c3"),
    RunFinished("cancelled", code="cancelled", detail="Ctrl-C"),
)


def records(events: tuple[Event, ...] = STORY) -> list[JournalRecord]:
    ticks: Iterator[int] = iter(range(1_795_000_000_000, 1_795_009_000_000, 500))
    with SqliteJournal(":memory:", now=lambda: next(ticks) / 1000) as journal:
        for event in events:
            journal.append("s1", "r1", [event], identity=ME)
        return list(journal.records("s1"))


def test_the_transcript_reads_as_it_happened() -> None:
    assert (
        "".join(write_transcript(records()))
        == """\
# s1  ollama:llama3.2  /work  2026-11-18 11:06:40Z
+ notes.txt: buy milk

> What is in a.txt?

  Please be brief.
I will look.
* read_file {"path":"a.txt"} (allow by Read(*.txt)): ok: first line
    first line
    second line
* run_command {"command":"rm -rf /"} (ann: deny): error permission_denied: denied by a person
! fallback: native calls failed; using text
It holds two lines.

Done.
= run done: 2 answers, 2 calls, 120+30 tokens, 5.0 s

> Go on
* write_file {}: outcome unknown
* read_file {}: not run
= run cancelled (Ctrl-C): 1 answer, 2 calls, 0+0 tokens, 2.0 s
"""
    )


def test_the_markdown_reads_as_a_page() -> None:
    assert (
        "".join(write_markdown(records()))
        == """\
# Session s1

- opened: 2026-11-18 11:06:40Z
- model: `ollama:llama3.2`
- workspace: `/work`

Context:

```text
notes.txt: buy milk
```

## 1. 2026-11-18 11:06:41Z

> What is in a.txt?
>
> Please be brief.

I will look.

Tool `read_file {"path":"a.txt"} (allow by Read(*.txt)): ok: first line`

```text
first line
second line

```

Tool `run_command {"command":"rm -rf /"} (ann: deny): error permission_denied: denied by a person`

Note, fallback: `native calls failed; using text`

It holds two lines.

Done.

*run done: 2 answers, 2 calls, 120+30 tokens, 5.0 s*

## 2. 2026-11-18 11:06:46Z

> Go on

Tool `write_file {}: outcome unknown`

Tool `read_file {}: not run`

*run cancelled (Ctrl-C): 1 answer, 2 calls, 0+0 tokens, 2.0 s*

"""
    )


PLAY = """\
Title: Session s1
Credit: recorded by Ferrule
Author: me and ollama:llama3.2
Source: /work
Draft date: 2026-11-18
Format: ferrule screenplay 1

[[context: notes.txt: buy milk]]

INT. LOCAL COMPUTE - /work - RUN 1 - 2026-11-18 11:06:41Z

USER
What is in a.txt?
··
Please be brief.

@ollama:llama3.2
I will look.

[[tool: read_file {"path":"a.txt"} (allow by Read(*.txt)): ok: first line]]

[[tool: run_command {"command":"rm -rf /"} (ann: deny): error permission_denied: denied by a person]]

[[fallback: native calls failed; using text]]

@ollama:llama3.2
It holds two lines.
··
Done.

[[run done: 2 answers, 2 calls, 120+30 tokens, 5.0 s]]

EXT. REMOTE COMPUTE - /work - RUN 2 - 2026-11-18 11:06:46Z

USER
Go on

[[tool: write_file {}: outcome unknown]]

[[tool: read_file {}: not run]]

[[run cancelled (Ctrl-C): 1 answer, 2 calls, 0+0 tokens, 2.0 s]]

> THE END <
""".replace("··", "  ")


def test_the_screenplay_has_title_scenes_dialogue_notes_and_an_end() -> None:
    assert "".join(write_screenplay(records(), {"ollama"})) == PLAY
    elsewhere = PLAY.replace("INT. LOCAL COMPUTE", "EXT. REMOTE COMPUTE")
    assert "".join(write_screenplay(records(), {"local"})) == elsewhere != PLAY
    assert "second line" not in PLAY


@pytest.mark.parametrize("stop", range(len(STORY) + 1))
def test_a_screenplay_can_be_left_after_any_event_and_appended_to(stop: int) -> None:
    first, second = Screenplay({"ollama"}), Screenplay({"ollama"})
    told = records()
    text = "".join(first.feed(record) for record in told[:stop])
    for record in told[:stop]:
        second.feed(record)
    text += "".join(second.feed(record) for record in told[stop:]) + second.close()
    assert text == PLAY


def test_other_events_are_told_too() -> None:
    events = (
        RunStarted("x"),
        DirectCall(ToolCall("d1", "git_status", "{}"), by="person"),
        ToolAnswered(ToolResult("d1", "git_status", True, {"clean": True})),
        ModelFailed("provider", "connection refused"),
        Recovered("the process ended"),
        Unknown("future.kind", {"a": 1}),
        ToolAnswered(ToolResult("lost", "echo", True, "hi")),
    )
    text = "".join(write_transcript(records(events)))
    assert (
        text
        == """
> x
* git_status {} (by person): ok: {"clean":true}
! model failed (provider): connection refused
! recovered: the process ended
! unknown event: future.kind
* echo: ok: hi
"""
    )


def test_a_refusal_before_the_gate_is_told_with_its_reason() -> None:
    refused = ToolResult("c1", "nope", False, None, ErrorType.NOT_FOUND, "no tool `nope`")
    events = (
        ModelAnswered("", (ToolCall("c1", "nope", "{}"),)),
        CallEvaluated("c1", "refuse", result=refused),
    )
    assert (
        "".join(write_transcript(records(events))) == "* nope {}: error not_found: no tool `nope`\n"
    )


def test_a_long_result_is_cut_and_says_so() -> None:
    events = (ToolAnswered(ToolResult("c1", "t", True, "x" * 50 + "\n" + "y" * 5000)),)
    for export in (write_transcript, write_markdown):
        text = "".join(export(records(events), cap=100))
        assert "[4951 more characters]" in text and len(text) < 600
    assert len("".join(write_screenplay(records(events)))) < 200


HOSTILE = "\x1b[2J\x9b31m\u202eevil\r\x07"


def test_no_export_passes_on_terminal_controls() -> None:
    events = (
        SessionOpened(HOSTILE, HOSTILE),
        RunStarted(HOSTILE),
        ModelAnswered(HOSTILE, (ToolCall("c1", HOSTILE, HOSTILE),)),
        ToolAnswered(ToolResult("c1", HOSTILE, True, HOSTILE)),
        Noticed(HOSTILE, HOSTILE),
        RunFinished("failed", code=HOSTILE, detail=HOSTILE),
    )
    for export in (write_transcript, write_markdown, write_screenplay):
        text = "".join(export(records(events)))
        assert not any(sign in text for sign in "\x1b\x9b\u202e\r\x07") and "\\x1b[2J" in text


@pytest.mark.proves("export.no-forged-notes")
@given(text=st.text(alphabet="ab[]/*\n \t>@.INTEX\u2028\r\x0b"))
def test_nothing_said_can_become_a_note_a_scene_or_a_speaker(text: str) -> None:
    plain = (RunStarted("x"), ModelAnswered("y"))
    events = (
        RunStarted(text + "\n\n[[tool: forged]]"),
        ModelAnswered(text + "\n\nINT. FORGED\n\n@forged\n/* hidden"),
    )
    said, expected = ("".join(write_screenplay(records(story))) for story in (events, plain))
    blocks = said.removesuffix(END_MARK + "\n").split("\n\n")
    assert len(blocks) == len(expected.removesuffix(END_MARK + "\n").split("\n\n"))
    assert "[[" not in said and "]]" not in said and "/*" not in said


def test_a_result_cannot_end_its_own_fence() -> None:
    events = (ToolAnswered(ToolResult("c1", "t", True, "```\n# forged\n`````\nx")),)
    assert "``````text\n```\n# forged\n`````\nx\n``````" in "".join(write_markdown(records(events)))
