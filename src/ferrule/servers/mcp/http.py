"""MCP over HTTP: one path, both versions, behind the HTTP guard (`runtime.http.http_security`).

A client with a handshake has a session of the transport (`Mcp-Session-Id`), which is its connection
here: it ends with a DELETE, or when it was idle for long. Its connection may break while a call
runs: the call continues, and what it was sent meanwhile is kept for a while (`Streams`), for when
it comes back with `Last-Event-ID`. A client without a handshake has no connection: it is who it
says it is, among those with the same token, and its call ends when it closes the stream.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any

from ferrule.runtime.http.endpoint import send_json
from ferrule.runtime.http.http_security import (
    MAX_BODY,
    Message,
    Receive,
    Scope,
    Send,
    Visitor,
    read_body,
    replay_body,
    route_path,
    send_text,
)

from .handlers import Service
from .messages import InvalidMessage, read_message
from .plain_calls import (
    SOON,
    KnownClient,
    PlainRequest,
    find_cancelled,
    format_plain_answer,
    read_plain_request,
)
from .sessions import IDLE_SECONDS, MAX_CLIENTS, ClientIdentity

PATH = "/mcp"


def endpoint_url(address: str) -> str:
    """Return where clients connect. An address may be given as they use it, with the path."""
    return f"{address.rstrip('/').removesuffix(PATH)}{PATH}"


MAX_EVENTS = 2_000
MAX_EVENT_BYTES = 16 * 1024 * 1024
RETRY = 500
"""Milliseconds after which a client whose stream was closed comes back."""
_SESSION = b"mcp-session-id"

_stream_owner: ContextVar[str] = ContextVar("ferrule_mcp_stream_owner", default="")


class EventHistory:
    """The library's `EventStore`, bounded, in memory: messages that clients may have missed.

    It serves clients with a handshake. The library keys streams by the number of a request, which
    two sessions share; here a stream also has an owner, so that nobody gets messages of another
    session.
    """

    def __init__(self) -> None:
        self._events: OrderedDict[str, tuple[str, str, Any, int]] = OrderedDict()
        self._bytes = 0

    async def store_event(self, stream_id: str, message: Any) -> str:
        """Keep a message of a stream (None marks its beginning) and return the event's id."""
        name = uuid.uuid4().hex
        size = 0 if message is None else len(message.model_dump_json())
        self._events[name] = (_stream_owner.get(), stream_id, message, size)
        self._bytes += size
        while len(self._events) > MAX_EVENTS or (
            self._bytes > MAX_EVENT_BYTES and len(self._events) > 1
        ):
            _, (_, _, _, gone) = self._events.popitem(last=False)
            self._bytes -= gone
        return name

    async def replay_events_after(
        self, last_event_id: str, send_callback: Callable[[Any], Awaitable[None]]
    ) -> str | None:
        """Send the messages after an event in its stream.

        Returns:
            The stream, or None if the event is not known to this session.
        """
        from mcp.server.streamable_http import EventMessage

        last = self._events.get(last_event_id)
        if last is None or last[0] != _stream_owner.get():
            return None
        owner = last[0]
        stream = last[1]
        after = False
        for name, (whose, which, message, _) in list(self._events.items()):
            if after and (whose, which) == (owner, stream) and message is not None:
                await send_callback(EventMessage(message, name))
            after = after or name == last_event_id
        return stream


