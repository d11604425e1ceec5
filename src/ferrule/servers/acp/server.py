"""Serve one editor: run its connection, and end everything when it goes.

    AcpServer(agent).run_sync()

When the editor closes the streams, dies, or tells this process to end, every run is cancelled and
settled: programs end with everything they started, and the journal can be resumed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from ferrule.engine.agent import Agent

from .agent import AcpAgent
from .outbox import Update
from .peer import Peer
from .session_sources import ProgramSource, SessionSource
from .streams import claim_standard_streams, connect_streams


class AcpServer:
    """A program's agent for the editor that starts the program.

    Each session is one of the agent, with its tools, rules, journal and dependencies; approvals are
    asked for in the editor. An agent with a workspace serves sessions in that folder only. MCP
    servers that the editor names are not used, which the session's first message reports.

    Args:
        agent: The agent to serve. It stays open for its owner.
        yes_to: Patterns of tools that need no approval.
    """

    def __init__(self, agent: Agent[Any, Any], *, yes_to: Iterable[str] = ()) -> None:
        self._source = ProgramSource(agent, tuple(yes_to))

    async def run(self) -> int:
        """Serve the editor at the standard streams until it is gone; return the exit code.

        Meanwhile what the program prints goes to standard error.

        Raises:
            ConfigError: The standard streams cannot be used.
        """
        return await serve(self._source)

    def run_sync(self) -> int:
        """Do what `run` does, in an event loop of its own."""
        return asyncio.run(self.run())


async def serve(source: SessionSource) -> int:
    """Serve the editor at our standard streams until it is gone. Returns the exit code.

    Raises:
        ConfigError: the standard streams cannot be used.
    """
    with claim_standard_streams() as (reading, writing):
        editor = _Editor()
        agent = AcpAgent(source, editor)
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
