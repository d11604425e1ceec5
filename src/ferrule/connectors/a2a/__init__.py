"""The A2A client: agents that speak A2A (Agent2Agent) over HTTP; their skills are tools of a run.

Modules: `approvals`, `cards`, `connect`, `exchange`, `http`, `messages`, `peer`, `results`,
`settings`, `signatures`, `spec`, `task_state`, `tools`.
"""

from .approvals import Approval, Approvals
from .connect import Peers, connect
from .settings import load_peers
from .spec import A2aPeer, Auth

__all__ = ["A2aPeer", "Approval", "Approvals", "Auth", "Peers", "connect", "load_peers"]
