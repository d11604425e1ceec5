"""Find the end of a bracketed value while it arrives, without reading anything twice."""

from __future__ import annotations

import re

_OUTSIDE = re.compile(r"""["'{}\[\](),:=]|[^\s"'{}\[\](),:=]+""")
_IN_STRING = {'"': re.compile(r'[\\"]'), "'": re.compile(r"[\\']")}


class BracketMatcher:
    """Follows brackets and strings of JSON or Python until the first bracket is closed again.

    A `'` opens a string only where a value may stand, so that apostrophes in bare text do no harm.
    Kinds of brackets are not told apart: whether the value is well formed is for its reader to
    judge.
    """

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._skips_next = False
        self._last_mark = ""

    def feed(self, piece: str, at: int = 0) -> int | None:
        """Return the offset in `piece` after the closing bracket, or None if it has not come."""
        if self._skips_next and at < len(piece):
            self._skips_next = False
            at += 1
        while True:
            marks = _IN_STRING[self._quote] if self._quote else _OUTSIDE
            match = marks.search(piece, at)
            if match is None:
                return None
            at = match.end()
            mark = match.group()
            if not self._quote:
                if self._closes_first(mark):
                    return at
            elif mark == "\\":
                self._skips_next = at >= len(piece)
                at += 1
            else:
                self._quote = ""
                self._last_mark = mark

    def _closes_first(self, mark: str) -> bool:
        """Follow a mark outside of strings. Return whether it closes the first bracket."""
        before = self._last_mark
        self._last_mark = mark
        opens_string = mark == '"' or (mark == "'" and before in ("", "{", "[", "(", ",", ":", "="))
        if opens_string:
            self._quote = mark
        elif mark in "{[(":
            self._depth += 1
        elif mark in "}])":
            self._depth -= 1
            return self._depth <= 0
        return False


def find_closing_bracket(text: str, at: int = 0) -> int | None:
    """Return where the bracket that opens at `at` is closed.

    None if it is not closed, or if no bracket opens there.
    """
    if text[at : at + 1] not in ("{", "[", "("):
        return None
    return BracketMatcher().feed(text, at)
