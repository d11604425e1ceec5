"""The lines that a tool call is shown in: what it does, where, what it would change, how it ended.

A call has one card. Its head names the tool and what it works on; what the head does not say is
shown once below it: the change to a file as a diff, or the arguments that are left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ferrule.core.calls import ToolCall, ToolResult, read_arguments
from ferrule.runtime.change_lines import diff_arguments, is_change

PREVIEW_LINES = 6
"""Lines of a result that a card shows; the model and the journal have all of it."""
CHANGE_LINES = 24
"""Lines of a change that a card shows."""
PARTIAL_LINES = 8
"""Lines of a text that is being written which are shown while it arrives."""
MAX_LINE = 200
LAST_LINES = 4
"""Lines at the end of a result that can say something about the whole output."""

Line = tuple[str, str]
"""A text and its style."""

_SUBJECTS = (
    "path",
    "file_path",
    "command",
    "pattern",
    "query",
    "url",
    "task",
    "subcommand",
    "name",
)
"""Arguments that say what a call works on; the first that is there stands in the head."""
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}
_WHOLE_OUTPUT = re.compile(r"^\[(all \d+ lines: /\S+)\]$", re.MULTILINE)
"""What stands at the end of a result that is a part of a command's output: the whole of it."""


def format_arguments(call: ToolCall) -> str:
    """Format arguments in one line: `path="a.txt" line_start=3`.

    Arguments that are not a JSON object are shown as they are.
    """
    values = read_arguments(call.arguments)
    if values is None:
        return " ".join(call.arguments[:MAX_LINE].split())
    return _format_values(values)


def describe_head(tool: str, arguments: str) -> str:
    """Return the head of a card: `▸ edit_file supplies.md`."""
    values = read_arguments(arguments)
    if values is None:
        return f"▸ {tool} {' '.join(arguments[:MAX_LINE].split())}".rstrip()
    subject, rest = _split_subject(values)
    shown = {name: value for name, value in rest.items() if not is_change(name, values)}
    return " ".join(part for part in (f"▸ {tool}", subject, _format_values(shown)) if part)


def describe_change(arguments: str) -> list[Line]:
    """Return what a call would write, as a diff of its own arguments; empty if it writes none."""
    lines = diff_arguments(arguments)
    return _shorten([(line, _DIFF_STYLES.get(line[:1], "")) for line in lines])


def describe_partial_call(tool: str, arguments: str) -> list[Line]:
    """Return the lines of a call whose arguments are still arriving."""
    values = parse_partial(arguments)
    subject, rest = _split_subject(values)
    head = " ".join(part for part in (f"▸ {tool}", subject) if part)
    texts = [value for value in rest.values() if isinstance(value, str) and value]
    if not texts:
        return [(f"{head} …", "bold cyan")]
    lines = texts[-1].splitlines()
    count = f"{len(lines)} line{'' if len(lines) == 1 else 's'}"
    tail = [(f"  │ {line[:MAX_LINE]}", "dim") for line in lines[-PARTIAL_LINES:]]
    return [(f"{head} … {count}", "bold cyan"), *tail]


def parse_partial(arguments: str) -> dict[str, Any]:
    """Return what a beginning of JSON text says so far; empty if it says nothing."""
    import jiter

    try:
        values: object = jiter.from_json(arguments.encode(), partial_mode="trailing-strings")
    except ValueError:
        return {}
    return cast("dict[str, Any]", values) if isinstance(values, dict) else {}


def describe_result(result: ToolResult, *, changed: bool = False) -> Iterator[Line]:
    """Yield the lines that say how a call ended.

    Args:
        result: The result.
        changed: Whether the card has shown a change: then its result is one line.
    """
    if not result.success:
        yield f"  ✗ {result.error_type}: {indent(result.error_message or '')}", "red"
        return
    text = result.data
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    lines = text.splitlines()
    shown = 0 if changed else PREVIEW_LINES
    for line in lines[:shown]:
        ellipsis = "…" if len(line) > MAX_LINE else ""
        yield f"  │ {line[:MAX_LINE]}{ellipsis}", "dim"
    if changed:
        first = lines[0][:MAX_LINE] if lines else "done"
        yield f"  ✓ {first}, {result.duration_ms} ms", "green"
        return
    more = f", {len(lines) - shown} more lines" if len(lines) > shown else ""
    cut = ", cut" if result.partial else ""
    size = f"{result.size} bytes{more}{cut}"
    # The result is then only what the model reads of the output; this line has the rest.
    whole = _WHOLE_OUTPUT.search("\n".join(lines[-LAST_LINES:]))
    if whole:
        size = whole[1]
    size = f"{size}, {result.duration_ms} ms"
    if result.exit_status:
        yield f"  ✗ exit status {result.exit_status}, {size}", "red"
    else:
        yield f"  ✓ {size}", "green"


def indent(text: str) -> str:
    """Indent the further lines of untrusted text, so that none looks like a line of ours."""
    return text.rstrip("\n").replace("\n", "\n  │ ")


def _split_subject(values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what a call works on, and its other arguments."""
    for name in _SUBJECTS:
        if name in values:
            rest = {other: value for other, value in values.items() if other != name}
            return _format_subject(values[name]), rest
    return "", dict(values)


def _format_subject(value: object) -> str:
    words = cast("list[object]", value) if isinstance(value, list) else [value]
    texts = [word if isinstance(word, str) else json.dumps(word) for word in words]
    shown = " ".join(" ".join(texts).split())
    return shown if len(shown) <= MAX_LINE else shown[: MAX_LINE - 1] + "…"


def _format_values(values: Mapping[str, Any]) -> str:
    named = values.items()
    shown = " ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in named)
    return shown if len(shown) <= MAX_LINE else shown[: MAX_LINE - 3] + "..."


def _shorten(lines: list[Line]) -> list[Line]:
    shown = [(f"  {text[:MAX_LINE]}", style) for text, style in lines[:CHANGE_LINES]]
    left_out = len(lines) - len(shown)
    return [*shown, (f"  … {left_out} more lines", "dim")] if left_out else shown
