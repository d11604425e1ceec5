"""`ferrule serve`: the table of what can be served."""

from __future__ import annotations

import click

from ferrule.runtime.lazy_group import LazyGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "mcp": ("ferrule.servers.mcp.command:mcp", "Tools for MCP clients, over stdio or HTTP."),
    "acp": ("ferrule.servers.acp.command:acp", "An agent for editors that speak ACP, over stdio."),
    "a2a": ("ferrule.servers.a2a.command:a2a", "An agent for other agents that speak A2A."),
    "ag-ui": (
        "ferrule.servers.ag_ui.command:ag_ui",
        "An agent for web pages and programs that speak AG-UI.",
    ),
    "openai": (
        "ferrule.servers.openai.command:openai",
        "A chat completions endpoint with tools behind it.",
    ),
    "console": (
        "ferrule.console.command:console",
        "The web console: runs, approvals, tools, audit.",
    ),
}
"""Name to `module:object` and line of help. Commands are named by text, so that no interface
imports another.
"""


@click.group(cls=LazyGroup, table=COMMANDS)
def serve() -> None:
    """Serve this folder's tools, or an agent that uses them, to other programs.

    All of them call tools through the same gate, with the same rules, sandbox and journal as
    `ferrule run`.
    """
