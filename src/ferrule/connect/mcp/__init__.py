"""Servers of the Model Context Protocol: their tools in a run, in both versions of it, over standard streams and HTTP."""

from .approvals import Approval, Approvals
from .asking import Form, Forms
from .connecting import Servers, connect
from .reading import load_servers
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
