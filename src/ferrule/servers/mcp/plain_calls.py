"""Calls of tools that begin, and mostly end, without the library.

The library's way from a message to a handler and back is two thirds of the time of a short call:
over HTTP it answers each request of a client with a handshake with a stream of events, over
standard streams it passes each message through three tasks. The protocol asks for neither where
nothing is sent before the result. So a call begins here, with the same work as any other, and is
answered at once if it has a result and sent nothing before it. Otherwise the library gets the
request, as if it had just come (`PlainCalls.hand_over`): its handler finds the work that has begun
(`PlainCalls.take`), and streams, questions, errors, cancelling and coming back for the answer are
as they always were.

The first call of a client goes through the library, and over HTTP one in a while later: it knows
whether the session of the transport is still there, and ends one that it has not heard of for long.
"""

from __future__ import annotations

import json
import math
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from .peer import PlainPeer, RequestPeer
from .requests import ClientRequest
from .sessions import IDLE_SECONDS, MAX_CLIENTS, ClientSession

SOON = 0.25
"""Seconds after which a call over HTTP goes on with a stream, so that its client may lose the
connection.
"""
_TRUSTED_SECONDS = {"http": IDLE_SECONDS / 4, "stdio": math.inf}
"""How long a connection is taken to be there after the library has served it, by its kind."""

ClientKey = tuple[str, ...]
"""A connection: the key of its client's identity, without the name that the client says."""


@dataclass(frozen=True, slots=True)
class KnownClient:
    """A client that the library has served: its session here, and the peer of that request."""

    visit: ClientSession
    peer: RequestPeer
    until: float

    @property
    def key(self) -> ClientKey:
        """Which connection it is."""
        return _key_of(self.visit)


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A request of `tools/call` without anything that the library must see."""

    id: int | str
    name: str
    arguments: Mapping[str, Any]


class PlainCalls:
    """The clients whose calls can begin without the library, and those calls."""

    def __init__(self) -> None:
        self._known: OrderedDict[ClientKey, KnownClient] = OrderedDict()
        self._begun: dict[tuple[ClientKey, int | str], ClientRequest] = {}
        self._handed_over: dict[tuple[ClientKey, int | str], ClientRequest] = {}

    def remember(self, visit: ClientSession, peer: RequestPeer) -> None:
        """Remember a client with a handshake that the library serves on a connection of its own."""
        trusted = _TRUSTED_SECONDS.get(visit.identity.key[0])
        if trusted is None or peer.is_modern:
            return
        client = _key_of(visit)
        self._known.pop(client, None)
        self._known[client] = KnownClient(visit, peer, time.monotonic() + trusted)
        while len(self._known) > MAX_CLIENTS:
            self._known.popitem(last=False)

    def find(self, client: ClientKey) -> KnownClient | None:
        """Return a client, if its connection is certainly there."""
        known = self._known.get(client)
        return known if known is not None and time.monotonic() < known.until else None

    def forget(self, client: ClientKey) -> None:
        """Forget the clients of a connection that ended; `client` may be the start of their key."""
        for key in [key for key in self._known if key[: len(client)] == client]:
            del self._known[key]

    def begin(self, known: KnownClient, request: PlainRequest, work: Any) -> ClientRequest | None:
        """Start the work of a call. None if its id is in use. Raises LimitExceeded."""
        key = known.key, request.id
        if key in self._begun or key in self._handed_over:
            return None
        begun = known.visit.start_request(PlainPeer(known.peer), {}, work)
        self._begun[key] = begun
        return begun

    def find_begun(self, client: ClientKey, request_id: int | str) -> ClientRequest | None:
        """Return a call that the library has not taken yet."""
        key = client, request_id
        return self._begun.get(key) or self._handed_over.get(key)

    def end(self, client: ClientKey, request_id: int | str) -> ClientRequest | None:
        """Remove and return a call, unless it was handed over."""
        return self._begun.pop((client, request_id), None)

    def hand_over(self, client: ClientKey, request_id: int | str) -> bool:
        """Leave a call to the library, which must get its request now. False: it has it already."""
        begun = self._begun.pop((client, request_id), None)
        if begun is None:
            return False
        self._handed_over[client, request_id] = begun
        return True

    def take(self, visit: ClientSession, request_id: int | str) -> ClientRequest | None:
        """Remove and return a call that was handed over."""
        return self._handed_over.pop((_key_of(visit), request_id), None)


def _key_of(visit: ClientSession) -> ClientKey:
    return visit.identity.key[:-1]


def read_plain_request(message: Mapping[str, Any]) -> PlainRequest | None:
    """Return a message as a call; None if it is anything else, or the library must see it."""
    params = message.get("params")
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return None
    given = cast("dict[str, Any]", params)
    has_more = set(message) != {"jsonrpc", "id", "method", "params"} or given.get("_meta")
    if message.get("jsonrpc") != "2.0" or has_more or set(given) - {"name", "arguments", "_meta"}:
        return None
    request_id = message["id"]
    name = given.get("name")
    arguments = given.get("arguments", {})
    if type(request_id) not in (int, str) or type(name) is not str or type(arguments) is not dict:
        return None
    return PlainRequest(request_id, name, cast("dict[str, Any]", arguments))


def find_cancelled(message: Mapping[str, Any]) -> int | str:
    """Return the id of the call that a message cancels; "" if it cancels none."""
    params = message.get("params")
    if message.get("method") != "notifications/cancelled" or not isinstance(params, dict):
        return ""
    found: Any = cast("dict[str, Any]", params).get("requestId")
    return found if type(found) in (int, str) else ""


def format_plain_answer(request: PlainRequest, version: str, result: Mapping[str, Any]) -> bytes:
    """Return the answer to a call, with what this version of the protocol knows of its result."""
    from mcp_types.methods import serialize_server_result

    shown = serialize_server_result("tools/call", version, dict(result))
    return _encode_answer(request.id, {"result": shown})


def format_closed(request_id: int | str) -> bytes:
    """Return the answer to a call that ends with its connection, as the library gives it."""
    from mcp_types import CONNECTION_CLOSED

    return _encode_answer(
        request_id, {"error": {"code": CONNECTION_CLOSED, "message": "Connection closed"}}
    )


def _encode_answer(request_id: int | str, answer: Mapping[str, Any]) -> bytes:
    message = {"jsonrpc": "2.0", "id": request_id, **answer}
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )
