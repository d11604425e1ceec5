"""Show a run as it happens, from its live events: text as it streams, tool calls as cards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ferrule.core.calls import ToolCall
from ferrule.core.events import (
    CallEvaluated,
    Cancelled,
    DirectCall,
    LimitHit,
    ModelAnswered,
    ModelFailed,
    Noticed,
    NoticeGiven,
    PersonAnswered,
    ToolAnswered,
)
from ferrule.engine.live_events import ArgumentsDelta, Live, Progress, ReasoningDelta, TextDelta
from ferrule.tools.context import HIDDEN_TOPICS

from .terminal import Terminal
from .tool_cards import Line, describe_change, describe_head, describe_result, indent


class LiveOutput:
    """Writes live events to a terminal.

    Attributes:
        finished_calls: How many tool calls have ended so far.
        shows_reasoning: Whether the model's reasoning is shown, too.

    Args:
        terminal: Where to write.
        find: Returns a tool call of the session by its id.
        live: Stream the model's text to standard output, also between calls, since a person is
            watching. Otherwise only messages are written, and the caller prints the answer.
    """

    def __init__(
        self,
        terminal: Terminal,
        find: Callable[[str], ToolCall | None],
        *,
        live: bool,
    ) -> None:
        self._terminal = terminal
        self._find = find
        self._live = live
        self.shows_reasoning = False
        self._streamed = False
        self._arriving = (-1, "")
        self._arguments: list[str] = []
        self._shown = ""
        self._typed: set[str] = set()
        self.finished_calls = 0
        self._draw: dict[type, Callable[[Any], None]] = {
            TextDelta: self._draw_text,
            ReasoningDelta: self._draw_reasoning,
            ArgumentsDelta: self._draw_arguments,
            ModelAnswered: self._finish_answer,
            DirectCall: self._note_direct_call,
            CallEvaluated: self._draw_call,
            PersonAnswered: self._draw_approval,
            ToolAnswered: self._finish_call,
            Progress: self._draw_progress,
            Noticed: self._draw_notice,
            NoticeGiven: self._draw_end,
            ModelFailed: self._keep_cut_answer,
            Cancelled: self._keep_cut_answer,
            LimitHit: self._keep_cut_answer,
        }

    def __call__(self, item: Live) -> None:
        """Draw one event."""
        draw = self._draw.get(type(item))
        if draw is not None:
            draw(item)

    def _draw_text(self, item: TextDelta) -> None:
        self._streamed = True
        if self._live:
            self._terminal.stream_answer(item.text)

    def _draw_reasoning(self, item: ReasoningDelta) -> None:
        if self.shows_reasoning:
            self._terminal.stream_reasoning(item.text)

    def _draw_arguments(self, item: ArgumentsDelta) -> None:
        if (item.call, item.tool) != self._arriving:
            self._arriving = (item.call, item.tool)
            self._arguments = []
        self._arguments.append(item.text)
        if self._live:
            self._terminal.stream_call(item.tool, self._arguments)

    def _finish_answer(self, item: ModelAnswered) -> None:
        if self._live and item.text and not self._streamed:
            self._terminal.stream_answer(item.text)
        self._terminal.end_stream()
        self._arriving = (-1, "")
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
        self._terminal.end_stream()
        self._draw_head(call, "bold cyan")
        if item.result is not None:
            self._draw_lines(describe_result(item.result))
            return
        # A question shows the change itself.
        if item.verdict == "allow":
            self._draw_lines(describe_change(call.arguments))

    def _draw_approval(self, item: PersonAnswered) -> None:
        if item.refused_by == "nobody":
            what = "; ".join(filter(None, (item.note, item.hint)))
            self._terminal.write_message(f"! denied: {what}", style="yellow")
        elif item.choice == "deny":
            self._terminal.write_progress(f"  ✗ {item.note or 'denied'}", style="red")
        elif item.grant:
            self._terminal.write_progress(f"  {item.choice}: {item.grant}", style="dim")

    def _finish_call(self, item: ToolAnswered) -> None:
        self.finished_calls += 1
        self._terminal.show_tail("")
        call = self._find(item.result.call_id)
        if call is None or call.id in self._typed:
            return
        if self._shown != call.id:
            # Calls that run together: the card of another one was written since.
            self._draw_head(call, "dim")
        changed = bool(describe_change(call.arguments))
        self._draw_lines(describe_result(item.result, changed=changed))

    def _draw_head(self, call: ToolCall, style: str) -> None:
        self._shown = call.id
        self._terminal.write_progress(describe_head(call.tool, call.arguments), style=style)

    def _draw_lines(self, lines: Iterable[Line]) -> None:
        for text, style in lines:
            self._terminal.write_progress(text, style=style)

    def _draw_progress(self, item: Progress) -> None:
        if item.is_tail:
            self._terminal.show_tail(item.text)
            return
        self._terminal.write_progress(f"  … {indent(item.text)}", style="dim")

    def _draw_notice(self, item: Noticed) -> None:
        if item.topic in HIDDEN_TOPICS:
            return
        self._terminal.end_stream()
        self._terminal.write_message(f"! {item.topic}: {indent(item.text)}", style="yellow")

    def _draw_end(self, item: NoticeGiven) -> None:
        """Say that something in the background has ended; its output is for the model."""
        if item.ended:
            first = item.text.partition("\n")[0].removesuffix("; the end of it:")
            self._terminal.end_stream()
            self._terminal.write_message(f"! background: {first}", style="yellow")

    def _keep_cut_answer(self, item: ModelFailed | Cancelled | LimitHit) -> None:
        """Leave what had arrived of an answer on the screen, and say that it is not whole."""
        if self._streamed and self._live:
            self._terminal.end_stream()
            self._terminal.write_message("[cut here]", style="dim")
        elif item.text:
            self._terminal.write_message(f"{item.text}\n[cut here]")
        self._arriving = (-1, "")
        self._streamed = False
