"""Format a recorded conversation as the lines that the chat showed."""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.cli.live_output import format_arguments
from ferrule.core.events import JournalRecord
from ferrule.storage.export.steps import (
    AnswerStep,
    CallStep,
    MessageStep,
    NoticeStep,
    Step,
    StepReader,
)
from ferrule.tools.context import HIDDEN_TOPICS

MAX_RESULT_LINE = 200
"""How many characters of a result's first line are shown."""


def format_history(records: Iterable[JournalRecord]) -> list[str]:
    """List a conversation's messages, answers, tool calls with their outcome, and notices.

    Context that a person added beside messages is left out.
    """
    story = StepReader()
    steps = [step for record in records for step in story.feed(record)]
    return [line for step in (*steps, *story.finish()) for line in _lines(step)]


def _lines(step: Step) -> list[str]:
    match step:
        case MessageStep():
            return [f"› {step.text}"]
        case AnswerStep():
            return step.text.split("\n")
        case CallStep():
            return [f"▸ {step.call.tool} {format_arguments(step.call)}", f"  {_outcome(step)}"]
        case NoticeStep() if step.topic not in HIDDEN_TOPICS:
            return [f"! {step.topic}: {step.text}"]
        case _:
            return []


def _outcome(step: CallStep) -> str:
    if step.result is None:
        return "✗ outcome unknown" if step.started else "✗ not run"
    if not step.result.success:
        return f"✗ {step.result.error_type}: {_first_line(step.result.error_message or '')}"
    return f"✓ {_first_line(step.result.to_text())}"


def _first_line(text: str) -> str:
    line, more_lines, _ = text.strip().partition("\n")
    is_cut = more_lines or len(line) > MAX_RESULT_LINE
    return line[:MAX_RESULT_LINE] + ("…" if is_cut else "")
