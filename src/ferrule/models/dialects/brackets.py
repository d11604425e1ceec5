"""Finding the end of a bracketed value while it arrives, without reading anything twice."""

from __future__ import annotations

import re

_OUTSIDE = re.compile(r"""["'{}\[\](),:=]|[^\s"'{}\[\](),:=]+""")
_IN_STRING = {'"': re.compile(r'[\\"]'), "'": re.compile(r"[\\']")}


class Balanced:
    """Follows brackets and strings of JSON or Python until the first bracket is closed again.

    A `'` opens a string only where a value may stand, so that apostrophes in bare text do no harm.
    Kinds of brackets are not told apart: whether the value is well formed is for its reader to
    judge.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._skip = False
        self._before = ""

    def feed(self, piece: str, at: int = 0) -> int | None:
        """Offset in `piece` after the closing bracket, or None while it has not come."""
        if self._skip and at < len(piece):
            self._skip, at = False, at + 1
        while match := (_IN_STRING[self._quote] if self._quote else _OUTSIDE).search(piece, at):
            at = match.end()
            mark = match.group()
            if self._quote:
                if mark == "\\":
                    self._skip = at >= len(piece)
                    at += 1
                else:
                    self._quote, self._before = "", mark
            elif self._outside(mark):
                return at
        return None

    def _outside(self, mark: str) -> bool:
        """Whether this mark closes the first bracket."""
        before, self._before = self._before, mark
        if mark == '"' or (mark == "'" and before in ("", "{", "[", "(", ",", ":", "=")):
            self._quote = mark
        elif mark in "{[(":
            self._depth += 1
        elif mark in "}])":
            self._depth -= 1
            return self._depth <= 0
        return False


def balanced_end(text: str, at: int = 0) -> int | None:
    """Where the bracket that opens at `at` is closed; None if it is not, or none opens there."""
    if text[at : at + 1] not in ("{", "[", "("):
        return None
    return Balanced().feed(text, at)
