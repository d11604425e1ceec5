"""One message to a peer and what comes of it: streamed where the peer streams, asked for again and
again where it does not.

A stream that ends before the task does is no end: the task is asked for until it is settled.
Between two looks pass `PAUSES` seconds, growing; how long all of it may take is the caller's bound.
When the caller is cancelled, or gives up, the task is cancelled at the peer, by a request of its
own that nobody waits for longer than `FAREWELL` seconds.

The protocol library speaks the wire (JSON-RPC or its HTTP form, of 1.0 or 0.3). What it hands over
is turned into JSON at once: nothing of ours depends on its types.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from .http import broke
from .task_state import Work

PAUSES = (0.25, 5.0)
FAREWELL = 5.0
MAX_EVENTS = 20_000
_HISTORY = 2
_ID = re.compile(r"[A-Za-z0-9_.:~@+=-]{1,200}")
"""Ids of tasks stand in addresses of the HTTP form: what could lead elsewhere is none."""


class Unusable(Exception):
    """What the peer answered is not of the protocol, or more than is taken. `str` says what,
    beginning with "it".
    """


@dataclass(slots=True)
class Exchange:
    """The way to one peer for one call. `client` is the protocol library's, made for a card whose
    addresses were looked at.
    """

    client: Any
    streams: bool
    progress: Callable[[str], None]
    work: Work = field(default_factory=Work)

    async def run(self, message: Mapping[str, Any]) -> Work:
        """Send a message and follow what comes of it until it is settled. Raises Unusable, and what
        the library raises.
        """
        request = _request(
            "SendMessageRequest", {"message": message, "configuration": {"historyLength": _HISTORY}}
        )
        try:
            await self._streamed(request)
            if not self.work.settled:
                await self._followed()
        except ValueError as error:
            # Of the folding. The library's own are of other kinds, but for a card without
            # addresses.
            raise Unusable(str(error)) from error
        return self.work

    async def _streamed(self, request: Any) -> None:
        try:
            await self._sent(request)
        except Exception as error:
            # The connection is lost, the task is not: it is asked for, and nothing is sent twice.
            if not (self.work.task_id and broke(error)):
                raise

    async def _sent(self, request: Any) -> None:
        count = 0
        async with aclosing(_events(self.client, request)) as events:
            async for event in events:
                count += 1
                if count > MAX_EVENTS:
                    raise Unusable(f"it sent more than {MAX_EVENTS} events")
                self._learn(event)
                if self.work.settled:
                    return

    async def _followed(self) -> None:
        """Ask for the task until it is settled."""
        if not self.work.task_id:
            raise Unusable("it ended its answer without one")
        pause = PAUSES[0]
        while True:
            task = await self.client.get_task(
                _request("GetTaskRequest", {"id": self.work.task_id, "historyLength": _HISTORY})
            )
            self._learn({"task": _json(task)})
            if self.work.settled:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, PAUSES[1])

    def _learn(self, event: Mapping[str, Any]) -> None:
        shown = self.work.take(event)
        if self.work.task_id and not _ID.fullmatch(self.work.task_id):
            self.work.task_id = ""
            raise Unusable("its task has an id that cannot be used")
        if shown:
            self.progress(shown)

    async def cancel(self) -> None:
        """Tell the peer that nobody waits for its task any more. Bounded; raises what the library
        raises.
        """
        if self.work.runs:
            async with asyncio.timeout(FAREWELL):
                await self.client.cancel_task(
                    _request("CancelTaskRequest", {"id": self.work.task_id})
                )


def client_of(card: Mapping[str, Any], http: Any, *, streams: bool) -> Any:
    """A client of the protocol library for a card. Raises ValueError where the card offers no way
    that we speak.
    """
    from a2a.client import ClientConfig, ClientFactory

    config = ClientConfig(
        streaming=streams,
        polling=not streams,
        httpx_client=http,
        supported_protocol_bindings=["JSONRPC", "HTTP+JSON"],
    )
    return ClientFactory(config).create(card_value(card))


def card_value(card: Mapping[str, Any]) -> Any:
    """A card in the shape of the current protocol as the library's value. Raises its ParseError."""
    from a2a.types import AgentCard
    from a2a.utils.proto_utils import parse_lenient

    return parse_lenient(dict(card), AgentCard())


def parsed(said: dict[str, Any]) -> Any:
    """A card as a peer sent it, of whatever version, as the library's value. Changes `said`. Raises
    its ParseError.
    """
    from a2a.client.card_resolver import parse_agent_card

    return parse_agent_card(said)


def json_of(value: Any) -> dict[str, Any]:
    """A value of the library as JSON."""
    return _json(value)


async def _events(client: Any, request: Any) -> AsyncGenerator[Mapping[str, Any]]:
    stream = client.send_message(request)
    async with aclosing(stream):
        async for event in stream:
            yield _json(event)


def _request(kind: str, value: Mapping[str, Any]) -> Any:
    from a2a import types
    from a2a.utils.proto_utils import parse_lenient

    return parse_lenient(dict(value), getattr(types, kind)())


def _json(value: Any) -> dict[str, Any]:
    from google.protobuf.json_format import MessageToDict

    return MessageToDict(value)  # pyright: ignore[reportUnknownVariableType]  it has no types
