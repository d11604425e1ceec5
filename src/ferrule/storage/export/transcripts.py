"""What people and programs take out of a journal: plain text, Markdown, a screenplay.

All of them are read from records as they come, so each works for a session that is still running.
Text in them is somebody else's: what a person would not see (terminal escapes, direction overrides)
is spelled out (`core.invisible_characters`), never passed on. Results are cut to `cap` characters,
and the cut is said.

The screenplay is Fountain (https://fountain.io/syntax): a title page, a scene per run (INT. where
the model computes on this machine, EXT. where it does not), dialogue, and a `[[note]]` per tool
call with its name, arguments, outcome and the first line of what came back. Bodies of results are
not in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from ferrule.core.calls import Result
from ferrule.core.events import Record
from ferrule.core.invisible_characters import visible

from .story import Added, Asked, Ended, Opened, Said, Step, Story, Told, Used

CAP = 2_000
"""Characters of one result in the readable exports, if nothing else is said."""
LOCAL = frozenset({"local", "ollama", "scripted", "llamacpp", "lmstudio"})
"""Providers whose models compute on this machine, as far as the name tells."""
END = "> THE END <"
"""The last line of a screenplay that was closed."""


def _seen(text: str) -> str:
    return visible(text, joiners=True)


def transcript(records: Iterable[Record], *, cap: int = CAP) -> Iterator[str]:
    """Plain text for a terminal, in pieces that end with a newline."""
    for step in _steps(records):
        yield _seen(_line(step, cap)) + "\n"


def markdown(records: Iterable[Record], *, cap: int = CAP) -> Iterator[str]:
    """Markdown, in pieces separated by blank lines. A model's words stand as they are, results in
    fences.
    """
    for step in _steps(records):
        yield _seen(_block(step, cap)) + "\n\n"


def screenplay(records: Iterable[Record]) -> Iterator[str]:
    """The session as Fountain (`.spmd`), closed with the end marker."""
    play = Screenplay()
    for record in records:
        if text := play.feed(record):
            yield text
    yield play.close()


class Screenplay:
    """Writes a screenplay as it goes: append what `feed` returns to the file, and `close` at the
    end.

    To go on with a file, feed the records it already holds and drop what comes back.
    """

    def __init__(self) -> None:
        self._story = Story()

    def feed(self, record: Record) -> str:
        """The text that this record adds, maybe none."""
        return "".join(_scene(step) for step in self._story.feed(record))

    def close(self) -> str:
        """What ends the file: calls without an answer, and the end marker."""
        return "".join(_scene(step) for step in self._story.rest()) + END + "\n"


def _steps(records: Iterable[Record]) -> Iterator[Step]:
    story = Story()
    for record in records:
        yield from story.feed(record)
    yield from story.rest()


# ---- plain text


def _line(step: Step, cap: int) -> str:
    match step:
        case Opened():
            return f"# {step.session}  {step.model}  {step.workspace}  {moment(step.time)}"
        case Asked():
            return "\n> " + _indented(step.text, 2).lstrip()
        case Added():
            return f"+ {_cut(step.text, cap)}"
        case Said():
            return f"{step.text}"
        case Used():
            body = _body(step, cap).rstrip("\n") if step.result and step.result.success else ""
            # One line stands in the outcome already.
            return f"* {_outcome(step)}" + (f"\n{_indented(body, 4)}" if "\n" in body else "")
        case Told():
            return f"! {step.topic}: {step.text}"
        case Ended():
            return f"= {_statistics(step)}"


def _outcome(step: Used) -> str:
    call = f"{step.call.tool} {step.call.arguments}".rstrip()
    decision = f" ({step.decision})" if step.decision else ""
    result = step.result
    if result is None:
        return f"{call}{decision}: {'outcome unknown' if step.started else 'not run'}"
    first = _first_line(result)
    return f"{call}{decision}: {'ok' if result.success else f'error {result.error_type}'}" + (
        f": {first}" if first else ""
    )


def _first_line(result: Result) -> str:
    text = result.text() if result.success else result.error_message or ""
    line = text.strip().split("\n", 1)[0]
    return line if len(line) <= 200 else line[:200] + "…"


def _body(step: Used, cap: int) -> str:
    return _cut(step.result.text(), cap) if step.result else ""


def _cut(text: str, cap: int) -> str:
    return text if len(text) <= cap else f"{text[:cap]}\n[{len(text) - cap} more characters]"


def _indented(text: str, width: int) -> str:
    return "\n".join(f"{' ' * width}{line}".rstrip() for line in text.split("\n"))


def _statistics(step: Ended) -> str:
    why = ", ".join(
        part for part in (step.code if step.code != step.stop else "", step.detail) if part
    )
    return (
        f"run {step.stop}{f' ({why})' if why else ''}: {_count(step.answers, 'answer')}, "
        f"{_count(step.calls, 'call')},"
        f" {step.usage.input}+{step.usage.output} tokens, {step.seconds:.1f} s"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def moment(time: int) -> str:
    """A time in ms since 1970 for people, in UTC."""
    return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


# ---- Markdown


def _block(step: Step, cap: int) -> str:
    match step:
        case Opened():
            facts = "".join(
                f"\n- {name}: {_code(value)}"
                for name, value in (("model", step.model), ("workspace", step.workspace))
                if value
            )
            return f"# Session {step.session}\n\n- opened: {moment(step.time)}{facts}"
        case Asked():
            return f"## {step.number}. {moment(step.time)}\n\n{_quoted(step.text)}"
        case Added():
            return f"Context:\n\n{_fenced(_cut(step.text, cap))}"
        case Said():
            return step.text
        case Used():
            head = f"Tool {_code(_outcome(step))}"
            return (
                f"{head}\n\n{_fenced(_body(step, cap))}"
                if step.result and step.result.success
                else head
            )
        case Told():
            return f"Note, {step.topic}: {_code(step.text)}"
        case Ended():
            return f"*{_statistics(step)}*"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _code(text: str) -> str:
    text = " ".join(text.split())
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{ticks} {text} {ticks}" if "`" in text else f"`{text}`"


def _fenced(text: str) -> str:
    # Longer than any fence inside, so that a result cannot end its own block.
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


# ---- Fountain


def _scene(step: Step) -> str:
    match step:
        case Opened():
            return _title_page(step)
        case Asked():
            provider = step.model.partition(":")[0]
            place = "INT. LOCAL COMPUTE" if provider in LOCAL else "EXT. REMOTE COMPUTE"
            facts = [place, step.workspace, f"RUN {step.number}", moment(step.time)]
            return f"{_spoken_line(' - '.join(fact for fact in facts if fact))}\n\n" + _dialogue(
                "USER", step.text
            )
        case Added():
            return _note(f"context: {_cut(step.text, 200)}")
        case Said():
            return _dialogue(f"@{step.model or 'model'}", step.text)
        case Used():
            return _note(f"tool: {_outcome(step)}")
        case Told():
            return _note(f"{step.topic}: {step.text}")
        case Ended():
            return _note(_statistics(step))


def _title_page(step: Opened) -> str:
    author = " and ".join(name for name in (step.user, step.model) if name)
    day = moment(step.time)[:10]
    page = {
        "Title": f"Session {step.session}",
        "Credit": "recorded by Ferrule",
        "Author": author,
        "Source": step.workspace,
        "Draft date": day,
        "Format": "ferrule screenplay 1",
    }
    return "".join(f"{key}: {_spoken_line(value)}\n" for key, value in page.items() if value) + "\n"


def _dialogue(name: str, text: str) -> str:
    # A blank line would end the dialogue and let its next line become a scene or a speaker: two
    # spaces keep it.
    lines = [_inert(line) if line.strip() else "  " for line in _seen(text).split("\n")]
    return f"{_spoken_line(name)}\n" + "\n".join(lines or ["  "]) + "\n\n"


def _note(text: str) -> str:
    return f"[[{_spoken_line(text)}]]\n\n"


def _spoken_line(text: str) -> str:
    return " ".join(_inert(_seen(text)).split())


def _inert(text: str) -> str:
    """Text that opens or closes no note and no comment: only the recorder writes these."""
    for mark in ("[[", "]]", "/*", "*/"):
        while mark in text:
            text = text.replace(mark, f"{mark[0]} {mark[1]}")
    return text
