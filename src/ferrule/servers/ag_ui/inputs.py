"""Read a `RunAgentInput`: what a client sends to start a run, or to go on with one.

    {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "..."}],
     "tools": [{"name": "...", "description": "...", "parameters": {...}}],
     "context": [{"description": "...", "value": "..."}],
     "resume": [{"interruptId": "...", "status": "resolved", "payload": {"approved": true}}]}

A client sends the whole conversation each time, and its account of it proves nothing: the session
has its own. Of the messages only these count: what the person says after the assistant's last
message, and the results of the client's own tools. `system` and `developer` messages, `state` and
`forwardedProps` are not used.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, cast

from ferrule.core.media import Audio, Content, Document, Image, Media
from ferrule.core.value_class import frozen

MAX_TOOLS = 64
"""Most tools that a client brings."""
MAX_CONTEXT = 32
"""Most entries of `context`."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}")
_MEDIA: dict[str, type[Media]] = {"image": Image, "audio": Audio, "document": Document}


class InputRefused(Exception):
    """A request that starts nothing. `status` is that of the answer."""

    def __init__(self, message: str, status: int = 400, code: str = "invalid_input") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code


@frozen
class ClientToolSpec:
    """A tool that runs in the client."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@frozen
class InterruptAnswer:
    """What a client says to an interrupt. Without `is_resolved` it was abandoned."""

    interrupt_id: str
    is_resolved: bool
    payload: Any


@frozen
class PersonMessage:
    """A message of the person, as the client identifies it."""

    id: str
    content: Content


@frozen
class RunInput:
    """A request to run the agent.

    Attributes:
        thread_id: The conversation, among those of the person who asks.
        run_id: The run.
        said: What the person says after the assistant's last message.
        earlier: The conversation before it, as the client tells it: role and text.
        tool_results: What the client's tools returned, by the id of the call.
        tools: The client's tools.
        context: What the client says of its page: description and value.
        answers: Answers to interrupts.
    """

    thread_id: str
    run_id: str
    said: tuple[PersonMessage, ...]
    earlier: tuple[tuple[str, str], ...] = ()
    tool_results: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: tuple[ClientToolSpec, ...] = ()
    context: tuple[tuple[str, str], ...] = ()
    answers: tuple[InterruptAnswer, ...] = ()


def parse_input(body: bytes) -> RunInput:
    """Read the body of a request.

    Raises:
        InputRefused: It is not a `RunAgentInput`; the message names the field.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputRefused(f"the body is not JSON: {error}") from error
    given = _mapping(found, "the body")
    messages = [
        _mapping(one, f"messages[{at}]") for at, one in enumerate(_list(given, "messages", True))
    ]
    last = max(
        (at for at, one in enumerate(messages) if one.get("role") == "assistant"), default=-1
    )
    said = tuple(
        PersonMessage(_text(one, "id", f"messages[{at}]"), _content(one, f"messages[{at}]"))
        for at, one in enumerate(messages)
        if at > last and one.get("role") == "user"
    )
    return RunInput(
        _id(given, "threadId"),
        _id(given, "runId"),
        said,
        _earlier(messages[: last + 1]),
        _tool_results(messages),
        _tools(given),
        _context(given),
        _answers(given),
    )


