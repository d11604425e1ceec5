"""Tools from other systems: MCP servers, HTTP services and A2A agents.

The people who wrote them are not the people who run them, so everything they send is bounded,
cleaned and approved before a model sees it.

Packages: `a2a`, `http`, `mcp`.
Modules: `approval_files`, `text_cleaning`, `json_values`, `remote_tools`, `bounded_schemas`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .a2a import A2aPeer, A2aPeers
    from .a2a import connect as connect_a2a
    from .http import http_tools, openapi_tools
    from .mcp import McpServer, McpServers
    from .mcp import connect as connect_mcp

__all__ = [
    "A2aPeer",
    "A2aPeers",
    "McpServer",
    "McpServers",
    "connect_a2a",
    "connect_mcp",
    "http_tools",
    "openapi_tools",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".a2a": (
            "A2aPeer",
            "A2aPeers",
            "connect as connect_a2a",
        ),
        ".http": ("http_tools", "openapi_tools"),
        ".mcp": (
            "McpServer",
            "McpServers",
            "connect as connect_mcp",
        ),
    },
)
