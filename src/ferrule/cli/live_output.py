"""A run as it goes, drawn from its live events: calls as cards, words as they come."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

from ferrule.core.calls import Call, Result
from ferrule.core.events import (
    CallEvaluated,
    DirectCall,
    ModelAnswered,
    Noticed,
    PersonAnswered,
    ToolAnswered,
)
from ferrule.engine.live_events import Live, Progress, ReasoningDelta, TextDelta
from ferrule.tools.context import ASIDE

from .terminal import Terminal

PREVIEW_LINES = 6
"""Lines of a result that a card shows; the model and the journal have all of it."""
_LINE = 200


class Show:
    """Turns live events into talk.

    `live`: the model's words go to standard output as they come, those between calls too (a person
    is looking). Otherwise only talk is drawn, and whoever runs the run prints its answer.
    `answered` counts results.
    """

    def __init__(
        self,
        terminal: Terminal,
        find: Callable[[str], Call | None],
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
        self._own: set[str] = set()
        self.answered = 0
        self._draw: dict[type, Callable[[Any], None]] = {
            TextDelta: self._text,
            ReasoningDelta: self._thought,
            ModelAnswered: self._model,
            DirectCall: self._direct,
            CallEvaluated: self._card,
            PersonAnswered: self._person,
            ToolAnswered: self._tool,
            Progress: self._progress,
            Noticed: self._notice,
        }

    def __call__(self, item: Live) -> None:
        """Draw one event."""
        if draw := self._draw.get(type(item)):
            draw(item)

    def _text(self, item: TextDelta) -> None:
        self._streamed = True
        if self._live:
            self._piece(self._terminal.answer, item.text)

    def _thought(self, item: ReasoningDelta) -> None:
        if self._reasoning:
            self._piece(self._terminal.talk, item.text, style="dim")

    def _piece(self, write: Callable[..., None], text: str, **how: str) -> None:
        if self._open_line is not None and self._open_line != write:
            self._end_line()
        self._open_line = write
        write(text, end="", **how)

    def _end_line(self) -> None:
        if self._open_line is not None:
            self._open_line("")
        self._open_line = None

    def _model(self, item: ModelAnswered) -> None:
        if self._live and item.text and not self._streamed:
            self._piece(self._terminal.answer, item.text)
        self._end_line()
        if not self._live and item.text and item.calls:
            self._terminal.talk(item.text)
        self._streamed = False

    def _direct(self, item: DirectCall) -> None:
        if item.by == "person":
            # Whoever typed it sees its output, and needs no card of it.
            self._own.add(item.call.id)

    def _card(self, item: CallEvaluated) -> None:
        call = self._find(item.call_id)
        if call is None or item.call_id in self._own:
            return
        self._end_line()
        self._terminal.talk(f"▸ {call.tool} {arguments_of(call)}", style="bold cyan")
        if item.result is not None:
            self._result(item.result)

    def _person(self, item: PersonAnswered) -> None:
        if item.by == "no-terminal":
            self._terminal.say(f"! {item.note}", style="yellow")
        elif item.choice == "deny":
            self._terminal.talk(f"  ✗ {item.note or 'denied'}", style="red")
        elif item.grant:
            self._terminal.talk(f"  {item.choice}: {item.grant}", style="dim")

    def _tool(self, item: ToolAnswered) -> None:
        self.answered += 1
        if item.result.call_id not in self._own:
            self._result(item.result)

    def _result(self, result: Result) -> None:
        if not result.success:
            self._terminal.talk(
                f"  ✗ {result.error_type}: {_gutter(result.error_message or '')}", style="red"
            )
            return
        text = (
            result.data
            if isinstance(result.data, str)
            else json.dumps(result.data, ensure_ascii=False)
        )
        lines = text.splitlines()
        for line in lines[:PREVIEW_LINES]:
            self._terminal.talk(
                f"  │ {line[:_LINE]}{'…' if len(line) > _LINE else ''}", style="dim"
            )
        more = f", {len(lines) - PREVIEW_LINES} more lines" if len(lines) > PREVIEW_LINES else ""
        cut = ", cut" if result.partial else ""
        self._terminal.talk(
            f"  ✓ {result.size} bytes{more}{cut}, {result.duration_ms} ms", style="green"
        )

    def _progress(self, item: Progress) -> None:
        self._terminal.talk(f"  … {_gutter(item.text)}", style="dim")

    def _notice(self, item: Noticed) -> None:
        if item.topic in ASIDE:
            return
        self._end_line()
        self._terminal.say(f"! {item.topic}: {_gutter(item.text)}", style="yellow")


def _gutter(text: str) -> str:
    """Text of others, so that its further lines begin with a mark and not where ours begin."""
    return text.rstrip("\n").replace("\n", "\n  │ ")


def arguments_of(call: Call) -> str:
    """Arguments in a line: `path="a.txt" line_start=3`, or the text itself where it is no
    object.
    """
    try:
        values: object = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return " ".join(call.arguments[:_LINE].split())
    named = cast("dict[str, object]", values).items()
    shown = " ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in named)
    return shown if len(shown) <= _LINE else shown[: _LINE - 3] + "..."
