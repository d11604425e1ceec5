"""Output for a person: answers on standard output, messages on standard error.

All of it is readable without colour. `rich` draws where standard error is a terminal that wants
colour; everywhere else the same text is plain. `NO_COLOR`, `FORCE_COLOR` and `TERM=dumb` are
honoured.

Text of models and tools is shown, never interpreted: control characters are escaped, so that a file
cannot move the cursor over a question, and the heavy lines that frame a question are replaced by
light ones in all other text. An answer that goes into a pipe or a file keeps its bytes.

Where the terminal's encoding is not UTF-8, lines and marks are drawn in ASCII (a question's frame
is `##` then, which no other text shows), and other characters that it lacks are escaped.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import unicodedata
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TextIO

from ferrule.core import invisible_characters
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.runtime.lazy_group import drop_output

TOP, SIDE, BOTTOM = "┏", "┃", "┗"
"""The frame of a question. These characters appear nowhere else."""

_LIGHT = str.maketrans({TOP: "┌", SIDE: "│", BOTTOM: "└"})
_ASCII_FRAME = "##"
_ASCII = str.maketrans(
    {
        **dict.fromkeys((TOP, SIDE, BOTTOM), _ASCII_FRAME),
        **dict.fromkeys("┌└│▌", "|"),
        "▸": ">",
        "›": ">",
        "✓": "+",
        "✗": "x",
        "…": "...",
        "·": "-",
        "•": "*",
        "─": "-",
    }
)


def escape_invisible(text: str, *, keep_joiners: bool = False) -> str:
    """Escape the characters of a text that a person would not see; tabs and newlines stay.

    See `core.invisible_characters`.
    """
    return invisible_characters.escape_invisible(text.translate(_LIGHT), keep_joiners=keep_joiners)


def encode_json(value: Any, *, indent: int | None = None) -> str:
    """Encode a value as JSON in which invisible characters are escaped, so it is safe to show."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, default=str)
    return invisible_characters.escape_invisible(
        text, escape=lambda character: json.dumps(character)[1:-1]
    )


def wants_colour(stream: TextIO) -> bool:
    """Whether text written to this stream should be coloured."""
    if find_spec("rich") is None:
        return False
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and stream.isatty()


def is_unicode(stream: TextIO) -> bool:
    """Whether a stream can take every character."""
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def fit_encoding(
    text: str, stream: TextIO, *, is_frame: bool = False, ascii_only: bool = False
) -> str:
    """Return a text as this stream can take it.

    Args:
        text: A text in which nothing invisible is left.
        stream: Where it will be written.
        is_frame: Whether it may show the frame of a question.
        ascii_only: Draw our lines and marks in ASCII whatever the stream takes.
    """
    if text.isascii() and "#" not in text:
        return text
    if is_unicode(stream) and not ascii_only:
        return text
    if not is_frame:
        text = text.replace(_ASCII_FRAME, "# #")
    encoding = stream.encoding or "ascii"
    return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)


def count_columns(character: str) -> int:
    """Count the columns that a character takes in a terminal."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrap_frame(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return lines of a question as rows of the screen, with nothing in them that is not drawn."""
    width = count_columns_of_screen() - 3
    rows: list[tuple[str, str]] = []
    for text, style in lines:
        visible = invisible_characters.escape_for_approval(text.translate(_LIGHT))
        rows += [(row, style) for row in wrap_lines(visible, width)]
    return rows


