"""Dialects of tool calls: what opens a call, what closes it, how its body is read and written.

A `Form` reads calls; a `Dialect` names what one family of models writes. Several dialects share
forms (`<tool_call>` holds JSON, XML or key-value pairs), and a reader may read all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from ferrule.core.calls import ToolCall, parse_json
from ferrule.core.value_class import frozen

from .offered_tools import OfferedTools


@frozen
class FoundCall:
    """A call that was found in a text.

    Attributes:
        tool: The tool's name, as it is written.
        arguments: JSON text, or the text as it stood if it is broken.
        repairs: What was read leniently, in words.
        cut: Whether the text ended inside the call.
        arguments_if_cut: For a call whose text has no end of its own: what to hand on instead of
            `arguments` if the reply was cut.
        source: The whole call as it stood, if its values are raw text. What follows it may show
            that one of them was misread.
        alone: Whether the call counts only if the reply has no other one.
        escaped: Whether no mark can be part of its values, though it may stand among calls whose
            values are raw text.
    """

    tool: str
    arguments: str
    repairs: tuple[str, ...] = ()
    cut: bool = False
    arguments_if_cut: str | None = None
    source: str = ""
    alone: bool = False
    escaped: bool = False


def mark_unreadable(text: str) -> str:
    """Return the arguments for a call that cannot be read.

    This is the text itself, or the text in parentheses where it could be taken for arguments.
    """
    try:
        parse_json(text)
    except ValueError:
        if text.strip():
            return text
    return f"({text})"


@dataclass(slots=True)
class ParsedBody:
    """What the body of a call was read as.

    Attributes:
        items: Calls and prose in their order.
        problems: What is odd about the body.
        rest: The offset in the body where something else begins; None if the body was used up.
        doubtful: Whether the end of a value cannot be known. Then no call of the reply can be.
    """

    items: list[FoundCall | str] = field(default_factory=list["FoundCall | str"])
    problems: list[str] = field(default_factory=list[str])
    rest: int | None = None
    doubtful: bool = False

    @property
    def calls(self) -> list[FoundCall]:
        return [item for item in self.items if isinstance(item, FoundCall)]


class BodyEnding(Enum):
    """How the body that is to be read ended.

    `CLOSED`: At a closing mark, which may be part of an argument: a body is read only if it is
        whole.
    `FORCED`: At the first closing mark, because no whole call was found by reading on.
    `OPEN`: With the reply; nothing closed it.
    """

    CLOSED = "closed"
    FORCED = "forced"
    OPEN = "open"


ReadBody = Callable[[str, str, BodyEnding, OfferedTools], ParsedBody | None]
"""Takes `(opener, body, ending, tools)`.

None means that this is no call or, while the ending is `CLOSED`, no whole one yet.
"""


@frozen
class CallForm:
    """A form in which calls are marked in text.

    `opens` and `closes` are regular expressions; `closes` may be made from the opener. Both look at
    most one character beyond what they match, and match at most `MAX_MARK_LENGTH` characters, so
    that a reader knows how much of a stream to hold back.
    """

    name: str
    opens: str
    closes: Callable[[str], str]
    read: ReadBody


MAX_MARK_LENGTH = 96
"""Characters that a mark may have at most."""


@frozen
class Dialect:
    """How one family of models writes calls.

    `render` writes calls as that family does; reading them gives the calls back. `example` shows
    the notation to a model that was never taught it.
    """

    name: str
    families: tuple[str, ...]
    forms: tuple[CallForm, ...]
    render: Callable[[Sequence[ToolCall]], str]
    example: str
