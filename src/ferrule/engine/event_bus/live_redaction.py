"""Redact text that arrives in pieces: a secret that was split must not pass as two harmless halves.

What is complete is shown: whole words, as long as nothing in their line can be a secret or its
beginning. Once something can, the rest of the line is held until it ends; for a private key, until
the end of the key. Text of an answer that is still held when it is complete is shown with it; if it
never becomes complete it is dropped.

What was held for too long (`MAX_HELD`) is shown as one mark, up to the end of its line or key: the
event of the whole answer has it.
"""

from __future__ import annotations

from ferrule.permissions.redaction import make_mark

from .events import EventRedactor

MAX_HELD = 8192
"""Maximum characters that are held."""

_WORD = "".join(map(chr, range(0x21, 0x7F)))
"""The characters of a word in a secret.

Anything else, such as a space or a letter of another script, ends the word.
"""
_KEY, _KEY_END = "-----begin", "-----end"


class PieceRedactor:
    """One stream of text.

    `add` returns what may be shown now, redacted; `finish` what is left when the text is complete.
    """

    def __init__(self, redactor: EventRedactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._until = ""
        """What ends the text that is left out at the moment."""

    def add(self, text: str) -> str:
        """Add a piece, and return what may be shown.

        Raises whatever the redactor raises; what was held is lost then.
        """
        held, self._held = self._held + text, ""
        if self._until:
            begin = held.lower().find(self._until)
            if begin < 0:
                self._held = held[-len(_KEY_END) :]
                return ""
            held, self._until = held[begin:], ""
        cut = self._count_complete(held)
        shown = self._redactor.redact_text(held[:cut]) if cut else ""
        if len(held) - cut > MAX_HELD:
            self._until = _KEY_END if _KEY in held[cut:].lower() else "\n"
            return shown + make_mark(held[cut:])
        self._held = held[cut:]
        return shown

    def finish(self) -> str:
        """Return what is left of the complete text. Raises as `add`."""
        held = "" if self._until else self._held
        self.drop()
        return self._redactor.redact_text(held) if held else ""

    def drop(self) -> None:
        """Forget what was held."""
        self._held = self._until = ""

    def _count_complete(self, text: str) -> int:
        """Return how many characters of the text are complete."""
        low = text.lower()
        begin = low.rfind(_KEY)
        if begin >= 0 and _KEY_END not in low[begin:]:
            return text.rfind("\n", 0, begin) + 1
        line = text.rfind("\n") + 1
        if self._redactor.needs_whole_lines or self._redactor.may_contain_secret(text[line:]):
            return line
        return line + len(text[line:].rstrip(_WORD))