def count_screen_rows() -> int:
    """Return the height of the terminal on standard error, 24 if it has none."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).lines or 24
    except (OSError, ValueError):
        return shutil.get_terminal_size().lines


_WORDS = compile_lazily(r" *[^ ]* ?")
"""A word with the blanks before it and the one behind it."""


def wrap_lines(text: str, width: int, hanging: int = 0) -> list[str]:
    """Wrap text at words into rows of at most `width` columns, so that the terminal need not do it.

    A word that fits in no row is cut; then the row is full. A row that ends at a blank never is, so
    one cannot be taken for the other.

    Args:
        text: The text. Nothing of it is left out.
        width: Columns of a row.
        hanging: How far rows that continue a line are indented beyond it.
    """
    wrapped: list[str] = []
    for line in text.expandtabs(4).split("\n"):
        indentation = len(line) - len(line.lstrip(" ")) + hanging if hanging else 0
        if indentation >= width // 2:
            indentation = 0
        wrapped += _wrap_line(line, max(width, 2), " " * indentation)
    return wrapped


def _wrap_line(line: str, width: int, start: str) -> Iterator[str]:
    """Yield the rows of a line; all but the first begin with `start`."""
    row = ""
    used = 0
    for word in _WORDS.findall(line):
        columns = sum(map(count_columns, word))
        if used + columns > width and row.strip() and len(start) + columns <= width:
            yield row
            row, used = start, len(start)
        for character in word:
            columns = count_columns(character)
            if used + columns > width:
                yield row
                row, used = start, len(start)
            row += character
            used += columns
    yield row


_STYLE_CODES = {
    "bold": "1",
    "dim": "2",
    "underline": "4",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}


def style_text(text: str, style: str) -> str:
    """Return a text with a terminal's codes (SGR of ECMA-48) for a style, line by line.

    Args:
        text: The text.
        style: Words such as `bold red`; empty for none.
    """
    if not style:
        return text
    code = f"\x1b[{';'.join(_STYLE_CODES[word] for word in style.split())}m"
    return "\n".join(f"{code}{line}\x1b[0m" if line else "" for line in text.split("\n"))


class Terminal:
    """Writes answers and messages for a person.

    A closed pipe on standard output does not raise: `on_reader_gone` is called once, and further
    output is dropped.

    Args:
        quiet: Drop progress messages. Answers, warnings and errors are always written.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.colour = wants_colour(sys.stderr)
        self.on_reader_gone: Callable[[], object] = lambda: None
        self._held: list[Callable[[], None]] | None = None
        self._open_line: Callable[..., None] | None = None

    def write_answer(self, text: str, *, end: str = "\n") -> None:
        """Write the command's result to standard output; a newline at its end is not doubled."""
        end = "" if end == "\n" and text.endswith("\n") else end
        shown = escape_invisible(text, keep_joiners=True) if sys.stdout.isatty() else text
        self._put(lambda: self._out(shown + end))

    def stream_answer(self, piece: str) -> None:
        """Write a piece of an answer as it arrives. `end_stream` follows the last one."""
        self._stream(self.write_answer, piece)

    def stream_reasoning(self, piece: str) -> None:
        """Write a piece of a model's reasoning as it arrives."""
        self._stream(self.write_progress, piece, style="dim")

    def stream_call(self, tool: str, arguments: Sequence[str]) -> None:
        """Show the arguments of a call as far as they have arrived, in pieces. Here: nothing."""

    def show_tail(self, text: str) -> None:
        """Show the last lines of what a running command has printed. Here: nothing."""

    def end_stream(self) -> None:
        """End the line that pieces were written to."""
        if self._open_line is not None:
            self._open_line("")
        self._open_line = None

    def _stream(self, write: Callable[..., None], piece: str, **style: str) -> None:
        if self._open_line is not None and self._open_line != write:
            self.end_stream()
        self._open_line = write
        write(piece, end="", **style)

    def write_progress(self, text: str = "", *, style: str = "", end: str = "\n") -> None:
        """Write a progress message to standard error, unless `quiet`."""
        if not self.quiet:
            self.write_message(text, style=style, end=end)

    def write_message(self, text: str, *, style: str = "", end: str = "\n") -> None:
        """Write a message to standard error, also when `quiet`: warnings and errors."""
        shown = escape_invisible(text)
        self._put(lambda: self._draw([(shown, style)], end))

    @contextmanager
    def live(self) -> Generator[None]:
        """Show what changes while the body runs, where the terminal can. Here: nothing."""
        yield

    @contextmanager
    def hold_output(self) -> Generator[None]:
        """Hold back all other output until the question is answered."""
        previous = self._held
        self._held = []
        try:
            yield
        finally:
            held = self._held or []
            self._held = previous
            for write in held:
                self._put(write)

    def draw_frame(self, mark: str, lines: Iterable[tuple[str, str]]) -> None:
        """Draw part of a question. Each line of the (text, style) pairs begins with `mark`."""
        self.draw_rows(mark, wrap_frame(lines))

    def draw_rows(self, mark: str, rows: Iterable[tuple[str, str]]) -> None:
        """Draw rows of `wrap_frame`."""
        for row, style in rows:
            self._draw([(f"{mark} ", "bold yellow"), (row, style)], "\n", is_frame=True)

    def _put(self, write: Callable[[], None]) -> None:
        if self._held is None:
            write()
        else:
            self._held.append(write)

    def _out(self, text: str) -> None:
        try:
            sys.stdout.write(fit_encoding(text, sys.stdout) if sys.stdout.isatty() else text)
            sys.stdout.flush()
        except BrokenPipeError:
            drop_output()
            self.on_reader_gone()

    def _draw(self, parts: list[tuple[str, str]], end: str, *, is_frame: bool = False) -> None:
        shown = [
            (self._fit(text, is_frame and not index), style)
            for index, (text, style) in enumerate(parts)
        ]
        if self.colour and any(style for _, style in parts):
            shown_text = "".join(style_text(text, style) for text, style in shown)
        else:
            shown_text = "".join(text for text, _ in shown).rstrip(" " if end else "")
        sys.stderr.write(shown_text + end)
        sys.stderr.flush()

    def _fit(self, text: str, is_frame: bool) -> str:
        return fit_encoding(text, sys.stderr, is_frame=is_frame)


def count_columns_of_screen() -> int:
    """Return the width of the terminal on standard error.

    The terminal is asked before the variable `MAX_COLUMNS`, which may be left over from another
    one.
    """
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return shutil.get_terminal_size().columns
