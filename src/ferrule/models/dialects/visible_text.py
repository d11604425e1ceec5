"""The text of a reply, put together around what is taken out of it.

Text that nothing is taken out of keeps its white space. Where a call or reasoning is taken out, the
white space before it stays and that after it goes (without any before it, that after it stays; with
none at all, a line break is put in). At either end of the reply it is dropped, as are end-of-turn
tokens that a server left in.
"""

from __future__ import annotations


class Prose:
    """Collects text and gives out what is certain.

    White space waits for the word that follows it.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._space_before = ""
        self._space_after = ""
        self._tokens_at: int | None = None  # where end-of-turn tokens begin in the space before
        self._is_at_gap = False
        self._has_gaps = False
        self._given = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no word yet."""
        return not self._parts

    def add_text(self, text: str) -> None:
        """Add a piece of the reply's text. It may be cut anywhere."""
        body = text.lstrip()
        space = text[: len(text) - len(body)]
        if self._is_at_gap:
            self._space_after += space
        else:
            self._space_before += space
        if not body:
            return
        words = body.rstrip()
        self._parts.append(self._space_between() + words)
        self._space_before = body[len(words) :]
        self._space_after = ""
        self._is_at_gap = False
        self._tokens_at = None

    def _space_between(self) -> str:
        if not self._is_at_gap:
            return self._space_before
        if not self._parts:
            return ""
        return self._space_before or self._space_after or "\n"

    def add_end_token(self, token: str) -> None:
        """Add a token that ends a turn. It is dropped, unless more text follows it."""
        if self._is_at_gap:
            return
        if self._tokens_at is None:
            self._tokens_at = len(self._space_before)
        self._space_before += token

    def add_break(self) -> None:
        """Mark a place at which something stood that is not text."""
        if self._tokens_at is not None:
            self._space_before = self._space_before[: self._tokens_at]
            self._tokens_at = None
        self._is_at_gap = True
        self._has_gaps = True

    def take_new_text(self) -> str:
        """Return the text that has become certain since the last time."""
        piece = "".join(self._parts[self._given :])
        self._given = len(self._parts)
        return piece

    def finish(self) -> str:
        """Return the whole text."""
        if self._space_before and self._tokens_at is None and not self._has_gaps:
            self._parts.append(self._space_before)
        self._space_before = ""
        return "".join(self._parts)
