"""A server of the newer protocol over plain HTTP, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferrule.testing.http_double import Reply, Request

VERSION = "2026-07-28"
ECHO = {
    "name": "echo",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
READS = {**ECHO, "name": "look", "annotations": {"readOnlyHint": True}}
Answer = Callable[[dict[str, Any]], Reply | None]


class Server:
    """A server of the newer protocol over plain HTTP. `answer` may reply to `tools/call` in its own
    way.
    """

    def __init__(self, answer: Answer = lambda message: None) -> None:
        self.answer = answer
        self.calls = 0

    def __call__(self, request: Request) -> Reply:
        message = request.json()
        result: dict[str, Any] = {"resultType": "complete"}
        match message.get("method"):
            case "server/discover":
                result |= {
                    "supportedVersions": [VERSION],
                    "capabilities": {"tools": {}},
                    "ttlMs": 0,
                    "cacheScope": "private",
                }
            case "tools/list":
                result |= {"tools": [ECHO, READS], "ttlMs": 0, "cacheScope": "private"}
            case "tools/call":
                self.calls += 1
                if (own := self.answer(message)) is not None:
                    return own
                result["content"] = [{"type": "text", "text": "hello"}]
            case _:
                return Reply(status=404)
        return Reply(json={"jsonrpc": "2.0", "id": message["id"], "result": result})
