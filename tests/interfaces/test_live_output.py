"""What a terminal shows of the calls of a run."""

from __future__ import annotations

from typing import Any

from ferrule.cli.live_output import LiveOutput
from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.events import CallEvaluated, ToolAnswered


class Lines:
    """A terminal that remembers what was written."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_progress(self, text: str, style: str = "") -> None:
        self.lines.append(text)

    def end_stream(self) -> None:
        pass

    def show_tail(self, text: str) -> None:
        pass


def test_each_result_of_calls_that_run_together_stands_below_its_own_head() -> None:
    calls = {
        name: ToolCall(name, "read_file", f'{{"path":"{name}.txt"}}') for name in ("one", "two")
    }
    terminal: Any = Lines()
    output = LiveOutput(terminal, calls.get, live=False)
    for name in calls:
        output(CallEvaluated(name, "allow"))
    for name in calls:
        output(ToolAnswered(ToolResult(name, "read_file", True, f"text of {name}")))
    assert [line.strip() for line in terminal.lines if "bytes" not in line] == [
        "▸ read_file one.txt",
        "▸ read_file two.txt",
        "▸ read_file one.txt",
        "│ text of one",
        "▸ read_file two.txt",
        "│ text of two",
    ]
