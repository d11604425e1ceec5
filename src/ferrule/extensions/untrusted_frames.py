"""Texts of others in what a model reads: between marks that they cannot close, and with nothing in
them that cannot be seen.

Characters that a person would not see (control, direction, zero width, the tag characters that
spell hidden words) are spelled out (`core.invisible_characters`); the two joiners stay, since
scripts and emoji need them. Marks lower the risk that a model takes such a text for its person's
words. They do not remove it: what a model may do is bounded by the gate.
"""

from __future__ import annotations

import re
from html import escape

from ferrule.core.invisible_characters import visible

_MARK = re.compile(r"<(\s*/?\s*(?:skill|instructions)\b)", re.IGNORECASE)


def shown(text: str) -> str:
    """A text with what cannot be seen written out; lines end with `\\n`."""
    return visible(text, joiners=True)


def one_line(text: str) -> str:
    """The same on one line, runs of white space as one blank."""
    return " ".join(shown(text).split())


def harmless(text: str) -> str:
    """A text that can stand in a frame: shown, and with its own marks broken. Twice is the same as
    once.
    """
    return _MARK.sub(r"&lt;\1", shown(text).strip("\n"))


def framed(mark: str, text: str, **facts: str) -> str:
    """A text between `<mark fact="…">` and `</mark>`, which it cannot close."""
    about = "".join(f' {name}="{escape(one_line(value))}"' for name, value in facts.items())
    return f"<{mark}{about}>\n{harmless(text)}\n</{mark}>"


def cut(text: str, most: int) -> str:
    """At most `most` bytes of the text in UTF-8, ended at a line where there is one."""
    data = text.encode()
    if len(data) <= most:
        return text
    head = data[:most].decode("utf-8", "ignore")
    line = head.rfind("\n")
    return head[: line + 1] if line > 0 else head
