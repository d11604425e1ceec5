"""Asking once more, where a native answer is of no use as it is: it says nothing, or it has a call
in its words and none beside them.

A call between marks is run (`selection`). One without marks (a fenced block, bare JSON, Python) may
be an example that somebody asked for, so it is not run: the model is told so, once. What it said
stands, unless it makes a call then; a second answer without a call is left out. An empty answer is
asked for again as it was: some servers lose one now and then. A second empty one is taken as meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, UserMessage
from ferrule.models.untrusted_text import spell_out

if TYPE_CHECKING:
    from .text import Names

EMPTY = "the answer was empty: asked again"
"""What people are told of an empty answer."""

_TOLD = (
    "[Your answer has a call of `{tool}` in its text, and nothing was run. If you mean it, "
    "call the tool as tools are called here; "
    "if not, repeat your answer.]"
)


def in_words(answer: ModelAnswered, names: Names) -> str:
    """The tool, as the wire names it, whose call an answer has in its text; "" for any other
    answer.

    All that could be calls in it must be calls of tools on offer, by their exact names.
    """
    if not any(name in answer.text for name in names.schemas):
        return ""
    from ferrule.models.dialects import Reader

    reader = Reader(tools=names.schemas)
    reader.feed(answer.text)
    calls = reader.finish(cut=answer.stop == "length").calls
    return calls[0].tool if calls and all(call.tool in names.schemas for call in calls) else ""


def told_of(tool: str) -> str:
    """What people are told of a call in words."""
    return f"`{tool}` was called in words and not run: asked once more"


def told(history: Sequence[Message], answer: ModelAnswered, tool: str) -> list[Message]:
    """What the model is asked the second time: the history, what it said, and what is wrong with
    it. The session keeps none of it.
    """
    return [
        *history,
        AssistantMessage(spell_out(answer.text)),
        UserMessage(_TOLD.format(tool=tool)),
    ]


def joined(first: ModelAnswered, second: ModelAnswered) -> ModelAnswered:
    """What the two answers come to: the first one, with the calls and words of the second if that
    makes calls.
    """
    usage = first.usage + second.usage
    if not second.calls:
        return replace(first, usage=usage)
    text = "\n\n".join(part for part in (first.text, second.text) if part)
    reasoning = "\n\n".join(part for part in (first.reasoning, second.reasoning) if part)
    return replace(second, text=text, reasoning=reasoning, usage=usage)
