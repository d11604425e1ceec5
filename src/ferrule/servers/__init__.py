"""Servers: other programs use an agent or its tools through protocols they know.

Packages: `a2a` (other agents), `acp` (editors), `ag_ui` (AG-UI clients), `mcp` (MCP clients),
`openai` (chat completions clients).

Modules: `agent_server`, `command`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .a2a.server import A2aServer, Skill
    from .acp.server import AcpServer
    from .ag_ui.server import AgUiServer
    from .mcp import McpServer, client_of
    from .mcp.offers import Offers

__all__ = [
    "A2aServer",
    "AcpServer",
    "AgUiServer",
    "McpServer",
    "Offers",
    "Skill",
    "client_of",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".mcp.offers": ("Offers",),
        ".a2a.server": (
            "A2aServer",
            "Skill",
        ),
        ".acp.server": ("AcpServer",),
        ".ag_ui.server": ("AgUiServer",),
        ".mcp": (
            "McpServer",
            "client_of",
        ),
    },
)
