"""A model on a server: OpenAI's chat completions, in the manners of `manners`, for any library.

The person's message holds a marker, `[[run=ID;type=N;manner=M;mode=MODE]]`; the answers of a run are
those of the manner, one after the other. What is meant is written in the shape that the request asks
for: libraries wrap a value that is no object each in their own way (`{"value": 1}`, `{"response":
1}`, `{"content": 1}`, `{"result": {"kind": ..., "data": ...}}`), so the first of these shapes that
fits the schema of the request is taken, as a model does that keeps to it. A library that calls its
schema a tool is answered by a call of that tool in the mode `tool`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import jsonschema_rs

from ferrule.testing.http_double import HttpDouble, Reply, Request

from .manners import MANNERS, Said
from .types_asked import ASKED, Asked

MARKER = re.compile(r"\[\[run=(\S+);type=(\d+);manner=(\d+);mode=(\w+)\]\]")
NOTHING = Said("I would rather not say.")
PIECE = 40
"""Characters in a piece of a stream."""
_HEAD = {"id": "c1", "created": 1, "model": "m"}
_USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


class Wanted(NamedTuple):
    """A schema that a request asks for, and the tool that it is the parameters of."""

    schema: Mapping[str, Any]
    tool: str = ""


class ManneredServer:
    """Serves every run there is a marker for."""

    def __init__(self) -> None:
        self._asked = Counter[str]()
        self._http = HttpDouble(self._answer)

    @property
    def url(self) -> str:
        """What clients are given as base URL."""
        return f"{self._http.url}/v1"

    async def __aenter__(self) -> ManneredServer:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *ended: Any) -> None:
        await self._http.__aexit__(*ended)

    def _answer(self, request: Request) -> Reply:
        self._http.requests.clear()  # Thousands of runs: nobody looks at them again.
        body = request.json()
        found = MARKER.search(json.dumps(body.get("messages")))
        if found is None:
            error = {"message": "no marker in the messages", "type": "invalid_request_error"}
            return Reply(400, json={"error": error}, framing="length")
        run, number, manner, mode = found.groups()
        asked = ASKED[int(number)]
        wanted, shaped = shape(asked, list(find_schemas(body)))
        said = MANNERS[int(manner)].say(shaped)
        turn = self._asked[run]
        self._asked[run] += 1
        one = said[turn] if turn < len(said) else NOTHING
        tool = wanted.tool if mode == "tool" and one.is_plain else ""
        if body.get("stream"):
            headers = {"content-type": "text/event-stream"}
            return Reply(headers=headers, pieces=write_events(one, tool))
        return Reply(json=write_answer(one, tool), framing="length")


def find_schemas(body: Mapping[str, Any]) -> Iterator[Wanted]:
    """Yield the schemas that a request asks for: of its tools, its response format, its text."""
    for tool in body.get("tools") or ():
        function = tool.get("function") or {}
        yield Wanted(function.get("parameters") or {}, str(function.get("name")))
    form = body.get("response_format") or {}
    if isinstance(form.get("json_schema"), dict):
        yield Wanted(form["json_schema"].get("schema") or {})
    for message in body.get("messages") or ():
        if message.get("role") in ("system", "user", "developer"):
            yield from _find_in_text(_words(message.get("content")))


def _words(content: object) -> str:
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        return "\n".join(str(part.get("text") or "") for part in parts)
    return str(content or "")


def _find_in_text(text: str) -> Iterator[Wanted]:
    decoder = json.JSONDecoder()
    at = text.find("{")
    while at >= 0:
        try:
            value, at_end = decoder.raw_decode(text, at)
        except ValueError:
            at_end = at + 1
            value = None
        if isinstance(value, dict) and {"type", "properties", "$ref", "$defs", "anyOf"} & set(
            value
        ):
            yield Wanted(cast("dict[str, Any]", value))
        at = text.find("{", at_end)


def shape(asked: Asked, schemas: list[Wanted]) -> tuple[Wanted, Asked]:
    """Return the schema that the value fits, and the type with its texts in that shape."""
    for wanted in schemas:
        for before, after in _list_shapes(asked, wanted.schema):
            changed = asked._replace(
                good=_rewrap(asked.good, before, after),
                other=_rewrap(asked.other, before, after),
                bad=_rewrap(asked.bad, before, after),
            )
            if _fits(changed.good, wanted.schema):
                return wanted, changed
    return schemas[0] if schemas else Wanted({}), asked


def _list_shapes(asked: Asked, schema: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield whether our own object is taken off first, and what stands before and after a value."""
    names = list(schema.get("properties") or ())
    is_wrapped = set(json.loads(asked.good)) == {"value"}
    if not is_wrapped or "value" in names:
        yield "", ("", "")
    own = "value" if is_wrapped else ""
    if own:
        yield own, ("", "")
    kind = json.dumps({"kind": type(asked.value).__name__})[:-1]
    for name in names:
        yield own, (f"{{{json.dumps(name)}: ", "}")
        yield own, (f'{{{json.dumps(name)}: {kind}, "data": ', "}}")
        yield own, (f'{{{json.dumps(name)}: {kind}, "data": {{"response": ', "}}}")


def _rewrap(text: str, own: str, around: tuple[str, str]) -> str:
    """Write a value in another object, digit by digit as it was written."""
    if own and set(json.loads(text)) == {own}:
        text = text[text.index(":") + 1 : text.rindex("}")].strip()
    return f"{around[0]}{text}{around[1]}"


def _fits(text: str, schema: Mapping[str, Any]) -> bool:
    try:
        return jsonschema_rs.validator_for(dict(schema)).is_valid(json.loads(text))
    except ValueError:
        return False


def _finish(said: Said, tool: str) -> str:
    if said.stop != "end":
        return {"filter": "content_filter"}.get(said.stop, said.stop)
    return "tool_calls" if tool else "stop"


def write_answer(said: Said, tool: str) -> dict[str, Any]:
    """Return an answer in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": None if tool else said.text}
    if tool:
        function = {"name": tool, "arguments": said.text}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    choice = {"index": 0, "message": message, "logprobs": None}
    choice["finish_reason"] = _finish(said, tool)
    return {**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}


def write_events(said: Said, tool: str) -> list[bytes]:
    """Return an answer in pieces: an event each, then `[DONE]`."""
    pieces = [said.text[at : at + PIECE] for at in range(0, len(said.text), PIECE)]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if tool else ""}]
    if tool:
        function = {"name": tool, "arguments": ""}
        opened = {"index": 0, "id": "call_1", "type": "function", "function": function}
        deltas.append({"tool_calls": [opened]})
    for piece in pieces:
        more = {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
        deltas.append(more if tool else {"content": piece})
    chunks = [_chunk({"index": 0, "delta": delta, "finish_reason": None}) for delta in deltas]
    chunks.append(_chunk({"index": 0, "delta": {}, "finish_reason": _finish(said, tool)}))
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [
        b"data: [DONE]\n\n"
    ]


def _chunk(choice: dict[str, Any]) -> dict[str, Any]:
    chunk = {**_HEAD, "object": "chat.completion.chunk", "choices": [choice], "usage": None}
    if choice["finish_reason"]:
        chunk["usage"] = _USAGE
    return chunk
