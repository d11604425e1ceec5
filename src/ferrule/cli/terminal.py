"""What a person sees: answers on standard output, talk on standard error, readable without colour.

rich draws where standard error is a terminal that wants colour; everywhere else plain text says the
same. `NO_COLOR`, `FORCE_COLOR` and `TERM=dumb` are honoured. Text of models and tools is shown, not
obeyed: control characters are spelled out, so that a file cannot move the cursor over a question,
and the heavy lines that frame a question are drawn light in everything else. An answer that goes
into a pipe or a file keeps its bytes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TextIO

from ferrule.core import invisible_characters
from ferrule.runtime.lazy_group import drop_output

TOP, SIDE, BOTTOM = "┏", "┃", "┗"
"""The frame of a question. Nothing but a question ever shows them."""

_LIGHT = str.maketrans({TOP: "┌", SIDE: "│", BOTTOM: "└"})


def visible(text: str, *, joiners: bool = False) -> str:
    """Text with what a person would not see spelled out (`core.invisible_characters`; tabs and
    newlines stay).
    """
    return invisible_characters.visible(text.translate(_LIGHT), joiners=joiners)


def as_json(value: Any, *, indent: int | None = None) -> str:
    """JSON that is safe to look at: what a person would not see is escaped as JSON escapes it."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, default=str)
    return invisible_characters.visible(text, spell=lambda character: json.dumps(character)[1:-1])


def wants_colour(stream: TextIO) -> bool:
    """Whether to colour what goes to this stream."""
    if find_spec("rich") is None:
        return False
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def cells(character: str) -> int:
    """Columns that a character takes in a terminal."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def rows(text: str, width: int) -> list[str]:
    """Lines cut so that none is wider than `width` columns: a terminal must not break them
    itself.
    """
    found: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        row, used = "", 0
        for character in line:
            if used + cells(character) > max(width, 2):
                found.append(row)
                row, used = "", 0
            row, used = row + character, used + cells(character)
        found.append(row)
    return found


class Terminal:
    """Where an interface writes. `quiet` drops the talk, never the answer, a warning or an error.

    Writing never raises for a reader that went away: `reader_gone` is called once, and the rest is
    dropped.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.colour = wants_colour(sys.stderr)
        self.reader_gone: Callable[[], object] = lambda: None
        self._console: Any = None
        self._held: list[Callable[[], None]] | None = None

    def answer(self, text: str, *, end: str = "\n") -> None:
        """The result of the command, for a person or the next program in the pipe. A last newline
        is not doubled.
        """
        end = "" if end == "\n" and text.endswith("\n") else end
        shown = visible(text, joiners=True) if sys.stdout.isatty() else text
        self._put(lambda: self._out(shown + end))

    def talk(self, text: str = "", *, style: str = "", end: str = "\n") -> None:
        """What a person may want to know while waiting."""
        if not self.quiet:
            self.say(text, style=style, end=end)

    def say(self, text: str, *, style: str = "", end: str = "\n") -> None:
        """Talk that `--quiet` does not silence: warnings."""
        shown = visible(text)
        self._put(lambda: self._draw([(shown, style)], end))

    @contextmanager
    def question(self) -> Generator[None]:
        """While a question stands, everything but its frame waits: nothing is written between it
        and its answer.
        """
        before, self._held = self._held, []
        try:
            yield
        finally:
            held, self._held = self._held or [], before
            for write in held:
                self._put(write)

    def frame(self, mark: str, lines: Iterable[tuple[str, str]]) -> None:
        """Part of a question: (text, style) pairs, each line and each wrapped piece of it behind
        the frame's mark.
        """
        width = _columns() - 3
        for text, style in lines:
            for row in rows(invisible_characters.exact(text.translate(_LIGHT)), width):
                self._draw([(f"{mark} ", "bold yellow"), (row, style)], "\n")

    def _put(self, write: Callable[[], None]) -> None:
        if self._held is None:
            write()
        else:
            self._held.append(write)

    def _out(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            drop_output()
            self.reader_gone()

    def _draw(self, parts: list[tuple[str, str]], end: str) -> None:
        if self.colour and any(style for _, style in parts):
            self._rich(parts, end)
            return
        sys.stderr.write("".join(text for text, _ in parts).rstrip(" " if end else "") + end)
        sys.stderr.flush()

    def _rich(self, parts: list[tuple[str, str]], end: str) -> None:
        from rich.console import Console
        from rich.text import Text

        if self._console is None:
            self._console = Console(stderr=True, force_terminal=True, legacy_windows=False)
        self._console.print(Text.assemble(*parts), end=end, highlight=False, soft_wrap=True)


def _columns() -> int:
    """Columns of the terminal that talk goes to. Asked of it first: a `COLUMNS` left over from
    elsewhere would let it break lines where we do not.
    """
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns
