"""Updates on their way to the editor: in order, without delaying the run.

A run appends and continues. Waiting pieces of one message are joined, so a slow reader gets fewer
and longer ones; what waits is never more than what the run said. Before a question and before an
answer, everything earlier has been written (`drain`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Update = dict[str, Any]
"""One `session/update` in the protocol's JSON."""

_PIECES = ("agent_message_chunk", "agent_thought_chunk", "user_message_chunk")


class Outbox:
    """The updates of one session. `send` writes an update and returns once it is written."""

    def __init__(self, send: Callable[[Mapping[str, Any]], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: deque[Update] = deque()
        self._empty = asyncio.Event()
        self._empty.set()
        self._sender: asyncio.Task[None] | None = None

    def put(self, update: Update) -> None:
        """Append an update. Called from the run itself; fast, and never raises."""
        if self._waiting and _can_join(self._waiting[-1], update):
            self._waiting[-1] = _join(self._waiting[-1], update)
            return
        self._waiting.append(update)
        self._empty.clear()
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_waiting(), name="acp updates")

    async def drain(self) -> None:
        """Wait until everything so far is written, or the editor is gone."""
        await self._empty.wait()

    async def _send_waiting(self) -> None:
        try:
            while self._waiting:
                await self._send(self._waiting.popleft())
        except ConnectionError:
            # The editor is gone. The journal has what it would have been sent.
            self._waiting.clear()
        finally:
            self._empty.set()


def _can_join(last: Update, update: Update) -> bool:
    return (
        update["sessionUpdate"] in _PIECES
        and update["sessionUpdate"] == last["sessionUpdate"]
        and update.get("messageId") == last.get("messageId")
    )


def _join(last: Update, update: Update) -> Update:
    text = last["content"]["text"] + update["content"]["text"]
    return {**last, "content": {"type": "text", "text": text}}
