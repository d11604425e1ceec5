"""One message to a peer and its outcome: streamed if the peer streams, polled if it does not.

A stream that ends before the task does is not its end: the task is polled until it is settled.
Between two polls `POLL_SECONDS` pass, growing; the caller bounds the whole time. When the caller is
cancelled, or gives up, the task is cancelled at the peer, by a request of its own that nobody waits
for longer than `CANCEL_SECONDS`.

The protocol library speaks the protocol (JSON-RPC or its HTTP form, of 1.0 or 0.3). What it returns
is turned into JSON at once: nothing of ours depends on its types.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from .http import is_connection_error
from .task_state import TaskState

POLL_SECONDS = (0.25, 5.0)
CANCEL_SECONDS = 5.0
MAX_EVENTS = 20_000
_HISTORY_LENGTH = 2
_ID = re.compile(r"[A-Za-z0-9_.:~@+=-]{1,200}")
"""Ids of tasks are part of URLs in the HTTP form, so one that could lead elsewhere is invalid."""


class InvalidAnswer(Exception):
    """The peer's answer violates the protocol, or is larger than is accepted.

    The message begins with "it".
    """


@dataclass(slots=True)
class Exchange:
    """One call of one peer.

    `client` is the protocol library's, made for a card whose addresses were checked.
    """

    client: Any
    supports_streaming: bool
    progress: Callable[[str], None]
    task: TaskState = field(default_factory=TaskState)

    async def run(self, message: Mapping[str, Any]) -> TaskState:
        """Send a message and follow the task until it is settled.

        Raises:
            InvalidAnswer: The answer violates the protocol. Errors of the library are raised as
                they are.
        """
        request = _request(
            "SendMessageRequest",
            {"message": message, "configuration": {"historyLength": _HISTORY_LENGTH}},
        )
        try:
            await self._stream(request)
            if not self.task.is_settled:
                await self._poll()
        except ValueError as error:
            # From `Work`. The library's own errors have other types, except for a card without
            # addresses.
            raise InvalidAnswer(str(error)) from error
        return self.task

    async def _stream(self, request: Any) -> None:
        try:
            await self._read_events(request)
        except Exception as error:
            # The connection is lost, the task is not: it is polled, and nothing is sent twice.
            if not (self.task.task_id and is_connection_error(error)):
                raise

    async def _read_events(self, request: Any) -> None:
        count = 0
        async with aclosing(_events(self.client, request)) as events:
            async for event in events:
                count += 1
                if count > MAX_EVENTS:
                    raise InvalidAnswer(f"it sent more than {MAX_EVENTS} events")
                self._apply(event)
                if self.task.is_settled:
                    return

    async def _poll(self) -> None:
        """Poll the task until it is settled."""
        if not self.task.task_id:
            raise InvalidAnswer("it ended its stream without an answer")
        pause = POLL_SECONDS[0]
        while True:
            task = await self.client.get_task(
                _request(
                    "GetTaskRequest", {"id": self.task.task_id, "historyLength": _HISTORY_LENGTH}
                )
            )
            self._apply({"task": _json(task)})
            if self.task.is_settled:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, POLL_SECONDS[1])

    def _apply(self, event: Mapping[str, Any]) -> None:
        shown = self.task.apply_event(event)
        if self.task.task_id and not _ID.fullmatch(self.task.task_id):
            self.task.task_id = ""
            raise InvalidAnswer("its task has an unusable id")
        if shown:
            self.progress(shown)

    async def cancel(self) -> None:
        """Cancel the task at the peer. Bounded; raises what the library raises."""
        if self.task.can_cancel:
            async with asyncio.timeout(CANCEL_SECONDS):
                await self.client.cancel_task(
                    _request("CancelTaskRequest", {"id": self.task.task_id})
                )


def make_client(card: Mapping[str, Any], http: Any, *, supports_streaming: bool) -> Any:
    """Return a client of the protocol library for a card.

    Raises:
        ValueError: The card offers no transport that we speak.
    """
    from a2a.client import ClientConfig, ClientFactory

    config = ClientConfig(
        streaming=supports_streaming,
        polling=not supports_streaming,
        httpx_client=http,
        supported_protocol_bindings=["JSONRPC", "HTTP+JSON"],
    )
    return ClientFactory(config).create(to_library_card(card))


def to_library_card(card: Mapping[str, Any]) -> Any:
    """Return a card of the current protocol as the library's value. Raises its ParseError."""
    from a2a.types import AgentCard
    from a2a.utils.proto_utils import parse_lenient

    return parse_lenient(dict(card), AgentCard())


def parse_card(card: dict[str, Any]) -> Any:
    """Return a card as a peer sent it, of any version, as the library's value.

    Changes `card`. Raises the library's ParseError.
    """
    from a2a.client.card_resolver import parse_agent_card

    return parse_agent_card(card)


def to_json(value: Any) -> dict[str, Any]:
    """Return a value of the library as JSON."""
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
