"""Frame untrusted text for a model, between marks that the text cannot close.

Characters that a person would not see (control, direction and zero-width characters, the tag
characters that spell hidden words) are written out (`core.invisible_characters`). The two joiners
stay, since scripts and emoji need them. Frames lower the risk that a model takes such a text for
its person's words. They do not remove it: what a model may do is limited by the gate.
"""

from __future__ import annotations

import re
from html import escape

from ferrule.core.invisible_characters import visible

_MARK = re.compile(r"<(\s*/?\s*(?:skill|instructions)\b)", re.IGNORECASE)


def shown(text: str) -> str:
    """Write out the invisible characters of a text. Lines end with a line feed."""
    return visible(text, joiners=True)


def one_line(text: str) -> str:
    """Make a text visible and put it on one line, with single blanks."""
    return " ".join(shown(text).split())


def harmless(text: str) -> str:
    """Make a text safe to put into a frame: visible, and with frame marks in it broken.

    Applying it twice is the same as once.
    """
    return _MARK.sub(r"&lt;\1", shown(text).strip("\n"))


def framed(mark: str, text: str, **facts: str) -> str:
    """Return a text between `<mark fact="…">` and `</mark>`, which it cannot close."""
    attributes = "".join(f' {name}="{escape(one_line(value))}"' for name, value in facts.items())
    return f"<{mark}{attributes}>\n{harmless(text)}\n</{mark}>"


def cut(text: str, most: int) -> str:
    """Return at most `most` bytes of UTF-8 of a text, cut at a line end where there is one."""
    data = text.encode()
    if len(data) <= most:
        return text
    head = data[:most].decode("utf-8", "ignore")
    line_end = head.rfind("\n")
    return head[: line_end + 1] if line_end > 0 else head
