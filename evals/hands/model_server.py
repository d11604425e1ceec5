"""A scripted model on loopback: chat completions, Responses and Messages.

Shapes: https://platform.openai.com/docs/api-reference (`chat/streaming`, `responses-streaming`) and
https://docs.anthropic.com/en/api/messages-streaming.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Arguments = dict[str, Any] | str
"""Arguments of a call; a text for tools that take one (`apply_patch` of Codex)."""
Call = tuple[str, Arguments]
Answers = Callable[[int, dict[str, Any]], list[Call]]
"""The calls of answer N (from 1) to a request; none end the run."""

MODEL = "strong-1"
USAGE = {"input_tokens": 1000, "output_tokens": 5, "total_tokens": 1005}


class ModelServer(ThreadingHTTPServer):
    """Answers requests that bring tools from a script, all others with `ok`; keeps the former."""

    daemon_threads = True

    def __init__(self, answers: Answers) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.requests: list[dict[str, Any]] = []
        self.sizes: list[str] = []
        self.side_requests: list[str] = []
        self.times: list[float] = []
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """The address without a path."""
        return f"http://127.0.0.1:{self.server_port}"

    def start(self) -> ModelServer:
        """Serve in a thread of its own."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def stop(self) -> None:
        """End the thread and close the socket."""
        self.shutdown()
        self.server_close()

    def answer(self, raw: str) -> tuple[int, list[Call]]:
        """Return the number and the calls of the next answer; 0 for a request without tools."""
        body = json.loads(raw)
        names = [_tool_name(tool) for tool in _tools(body)]
        with self._lock:
            if not names or names == ["report_ready"]:
                self.side_requests.append(raw)
                return 0, [("report_ready", {"ready": True})] if names else []
            self.times.append(time.monotonic())
            self.requests.append(body)
            self.sizes.append(raw)
            number = len(self.requests)
        return number, self.answers(number, body)

    def results(self) -> list[str]:
        """Return what the model read of its calls, in order, from the longest request."""
        if not self.requests:
            return []
        return read_results(max(self.requests, key=lambda body: len(_messages_of(body))))


def _tools(body: dict[str, Any]) -> list[dict[str, Any]]:
    added = [item for item in body.get("input") or () if _is_kind(item, "additional_tools")]
    return [*(body.get("tools") or ()), *added]


def _is_kind(item: Any, *kinds: str) -> bool:
    return isinstance(item, dict) and item.get("type") in kinds


