"""A run as it goes, drawn from its live events: calls as cards, text as it comes."""

from __future__ import annotations

import json
from collections.abc import Callable

from ferrule.core.calls import Call, Result
from ferrule.core.events import CallEvaluated, Cancelled, ModelAnswered, Noticed, PersonAnswered, ToolAnswered
from ferrule.engine.live import Live, Progress, ReasoningDelta, TextDelta

from .terminal import Terminal

PREVIEW_LINES = 6
"""Lines of a result that a card shows; the model and the journal have all of it."""


class Show:
    """Turns live events into talk. `stream` decides whether the answer's text goes out as it comes."""

    def __init__(
        self,
        terminal: Terminal,
        find: Callable[[str], Call | None],
        *,
        answer_to_stdout: bool = True,
        reasoning: bool = False,
    ) -> None:
        self._terminal = terminal
        self._find = find
        self._stdout = answer_to_stdout
        self._reasoning = reasoning
        self._open_line = False
        self.streamed = False

    def __call__(self, item: Live) -> None:
        """Draw one event."""
        if isinstance(item, TextDelta):
            self._text(item.text)
        elif isinstance(item, ReasoningDelta):
            if self._reasoning:
                self._terminal.talk(item.text, style="dim", end="")
                self._open_line = True
        elif isinstance(item, ModelAnswered):
            self._end_line()
        elif isinstance(item, CallEvaluated):
            self._card(item)
        elif isinstance(item, ToolAnswered):
            self._result(item.result)
        elif isinstance(item, Progress):
            self._terminal.talk(f"  … {item.text}", style="dim")
        elif isinstance(item, Noticed):
            self._end_line()
            self._terminal.say(f"! {item.topic}: {item.text}", style="yellow")
        elif isinstance(item, PersonAnswered) and item.by == "no-terminal":
            self._terminal.say(f"! {item.note}", style="yellow")
        elif isinstance(item, Cancelled):
            self._end_line()
            self._terminal.say(f"! stopped: {item.reason}", style="yellow")

    def _text(self, piece: str) -> None:
        self.streamed = True
        self._open_line = True
        if self._stdout:
            self._terminal.answer(piece, end="")
        else:
            self._terminal.talk(piece, end="")

    def _end_line(self) -> None:
        if self._open_line:
            self._terminal.answer("") if self._stdout else self._terminal.talk("")
            self._open_line = False

    def _card(self, item: CallEvaluated) -> None:
        call = self._find(item.call_id)
        if call is None:
            return
        self._terminal.talk(f"▸ {call.tool} {arguments_of(call)}", style="bold cyan")
        if item.result is not None:
            self._result(item.result)

    def _result(self, result: Result) -> None:
        if not result.success:
            self._terminal.talk(f"  ✗ {result.error_type}: {result.error_message}", style="red")
            return
        text = result.data if isinstance(result.data, str) else json.dumps(result.data, ensure_ascii=False)
        lines = text.splitlines()
        for line in lines[:PREVIEW_LINES]:
            self._terminal.talk(f"  │ {line[:200]}", style="dim")
        more = f", {len(lines) - PREVIEW_LINES} more lines" if len(lines) > PREVIEW_LINES else ""
        cut = ", cut" if result.partial else ""
        self._terminal.talk(f"  ✓ {result.size} bytes{more}{cut}, {result.duration_ms} ms", style="green")


def arguments_of(call: Call) -> str:
    """Arguments in a line: `path="a.txt" line_start=3`, or the text itself where it is no object."""
    try:
        values = json.loads(call.arguments or "{}")
    except ValueError:
        return call.arguments[:200]
    if not isinstance(values, dict):
        return call.arguments[:200]
    shown = " ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items())  # pyright: ignore[reportUnknownVariableType]
    return shown if len(shown) <= 200 else shown[:197] + "..."
