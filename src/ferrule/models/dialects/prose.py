"""The text of a reply, as it is put together around what is taken out of it.

White space: text that nothing is taken out of stays as it is. Where a call or reasoning is taken
out, the white space before it stands for both sides (else that after it, else a line break); at
either end of the reply it is dropped, as are end-of-turn tokens that a server left in.
"""

from __future__ import annotations


class Prose:
    """Collects text and gives out what is certain: white space waits for the word that follows
    it.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._before = ""
        self._after = ""
        self._tokens: int | None = None
        self._gap = False
        self._gaps = False
        self._given = 0

    @property
    def empty(self) -> bool:
        """Whether no word has been said."""
        return not self._parts

    def say(self, text: str) -> None:
        """More of the reply's text, cut anywhere."""
        body = text.lstrip()
        blank = text[: len(text) - len(body)]
        if self._gap:
            self._after += blank
        else:
            self._before += blank
        if not body:
            return
        words = body.rstrip()
        self._parts.append(self._between() + words)
        self._before, self._after, self._gap, self._tokens = body[len(words) :], "", False, None

    def _between(self) -> str:
        if not self._gap:
            return self._before
        return (self._before or self._after or "\n") if self._parts else ""

    def end_token(self, token: str) -> None:
        """A token that ends a turn: dropped, unless more text follows it."""
        if self._gap:
            return
        if self._tokens is None:
            self._tokens = len(self._before)
        self._before += token

    def take_out(self) -> None:
        """Something stood here that is not text."""
        if self._tokens is not None:
            self._before, self._tokens = self._before[: self._tokens], None
        self._gap = self._gaps = True

    def take(self) -> str:
        """What has become certain since the last time."""
        piece = "".join(self._parts[self._given :])
        self._given = len(self._parts)
        return piece

    def finish(self) -> str:
        """The whole text."""
        if self._before and self._tokens is None and not self._gaps:
            self._parts.append(self._before)
        self._before = ""
        return "".join(self._parts)
