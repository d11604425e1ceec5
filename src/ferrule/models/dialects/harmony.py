"""gpt-oss: the harmony channels.

    <|channel|>analysis<|message|>reasoning<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
    <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{…}<|call|>
    <|start|>assistant<|channel|>final<|message|>text<|return|>

A recipient makes a message a call, in whichever channel it stands: gpt-oss addresses functions from
the analysis channel too. Source: OpenAI's harmony response format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.core.calls import Call

from . import lenient_json
from .dialect import Ending, Form, Found, Parsed, Tools

HEADER = r"<\|start\|>assistant|<\|channel\|>"
"""What begins a message's header; `<|message|>` ends it."""
ROLE = re.compile(r"\s*to=[^\s<]{1,80}\s*(?=<\|channel\|>|<\|constrain\|>|<\|message\|>)")
"""The rest of a header whose beginning stands in the prompt: it says to whom the first message
goes.
"""
ROLE_BEGINS = re.compile(r"\s*(?:t(?:o(?:=[^\s<]{0,80}\s*(?:<[^<>]{0,12})?)?)?)?\Z")
ENDS = r"<\|end\|>|<\|call\|>|<\|return\|>|(?=<\|start\|>)|(?=<\|channel\|>)"
"""What ends a message. A stop token is often taken off by the server."""

_RECIPIENT = re.compile(r"\bto=\s*([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_PEOPLE = ("assistant", "user", "all", "system")


def route(header: str) -> tuple[str, str]:
    """`(channel, tool)` of a header; the tool is empty if the message goes to a person."""
    channel = _CHANNEL.search(header)
    recipient = _RECIPIENT.search(header)
    tool = recipient.group(1).removeprefix("functions.") if recipient else ""
    return channel.group(1) if channel else "final", "" if tool in _PEOPLE else tool


def _read(opener: str, body: str, ending: Ending, tools: Tools) -> Parsed | None:
    """`opener` is the whole header here."""
    tool = route(opener)[1]
    value = lenient_json.value_at(body, 0)
    if value is not None and isinstance(value[0], dict):
        call = Found(tool, lenient_json.arguments(value[0]), tuple(value[2]))
        if ending is Ending.OPEN:
            return Parsed([call], rest=value[1])
        rest = body[value[1] :]
        return Parsed([call, rest] if rest.strip() else [call])
    if ending is Ending.CLOSED and body.lstrip().startswith("{"):
        return None
    text = body.strip()
    if ending is Ending.OPEN and not text:
        return None
    return Parsed([Found(tool, text or "{}", cut=ending is Ending.OPEN)])


CALL = Form("harmony", r"(?!)", lambda _: ENDS, _read)
"""Never found by its opener: the reader comes here when a header names a function."""


def render(calls: Sequence[Call]) -> str:
    """One message per call."""
    return "<|start|>assistant".join(
        (
            f"<|channel|>commentary to=functions.{call.tool} "
            f"<|constrain|>json<|message|>{call.arguments}<|call|>"
        )
        for call in calls
    )
