"""Servers of the Model Context Protocol: their tools in a run, in both versions of it, over standard streams and HTTP."""

from .approvals import Approval, Approvals
from .asking import Form, Forms
from .connecting import Servers, connect
from .policies import CallPolicy, Policies, parse_policies
from .reading import load_servers
from .server import Status
from .spec import McpServer, OAuth
from .stdio import Ground

__all__ = [
    "Approval",
    "Approvals",
    "CallPolicy",
    "Form",
    "Forms",
    "Ground",
    "McpServer",
    "OAuth",
    "Policies",
    "Servers",
    "Status",
    "connect",
    "load_servers",
    "parse_policies",
]
