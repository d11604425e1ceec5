"""Serve one editor: run its connection, and end everything when it goes.

When the editor closes the streams, dies, or tells this process to end, every run is cancelled and
settled: programs end with everything they started, and the journal can be resumed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from .agent import AcpAgent
from .outbox import Update
from .peer import Peer
from .streams import claim_standard_streams, connect_streams


async def serve(options: Mapping[str, Any]) -> int:
    """Serve the editor at our standard streams until it is gone. Returns the exit code.

    Raises:
        ConfigError: the standard streams cannot be used.
    """
    with claim_standard_streams() as (reading, writing):
        editor = _Editor()
        agent = AcpAgent(options, editor)
        editor.peer = peer = Peer(await connect_streams(reading, writing), agent.handle)
        listening = asyncio.ensure_future(peer.listen())
        try:
            with _signals() as told:
                await asyncio.wait([listening, told], return_when=asyncio.FIRST_COMPLETED)
            return 128 + told.result() if told.done() else 0
        finally:
            # Before the connection ends, so that an editor still there gets its stop reasons.
            await agent.close()
            await peer.close()
            listening.cancel()
            await asyncio.wait([listening])


class _Editor:
    """`conversation.Editor` over the connection."""

    peer: Peer

    async def update(self, session: str, update: Update) -> None:
        await self.peer.notify("session/update", {"sessionId": session, "update": update})

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        return await self.peer.request(method, params)


@contextmanager
def _signals() -> Generator[asyncio.Future[int]]:
    """Yield a future of the first SIGTERM, SIGINT or SIGHUP."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[int] = loop.create_future()

    def end(number: int) -> None:
        if not told.done():
            told.set_result(number)

    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, end, number)
    try:
        yield told
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
