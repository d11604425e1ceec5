"""How the card of a call shows its contents: arguments on one line, diffs, and long texts."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from ferrule.core.calls import parse_json, read_arguments
from ferrule.runtime.change_lines import diff_arguments

MAX_SHOWN = 8_000
"""Characters of a text that a page shows at once."""
MAX_PREVIEW = 100_000
"""Characters of a preview that a question shows; the page says how many are left out."""
MAX_CHANGE_LINES = 400
"""Lines of a change that a card shows."""
MAX_BRIEF = 120


class ShortenedText(NamedTuple):
    """A text, and how many characters were left out."""

    text: str
    left_out: int


def shorten(text: str, most: int = MAX_SHOWN) -> ShortenedText:
    """Return the beginning of a text that is too long."""
    return ShortenedText(text[:most], max(0, len(text) - most))


def indent_json(value: Any) -> str:
    """Indent a JSON value, or a text that is JSON. Other texts stay unchanged."""
    if isinstance(value, str):
        try:
            value = parse_json(value)
        except ValueError:
            return value
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def summarize_arguments(arguments: str) -> str:
    """Show arguments on one line: `path=note.txt content=hello…`. Other texts stay as they are."""
    named = read_arguments(arguments)
    if named is None:
        return _line(arguments)
    if len(named) == 1:
        return _line(_word(next(iter(named.values()))))
    return _line("  ".join(f"{name}={_word(value)}" for name, value in named.items()))


def _word(value: object) -> str:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return said if len(said) <= 60 else f"{said[:59]}…"


def _line(text: str) -> str:
    text = " ".join(text[: MAX_BRIEF * 4].split())
    return text if len(text) <= MAX_BRIEF else f"{text[: MAX_BRIEF - 1]}…"


def format_value(data: object) -> str:
    """Show the result of a call, indented for reading."""
    return "" if data is None else indent_json(data)


class PreviewLine(NamedTuple):
    """A line of a preview; `kind` is `add`, `cut`, `at` or empty."""

    kind: str
    text: str


def change_lines(arguments: str) -> ShortenedChange:
    """Return the change that a call's arguments describe, if they describe one."""
    lines = diff_arguments(arguments)
    shown = lines[:MAX_CHANGE_LINES]
    return ShortenedChange(
        [PreviewLine(_kind(line), line) for line in shown], len(lines) - len(shown)
    )


class ShortenedChange(NamedTuple):
    """Lines of a change, and how many were left out."""

    lines: list[PreviewLine]
    left_out: int


_KINDS = {"+": "add", "-": "cut", "@": "at"}


def preview_lines(preview: str) -> list[PreviewLine]:
    """Split a preview into lines. Lines of a unified diff have kinds, others do not."""
    split = preview.rstrip("\n").split("\n")
    differs = any(line.startswith("@@ ") for line in split)
    return [PreviewLine(_kind(line) if differs else "", line) for line in split]


def _kind(line: str) -> str:
    return "at" if line.startswith(("--- ", "+++ ")) else _KINDS.get(line[:1], "")
