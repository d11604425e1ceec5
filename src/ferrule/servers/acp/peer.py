"""JSON-RPC 2.0 between two sides that both send requests, over `streams`.

This does not use the protocol library's connection: importing that package costs more than
everything else that starts here, it stops reading at the first line that is no object, and its
models ignore what they cannot read. The tests use it instead: whatever is written here is read by
its client and its types.

Messages are started in the order in which they arrive, each in its own task, so that a notification
finds earlier requests started; answers are sent as they get done. Any failure in a request is an
error answer to that request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ferrule.connectors.json_values import mapping_or_empty
from ferrule.core.errors import FerruleError
from ferrule.core.extras import describe_missing

from .streams import MessageStreams

INTERNAL = -32603
MAX_REQUESTS = 256
"""Requests in progress at a time; reading waits until one is done."""
CLOSE_SECONDS = 5.0
"""Seconds that answers have to be sent at the end."""


class RequestRefused(Exception):
    """A request that is answered with an error. `str` says why."""

    def __init__(self, code: int, why: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.data = data

    def to_json(self) -> dict[str, Any]:
        """Return the error object of JSON-RPC."""
        shape: dict[str, Any] = {"code": self.code, "message": str(self)}
        return shape if self.data is None else {**shape, "data": dict(self.data)}


class PeerError(FerruleError):
    """The other side answered a request with an error."""

    code = "peer_refused"


class Peer:
    """One connection.

    `handle(method, params)` returns the result of a request; it may raise Refused.
    """

    def __init__(
        self, streams: MessageStreams, handle: Callable[[str, Any], Awaitable[Any]]
    ) -> None:
        self._streams = streams
        self._handle = handle
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MAX_REQUESTS)
        self._is_closed = False

    async def listen(self) -> None:
        """Take messages until the other side is gone.

        Afterwards `request` and `notify` raise ConnectionError.
        """
        try:
            while (message := await self._streams.receive()) is not None:
                await self._take(message)
        finally:
            self._is_closed = True
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(ConnectionError("the other side is gone"))

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request and wait for its result. Raises PeerError, ConnectionError."""
        self._number += 1
        number = self._number
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await future
        finally:
            del self._pending[number]

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; returns once it is written. Raises ConnectionError."""
        await self._send({"method": method, "params": params})

    async def close(self) -> None:
        """Send the answers that are ready, cancel the rest and close the streams.

        Callers end their own work first.
        """
        if self._tasks and not self._is_closed:
            await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._streams.close()

    async def _send(self, message: dict[str, Any]) -> None:
        if self._is_closed:
            raise ConnectionError("the other side is gone")
        await self._streams.send({"jsonrpc": "2.0", **message})

    async def _take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        number = message.get("id")
        if method is None:
            self._take_answer(number, message)
            return
        asks = "id" in message
        if asks:
            await self._slots.acquire()
        work = self._answer(number, method, message.get("params"), asks)
        task = asyncio.create_task(work, name=f"acp {method[:40]}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_answer(self, number: object, message: Mapping[str, Any]) -> None:
        future = self._pending.get(number) if type(number) is int else None
        if future is None or future.done():
            return  # There was no such request, or no one waits for its answer.
        if "error" in message:
            said = str(mapping_or_empty(message["error"]).get("message") or "no reason given")
            future.set_exception(PeerError(f"the editor answered with an error: {said[:500]}"))
        else:
            future.set_result(message.get("result"))

    async def _answer(self, number: Any, method: str, params: Any, asks: bool) -> None:
        try:
            answer = await self._result(method, params)
            if asks and not self._is_closed:
                await self._streams.send({"jsonrpc": "2.0", "id": number, **answer})
        finally:
            if asks:
                self._slots.release()

    async def _result(self, method: str, params: Any) -> dict[str, Any]:
        try:
            return {"result": await self._handle(method, params)}
        except RequestRefused as refused:
            return {"error": refused.to_json()}
        except Exception as error:  # noqa: BLE001  boundary: a defect is reported to the editor and must not end its connection
            known = describe_missing(error)
            said = str(known or f"a defect in Ferrule: {type(error).__name__}: {error}")
            sys.stderr.write(f"{method}: {said}\n")
            return {"error": {"code": INTERNAL, "message": said}}
