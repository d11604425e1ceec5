"""Calls of tools over HTTP that are answered with plain JSON, without the library's streams.

For a client with a handshake the library answers each request with a stream of events, which is two
thirds of the time of a short call. The protocol lets a server answer with plain JSON as well, where
nothing is sent before the result. So a call begins here, with the same work as any other, and is
answered at once if it is over within `SOON`, has a result, and sent nothing before it. Otherwise
the library gets the request, as if it had just come: its handler finds the work that has begun
(`PlainCalls.take`), and streams, questions, errors, cancelling and coming back for the answer are
as they always were.

The first call of a client, and one in a while later, goes through the library: it knows whether the
session of the transport is still there, and ends one that it has not heard of for long.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from .peer import PlainPeer, RequestPeer
from .requests import ClientRequest
from .sessions import IDLE_SECONDS, MAX_CLIENTS, ClientSession

SOON = 0.25
"""Seconds after which a call goes on with a stream, so that its client may lose the connection."""
_TRUSTED_SECONDS = IDLE_SECONDS / 4
"""How long a session of the transport is taken to be there after the library has served it."""

ClientKey = tuple[str, str, str]
"""The session of the transport, tenant and user."""


@dataclass(slots=True)
class KnownClient:
    """A client that the library has served: its session here, and the peer of that request."""

    visit: ClientSession
    peer: RequestPeer
    until: float
    begun: dict[int | str, ClientRequest] = field(default_factory=dict[int | str, ClientRequest])
    """Calls that began without the library, by the id of their request."""

    def begin(self, request: PlainRequest, work: Any) -> ClientRequest:
        """Start the work of a call. Raises LimitExceeded."""
        begun = self.visit.start_request(PlainPeer(self.peer), {}, work)
        self.begun[request.id] = begun
        return begun


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A request of `tools/call` without anything that the library must see."""

    id: int | str
    name: str
    arguments: Mapping[str, Any]


class PlainCalls:
    """The clients that can be answered with plain JSON, and their calls that have begun."""

    def __init__(self) -> None:
        self._known: OrderedDict[ClientKey, KnownClient] = OrderedDict()

    def remember(self, visit: ClientSession, peer: RequestPeer) -> None:
        """Remember a client that the library serves with a session of the transport."""
        key = visit.identity.key
        if key[0] != "http" or peer.is_modern:
            return
        client = (key[1], key[2], key[3])
        known = self._known.pop(client, None)
        begun = known.begun if known is not None and known.visit is visit else {}
        until = time.monotonic() + _TRUSTED_SECONDS
        self._known[client] = KnownClient(visit, peer, until, begun)
        while len(self._known) > MAX_CLIENTS:
            self._known.popitem(last=False)

    def find(self, client: ClientKey) -> KnownClient | None:
        """Return a client, if its session of the transport is certainly there."""
        known = self._known.get(client)
        return known if known is not None and time.monotonic() < known.until else None

    def forget(self, session: str) -> None:
        """Forget a session of the transport that ended."""
        for client in [client for client in self._known if client[0] == session]:
            del self._known[client]

    def take(self, visit: ClientSession, request_id: int | str) -> ClientRequest | None:
        """Remove and return a call of a client that began without the library."""
        for known in self._known.values():
            if known.visit is visit:
                return known.begun.pop(request_id, None)
        return None


def parse_message(body: bytes) -> dict[str, Any]:
    """Return a body as the library reads it; an empty message if it is none."""
    from pydantic_core import from_json

    try:
        message = from_json(body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", message) if isinstance(message, dict) else {}


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


def find_cancelled(message: Mapping[str, Any], known: KnownClient) -> ClientRequest | None:
    """Return the call that a message cancels, if it began without the library."""
    params = message.get("params")
    if message.get("method") != "notifications/cancelled" or not isinstance(params, dict):
        return None
    return known.begun.get(cast("dict[str, Any]", params).get("requestId", ""))


def format_plain_answer(request: PlainRequest, version: str, result: Mapping[str, Any]) -> bytes:
    """Return the answer to a call, with what this version of the protocol knows of its result."""
    from mcp_types.methods import serialize_server_result

    shown = serialize_server_result("tools/call", version, dict(result))
    answer = {"jsonrpc": "2.0", "id": request.id, "result": shown}
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "backslashreplace"
    )
