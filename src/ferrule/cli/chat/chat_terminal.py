"""The terminal of a chat: Markdown while it streams, and a status line below everything.

What is finished scrolls away above; below it the live region shows what still grows: the end of the
answer, the call whose arguments arrive, and the status line. It is repainted at most as often as
keeps the painting below `PAINTING_SHARE` of a core, whatever the model sends.

With `plain`, for screen readers, nothing is ever painted over: whole lines in the order in which
they come, in ASCII marks, without a status line.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from ferrule.cli.terminal import (
    Terminal,
    escape_invisible,
    fit_encoding,
    is_unicode,
    style_text,
)
from ferrule.cli.tool_cards import describe_partial_call
from ferrule.runtime.lazy_imports import lazy_imports
from ferrule.tools.forking import cached_property

from .live_region import LiveRegion

with lazy_imports():
    from . import markdown, markdown_stream

PAINTING_SHARE = 0.015
"""The most of a core that repainting takes while an answer streams."""
MIN_INTERVAL = 0.06
"""Seconds between two repaints at the least: more often nobody sees."""
REASONING_ROWS = 6
"""Rows of the model's reasoning that are shown while it thinks."""
TAIL_ROWS = 5
"""Rows of a running command's output that are shown."""
MAX_COLUMNS = 120
"""Prose is not laid out wider than this."""
FIRST_COMBINING = "\u0300"
"""From this character on, one may take no column or two."""