def _tool_name(tool: dict[str, Any]) -> str:
    return str(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type"))


def _messages_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    return body.get("input") or body.get("messages") or []


def read_results(body: dict[str, Any]) -> list[str]:
    """Return the results of calls in a request of any of the protocols."""
    found: list[str] = []
    for message in _messages_of(body):
        content = message.get("content")
        if _is_kind(message, "function_call_output", "custom_tool_call_output"):
            found.append(join_text(message["output"]))
        elif message.get("role") == "tool":
            found.append(join_text(content))
        elif isinstance(content, list):
            blocks = [block for block in content if _is_kind(block, "tool_result")]
            found += [join_text(block.get("content")) for block in blocks]
    return found


def join_text(content: Any) -> str:
    """Return the text of a content: a text itself, or blocks of it."""
    if isinstance(content, str) or content is None:
        return content or ""
    return "".join(block.get("text", "") for block in content if isinstance(block, dict))


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer  # pyright: ignore[reportIncompatibleVariableOverride]  typeshed's is wider
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        listed = {"object": "list", "data": [{"id": MODEL, "object": "model"}], "models": []}
        self._send("application/json", json.dumps(listed))

    def do_POST(self) -> None:
        raw = self._read()
        if not any(name in self.path for name in ("completions", "responses", "messages")):
            return self._send("application/json", "{}")
        if "count_tokens" in self.path:
            return self._send("application/json", json.dumps({"input_tokens": len(raw) // 4}))
        number, calls = self.server.answer(raw)
        text = "" if calls else ("done" if number else "ok")
        body = json.loads(raw)
        if "responses" in self.path:
            whole, events = _response(number, calls, text)
        elif "messages" in self.path:
            whole, events = _message(number, calls, text)
        else:
            whole, events = _chat(number, calls, text)
        if not body.get("stream"):
            return self._send("application/json", json.dumps(whole))
        return self._send("text/event-stream", "".join(events))

    def _read(self) -> str:
        length = self.headers.get("content-length")
        data = self.rfile.read(int(length)) if length else b"".join(self._chunks())
        if self.headers.get("content-encoding") == "gzip":
            data = gzip.decompress(data)
        return data.decode()

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline().strip() or b"0", 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _event(name: str, value: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps({'type': name, **value})}\n\n"


def _chat(number: int, calls: list[Call], text: str) -> tuple[dict[str, Any], list[str]]:
    def write(values: dict[str, Any], finish: str | None, key: str) -> dict[str, Any]:
        head = {"id": f"c{number}", "created": 1, "model": MODEL}
        return {**head, "choices": [{"index": 0, key: values, "finish_reason": finish}]}

    made: list[dict[str, Any]] = []
    for index, (name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": _as_json(arguments)}
        made.append({"id": f"call_{number}_{index}", "type": "function", "function": function})
    finish = "tool_calls" if made else "stop"
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if made:
        message["tool_calls"] = made
    usage = {"prompt_tokens": 1000, "completion_tokens": 5, "total_tokens": 1005}
    deltas = [{"role": "assistant", "content": text}]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(made)]
    chunks = [write(delta, None, "delta") for delta in deltas]
    chunks += [write({}, finish, "delta"), {**write({}, None, "delta"), "choices": []}]
    chunks[-1]["usage"] = usage
    kind = {"object": "chat.completion.chunk"}
    events = [f"data: {json.dumps({**kind, **chunk})}\n\n" for chunk in chunks]
    whole = {**write(message, finish, "message"), "object": "chat.completion", "usage": usage}
    return whole, [*events, "data: [DONE]\n\n"]


def _as_json(arguments: Arguments) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _response(number: int, calls: list[Call], text: str) -> tuple[dict[str, Any], list[str]]:
    items: list[dict[str, Any]] = []
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        items.append({"type": "message", "id": f"m{number}", "role": "assistant"})
        items[-1] |= {"status": "completed", "content": [part]}
    for index, (name, arguments) in enumerate(calls):
        item = {"id": f"fc{number}_{index}", "call_id": f"call_{number}_{index}", "name": name}
        if isinstance(arguments, str):
            item |= {"type": "custom_tool_call", "input": arguments}
        else:
            item |= {"type": "function_call", "arguments": json.dumps(arguments)}
        items.append({**item, "status": "completed"})
    response: dict[str, Any] = {"id": f"resp_{number}", "object": "response", "created_at": 1}
    response |= {"status": "completed", "model": MODEL, "output": items, "usage": USAGE}
    begun = {**response, "status": "in_progress", "output": []}
    events = [_event("response.created", {"response": begun})]
    for index, item in enumerate(items):
        place = {"output_index": index, "item": item}
        events.append(_event("response.output_item.added", place))
        events.append(_event("response.output_item.done", place))
    return response, [*events, _event("response.completed", {"response": response})]


def _message(number: int, calls: list[Call], text: str) -> tuple[dict[str, Any], list[str]]:
    usage = {"input_tokens": 1000, "output_tokens": 5}
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for index, (name, arguments) in enumerate(calls):
        use = {"type": "tool_use", "id": f"toolu_{number}_{index}", "name": name}
        blocks.append({**use, "input": arguments})
    reason = "tool_use" if calls else "end_turn"
    message: dict[str, Any] = {"id": f"msg_{number}", "type": "message", "role": "assistant"}
    message |= {"model": MODEL, "content": blocks, "stop_reason": reason, "usage": usage}
    begun = {**message, "content": [], "stop_reason": None}
    events = [_event("message_start", {"message": begun})]
    for index, block in enumerate(blocks):
        empty = {**block, "text": ""} if "text" in block else {**block, "input": {}}
        delta = {"type": "text_delta", "text": text}
        if "input" in block:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events.append(_event("content_block_start", {"index": index, "content_block": empty}))
        events.append(_event("content_block_delta", {"index": index, "delta": delta}))
        events.append(_event("content_block_stop", {"index": index}))
    events.append(_event("message_delta", {"delta": {"stop_reason": reason}, "usage": usage}))
    return message, [*events, _event("message_stop", {})]
