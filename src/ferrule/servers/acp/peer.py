"""JSON-RPC 2.0 between two who may both ask: requests and answers matched by id, over `streams`.

Not the protocol library's connection: importing that package costs more than everything else that
starts here, its reading of lines ends at the first that is no object, and its models pass over what
they cannot read. It is the oracle of the tests instead: whatever is written here is read by its
client and its types.

Messages are begun in the order in which they came, each in a task of its own, so that a
notification finds begun what was asked before it; answers go out as they get done. Whatever breaks
in a request is an error for that request.
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
"""Requests that are being worked on; reading waits for room."""
PARTING = 5.0
"""Seconds that answers have to get out at the end."""


class Refused(Exception):
    """A request that is answered with an error. `str` says why."""

    def __init__(self, code: int, why: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(why)
        self.code = code
        self.data = data

    def shown(self) -> dict[str, Any]:
        """In JSON-RPC's form."""
        shape: dict[str, Any] = {"code": self.code, "message": str(self)}
        return shape if self.data is None else {**shape, "data": dict(self.data)}


class OtherRefused(FerruleError):
    """The other side answered a request with an error."""

    code = "peer_refused"


class Peer:
    """One connection. `handle(method, params)` gives the result of a request; it may raise
    Refused.
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
        """Take messages until the other side is gone; from then on asking and telling raise
        ConnectionError.
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
        """Send a notification; returns when it is written. Raises ConnectionError."""
        await self._send({"method": method, "params": params})

    async def close(self) -> None:
        """Let the answers out that are ready, give up the rest, and the streams. Whoever has work
        under way ends it before.
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
        method, number = message.get("method"), message.get("id")
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
            return  # Nobody asked, or nobody waits for it any more.
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
        except Exception as error:  # noqa: BLE001  boundary: a defect must not cost the editor its connection; it is told
            said = f"a defect in Ferrule: {type(error).__name__}: {error}"
            sys.stderr.write(f"{method}: {said}\n")
            return {"error": {"code": INTERNAL, "message": said}}
