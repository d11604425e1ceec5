"""gpt-oss: the harmony channels.

    <|channel|>analysis<|message|>reasoning<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
    <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{…}<|call|>
    <|start|>assistant<|channel|>final<|message|>text<|return|>

A recipient makes a message a call, whatever its channel: gpt-oss addresses functions from the
analysis channel too. Source: OpenAI's harmony response format.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ferrule.core.calls import ToolCall

from . import lenient_json
from .dialect import BodyEnding, CallForm, FoundCall, ParsedBody
from .offered_tools import OfferedTools

HEADER = r"<\|start\|>assistant|<\|channel\|>"
"""Begins a message's header; `<|message|>` ends it."""

REST_OF_HEADER = re.compile(r"\s*to=[^\s<]{1,80}\s*(?=<\|channel\|>|<\|constrain\|>|<\|message\|>)")
"""The rest of a header whose beginning stands in the prompt. It says who the message is for."""

REST_OF_HEADER_BEGINS = re.compile(r"\s*(?:t(?:o(?:=[^\s<]{0,80}\s*(?:<[^<>]{0,12})?)?)?)?\Z")
"""A text that may become `REST_OF_HEADER`."""

MESSAGE_END = r"<\|end\|>|<\|call\|>|<\|return\|>|(?=<\|start\|>)|(?=<\|channel\|>)"
"""Ends a message. Servers often take the stop token off, so the next header ends it too."""

_RECIPIENT = re.compile(r"\bto=\s*([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_NO_TOOLS = ("assistant", "user", "all", "system")


def parse_header(header: str) -> tuple[str, str]:
    """Return the channel and the tool of a header; the tool is "" if the message is no call."""
    channel = _CHANNEL.search(header)
    recipient = _RECIPIENT.search(header)
    tool = recipient.group(1).removeprefix("functions.") if recipient else ""
    if tool in _NO_TOOLS:
        tool = ""
    return channel.group(1) if channel else "final", tool


def _read(opener: str, body: str, ending: BodyEnding, tools: OfferedTools) -> ParsedBody | None:
    """Read a message that is a call. `opener` is its whole header."""
    _, tool = parse_header(opener)
    value = lenient_json.decode_leniently_at(body, 0)
    if value is not None and isinstance(value[0], dict):
        decoded, end, repairs = value
        call = FoundCall(tool, lenient_json.encode_arguments(decoded), tuple(repairs))
        if ending is BodyEnding.OPEN:
            return ParsedBody([call], rest=end)
        rest = body[end:]
        return ParsedBody([call, rest] if rest.strip() else [call])
    if ending is BodyEnding.CLOSED and body.lstrip().startswith("{"):
        return None
    text = body.strip()
    if ending is BodyEnding.OPEN and not text:
        return None
    return ParsedBody([FoundCall(tool, text or "{}", cut=ending is BodyEnding.OPEN)])


CALL = CallForm("harmony", r"(?!)", lambda _: MESSAGE_END, _read)
"""The form of a call. Its opener never matches: the reader uses it when a header names a tool."""


def render(calls: Sequence[ToolCall]) -> str:
    """Write calls as gpt-oss does, each as a message."""
    return "<|start|>assistant".join(
        (
            f"<|channel|>commentary to=functions.{call.tool} "
            f"<|constrain|>json<|message|>{call.arguments}<|call|>"
        )
        for call in calls
    )
