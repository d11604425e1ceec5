"""From `tools/call` of an MCP client to the tool

A client is connected to a server by a pair of streams. It calls a tool that needs no approval:
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.client.client import Client
from mcp.shared.memory import create_client_server_memory_streams
from tracing import Tracer

from ferrule import Agent, Storage, tool
from ferrule.servers.mcp import McpServer

STEPS = """
servers/mcp/handlers.py Service.call_tool
servers/mcp/handlers.py Service.identify
servers/mcp/sessions.py ClientSessions.session_for
runtime/session_pool.py SessionPool.use
engine/agent.py Agent.copy_for_user
engine/agent.py Agent.session
runtime/session_pool.py SessionPool.add
engine/served_tools.py find_served_tool
servers/mcp/sessions.py ClientSession.start_request
servers/mcp/requests.py ClientRequest.start
servers/mcp/requests.py ClientRequest.wait
servers/mcp/sessions.py ClientSession.call_tool
engine/session.py SessionApprovals.is_needed
engine/session.py Session.call_tool
engine/driver.py Driver.call
engine/running_calls.py DirectCalls.call
core/machine.py Machine._on_direct_call
engine/driver.py Driver._drive
engine/dispatcher.py Dispatcher.evaluate
permissions/rule_evaluation.py PermissionGate.decide
engine/driver.py Driver._run_tool
engine/dispatcher.py Dispatcher.execute
engine/timeouts_and_retries.py run_with_policy
engine/threads.py Threads.run
walks/mcp_call.py look
core/machine.py Machine._on_tool_answered
engine/session_log.py SessionLog.flush
servers/mcp/results.py to_call_result
servers/mcp/requests.py ClientRequest.outcome
"""


@tool(side_effect="read")
def look(shelf: int) -> str:
    """Look at a shelf."""
    return f"shelf {shelf} has two books"


async def execute(tracer: Tracer) -> None:
    """Call a tool as an MCP client that is connected to a server by its streams."""
    agent = Agent("scripted:none", [look], storage=Storage(journal=":memory:"))
    server = McpServer(agent)

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        async with create_client_server_memory_streams() as (ours, theirs):
            task = asyncio.create_task(server.connect(*theirs))
            try:
                yield ours
            finally:
                for stream in ours:
                    await stream.aclose()
                await task

    async with Client(connect()) as client:
        with tracer.record("call"):
            result = await client.call_tool("look", {"shelf": 1})
        assert result.content[0].text == "shelf 1 has two books"
    await server.close()
    await agent.close()
