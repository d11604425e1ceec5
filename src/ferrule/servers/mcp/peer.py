"""The client behind one request: what it supports, and how to reach it.

`RequestPeer` reaches it through the library, `PlainPeer` has no stream yet (`plain_calls`).

The two versions of the protocol differ here and nowhere else. With a handshake (up to 2025-11-25) a
server may send requests of its own while it works; without one (2026-07-28) it may not: it answers
with its questions, and the client comes again (`requests`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any

from ferrule.connectors.text_cleaning import clean_text
from ferrule.core.errors import FerruleError

ANSWER_SECONDS = 300.0
"""How long a client has to answer a question."""
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_WAITING = 256
"""Notifications that wait for a client that does not read; later ones are dropped."""
_NAME = 64
_LOG_LEVEL = "io.modelcontextprotocol/logLevel"
_QUESTIONS = {
    "elicitation/create": ("elicitation", "ElicitRequest", "ElicitResult"),
    "sampling/createMessage": ("sampling", "CreateMessageRequest", "CreateMessageResult"),
    "roots/list": ("roots", "ListRootsRequest", "ListRootsResult"),
}


class NoAnswer(FerruleError):
    """A client that was asked did not answer, or not with an answer to this question."""

    code = "mcp_no_answer"


def capability_of(question: Mapping[str, Any]) -> str:
    """Return the capability a client needs to be asked this."""
    return _QUESTIONS[str(question["method"])][0]


class RequestPeer:
    """The client of one request. `context` is the protocol library's `ServerRequestContext`."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._session = context.session
        versions = import_module("mcp_types.version").MODERN_PROTOCOL_VERSIONS
        self.is_modern: bool = context.protocol_version in versions
        self.version = str(context.protocol_version)
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Callable[[], Awaitable[None]]] = asyncio.Queue()
        self._pump: asyncio.Task[None] | None = None
        self._steps = 0
        self._is_deaf = False

    @property
    def name(self) -> str:
        """The client's name for itself, without invisible characters. Nobody checked it."""
        return client_name(self._session.client_params)

    @property
    def outlet(self) -> Any:
        """What notifications beyond this request are sent with."""
        return self._session

    def can(self, capability: str) -> bool:
        """Return whether the client supports `elicitation` (with a form), `sampling` or `roots`."""
        found = getattr(self._session.client_capabilities, capability, None)
        if capability == "elicitation" and found is not None:
            return found.form is not None or found.url is None
        return found is not None

    # ---- notifications, in order

    def progress(self, said: str) -> None:
        """Send a progress line, to clients that asked for progress. From any thread."""
        self._steps += 1
        step = float(self._steps)
        self._post(lambda: self._session.report_progress(step, None, said))

    def log(self, level: str, said: str, least: str) -> None:
        """Send a line to the client's log, if it wants lines of this level. From any thread."""
        meta: dict[str, Any] = self._context.meta or {}
        wanted = str(meta.get(_LOG_LEVEL, "")) if self.is_modern else least
        if wanted not in LEVELS or LEVELS.index(level) < LEVELS.index(wanted):
            return
        types = import_module("mcp_types")
        params = types.LoggingMessageNotificationParams(level=level, data=said, logger="ferrule")
        note = types.LoggingMessageNotification(params=params)
        self._post(
            lambda: self._session.send_notification(
                note, related_request_id=self._context.request_id
            )
        )

    async def drain(self) -> None:
        """Wait until every notification so far was sent: none may come after the answer."""
        await asyncio.sleep(0)
        await self._queue.join()

    def _post(self, send: Callable[[], Awaitable[None]]) -> None:
        self._loop.call_soon_threadsafe(self._enqueue, send)

    def _enqueue(self, send: Callable[[], Awaitable[None]]) -> None:
        if self._is_deaf or self._queue.qsize() >= _WAITING:
            return
        self._queue.put_nowait(send)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._send_queued(), name="mcp notifications")

    async def _send_queued(self) -> None:
        while not self._queue.empty():
            send = self._queue.get_nowait()
            try:
                if not self._is_deaf:
                    await send()
            except Exception:  # noqa: BLE001  boundary: a client that refuses notifications gets no more; its call continues
                self._is_deaf = True
            finally:
                self._queue.task_done()

    def disconnect(self) -> None:
        """Drop the notifications that wait for a client that is gone."""
        self._is_deaf = True
        if self._pump is not None:
            self._pump.cancel()

    # ---- questions, where the protocol lets a server ask

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the client's answer, as JSON. Raises NoAnswer."""
        types = import_module("mcp_types")
        _, request, result = _QUESTIONS[str(question["method"])]
        metadata = import_module("mcp.shared.message").ServerMessageMetadata(
            related_request_id=self._context.request_id
        )
        try:
            answer = await self._session.send_request(
                getattr(types, request).model_validate(dict(question), by_name=False),
                getattr(types, result),
                request_read_timeout_seconds=ANSWER_SECONDS,
                metadata=metadata,
            )
        except (import_module("mcp.shared.exceptions").MCPError, ValueError, TimeoutError) as error:
            raise NoAnswer(
                f"the client did not answer: {clean_text(str(error))[:300]}", code=NoAnswer.code
            ) from error
        return answer.model_dump(by_alias=True, mode="json", exclude_none=True)

    async def release(self) -> bool:
        """Close the stream of this request; the client comes back for the answer.

        Returns False if it could not be closed.
        """
        if self._context.close_sse_stream is None:
            return False
        await self.drain()
        await self._context.close_sse_stream()
        return True


