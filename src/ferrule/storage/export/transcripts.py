"""Exports for people: plain text, Markdown, a screenplay.

All of them are read from records as they come, so each works for a session that is still running.
Their text comes from others: what a person would not see (terminal escapes, direction overrides) is
spelled out (`core.invisible_characters`), never passed on. Results are cut to `cap` characters, and
the text says so.

The screenplay is Fountain (https://fountain.io/syntax): a title page, a scene per run (INT. if the
model computes on this machine, EXT. if it does not), dialogue, and a `[[note]]` per tool call with
its name, arguments, outcome and the first line of the result. It does not contain whole results.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime

from ferrule.core.calls import ToolResult
from ferrule.core.events import JournalRecord
from ferrule.core.invisible_characters import escape_invisible

from .steps import (
    AnswerStep,
    CallStep,
    ContextStep,
    EndStep,
    MessageStep,
    NoticeStep,
    OpeningStep,
    Step,
    StepReader,
)

MAX_RESULT = 2_000
"""The default limit for a result in the readable exports, in characters."""
END_MARK = "> THE END <"
"""The last line of a complete screenplay."""


def _visible(text: str) -> str:
    return escape_invisible(text, keep_joiners=True)


def write_transcript(records: Iterable[JournalRecord], *, cap: int = MAX_RESULT) -> Iterator[str]:
    """Yield plain text for a terminal, in pieces that end with a newline."""
    for step in _steps(records):
        yield _visible(_line(step, cap)) + "\n"


def write_markdown(records: Iterable[JournalRecord], *, cap: int = MAX_RESULT) -> Iterator[str]:
    """Yield Markdown, in pieces that end with a blank line.

    A model's answers are passed on as they are, results are put into fences.
    """
    for step in _steps(records):
        yield _visible(_block(step, cap)) + "\n\n"


def write_screenplay(
    records: Iterable[JournalRecord], local_providers: Collection[str] = ()
) -> Iterator[str]:
    """Yield the session as Fountain (`.spmd`), with the end marker.

    Args:
        records: The records of the session.
        local_providers: The providers whose models compute on this machine.
    """
    play = Screenplay(local_providers)
    for record in records:
        text = play.feed(record)
        if text:
            yield text
    yield play.close()


class Screenplay:
    """Writes a screenplay step by step: append what `feed` and finally `close` return to a file.

    To continue a file, feed the records that it already contains and discard what is returned.

    Args:
        local_providers: The providers whose models compute on this machine.
    """

    def __init__(self, local_providers: Collection[str] = ()) -> None:
        self._story = StepReader()
        self._local_providers = local_providers

    def feed(self, record: JournalRecord) -> str:
        """Return the text that this record adds, which may be empty."""
        return self._write(self._story.feed(record))

    def close(self) -> str:
        """Return the end of the file: calls without an answer, and the end marker."""
        return self._write(self._story.finish()) + END_MARK + "\n"

    def _write(self, steps: Iterable[Step]) -> str:
        return "".join(_scene(step, self._local_providers) for step in steps)


def _steps(records: Iterable[JournalRecord]) -> Iterator[Step]:
    story = StepReader()
    for record in records:
        yield from story.feed(record)
    yield from story.finish()


# ---- plain text


def _line(step: Step, cap: int) -> str:
    match step:
        case OpeningStep():
            return f"# {step.session}  {step.model}  {step.workspace}  {format_time(step.time)}"
        case MessageStep():
            return "\n> " + _indent_lines(step.text, 2).lstrip()
        case ContextStep():
            return f"+ {_cut(step.text, cap)}"
        case AnswerStep():
            return f"{step.text}"
        case CallStep():
            return f"* {_outcome(step)}{_details(step, cap)}"
        case NoticeStep():
            return f"! {step.topic}: {step.text}"
        case EndStep():
            return f"= {_statistics(step)}"


def _details(step: CallStep, cap: int) -> str:
    if step.result is None or not step.result.success:
        return ""
    body = _body(step, cap).rstrip("\n")
    # A single line is already in the outcome.
    return f"\n{_indent_lines(body, 4)}" if "\n" in body else ""


def _outcome(step: CallStep) -> str:
    text = f"{step.call.tool} {step.call.arguments}".rstrip()
    if step.decision:
        text += f" ({step.decision})"
    result = step.result
    if result is None:
        return f"{text}: outcome unknown" if step.started else f"{text}: not run"
    if result.exit_status:
        text += f": exit status {result.exit_status}"
    else:
        text += ": ok" if result.success else f": error {result.error_type}"
    first = _first_line(result)
    return f"{text}: {first}" if first else text


def _first_line(result: ToolResult) -> str:
    text = result.to_text() if result.success else result.error_message or ""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= 200 else line[:200] + "…"


def _body(step: CallStep, cap: int) -> str:
    return _cut(step.result.to_text(), cap) if step.result else ""


def _cut(text: str, cap: int) -> str:
    return text if len(text) <= cap else f"{text[:cap]}\n[{len(text) - cap} more characters]"


def _indent_lines(text: str, width: int) -> str:
    return "\n".join(f"{' ' * width}{line}".rstrip() for line in text.split("\n"))


def _statistics(step: EndStep) -> str:
    code = step.code if step.code != step.stop else ""
    reason = ", ".join(part for part in (code, step.detail) if part)
    run = f"run {step.stop} ({reason})" if reason else f"run {step.stop}"
    counts = f"{_count(step.answers, 'answer')}, {_count(step.calls, 'call')}"
    tokens = f"{step.usage.input}+{step.usage.output} tokens"
    return f"{run}: {counts}, {tokens}, {step.seconds:.1f} s"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_time(time: int) -> str:
    """Format a time in ms since 1970 for people, in UTC."""
    return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


# ---- Markdown


def _block(step: Step, cap: int) -> str:
    match step:
        case OpeningStep():
            return _render_heading(step)
        case MessageStep():
            return f"## {step.number}. {format_time(step.time)}\n\n{_quote_lines(step.text)}"
        case ContextStep():
            return f"Context:\n\n{_fence_text(_cut(step.text, cap))}"
        case AnswerStep():
            return step.text
        case CallStep():
            text = f"Tool {_code(_outcome(step))}"
            if step.result and step.result.success:
                text += f"\n\n{_fence_text(_body(step, cap))}"
            return text
        case NoticeStep():
            return f"Note, {step.topic}: {_code(step.text)}"
        case EndStep():
            return f"*{_statistics(step)}*"


def _render_heading(step: OpeningStep) -> str:
    text = f"# Session {step.session}\n\n- opened: {format_time(step.time)}"
    if step.model:
        text += f"\n- model: {_code(step.model)}"
    if step.workspace:
        text += f"\n- workspace: {_code(step.workspace)}"
    return text


def _quote_lines(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _code(text: str) -> str:
    text = " ".join(text.split())
    if "`" not in text:
        return f"`{text}`"
    ticks = "`" * (1 + _longest_ticks(text))
    return f"{ticks} {text} {ticks}"


def _fence_text(text: str) -> str:
    # Longer than any fence inside, so that a result cannot end its own block.
    fence = "`" * max(3, 1 + _longest_ticks(text))
    return f"{fence}text\n{text}\n{fence}"


def _longest_ticks(text: str) -> int:
    return max((len(ticks) for ticks in re.findall("`+", text)), default=0)


# ---- Fountain


def _scene(step: Step, local_providers: Collection[str]) -> str:
    match step:
        case OpeningStep():
            return _title_page(step)
        case MessageStep():
            provider = step.model.partition(":")[0]
            place = "INT. LOCAL COMPUTE" if provider in local_providers else "EXT. REMOTE COMPUTE"
            facts = [place, step.workspace, f"RUN {step.number}", format_time(step.time)]
            heading = _one_line(" - ".join(fact for fact in facts if fact))
            return f"{heading}\n\n{_dialogue('USER', step.text)}"
        case ContextStep():
            return _note(f"context: {_cut(step.text, 200)}")
        case AnswerStep():
            return _dialogue(f"@{step.model or 'model'}", step.text)
        case CallStep():
            return _note(f"tool: {_outcome(step)}")
        case NoticeStep():
            return _note(f"{step.topic}: {step.text}")
        case EndStep():
            return _note(_statistics(step))


def _title_page(step: OpeningStep) -> str:
    author = " and ".join(name for name in (step.user, step.model) if name)
    page = {
        "Title": f"Session {step.session}",
        "Credit": "recorded by Ferrule",
        "Author": author,
        "Source": step.workspace,
        "Draft date": format_time(step.time)[:10],
        "Format": "ferrule screenplay 1",
    }
    return "".join(f"{key}: {_one_line(value)}\n" for key, value in page.items() if value) + "\n"


def _dialogue(name: str, text: str) -> str:
    # A blank line would end the dialogue and turn its next line into a scene or a speaker; a line
    # of two spaces does not.
    lines = [_inert(line) if line.strip() else "  " for line in _visible(text).split("\n")]
    return f"{_one_line(name)}\n" + "\n".join(lines or ["  "]) + "\n\n"


def _note(text: str) -> str:
    return f"[[{_one_line(text)}]]\n\n"


def _one_line(text: str) -> str:
    return " ".join(_inert(_visible(text)).split())


def _inert(text: str) -> str:
    """Return text that opens or closes no note and no comment: only the recorder writes these."""
    for mark in ("[[", "]]", "/*", "*/"):
        while mark in text:
            text = text.replace(mark, f"{mark[0]} {mark[1]}")
    return text
