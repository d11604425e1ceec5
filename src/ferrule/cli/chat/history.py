"""Format a recorded conversation as the lines that the chat showed."""

from __future__ import annotations

from collections.abc import Iterable

from ferrule.cli.live_output import arguments_of
from ferrule.core.events import Record
from ferrule.storage.export.story import Asked, Said, Step, Story, Told, Used
from ferrule.tools.context import ASIDE

LONGEST = 200
"""How many characters of a result's first line are shown."""


def told(records: Iterable[Record]) -> list[str]:
    """List a conversation's messages, answers, tool calls with their outcome, and notices.

    Context that a person added beside messages is left out.
    """
    story = Story()
    steps = [step for record in records for step in story.feed(record)]
    return [line for step in (*steps, *story.rest()) for line in _lines(step)]


def _lines(step: Step) -> list[str]:
    match step:
        case Asked():
            return [f"› {step.text}"]
        case Said():
            return step.text.split("\n")
        case Used():
            return [f"▸ {step.call.tool} {arguments_of(step.call)}", f"  {_outcome(step)}"]
        case Told() if step.topic not in ASIDE:
            return [f"! {step.topic}: {step.text}"]
        case _:
            return []


def _outcome(step: Used) -> str:
    if step.result is None:
        return "✗ outcome unknown" if step.started else "✗ not run"
    if not step.result.success:
        return f"✗ {step.result.error_type}: {_first_line(step.result.error_message or '')}"
    return f"✓ {_first_line(step.result.text())}"


def _first_line(text: str) -> str:
    line, more_lines, _ = text.strip().partition("\n")
    is_cut = more_lines or len(line) > LONGEST
    return line[:LONGEST] + ("…" if is_cut else "")
