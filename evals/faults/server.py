"""The wire of a model with poor habits: OpenAI's chat completions over a real socket, whole or as
server-sent events.

The person's first words hold a marker that says which play is meant, so that every framework can
carry it:

    [[run=ID;kind=near-name;seed=7]]        and `final=NAME` where the last words must be a call of that tool

A history is refused with 400 as OpenAI refuses it: calls without their results or results without
their call, an empty list of calls, an answer with neither text nor calls, names with other
characters than letters, digits, `_` and `-` (64 at most), arguments that are no text, and roles it
does not know. What it sent itself it takes back: a server that gives no ids asks for none, and one
that sends arguments as an object takes them as one. Requests to `/messages` speak Anthropic's
format (`messages`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ferrule.testing.http_double import HttpDouble, Reply, Request

from . import messages as anthropic
from .habits import Answer, Call
from .play import Play, words

MARKER = re.compile(r"\[\[run=([^;\]]+)([^\]]*)\]\]")
PIECE = 5
"""Characters in a piece of a stream."""
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_ROLES = ("system", "developer", "user", "assistant", "tool")
_USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


class Refused(Exception):
    """The request is one that the provider would not take."""


class FaultServer:
    """Serves every play there is a marker for. `plays` by run, until they are taken out."""

    def __init__(self) -> None:
        self.plays: dict[str, Play] = {}
        self.refusals: dict[str, str] = {}
        """Why the last request of a run was refused, for runs of which one was."""
        self._http = HttpDouble(self._answer)

    @property
    def url(self) -> str:
        """What clients are given as base URL."""
        return f"{self._http.url}/v1"

    async def __aenter__(self) -> FaultServer:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self._http.__aexit__(*ended)

    def _answer(self, request: Request) -> Reply:
        self._http.requests.clear()  # Thousands of runs: nobody looks at them again.
        chat = request.target.endswith("/chat/completions")
        if not chat and not request.target.endswith("/messages"):
            error = {"message": f"no such path: {request.target}"}
            return Reply(404, json={"error": error}, framing="length")
        asked = request.json()
        given = [m for m in asked.get("messages") or () if isinstance(m, dict)]
        messages = given if chat else anthropic.conversation(given)
        run, play = self._play(messages)
        if play is None:
            return _refusal("no [[run=...]] in the first message")
        try:
            check(messages, objects=play.kind == "object-arguments")
            if not chat and (why := anthropic.problem(given)):
                raise Refused(why)
        except Refused as why:
            self.refusals[run] = str(why)
            return _refusal(str(why))
        answer = play.reply(messages)
        if not asked.get("stream"):
            return Reply(json=whole(answer) if chat else anthropic.whole(answer), framing="length")
        usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        pieces = events(answer, usage=usage) if chat else anthropic.events(answer)
        return Reply(headers={"content-type": "text/event-stream"}, pieces=pieces)

    def _play(self, messages: Sequence[Mapping[str, Any]]) -> tuple[str, Play | None]:
        for message in messages:
            if message.get("role") == "user" and (
                found := MARKER.search(words(message.get("content")))
            ):
                run = found[1]
                if run not in self.plays:
                    options = dict(item.split("=", 1) for item in found[2].split(";") if item)
                    self.plays[run] = Play(
                        options["kind"], int(options["seed"]), options.get("final", "")
                    )
                return run, self.plays[run]
        return "", None


def prompt(run: str, kind: str, seed: int, **options: str) -> str:
    """The person's words for a run: the order that its play expects, and the marker."""
    more = "".join(f";{name}={value}" for name, value in options.items())
    return f"{Play(kind, seed).order.request()} [[run={run};kind={kind};seed={seed}{more}]]"


def check(messages: Sequence[Mapping[str, Any]], *, objects: bool = False) -> None:
    """Raises Refused for a history that the provider would not take. `objects`: it takes arguments
    that are no text.
    """
    open_: list[Any] = []
    allowed: list[Any] = []
    for at, message in enumerate(messages):
        role, where = message.get("role"), f"messages[{at}]"
        if role not in _ROLES:
            raise Refused(f"Invalid value for '{where}.role': {role!r}")
        if role == "tool":
            id = _id(message.get("tool_call_id"))
            if id not in allowed:
                raise Refused(
                    f"{where}: role 'tool' must be a response to a preceding message with "
                    "'tool_calls'"
                )
            open_ = [other for other in open_ if other != id]
            continue
        if open_:
            missing = ", ".join(map(repr, open_))
            raise Refused(
                f"'tool_calls' must be followed by tool messages; without response: {missing}"
            )
        allowed = _calls(message, where, objects) if role == "assistant" else []
        open_ = list(allowed)
    if open_:
        raise Refused(f"'tool_calls' must be followed by tool messages; without response: {open_}")


def _calls(message: Mapping[str, Any], where: str, objects: bool) -> list[str]:
    """The ids of the calls of an answer in the history."""
    calls = message.get("tool_calls")
    if calls is None:
        if message.get("content") is None and not message.get("refusal"):
            raise Refused(f"Invalid value for '{where}.content': expected a string, got null")
        return []
    if not isinstance(calls, list) or not calls:
        raise Refused(f"Invalid '{where}.tool_calls': empty array")
    for index, call in enumerate(calls):
        function = call.get("function") or {}
        if not _NAME.fullmatch(str(function.get("name") or "")):
            raise Refused(
                f"'{where}.tool_calls[{index}].function.name' does not match '^[a-zA-Z0-9_-]+$'"
            )
        if not isinstance(function.get("arguments"), (str, dict) if objects else str):
            raise Refused(
                f"Invalid type for '{where}.tool_calls[{index}].function.arguments': "
                "expected a string"
            )
    return [_id(call.get("id")) for call in calls]


def _id(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _refusal(why: str) -> Reply:
    error = {"message": why, "type": "invalid_request_error", "param": "messages", "code": None}
    return Reply(400, json={"error": error}, framing="length")


def whole(answer: Answer) -> dict[str, Any]:
    """An answer in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    if answer.calls:
        message["tool_calls"] = [_call(call) for call in answer.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
    return {**_head(""), "choices": [choice], "usage": _USAGE}


def events(answer: Answer, *, usage: bool) -> list[bytes]:
    """An answer in pieces: an event each, then `[DONE]`."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if answer.text else None}]
    text = answer.text or ""
    deltas += [{"content": text[at : at + PIECE]} for at in range(0, len(text), PIECE)]
    for call in answer.calls:
        deltas += [{"tool_calls": [piece]} for piece in _pieces(call)]
    chunks = [_chunk(delta, None) for delta in deltas] + [_chunk({}, _finish(answer))]
    if usage:
        chunks.append({**_head(".chunk"), "choices": [], "usage": _USAGE})
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [
        b"data: [DONE]\n\n"
    ]


def _pieces(call: Call) -> list[dict[str, Any]]:
    index = {} if call.index is None else {"index": call.index}
    if not isinstance(call.arguments, str):
        return [{**index, **_call(call)}]
    text, again = call.arguments, {"name": call.tool} if call.renamed else {}
    cut = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    head = {**index, **_call(call), "function": {"name": call.tool, "arguments": ""}}
    return [head, *({**index, "function": {**again, "arguments": piece}} for piece in cut)]


def _call(call: Call) -> dict[str, Any]:
    id = {} if call.id is None else {"id": call.id}
    return {**id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}


def _chunk(delta: Mapping[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**_head(".chunk"), "choices": [choice]}


def _head(kind: str) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": f"chat.completion{kind}",
        "created": 1700000000,
        "model": "gpt-4o",
    }


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.calls else "stop")
