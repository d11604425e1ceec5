"""A client for `@modelcontextprotocol/conformance`: lists what a server offers and calls it,
through the tools of a run.

    python conformance_client.py http://localhost:1234/mcp

The scenario is in `MCP_CONFORMANCE_SCENARIO`, what it wants called in `MCP_CONFORMANCE_CONTEXT`.
Signing in is played by a browser that says yes at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ferrule.connectors.mcp import FormFiller, McpServer, OAuth, connect
from ferrule.connectors.mcp.connection import Connection
from ferrule.connectors.mcp.elicitation import ElicitationRouter, Form
from ferrule.connectors.mcp.http import make_http_client, open_http
from ferrule.connectors.mcp.oauth import sign_in
from ferrule.connectors.mcp.spec import fill_variables
from ferrule.core.errors import FerruleError
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.permissions.approvals import AllowlistApprover
from ferrule.plugins import Parts
from ferrule.tools.definition import Tool

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
GIVEN: dict[str, Any] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
VERSION = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "")
ERA: Any = "2026-07-28" if VERSION == "2026-07-28" else "auto" if not VERSION else "2025-11-25"


async def by_tools(url: str, state: Path) -> None:
    """As a run does it: every tool once, then what there is to read."""
    async with connect([McpServer("s", url=url, era=ERA)], workspace=state) as servers:
        print(servers.notices, servers.status())
        agent = Agent(
            "scripted:x",
            servers.tools,
            workspace=state,
            permissions=Permissions(approver=AllowlistApprover(["*"])),
            storage=Storage(journal=state / "j.db"),
            plugins=[Parts(resources=[FormFiller(defaults)])],
        )
        session = agent.session()
        wanted = list(GIVEN.get("toolCalls", []))
        named = {one["name"] for one in wanted}
        for tool in servers.tools:
            name = tool.name.removeprefix("s__")
            if name not in ("resources", "prompts") and name not in named:
                wanted.append({"name": name, "arguments": made_up(tool)})
        if SCENARIO.startswith("json-schema-2020-12"):
            # It wants to see the other tool's schema as the model gets it.
            schema = dict(
                next(tool for tool in servers.tools if tool.name.endswith("_tool")).arguments.schema
            )
            wanted = [
                {**one, "arguments": {"schema": schema}} for one in wanted if "echo" in one["name"]
            ]
        results = [
            session.call(f"s__{one['name']}", **without_nulls(one.get("arguments", {})))
            for one in wanted
        ]
        for result in [await one for one in results]:
            print(result.tool, result.success, str(result.data)[:300], result.error_message)
        for name, key in (("resources", "uri"), ("prompts", "name")):
            if f"s__{name}" in agent.catalog:
                listed = await session.call(f"s__{name}")
                for one in (listed.data or {}).get(name, []):
                    print((await session.call(f"s__{name}", **{key: one[key]})).success)
        await session.close()


def without_nulls(arguments: dict[str, Any]) -> dict[str, Any]:
    """Where a schema has no null, a caller without a value leaves it out: arguments that do not fit
    are not sent.
    """
    return {name: value for name, value in arguments.items() if value is not None}


async def defaults(form: Form) -> Mapping[str, Any]:
    return {name: one["default"] for name, one in form.fields.items() if "default" in one}


def made_up(tool: Tool) -> dict[str, Any]:
    """Arguments that fit a schema."""
    values = {"number": 3, "integer": 3, "boolean": True, "array": [], "object": {}}
    properties: Mapping[str, Any] = tool.arguments.schema.get("properties", {})
    return {name: values.get(str(one.get("type")), "text") for name, one in properties.items()}


async def signed_in(url: str) -> None:
    """Sign in while a connection is opened, list the tools and call each."""
    client = OAuth(
        GIVEN.get("client_id", ""),
        "${CLIENT_SECRET}" if GIVEN.get("client_secret") else "",
        metadata_url="https://conformance-test.local/client-metadata.json"
        if SCENARIO == "auth/basic-cimd"
        else "",
    )
    server = McpServer("s", url=url, era=ERA, oauth=client)
    filled = fill_variables(server, environment={"CLIENT_SECRET": GIVEN.get("client_secret", "")})

    async def speak(auth: Any) -> None:
        connection = Connection(
            "s",
            open_http(server, filled, auth),
            era=ERA,
            answer_elicitation=ElicitationRouter("s").answer,
            on_tools_changed=lambda: None,
        )
        await connection.open()
        try:
            for tool in (await connection.list_tools())[0]:
                print(
                    await connection.request("tools/call", {"name": tool["name"], "arguments": {}})
                )
        finally:
            await connection.close()

    await sign_in(server, filled, browse, speak)


async def browse(address: str) -> None:
    """A person who says yes at once: follows where the sign-in page sends them."""
    async with make_http_client(address) as http:
        answer = await http.get(address)
        back = answer.headers["location"]
    async with make_http_client(back) as http:
        await http.get(back)


async def main() -> int:
    url = sys.argv[-1]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FERRULE_STATE"] = folder
        try:
            await (signed_in(url) if SCENARIO.startswith("auth/") else by_tools(url, Path(folder)))
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1 if isinstance(error, FerruleError) else 2
    return 0


sys.exit(asyncio.run(main()))
