"""The MCP client: tools of Model Context Protocol servers in a run, over stdio and HTTP.

Both versions of the protocol are spoken, 2025-11-25 and 2026-07-28.

Modules: `approval_review`, `approval_text`, `configuration`, `configured_servers`, `connection`,
`definitions`, `elicitation`, `foreign_entries`, `http`, `multi_round_requests`, `oauth`,
`other_programs`, `package_runners`, `plugin`, `raw_results`, `results`, `secret_questions`,
`server_approvals`, `server_client`, `servers`, `spec`, `stdio`, `streams`, `tools`.
"""

from .configuration import load_servers
from .elicitation import Form, FormFiller
from .server_approvals import ServerApproval, ServerApprovals
from .server_client import ServerStatus
from .servers import McpServers, connect
from .spec import McpServer, OAuth
from .stdio import LaunchSettings

__all__ = [
    "Form",
    "FormFiller",
    "LaunchSettings",
    "McpServer",
    "McpServers",
    "OAuth",
    "ServerApproval",
    "ServerApprovals",
    "ServerStatus",
    "connect",
    "load_servers",
]
