"""`ferrule serve`: the table of what can be served."""

from __future__ import annotations

import click

from ferrule.host.lazy_group import LazyGroup

COMMANDS: dict[str, tuple[str, str]] = {
    "mcp": ("ferrule.faces.serve.mcp.command:mcp", "Tools for MCP clients, over stdio or HTTP."),
    "acp": ("ferrule.faces.serve.acp.command:acp", "An agent for editors that speak ACP, over stdio."),
    "a2a": ("ferrule.faces.serve.a2a_command:a2a", "An agent for other agents that speak A2A."),
    "openai": (
        "ferrule.faces.serve.openai.command:openai",
        "A chat completions endpoint with tools behind it.",
    ),
    "console": ("ferrule.faces.console.command:console", "The web console: runs, approvals, tools, audit."),
}
"""Name to `module:object` and line of help. A face is named by its text, so that none knows another."""


@click.group(cls=LazyGroup, table=COMMANDS)
def serve() -> None:
    """Serve this folder's tools, or an agent that uses them, to other programs.

    All of them call tools through the same gate, with the same rules, sandbox and journal as `ferrule run`.
    """
