"""Notices on their way to the model: words that arrived while it worked, put where every wire
accepts them.

A person's words become a message of theirs. All others are data, as tool output is: they follow the
last result of the round, in a frame that they cannot close. Where no round is under way they stand
before the person's next message.
"""

from __future__ import annotations

import re
from dataclasses import replace

from .events import NoticeGiven
from .lazy_patterns import expression
from .messages import Message, ToolMessage, UserMessage

PERSON = "person"
"""The source of a person's own words."""

_FRAME = expression(r"<(\s*/?\s*notice\b)", re.IGNORECASE)
_NAME = expression(r"[^\w:.-]")


def deliver(notices: list[NoticeGiven], history: list[Message]) -> None:
    """Put the notices behind the results, or the message, that end the history; the list is
    emptied.
    """
    last = history[-1]
    data = [_framed(notice) for notice in notices if notice.source != PERSON]
    words = [notice.text for notice in notices if notice.source == PERSON]
    if data and isinstance(last, (ToolMessage, UserMessage)):
        history[-1] = replace(last, text="\n".join((last.text, *data)))
        data = []
    if words := [*data, *words]:
        history.append(UserMessage("\n\n".join(words)))
    notices.clear()


def before(notices: list[NoticeGiven], text: str) -> str:
    """A person's message with what waited for it; the list is emptied."""
    waited = [notice.text if notice.source == PERSON else _framed(notice) for notice in notices]
    notices.clear()
    return "\n\n".join((*waited, text))


def _framed(notice: NoticeGiven) -> str:
    """Data between marks that it cannot close. They do not keep a model from believing it; the gate
    is what bounds it.
    """
    text = _FRAME.sub(r"&lt;\1", notice.text)
    return f'<notice source="{_NAME.sub("_", notice.source)}">\n{text}\n</notice>'
