"""What is sent, encoded once: names, tools, arguments; and how many tokens it should be at
least.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from ferrule.core.calls import compact
from ferrule.core.messages import AssistantMessage, Message

from .client import ToolSpec

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")

ALARM_FROM = 200
"""Requests estimated at fewer tokens than this are too small to tell a cut from a compact template.
"""
ALARM_SHARE = 0.6
"""The alarm rings if the server read less than this share of the estimate, which itself is low."""


class Names:
    """Tool names to wire names and back. Names that no tool has pass through as they are, inbound;
    outbound they are made to fit, because a provider refuses a history with a name it would not
    allow.
    """

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._out = {tool.name: tool.wire_name for tool in tools}
        self.inbound = {tool.wire_name: tool.name for tool in tools}

    def outbound(self, name: str) -> str:
        known = self._out.get(name)
        if known is None:
            known = self._out[name] = fitting(name) or "unnamed"
        return known


def fitting(name: str) -> str:
    """A name with what providers do not allow replaced; two can come out alike."""
    return _NOT_IN_A_NAME.sub("_", name)[:64]


class Transcript:
    """A history as JSON, each message encoded once: the elements of an array, with commas between
    them.

    `weight` is the sum of `message_weight`. The history may only grow; one that got shorter is
    another conversation and is encoded anew.
    """

    def __init__(self, system: str, encode: Callable[[Message], bytes]) -> None:
        self._encode = encode
        self._start = dumps({"role": "system", "content": system}) if system else b""
        self._start_weight = weight(system)
        self._reset()

    def _reset(self) -> None:
        self.json = bytearray(self._start)
        self.weight = self._start_weight
        self._count = 0

    def extend(self, history: Sequence[Message]) -> None:
        """Take in what is new."""
        if len(history) < self._count:
            self._reset()
        for message in history[self._count :]:
            if self.json:
                self.json += b","
            self.json += self._encode(message)
            self.weight += message_weight(message)
        self._count = len(history)


def tools_field(tools: Sequence[ToolSpec]) -> bytes:
    """The `tools` array of chat completions and of Ollama. Schemas are JSON already and are not
    read again.
    """
    return ("[" + ",".join(_function(tool) for tool in tools) + "]").encode()


def described(tool: ToolSpec) -> str:
    """A tool's description, followed by its examples."""
    if examples := tool.argument_examples:
        shown = "\n".join(compact(example) for example in examples)
        return f"{tool.description}\nExamples of arguments:\n{shown}"
    return tool.description


def _function(tool: ToolSpec) -> str:
    head = f'"name":{compact(tool.wire_name)},"description":{compact(described(tool))}'
    return f'{{"type":"function","function":{{{head},"parameters":{tool.schema or "{}"}}}}}'


def arguments_object(arguments: str) -> str:
    """Arguments as a JSON object, for servers whose templates read them: as given if they are one.

    What the model broke is sent back as the text it was, so that the history stays valid; the
    result of that call has already said what was wrong.
    """
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        value = None
    return arguments if isinstance(value, dict) else compact({"invalid_arguments": arguments})


def weight(text: str) -> int:
    """Characters that cost tokens: runs of blanks cost next to nothing, so they are left out."""
    return len(text) - text.count(" ") - text.count("\n")


def message_weight(message: Message) -> int:
    """`weight` of what a message brings into the prompt; reasoning is not counted, templates drop
    it.
    """
    total = weight(message.text)
    if isinstance(message, AssistantMessage):
        total += sum(weight(call.arguments) + len(call.tool) for call in message.calls)
    return total


def truncation(weighed: int, read: int) -> str:
    """A warning if the server read far fewer tokens than it was sent, else "".

    `weighed` characters are at least a quarter as many tokens for every tokenizer in use; `read` is
    what the server counts, 0 if it does not say. Repetitive text (a line of dashes) can cry wolf; a
    real cut of more than about half is not missed.
    """
    estimate = weighed // 4
    if not read or estimate < ALARM_FROM or read >= ALARM_SHARE * estimate:
        return ""
    return (
        f"the server read {read} tokens of at least about {estimate} that were sent: "
        "it has probably cut the start of the conversation, with the tools in it"
    )


def dumps(value: object) -> bytes:
    """Compact JSON as bytes. A lone surrogate (half an emoji out of a broken stream) becomes
    `?`.
    """
    text = compact(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def json_object(data: bytes | str) -> dict[str, Any]:
    """An object, or an empty one if the data is anything else. For bodies of errors and of
    descriptions.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
