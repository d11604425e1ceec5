"""Show a run as it happens, from its live events: text as it streams, tool calls as cards."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from ferrule.core.calls import ToolCall, ToolResult
from ferrule.core.events import (
    CallEvaluated,
    DirectCall,
    ModelAnswered,
    Noticed,
    PersonAnswered,
    ToolAnswered,
)
from ferrule.engine.live_events import Live, Progress, ReasoningDelta, TextDelta
from ferrule.tools.context import HIDDEN_TOPICS

from .terminal import Terminal

PREVIEW_LINES = 6
"""Lines of a result that a card shows; the model and the journal have all of it."""
_MAX_LINE = 200


class LiveOutput:
    """Writes live events to a terminal.

    Attributes:
        finished_calls: How many tool calls have ended so far.

    Args:
        terminal: Where to write.
        find: Returns a tool call of the session by its id.
        live: Stream the model's text to standard output, also between calls, since a person is
            watching. Otherwise only messages are written, and the caller prints the answer.
        reasoning: Show the model's reasoning too.
    """

    def __init__(
        self,
        terminal: Terminal,
        find: Callable[[str], ToolCall | None],
        *,
        live: bool,
        reasoning: bool = False,
    ) -> None:
        self._terminal = terminal
        self._find = find
        self._live = live
        self._reasoning = reasoning
        self._open_line: Callable[..., None] | None = None
        self._streamed = False
        self._typed: set[str] = set()
        self.finished_calls = 0
        self._draw: dict[type, Callable[[Any], None]] = {
            TextDelta: self._draw_text,
            ReasoningDelta: self._draw_reasoning,
            ModelAnswered: self._finish_answer,
            DirectCall: self._note_direct_call,
            CallEvaluated: self._draw_call,
            PersonAnswered: self._draw_approval,
            ToolAnswered: self._finish_call,
            Progress: self._draw_progress,
            Noticed: self._draw_notice,
        }

    def __call__(self, item: Live) -> None:
        """Draw one event."""
        draw = self._draw.get(type(item))
        if draw is not None:
            draw(item)

    def _draw_text(self, item: TextDelta) -> None:
        self._streamed = True
        if self._live:
            self._write_piece(self._terminal.write_answer, item.text)

    def _draw_reasoning(self, item: ReasoningDelta) -> None:
        if self._reasoning:
            self._write_piece(self._terminal.write_progress, item.text, style="dim")

    def _write_piece(self, write: Callable[..., None], text: str, **style: str) -> None:
        if self._open_line is not None and self._open_line != write:
            self._end_line()
        self._open_line = write
        write(text, end="", **style)

    def _end_line(self) -> None:
        if self._open_line is not None:
            self._open_line("")
        self._open_line = None

    def _finish_answer(self, item: ModelAnswered) -> None:
        if self._live and item.text and not self._streamed:
            self._write_piece(self._terminal.write_answer, item.text)
        self._end_line()
        if not self._live and item.text and item.calls:
            self._terminal.write_progress(item.text)
        self._streamed = False

    def _note_direct_call(self, item: DirectCall) -> None:
        if item.by == "person":
            # The person who typed the command sees its output and needs no card.
            self._typed.add(item.call.id)

    def _draw_call(self, item: CallEvaluated) -> None:
        call = self._find(item.call_id)
        if call is None or item.call_id in self._typed:
            return
        self._end_line()
        self._terminal.write_progress(f"▸ {call.tool} {format_arguments(call)}", style="bold cyan")
        if item.result is not None:
            self._draw_result(item.result)

    def _draw_approval(self, item: PersonAnswered) -> None:
        if item.by == "no-terminal":
            self._terminal.write_message(f"! {item.note}", style="yellow")
        elif item.choice == "deny":
            self._terminal.write_progress(f"  ✗ {item.note or 'denied'}", style="red")
        elif item.grant:
            self._terminal.write_progress(f"  {item.choice}: {item.grant}", style="dim")

    def _finish_call(self, item: ToolAnswered) -> None:
        self.finished_calls += 1
        if item.result.call_id not in self._typed:
            self._draw_result(item.result)

    def _draw_result(self, result: ToolResult) -> None:
        if not result.success:
            message = _indent(result.error_message or "")
            self._terminal.write_progress(f"  ✗ {result.error_type}: {message}", style="red")
            return
        text = result.data
        if not isinstance(text, str):
            text = json.dumps(text, ensure_ascii=False)
        lines = text.splitlines()
        for line in lines[:PREVIEW_LINES]:
            ellipsis = "…" if len(line) > _MAX_LINE else ""
            self._terminal.write_progress(f"  │ {line[:_MAX_LINE]}{ellipsis}", style="dim")
        more = f", {len(lines) - PREVIEW_LINES} more lines" if len(lines) > PREVIEW_LINES else ""
        cut = ", cut" if result.partial else ""
        self._terminal.write_progress(
            f"  ✓ {result.size} bytes{more}{cut}, {result.duration_ms} ms", style="green"
        )

    def _draw_progress(self, item: Progress) -> None:
        self._terminal.write_progress(f"  … {_indent(item.text)}", style="dim")

    def _draw_notice(self, item: Noticed) -> None:
        if item.topic in HIDDEN_TOPICS:
            return
        self._end_line()
        self._terminal.write_message(f"! {item.topic}: {_indent(item.text)}", style="yellow")


def _indent(text: str) -> str:
    """Indent the further lines of untrusted text, so that none looks like a line of ours."""
    return text.rstrip("\n").replace("\n", "\n  │ ")


def format_arguments(call: ToolCall) -> str:
    """Format arguments in one line: `path="a.txt" line_start=3`.

    Arguments that are not a JSON object are shown as they are.
    """
    try:
        values: object = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return " ".join(call.arguments[:_MAX_LINE].split())
    named = cast("dict[str, object]", values).items()
    shown = " ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in named)
    return shown if len(shown) <= _MAX_LINE else shown[: _MAX_LINE - 3] + "..."
