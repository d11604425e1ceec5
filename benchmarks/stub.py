"""A model server for measuring: scripted by the first user message, as fast as plain asyncio
allows.

The message is JSON: `{"rounds": 50, "fan": 1, "tool": "peek", "argument_bytes": 0, "text_deltas":
0}`. The server answers that many rounds with `fan` calls each, then with a text. It checks that
every request carries a result for each call before it, so that a loop which loses one cannot look
fast. Run as a program it prints its port and serves until its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import sys


def reply(body: dict[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """The message to answer with, and the script it came from."""
    messages: list[dict[str, object]] = body["messages"]  # type: ignore[assignment]
    script = json.loads(next(str(m["content"]) for m in messages if m["role"] == "user"))
    asked = [
        c["id"] for m in messages if m["role"] == "assistant" for c in m.get("tool_calls") or ()
    ]  # type: ignore[attr-defined]
    answered = [m["tool_call_id"] for m in messages if m["role"] == "tool"]
    if sorted(asked) != sorted(answered):
        raise ValueError(f"{len(asked)} calls, {len(answered)} results")
    done = sum(1 for m in messages if m["role"] == "assistant")
    if done >= script.get("rounds", 1):
        return {
            "role": "assistant",
            "content": "done " * max(1, script.get("text_deltas", 1)),
        }, script
    arguments = {"n": done}
    if script.get("argument_bytes"):
        arguments = {
            "text": ("word " * (script["argument_bytes"] // 5 + 1))[: script["argument_bytes"]]
        }
    calls = [
        {
            "id": f"call_{done:06d}_{i:04d}_padded_id",
            "type": "function",
            "function": {
                "name": script.get("tool", "peek"),
                "arguments": json.dumps({**arguments, "i": i}),
            },
        }
        for i in range(script.get("fan", 1))
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}, script


def whole(message: dict[str, object]) -> bytes:
    """The answer in one piece."""
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    body = {
        "id": "x",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 100_000, "completion_tokens": 10, "total_tokens": 100_010},
    }
    data = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        len(data),
        data,
    )


def stream(message: dict[str, object]) -> list[bytes]:
    """The answer in server-sent events, four characters of arguments or a word of text each."""
    deltas: list[dict[str, object]] = [{"role": "assistant"}]
    for i, call in enumerate(message.get("tool_calls") or ()):  # type: ignore[arg-type, var-annotated]
        function = call["function"]
        head = {"index": i, "id": call["id"], "type": "function"}
        deltas.append(
            {"tool_calls": [{**head, "function": {"name": function["name"], "arguments": ""}}]}
        )
        text = function["arguments"]
        deltas += [
            {"tool_calls": [{"index": i, "function": {"arguments": text[at : at + 4]}}]}
            for at in range(0, len(text), 4)
        ]
    content = str(message.get("content") or "")
    deltas += [{"content": content[at : at + 5]} for at in range(0, len(content), 5)]
    events = [{"index": 0, "delta": d, "finish_reason": None} for d in deltas]
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    events.append({"index": 0, "delta": {}, "finish_reason": finish})
    frames = [
        b"data: " + json.dumps({"id": "x", "choices": [e]}).encode() + b"\n\n" for e in events
    ]
    usage = {"id": "x", "choices": [], "usage": {"prompt_tokens": 100_000, "completion_tokens": 10}}
    frames += [b"data: " + json.dumps(usage).encode() + b"\n\n", b"data: [DONE]\n\n"]
    return [b"%x\r\n%s\r\n" % (len(f), f) for f in frames]


STREAMS: dict[str, bytes] = {}


class Server(asyncio.Protocol):
    """HTTP/1.1 with keep-alive; requests have a content-length, one at a time per connection."""

    latency = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = bytes(self.buffer[:end]).lower()
            length = 0
            for line in head.split(b"\r\n")[1:]:
                if line.startswith(b"content-length:"):
                    length = int(line[15:])
            if len(self.buffer) < end + 4 + length:
                return
            body = bytes(self.buffer[end + 4 : end + 4 + length])
            del self.buffer[: end + 4 + length]
            if self.latency:
                asyncio.get_running_loop().call_later(self.latency, self.answer, head, body)
            else:
                self.answer(head, body)

    def answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get "):
            self.transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}")
            return
        request = json.loads(body)
        try:
            message, _ = reply(request)
        except ValueError as error:
            data = json.dumps({"error": {"message": str(error)}}).encode()
            self.transport.write(
                b"HTTP/1.1 400 Bad\r\ncontent-length: %d\r\n\r\n%s" % (len(data), data)
            )
            return
        if not request.get("stream"):
            self.transport.write(whole(message))
            return
        self.transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: "
            b"chunked\r\n\r\n"
        )
        # Made once per answer: what is measured is the reader's time, not ours.
        key = json.dumps(message)
        if key not in STREAMS:
            STREAMS[key] = b"".join([*stream(message), b"0\r\n\r\n"])
        self.transport.write(STREAMS[key])


async def main() -> None:
    Server.latency = float(sys.argv[1]) if len(sys.argv) > 1 else 0.0
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Server, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
