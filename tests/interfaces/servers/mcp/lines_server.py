"""A server at the standard streams for `test_plain_lines`: `lines_server.py JOURNAL`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from ferrule import tool
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Storage
from ferrule.servers.mcp import McpServer, client_of
from ferrule.tools.context import Context


@tool(side_effect="none")
async def way(context: Context) -> str:
    """Tell how the call came here."""
    return type(client_of(context)._request.peer).__name__  # pyright: ignore[reportPrivateUsage]


@tool(side_effect="none")
async def repeat(word: str, times: int = 1) -> str:
    """Repeat a word."""
    return word * times


@tool(side_effect="none")
async def note(context: Context, times: int) -> str:
    """Write lines to the client's log."""
    for at in range(times):
        client_of(context).log("warning", f"line {at}")
        await asyncio.sleep(0)
    return "noted"


@tool(risk="medium", side_effect="write")
async def shelve(book: str) -> str:
    """Put a book on its shelf."""
    return f"{book} is on its shelf"


@tool(side_effect="none")
async def wait(context: Context) -> str:
    """Wait for ever."""
    context.progress("waiting")
    print("waits", file=sys.stderr, flush=True)
    await asyncio.Event().wait()
    return ""


async def main() -> None:
    agent = Agent(
        "scripted:none",
        [way, repeat, note, shelve, wait],
        storage=Storage(journal=Path(sys.argv[1])),
    )
    await McpServer(agent, name="lines").stdio()
    await agent.close()


asyncio.run(main())