class PlainPeer:
    """The client of a call that is answered with plain JSON, as long as nothing else is sent to it.

    What is sent before the answer needs the library's stream: it waits here until `hand_over` gives
    the peer that has one. `connection` is the peer of an earlier request of the same client.
    """

    is_modern = False

    def __init__(self, connection: RequestPeer) -> None:
        self.version = connection.version
        self.on_needed: Callable[[], object] = lambda: None
        """Called when the stream is needed."""
        self.needs_stream = False
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._full: asyncio.Future[RequestPeer] = self._loop.create_future()
        self._held: list[Callable[[RequestPeer], None]] = []

    def can(self, capability: str) -> bool:
        """Return whether the client supports `elicitation` (with a form), `sampling` or `roots`."""
        return self._connection.can(capability)

    def progress(self, said: str) -> None:
        """Do nothing: a client that asked for progress is never answered with plain JSON."""

    def log(self, level: str, said: str, least: str) -> None:
        """Send a line to the client's log, if it wants lines of this level. From any thread."""
        if least in LEVELS and LEVELS.index(level) >= LEVELS.index(least):

            def send(peer: RequestPeer) -> None:
                peer.log(level, said, least)

            self._loop.call_soon_threadsafe(self._hold, send)

    async def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the client's answer, as JSON. Raises NoAnswer."""
        return await (await self.reach()).ask(question)

    async def release(self) -> bool:
        """Close the stream of this request; the client comes back for the answer."""
        return await (await self.reach()).release()

    async def reach(self) -> RequestPeer:
        """Return the peer that has a stream, as soon as there is one."""
        self._need()
        return await asyncio.shield(self._full)

    def hand_over(self, peer: RequestPeer) -> None:
        """Let a peer with a stream take this one's place."""
        if not self._full.done():
            self._full.set_result(peer)
        for send in self._held:
            send(peer)
        self._held.clear()

    async def drain(self) -> None:
        """Do nothing: a peer with a stream sends what is held."""

    def disconnect(self) -> None:
        """Drop what is held for a client that is gone."""
        self._held.clear()

    def _hold(self, send: Callable[[RequestPeer], None]) -> None:
        if self._full.done():
            send(self._full.result())
        elif len(self._held) < _WAITING:
            self._held.append(send)
            self._need()

    def _need(self) -> None:
        self.needs_stream = True
        self.on_needed()


Peer = RequestPeer | PlainPeer


def client_name(params: Any) -> str:
    """Return a client's name for itself, restricted to safe characters and never empty."""
    said = clean_text(params.client_info.name if params is not None else "")
    kept = "".join(one if one.isalnum() or one in " ._-/@" else "_" for one in said)
    return " ".join(kept.split())[:_NAME].strip() or "unknown"
