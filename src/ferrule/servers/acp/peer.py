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

from ferrule.connectors.json_values import mapping_of
from ferrule.core.errors import FerruleError

from .streams import Streams

INTERNAL = -32603
AT_ONCE = 256
"""Requests in progress at a time; reading waits until one is done."""
PARTING = 5.0
"""Seconds that answers have to be sent at the end."""


class Refused(Exception):
    """A request that is answered with an error. `str` says why."""

    def __init__(self, code: int, why: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.data = data

    def shown(self) -> dict[str, Any]:
        """Return the error object of JSON-RPC."""
        shape: dict[str, Any] = {"code": self.code, "message": str(self)}
        return shape if self.data is None else {**shape, "data": dict(self.data)}


class OtherRefused(FerruleError):
    """The other side answered a request with an error."""

    code = "peer_refused"


class Peer:
    """One connection.

    `handle(method, params)` returns the result of a request; it may raise Refused.
    """

    def __init__(self, streams: Streams, handle: Callable[[str, Any], Awaitable[Any]]) -> None:
        self._streams = streams
        self._handle = handle
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._working: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._over = False

    async def listen(self) -> None:
        """Take messages until the other side is gone.

        Afterwards `ask` and `tell` raise ConnectionError.
        """
        try:
            while (message := await self._streams.receive()) is not None:
                await self._take(message)
        finally:
            self._over = True
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(ConnectionError("the other side is gone"))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        """Send a request and wait for its result. Raises OtherRefused, ConnectionError."""
        self._number += 1
        number = self._number
        future = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"id": number, "method": method, "params": params})
            return await future
        finally:
            del self._asked[number]

    async def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification; returns once it is written. Raises ConnectionError."""
        await self._send({"method": method, "params": params})

    async def close(self) -> None:
        """Send the answers that are ready, cancel the rest and close the streams.

        Callers end their own work first.
        """
        if self._working and not self._over:
            await asyncio.wait(self._working, timeout=PARTING)
        self._over = True
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)
        await self._streams.close()

    async def _send(self, message: dict[str, Any]) -> None:
        if self._over:
            raise ConnectionError("the other side is gone")
        await self._streams.send({"jsonrpc": "2.0", **message})

    async def _take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        number = message.get("id")
        if method is None:
            self._answered(number, message)
            return
        asks = "id" in message
        if asks:
            await self._room.acquire()
        work = self._answer(number, method, message.get("params"), asks)
        task = asyncio.create_task(work, name=f"acp {method[:40]}")
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    def _answered(self, number: object, message: Mapping[str, Any]) -> None:
        future = self._asked.get(number) if type(number) is int else None
        if future is None or future.done():
            return  # There was no such request, or no one waits for its answer.
        if "error" in message:
            said = str(mapping_of(message["error"]).get("message") or "no reason given")
            future.set_exception(OtherRefused(f"the editor answered with an error: {said[:500]}"))
        else:
            future.set_result(message.get("result"))

    async def _answer(self, number: Any, method: str, params: Any, asks: bool) -> None:
        try:
            answer = await self._result(method, params)
            if asks and not self._over:
                await self._streams.send({"jsonrpc": "2.0", "id": number, **answer})
        finally:
            if asks:
                self._room.release()

    async def _result(self, method: str, params: Any) -> dict[str, Any]:
        try:
            return {"result": await self._handle(method, params)}
        except Refused as refused:
            return {"error": refused.shown()}
        except Exception as error:  # noqa: BLE001  boundary: a defect is reported to the editor and must not end its connection
            said = f"a defect in Ferrule: {type(error).__name__}: {error}"
            sys.stderr.write(f"{method}: {said}\n")
            return {"error": {"code": INTERNAL, "message": said}}
