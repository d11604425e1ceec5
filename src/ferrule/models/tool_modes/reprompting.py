"""Ask a model once more where its native answer is of no use as it is.

    the answer is empty            the same question is asked again: some servers lose an answer now
                                   and then. A second empty answer is taken as meant.
    a tool call without marks      It may be an example that somebody asked for (a fenced block,
    stands in the text             bare JSON, Python), so it is not run, and the model is told so,
                                   once. If it makes a call then, both answers are joined; a second
                                   answer without a call is dropped and the first one stands.

A call between marks is not asked about but run (see `selection`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ferrule.core.events import ModelAnswered
from ferrule.core.messages import AssistantMessage, Message, UserMessage
from ferrule.models.dialects import ReplyReader
from ferrule.models.untrusted_text import escape_untrusted

from .text import ToolNames

EMPTY_ANSWER = "the answer was empty: asked again"
"""Notice for an empty answer."""

_CALL_NOT_RUN = (
    "[Your answer has a call of `{tool}` in its text, and nothing was run. If you mean it, "
    "call the tool as tools are called here; "
    "if not, repeat your answer.]"
)


def find_call_in_text(answer: ModelAnswered, names: ToolNames) -> str:
    """Return the API name of the tool that an answer calls in its text; "" if there is no call.

    Everything in the text that could be a call must call an offered tool by its exact name.
    """
    if not any(name in answer.text for name in names.schemas):
        return ""

    reader = ReplyReader(tools=names.schemas)
    reader.feed(answer.text)
    calls = reader.finish(cut=answer.stop == "length").calls
    if not calls or any(call.tool not in names.schemas for call in calls):
        return ""
    return calls[0].tool


def describe_unrun_call(tool: str) -> str:
    """Return the notice for a call in an answer's text."""
    return f"`{tool}` was called in words and not run: asked once more"


def build_second_question(
    history: Sequence[Message], answer: ModelAnswered, tool: str
) -> list[Message]:
    """Return the second question: the history, the answer, and what is wrong with it.

    The session keeps none of this.
    """
    return [
        *history,
        AssistantMessage(escape_untrusted(answer.text)),
        UserMessage(_CALL_NOT_RUN.format(tool=tool)),
    ]


def join_answers(first: ModelAnswered, second: ModelAnswered) -> ModelAnswered:
    """Join two answers: the first one, with the text and calls of the second if it has calls."""
    usage = first.usage + second.usage
    if not second.calls:
        return replace(first, usage=usage)
    text = "\n\n".join(part for part in (first.text, second.text) if part)
    reasoning = "\n\n".join(part for part in (first.reasoning, second.reasoning) if part)
    return replace(second, text=text, reasoning=reasoning, usage=usage)