class ChatTerminal(Terminal):
    """Writes a conversation to standard output.

    Attributes:
        status: Returns the status line, or "" for none.
        plain: See above.
        painting_seconds: The time of the processor that painting has taken so far.
        tail: The last lines of a running command's output.

    Args:
        quiet: As for `Terminal`.
        plain: See above.
    """

    def __init__(self, *, quiet: bool = False, plain: bool = False) -> None:
        super().__init__(quiet=quiet)
        self.plain = plain or os.environ.get("TERM") == "dumb"
        self.colour = self.colour and not self.plain
        self.status: Callable[[], str] = str
        self.painting_seconds = 0.0
        self._region = LiveRegion(self._write, terminal_size)
        self._reasoning: list[str] = []
        self._line = ""
        self._call: tuple[str, Sequence[str]] | None = None
        self.tail: list[str] = []
        self._next_paint: asyncio.TimerHandle | None = None

    @cached_property
    def _renderer(self) -> markdown.RowRenderer:
        """What lays out words and Markdown. Its libraries are not needed for the first prompt."""
        ascii_only = self.plain or not is_unicode(sys.stdout)
        return markdown.RowRenderer(80, colour=self.colour, ascii_only=ascii_only)

    @cached_property
    def _answer(self) -> markdown_stream.MarkdownStream:
        return markdown_stream.MarkdownStream(self._renderer)

    # ---- what arrives

    def stream_answer(self, piece: str) -> None:
        self._end_reasoning()
        if self.plain:
            self._stream_lines(piece)
        else:
            self._answer.add(piece)

    def stream_reasoning(self, piece: str) -> None:
        if self.plain:
            self._stream_lines(piece)
        else:
            self._reasoning.append(piece)

    def stream_call(self, tool: str, arguments: Sequence[str]) -> None:
        self._call = (tool, arguments)

    def show_tail(self, text: str) -> None:
        self.tail = [line for line in text.splitlines() if line.strip()][-TAIL_ROWS:]

    def end_stream(self) -> None:
        self._end_reasoning()
        self._call = None
        if self._line:
            self._stream_lines("\n")
        self._fit_width()
        rows = self._answer.finish()
        if rows:
            self._put(lambda: self._write_rows(rows))

    def _stream_lines(self, piece: str) -> None:
        *lines, self._line = (self._line + piece).split("\n")
        for line in lines:
            self.write_message(line)

    def _end_reasoning(self) -> None:
        text = "".join(self._reasoning).strip()
        self._reasoning.clear()
        if text:
            self.write_message(text, style="dim")

    # ---- what is complete

    def write_answer(self, text: str, *, end: str = "\n") -> None:
        end = "" if end == "\n" and text.endswith("\n") else end
        shown = escape_invisible(text, keep_joiners=True)
        self._put(lambda: self._write_above(shown + end))

    def write_message(self, text: str, *, style: str = "", end: str = "\n") -> None:
        shown = "\n".join(self._render_message(text, style))
        self._put(lambda: self._write_above(shown + end))

    def _render_message(self, text: str, style: str) -> list[str]:
        shown = escape_invisible(text, keep_joiners=True)
        lines = [line.rstrip() for line in shown.split("\n")]
        if all(len(line) <= _find_width() and _has_narrow_characters(line) for line in lines):
            return [self._style(line, style) for line in lines]
        self._fit_width()
        return self._renderer.render_message(text, style)

    def _style(self, text: str, style: str) -> str:
        return style_text(text, style) if self.colour else text

    def write_picture(self, shown: str) -> None:
        """Write what makes the terminal show a picture (`pictures.encode_picture`)."""
        self._put(lambda: self._write_above(f"{shown}\n"))

    def _write_rows(self, rows: list[str]) -> None:
        self._write_above("\n".join(rows) + "\n")

    def _draw(self, parts: list[tuple[str, str]], end: str, *, is_frame: bool = False) -> None:
        shown = "".join(self._style(text, style) for text, style in parts)
        self._write_above(shown.rstrip() + end, is_frame=is_frame)

    def _write_above(self, text: str, *, is_frame: bool = False) -> None:
        self._region.erase()
        self._write(text, is_frame=is_frame)

    def _write(self, text: str, *, is_frame: bool = False) -> None:
        shown = (
            text
            if self.plain is False and is_unicode(sys.stdout)
            else self._fit_plain(text, is_frame)
        )
        sys.stdout.write(shown)
        sys.stdout.flush()

    def _fit_plain(self, text: str, is_frame: bool) -> str:
        return fit_encoding(text, sys.stdout, is_frame=is_frame, ascii_only=self.plain)

    # ---- the live region

    @contextmanager
    def hold_output(self) -> Generator[None]:
        """Hold back all other output, and the live region, until the question is answered."""
        self._region.erase()
        with super().hold_output():
            yield

    @contextmanager
    def live(self) -> Generator[None]:
        """Show the live region while the body runs."""
        if self.plain:
            yield
            return
        self._keep_painting()
        try:
            yield
        finally:
            if self._next_paint is not None:
                self._next_paint.cancel()
            self._region.erase()

    def _keep_painting(self) -> None:
        wait = self.paint_once()
        self._next_paint = asyncio.get_running_loop().call_later(wait, self._keep_painting)

    def paint_once(self) -> float:
        """Paint, and return the seconds until it may be done again."""
        started = time.thread_time()
        self.paint()
        spent = time.thread_time() - started
        self.painting_seconds += spent
        return max(MIN_INTERVAL, spent / PAINTING_SHARE)

    def paint(self) -> None:
        """Bring the live region up to date, unless there is none or a question stands."""
        if self.plain or self._held is not None:
            return
        self._fit_width()
        finished = [] if self._answer.is_empty else self._answer.take_finished()
        rows = [] if self._answer.is_empty else self._answer.render_rest()
        if self._reasoning:
            thought = self._renderer.render_text("".join(self._reasoning).strip(), "dim")
            rows += thought[-REASONING_ROWS:]
        if self._call is not None:
            tool, pieces = self._call
            lines = describe_partial_call(tool, "".join(pieces))
            rows += [self._renderer.fit_row(*line) for line in lines]
        rows += [
            self._renderer.fit_row(f"  │ {escape_invisible(line)}", "dim") for line in self.tail
        ]
        status = self.status()
        if status:
            rows.append(self._renderer.fit_row(status, "dim"))
        self._region.paint(rows, finished)

    def _fit_width(self) -> None:
        self._renderer.width = _find_width()


def _find_width() -> int:
    # One column stays free: what erases the rest of a full row takes its last character along.
    return min(terminal_size()[0] - 1, MAX_COLUMNS)


def _has_narrow_characters(line: str) -> bool:
    """Return whether each character of a line is certain to take one column."""
    return all(" " <= character < FIRST_COMBINING for character in line) and "\xad" not in line


def terminal_size() -> tuple[int, int]:
    """Return the columns and lines of the terminal on standard output."""
    try:
        size = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
    except (OSError, ValueError):
        return 80, 24
    return size.columns or 80, size.lines or 24
