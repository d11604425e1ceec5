"""Notices: texts that arrive while a model works, put where every provider accepts them.

A person's text becomes a user message. All others are data, like tool output: they follow the last
result of the turn, in a frame that they cannot close. If no run is active, they precede the
person's next message.
"""

from __future__ import annotations

import re
from dataclasses import replace

from .events import NoticeGiven
from .lazy_patterns import compile_lazily
from .messages import Message, ToolMessage, UserMessage

PERSON_SOURCE = "person"
"""The source of a notice that a person wrote."""

_FRAME_MARK = compile_lazily(r"<(\s*/?\s*notice\b)", re.IGNORECASE)
_NOT_IN_SOURCE = compile_lazily(r"[^\w:.-]")


def append_notices(notices: list[NoticeGiven], history: list[Message]) -> None:
    """Append the notices to the end of the history, and empty the list."""
    last = history[-1]
    data = [_frame(notice) for notice in notices if notice.source != PERSON_SOURCE]
    user_texts = [notice.text for notice in notices if notice.source == PERSON_SOURCE]
    if data and isinstance(last, (ToolMessage, UserMessage)):
        history[-1] = replace(last, text="\n".join((last.text, *data)))
    else:
        user_texts = [*data, *user_texts]
    if user_texts:
        history.append(UserMessage("\n\n".join(user_texts)))
    notices.clear()


def prepend_notices(notices: list[NoticeGiven], text: str) -> str:
    """Return a person's message with the waiting notices before it, and empty the list."""
    waiting = [
        notice.text if notice.source == PERSON_SOURCE else _frame(notice) for notice in notices
    ]
    notices.clear()
    return "\n\n".join((*waiting, text))


def prepend_instructions(instructions: str, text: str) -> str:
    """Return a person's message with the program's new instructions before it.

    They stand here and not in the system text, which stays the same within a session.
    """
    return (
        "<instructions>\nIn place of earlier instructions of the program:\n"
        f"{instructions}\n</instructions>\n\n{text}"
    )


def _frame(notice: NoticeGiven) -> str:
    """Put data between marks that it cannot close.

    The marks do not keep a model from believing the data: permissions limit what it can do then.
    """
    text = _FRAME_MARK.sub(r"&lt;\1", notice.text)
    source = _NOT_IN_SOURCE.sub("_", notice.source)
    return f'<notice source="{source}">\n{text}\n</notice>'