def _earlier(messages: list[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    told = ((str(one["role"]), _plain(one)) for one in messages if one.get("role") in _TELLERS)
    return tuple((role, text) for role, text in told if text)


_TELLERS = ("user", "assistant")


def _plain(message: Mapping[str, Any]) -> str:
    """Return the text of a message, of whatever form."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts: list[Any] = []
    for one in cast("list[Any]", content):
        if isinstance(one, dict):
            texts.append(cast("Mapping[str, Any]", one).get("text"))
    return "\n".join(text for text in texts if isinstance(text, str))


def _tool_results(messages: list[Mapping[str, Any]]) -> dict[str, str]:
    results: dict[str, str] = {}
    for at, one in enumerate(messages):
        if one.get("role") == "tool":
            error = one.get("error")
            text = _plain(one)
            if isinstance(error, str) and error:
                text = f"{text}\n{error}".strip()
            results[_text(one, "toolCallId", f"messages[{at}]")] = text
    return results


def _tools(given: Mapping[str, Any]) -> tuple[ClientToolSpec, ...]:
    listed = _list(given, "tools")
    if len(listed) > MAX_TOOLS:
        raise InputRefused(f"`tools` has {len(listed)} entries, more than {MAX_TOOLS}")
    specs: list[ClientToolSpec] = []
    for at, one in enumerate(listed):
        where = f"tools[{at}]"
        tool = _mapping(one, where)
        parameters = tool.get("parameters")
        schema = _mapping({} if parameters is None else parameters, f"{where}.parameters")
        specs.append(
            ClientToolSpec(
                _text(tool, "name", where),
                _text(tool, "description", where),
                schema or {"type": "object", "properties": {}},
            )
        )
    return tuple(specs)


def _context(given: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    listed = _list(given, "context")
    if len(listed) > MAX_CONTEXT:
        raise InputRefused(f"`context` has {len(listed)} entries, more than {MAX_CONTEXT}")
    entries = [_mapping(one, f"context[{at}]") for at, one in enumerate(listed)]
    return tuple(
        (_text(one, "description", f"context[{at}]"), _text(one, "value", f"context[{at}]"))
        for at, one in enumerate(entries)
    )


def _answers(given: Mapping[str, Any]) -> tuple[InterruptAnswer, ...]:
    answers: list[InterruptAnswer] = []
    for at, one in enumerate(_list(given, "resume")):
        where = f"resume[{at}]"
        entry = _mapping(one, where)
        status = entry.get("status")
        if status not in ("resolved", "cancelled"):
            raise InputRefused(
                f"`{where}.status` is {status!r:.80}: expected `resolved` or `cancelled`"
            )
        name = _text(entry, "interruptId", where)
        answers.append(InterruptAnswer(name, status == "resolved", entry.get("payload")))
    return tuple(answers)


def _content(message: Mapping[str, Any], where: str) -> Content:
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InputRefused(f"`{where}.content` is neither a text nor a list of parts")
    parts = cast("list[Any]", content)
    return [_part(one, f"{where}.content[{at}]") for at, one in enumerate(parts)]


def _part(found: Any, where: str) -> str | Media:
    part = _mapping(found, where)
    kind = part.get("type")
    if kind == "text":
        return _text(part, "text", where)
    if kind not in _MEDIA:
        raise InputRefused(
            f"`{where}.type` is {kind!r:.80}: expected `text` or {_list_names(_MEDIA)}"
        )
    source = _mapping(part.get("source"), f"{where}.source")
    if source.get("type") != "data":
        # Fetching an address for a stranger would reach whatever this machine can reach.
        raise InputRefused(f"`{where}.source.type` must be `data`: addresses are not fetched")
    try:
        data = base64.b64decode(_text(source, "value", f"{where}.source"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputRefused(f"`{where}.source.value` is not base64: {error}") from error
    return _MEDIA[kind].from_bytes(data)


def _list_names(names: Mapping[str, Any]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _mapping(found: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise InputRefused(f"`{where}` is {_kind(found)}: expected an object")
    return cast("Mapping[str, Any]", found)


def _list(given: Mapping[str, Any], key: str, is_required: bool = False) -> list[Any]:
    found = given.get(key)
    if found is None and not is_required:
        return []
    if not isinstance(found, list):
        raise InputRefused(f"`{key}` is {_kind(found)}: expected a list")
    return cast("list[Any]", found)


def _text(given: Mapping[str, Any], key: str, where: str) -> str:
    found = given.get(key)
    if not isinstance(found, str):
        raise InputRefused(f"`{where}.{key}` is {_kind(found)}: expected a text")
    return found


def _id(given: Mapping[str, Any], key: str) -> str:
    found = given.get(key)
    if not isinstance(found, str) or not _ID.fullmatch(found):
        raise InputRefused(
            f"`{key}` is {found!r:.80}: expected up to 128 letters, digits and `._:@-`"
        )
    return found


def _kind(found: Any) -> str:
    names = {"dict": "an object", "list": "a list", "str": "a text", "bool": "a boolean"}
    return "missing" if found is None else names.get(type(found).__name__, "a number")
