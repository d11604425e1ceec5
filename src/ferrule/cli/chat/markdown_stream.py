"""Markdown that arrives piece by piece: what is finished becomes rows for good.

A block is finished when the next one begins, an item of a list when the next item does, a line of
code when it ends. So each part of an answer is laid out a few times while it grows, whatever the
length of the answer, and never again after that.
"""

from __future__ import annotations

import re

from pygments.lexer import Lexer

from ferrule.core.lazy_patterns import compile_lazily

from .markdown import RowRenderer, find_lexer, first_lines_of_blocks, markdown_parser

CODE_CONTEXT = 60
"""Lines of code before a new one that its colours are chosen by."""

_FENCE = compile_lazily(r"( {0,3})(`{3,}|~{3,})([^`\n]*)\n")


class MarkdownStream:
    """One answer while it arrives.

    Args:
        renderer: Lays out the rows.
    """

    def __init__(self, renderer: RowRenderer) -> None:
        self._renderer = renderer
        self._new: list[str] = []
        self._pending = ""
        self._code: _OpenFence | None = None
        self._is_first = True
        self._is_list = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is waiting to be laid out."""
        return not self._new and not self._pending and self._code is None

    def add(self, piece: str) -> None:
        """Add a piece of the answer. Nothing is laid out yet."""
        self._new.append(piece)

    def take_finished(self) -> list[str]:
        """Return the rows that are finished since the last time."""
        self._pending += "".join(self._new)
        self._new.clear()
        rows: list[str] = []
        while self._take_block(rows):
            pass
        return rows

    def render_rest(self) -> list[str]:
        """Return the rows of what is not finished, as they would be if nothing followed."""
        if not self._pending.strip():
            return []
        if self._code is not None:
            return self._code.render(self._pending, self._renderer)
        return self._with_gap(self._pending, self._renderer.render_markdown(self._pending))

    def finish(self) -> list[str]:
        """Return the rows of all that is left: the answer is complete."""
        rows = [*self.take_finished(), *self.render_rest()]
        self._pending = ""
        self._code = None
        self._is_first = True
        self._is_list = False
        return rows

    def _take_block(self, rows: list[str]) -> bool:
        """Move one finished part from what is pending to `rows`. Return whether there was one."""
        if self._code is not None:
            return self._take_code(rows)
        fence = _FENCE.match(self._pending.lstrip("\n"))
        if fence is not None:
            self._pending = self._pending.lstrip("\n")[fence.end() :]
            self._code = _OpenFence(fence[2], find_lexer(fence[3]))
            rows += [] if self._is_first else [""]
            self._is_first = False
            self._is_list = False
            return True
        if "\n" not in self._pending:
            return False
        lines = self._pending.splitlines(keepends=True)
        starts = first_lines_of_blocks(markdown_parser().parse(self._pending))
        taken = 0
        for start in starts[1:]:
            self._take_lines("".join(lines[taken:start]), rows)
            taken = start
            if _FENCE.match(lines[start]):
                break
        self._pending = "".join(lines[taken:])
        return taken > 0

    def _take_lines(self, block: str, rows: list[str]) -> None:
        """Lay out one finished block."""
        if block.strip():
            rows += self._with_gap(block, self._renderer.render_markdown(block))
            self._is_first = False
            self._is_list = _is_item(block)

    def _take_code(self, rows: list[str]) -> bool:
        assert self._code is not None
        whole, newline, rest = self._pending.rpartition("\n")
        if not newline:
            return False
        lines = whole.split("\n")
        for number, line in enumerate(lines):
            if self._code.is_closed_by(line):
                if number:
                    rows += self._code.take("\n".join(lines[:number]), self._renderer)
                self._code = None
                self._pending = "\n".join([*lines[number + 1 :], rest])
                return True
        rows += self._code.take(whole, self._renderer)
        self._pending = rest
        return False

    def _with_gap(self, source: str, rows: list[str]) -> list[str]:
        """Return rows with an empty one before them, except between items of one list."""
        is_next_item = self._is_list and _is_item(source)
        return rows if self._is_first or is_next_item else ["", *rows]


class _OpenFence:
    """A block of code whose end has not arrived."""

    def __init__(self, marker: str, lexer: Lexer | None) -> None:
        self._marker = marker
        self._lexer = lexer
        self._before: list[str] = []

    def is_closed_by(self, line: str) -> bool:
        """Return whether this line ends the block."""
        text = line.strip()
        return (
            text.startswith(self._marker)
            and not text.strip(self._marker[0])
            and not line.startswith("    ")
        )

    def render(self, code: str, renderer: RowRenderer) -> list[str]:
        """Render further lines, coloured by those before them."""
        before = self._before if self._lexer is not None else []
        return renderer.render_code("\n".join([*before, code]), self._lexer, skip=len(before))

    def take(self, code: str, renderer: RowRenderer) -> list[str]:
        """Render further lines that are complete."""
        rows = self.render(code, renderer)
        self._before = [*self._before, *code.split("\n")][-CODE_CONTEXT:]
        return rows


def _is_item(source: str) -> bool:
    return re.match(r"\s{0,3}(?:[-*+]|\d{1,9}[.)])\s", source) is not None
