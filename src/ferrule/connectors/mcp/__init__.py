"""The MCP client: tools of Model Context Protocol servers in a run, over stdio and HTTP.

Both versions of the protocol are spoken, 2025-11-25 and 2026-07-28.

Modules: `approvals`, `configuration`, `connect`, `connection`, `definitions`, `elicitation`,
`http`, `multi_round_requests`, `oauth`, `results`, `server`, `spec`, `stdio`, `streams`,
`tools`.
"""

from .approvals import Approval, Approvals
from .configuration import load_servers
from .connect import Servers, connect
from .elicitation import Form, Forms
from .server import Status
from .spec import McpServer, OAuth
from .stdio import Ground

__all__ = [
    "Approval",
    "Approvals",
    "Form",
    "Forms",
    "Ground",
    "McpServer",
    "OAuth",
    "Servers",
    "Status",
    "connect",
    "load_servers",
]
