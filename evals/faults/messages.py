"""The same model behind Anthropic's Messages format: a history out of it, an answer into it. For
Ferrule alone.

Arguments that are broken JSON can be said as they are in a stream only (`input_json_delta`). Kinds
that are about the places of calls in a stream (`streamed`) mean the chat format, and are not here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .habits import Answer, Call

PIECE = 5
_USAGE = {"input_tokens": 10, "output_tokens": 10}
_HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "usage": _USAGE}
_STOPS = {"length": "max_tokens", "stop": "end_turn", "tool_calls": "tool_use"}


def conversation(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The history as chat completions would have it."""
    return [said for message in messages for said in _said(message)]


def _said(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content = message.get("content")
    blocks = (
        [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
    )
    texts = [block for block in blocks if block.get("type") == "text"]
    if message.get("role") == "assistant":
        made = [
            (b.get("id"), b.get("name"), b.get("input"))
            for b in blocks
            if b.get("type") == "tool_use"
        ]
        calls = [
            {"id": i, "function": {"name": _plain(n), "arguments": json.dumps(v)}}
            for i, n, v in made
        ]
        yield {"role": "assistant", "content": texts, **({"tool_calls": calls} if calls else {})}
        return
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": block.get("content"),
            }
    if texts:
        yield {"role": "user", "content": texts}


def _plain(name: Any) -> str:
    """A name as the chat format allows it: here dots and the like may stand in one."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", str(name or ""))[:64]


def problem(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the provider would not take, besides what `server.check` finds: empty texts, and ids
    that are not unique or hold other characters than letters, digits, `_` and `-`.
    """
    ids: list[Any] = []
    for at, message in enumerate(messages):
        content = message.get("content")
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if block.get("type") == "text" and not str(block.get("text") or "").strip():
                return f"messages.{at}: text content blocks must be non-empty"
            if block.get("type") == "tool_use":
                ids.append(block.get("id"))
    if not all(isinstance(id, str) and re.fullmatch(r"[a-zA-Z0-9_-]+", id) for id in ids):
        return "`tool_use` ids must match '^[a-zA-Z0-9_-]+$'"
    return "" if len(set(ids)) == len(ids) else "`tool_use` ids must be unique"


def whole(answer: Answer) -> dict[str, Any]:
    """An answer in one piece. Arguments that are no JSON can only be sent as the text that they
    are.
    """
    content: list[dict[str, Any]] = [{"type": "text", "text": answer.text}] if answer.text else []
    for call in answer.calls:
        try:
            given = (
                json.loads(call.arguments) if isinstance(call.arguments, str) else call.arguments
            )
        except ValueError:
            given = call.arguments
        content.append({**_call(call)[0], "input": given})
    return {**_HEAD, "content": content, "stop_reason": _stop(answer)}


def events(answer: Answer) -> list[bytes]:
    """An answer in pieces."""
    made: list[dict[str, Any]] = [{"type": "message_start", "message": {**_HEAD, "content": []}}]
    blocks = ([_text(answer.text)] if answer.text else []) + [_call(call) for call in answer.calls]
    for index, (block, deltas) in enumerate(blocks):
        made.append({"type": "content_block_start", "index": index, "content_block": block})
        made += [
            {"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas
        ]
        made.append({"type": "content_block_stop", "index": index})
    usage = {"output_tokens": 10}
    made.append({"type": "message_delta", "delta": {"stop_reason": _stop(answer)}, "usage": usage})
    made.append({"type": "message_stop"})
    return [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in made]


def _stop(answer: Answer) -> str:
    return _STOPS[answer.finish or ("tool_calls" if answer.calls else "stop")]


Streamed = tuple[dict[str, Any], list[dict[str, Any]]]
"""A block as it starts, and what is added to it."""


def _text(text: str) -> Streamed:
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]


def _call(call: Call) -> Streamed:
    id = {} if call.id is None else {"id": call.id}
    block = {"type": "tool_use", **id, "name": call.tool, "input": {}}
    if not isinstance(call.arguments, str):
        return {**block, "input": call.arguments}, []
    text = call.arguments
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    return block, [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
