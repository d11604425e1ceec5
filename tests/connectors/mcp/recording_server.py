"""A server made with the official `mcp` package: one tool with defaults of every kind, and a record
of what it was sent.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import mcp.server.stdio
import mcp_types as types
from mcp.server.lowlevel import Server

DEFAULTS: dict[str, Any] = {
    "insurance_id": {"type": "string", "default": "None"},
    "wrong": {"type": "integer", "default": "many"},
    "nothing": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
    "nested": {
        "type": "object",
        "properties": {"inner": {"type": "boolean", "default": True}},
        "default": {"inner": False},
    },
    "listed": {
        "type": "array",
        "items": {"type": "object", "properties": {"a": {"default": 1}}},
        "default": [],
    },
}
TOOL = types.Tool(
    name="book",
    description="Book a visit.",
    input_schema={
        "type": "object",
        "properties": {"day": {"type": "string"}, **DEFAULTS},
        "required": ["day"],
    },
)


async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[TOOL])


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    with Path("received.jsonl").open("a") as file:
        file.write(json.dumps(params.arguments) + "\n")
    refused = (params.arguments or {}).get("day") == "never"
    said = "User not found" if refused else "booked"
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=said)], is_error=refused
    )


async def main() -> None:
    server = Server("recorder", on_list_tools=list_tools, on_call_tool=call_tool)
    async with mcp.server.stdio.stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
