"""A command that failed is shown as one, everywhere, and a refusal is no failure of the tool."""

from __future__ import annotations

import pytest

from ferrule.cli.chat.loop import format_history
from ferrule.cli.tool_cards import describe_result
from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.events import (
    CallEvaluated,
    Event,
    JournalRecord,
    ModelAnswered,
    RunFinished,
    RunStarted,
    ToolAnswered,
)
from ferrule.storage.export.transcripts import write_transcript
from ferrule.storage.statistics.tools import ToolUse


@pytest.mark.proves("records.exit-status")
@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("one\ntwo\n[exit status 3]", 3),
        ("one\n[exit status 127]\n[the next command starts in `sub`]", 127),
        ("[exit status 1]", 1),
        ("one\ntwo\n", 0),
        ("it says [exit status 3] and goes on", 0),
        ("[exit status 3]\none\n", 0),
    ],
)
def test_the_exit_status_of_a_command_is_read_from_the_end_of_its_result(
    text: str, status: int
) -> None:
    result = ToolResult("c", "run_command", True, text)
    assert result.exit_status == status
    last = [line for line, _ in describe_result(result)][-1]
    assert last.startswith(f"  ✗ exit status {status}, " if status else "  ✓ ")
    failed = ToolResult("c", "run_command", False, text, ErrorType.TIMEOUT, text)
    assert failed.exit_status == 0


@pytest.mark.parametrize("status", ["", "\n[exit status 3]"])
def test_a_card_tells_the_size_of_the_whole_output_and_where_it_is(status: str) -> None:
    text = f"1\n2\n…\n30000\n[all 30000 lines: /tmp/out/1.txt]{status}"
    result = ToolResult("c", "run_command", True, text)
    last = [line for line, _ in describe_result(result)][-1]
    assert "all 30000 lines: /tmp/out/1.txt" in last and "bytes" not in last


@pytest.mark.proves("records.exit-status")
def test_history_and_transcript_say_that_a_command_failed() -> None:
    call = ToolCall("c", "run_command", '{"command":"make"}')
    events: list[Event] = [
        RunStarted("go"),
        ModelAnswered("", (call,)),
        CallEvaluated("c", "allow"),
        ToolAnswered(ToolResult("c", "run_command", True, "oh no\n[exit status 2]")),
        RunFinished("done", "done"),
    ]
    records = [
        JournalRecord("s", number, number, "r", event, "", "local", "ada")
        for number, event in enumerate(events, 1)
    ]
    assert "  ✗ exit status 2: oh no…" in format_history(records)
    assert ": exit status 2: oh no" in "".join(write_transcript(records))


@pytest.mark.proves("records.exit-status")
def test_a_call_that_was_refused_is_no_failure_of_the_tool() -> None:
    use = ToolUse(calls=4)
    use.outcomes.update({"success": 1, "permission_denied": 2, "timeout": 1})
    assert (use.failures, use.denials) == (1, 2)