class Endpoint:
    """The ASGI application of a server, without the HTTP guard."""

    def __init__(self, server: Any, service: Service) -> None:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        streams: Any = EventHistory()
        self._service = service
        self._owners: OrderedDict[bytes, str] = OrderedDict()
        self._sessions = StreamableHTTPSessionManager(
            server,
            event_store=streams,
            retry_interval=RETRY,
            session_idle_timeout=IDLE_SECONDS,
            max_request_body_size=MAX_BODY,
            max_sessions=MAX_CLIENTS,
        )

    def open(self) -> AbstractAsyncContextManager[None]:
        """Return the context in which requests can be served."""
        return self._sessions.run()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if route_path(scope) != PATH:
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"not found"})
            return
        given = next((value for name, value in scope["headers"] if name == _SESSION), None)
        if scope["method"] != "POST" or not _has_json(scope):
            await self._serve_by_library(scope, receive, given, send)
            return
        body = await read_body(scope, receive, MAX_BODY)
        if isinstance(body, tuple):
            await send_text(send, *body)
            return
        message = read_message(body)
        if isinstance(message, InvalidMessage):
            await send_json(send, message.encode_answer(), 400)
            return
        known = self._find_known(scope, given)
        if known is None or given is None:
            await self._serve_by_library(scope, replay_body(body, receive), given, send)
            return
        begun = await self._serve_plainly(known, message, given, send)
        if begun is not True:
            await self._serve_by_library(scope, replay_body(body, receive), given, send)
        if not isinstance(begun, bool):
            left = self._service.plain_calls.take(known.visit, begun.id)
            if left is not None:
                # The library refused the request: nobody waits for its call.
                await left.stop()

    def _find_known(self, scope: Scope, session: bytes | None) -> KnownClient | None:
        """Return the client of a request that can be answered with plain JSON; else None."""
        if session is None:
            return None
        visitor: Visitor = scope["state"]["visitor"]
        user, tenant = (visitor.user, visitor.tenant) if visitor.is_named else ("", "")
        client = "http", session.decode("latin-1"), tenant, user
        known = self._service.plain_calls.find(client)
        if known is None:
            return None
        headers = dict(scope["headers"])
        accepted = headers.get(b"accept", b"")
        is_usual = (
            b"application/json" in accepted
            and b"text/event-stream" in accepted
            and headers.get(b"mcp-protocol-version", b"") == known.peer.version.encode()
        )
        return known if is_usual else None

    async def _serve_plainly(
        self, known: KnownClient, message: Mapping[str, Any], session: bytes, send: Send
    ) -> PlainRequest | bool:
        """Answer a call with plain JSON.

        Returns:
            Whether it was answered; or the request, if its call has begun and needs the library.
        """
        plain_calls = self._service.plain_calls
        if (cancelled := plain_calls.find_begun(known.key, find_cancelled(message))) is not None:
            await cancelled.begin_stream()
            return False
        request = read_plain_request(message)
        begun = None if request is None else self._service.begin_plain_call(known, request)
        if request is None or begun is None:
            return False
        try:
            is_answered = await begun.wait_for_plain_answer(SOON)
        except asyncio.CancelledError:
            plain_calls.end(known.key, request.id)
            raise
        if not is_answered:
            plain_calls.hand_over(known.key, request.id)
            return request
        plain_calls.end(known.key, request.id)
        answer = format_plain_answer(request, known.peer.version, begun.outcome())
        await send_json(send, answer, 200, [(_SESSION, session)])
        return True

    async def _serve_by_library(
        self, scope: Scope, receive: Receive, given: bytes | None, send: Send
    ) -> None:
        owner = self._owners.get(given, "") if given is not None else uuid.uuid4().hex
        token = _stream_owner.set(owner)
        try:
            await self._sessions.handle_request(
                scope, receive, self._watch(scope, given, owner, send)
            )
        finally:
            _stream_owner.reset(token)

    def _watch(self, scope: Scope, given: bytes | None, owner: str, send: Send) -> Send:
        """Notice sessions that begin and end from the answers they get."""

        async def send_and_note_session(message: Message) -> None:
            if message["type"] == "http.response.start":
                named = next(
                    (value for name, value in message["headers"] if name.lower() == _SESSION), None
                )
                if given is None and named is not None and message["status"] < 400:
                    self._owners[named] = owner
                    while len(self._owners) > 2 * MAX_CLIENTS:
                        self._owners.popitem(last=False)
                elif given is not None and scope["method"] == "DELETE" and message["status"] < 400:
                    self._owners.pop(given, None)
                    self._service.close_connection(("http", given.decode("latin-1")))
            await send(message)

        return send_and_note_session


def _has_json(scope: Scope) -> bool:
    """Return whether a request says that its body is JSON. The library refuses all others."""
    given = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    return given.partition(b";")[0].strip() == b"application/json"


def identify_client(context: Any) -> ClientIdentity | None:
    """Return the client of a request over HTTP (`handlers.Service.connection`)."""
    request = context.request
    if request is None:
        return None
    visitor: Visitor = request.state.visitor
    known = visitor.is_named
    user, tenant = (visitor.user, visitor.tenant) if known else ("", "")
    session = request.headers.get("mcp-session-id", "")
    if session and context.session.protocol_version not in _modern_versions():
        return ClientIdentity(("http", session, tenant, user), user, tenant)
    return ClientIdentity(("http without sessions", tenant, user), user, tenant, is_exclusive=known)


def _modern_versions() -> Any:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    return MODERN_PROTOCOL_VERSIONS
