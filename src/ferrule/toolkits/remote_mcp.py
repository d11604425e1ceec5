"""Asks whether the provider may call a remote MCP server (`models.hosted_tools`).

The provider asks, not the model, and the provider makes the call: this tool only passes the
question through the gate, to a person and into the journal, and its success is the approval. Rules
can deny it by its name; each question is critical, so no rule and no answer in advance approves it
for a person. If this tool is missing, the answer is no.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ferrule.core.calls import encode_json
from ferrule.models.hosted_tools import APPROVAL_TOOL
from ferrule.tools.decorator import tool


async def _preview(values: Mapping[str, Any], context: Any) -> str:
    del context
    return (
        f"{values['server']}.{values['tool']}({encode_json(values['arguments'])}) is called by the "
        "provider, not from here"
    )


@tool(name=APPROVAL_TOOL, side_effect="external", risk="critical", preview=_preview)
def approve_remote_mcp(server: str, tool: str, arguments: dict[str, Any]) -> str:
    """Approve one call of a remote MCP server. Only the provider asks for this."""
    return f"approved: {server}.{tool}({encode_json(arguments)})"


TOOLS = (approve_remote_mcp,)
