"""Frame untrusted text for a model, between marks that the text cannot close.

Characters that a person would not see (control, direction and zero-width characters, the tag
characters that spell hidden words) are written out (`core.invisible_characters`). The two joiners
stay, since scripts and emoji need them. Frames lower the risk that a model takes such a text for
its person's words. They do not remove it: what a model may do is limited by the gate.
"""

from __future__ import annotations

import re
from html import escape

from ferrule.core.invisible_characters import escape_invisible
from ferrule.core.lazy_patterns import compile_lazily

_MARK = compile_lazily(r"<(\s*/?\s*(?:skill|instructions)\b)", re.IGNORECASE)


def make_visible(text: str) -> str:
    """Write out the invisible characters of a text. Lines end with a line feed."""
    return escape_invisible(text, keep_joiners=True)


def make_one_line(text: str) -> str:
    """Make a text visible and put it on one line, with single blanks."""
    return " ".join(make_visible(text).split())


def neutralize(text: str) -> str:
    """Make a text safe to put into a frame: visible, and with frame marks in it broken.

    Applying it twice is the same as once.
    """
    return _MARK.sub(r"&lt;\1", make_visible(text).strip("\n"))


def frame_text(mark: str, text: str, **facts: str) -> str:
    """Return a text between `<mark fact="…">` and `</mark>`, which it cannot close."""
    attributes = "".join(
        f' {name}="{escape(make_one_line(value))}"' for name, value in facts.items()
    )
    return f"<{mark}{attributes}>\n{neutralize(text)}\n</{mark}>"


def cut_text(text: str, max_bytes: int) -> str:
    """Return at most `max_bytes` bytes of UTF-8 of a text, cut at a line end where there is one."""
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    head = data[:max_bytes].decode("utf-8", "ignore")
    line_end = head.rfind("\n")
    return head[: line_end + 1] if line_end > 0 else head
