"""The A2A client: agents that speak A2A (Agent2Agent) over HTTP; their skills are tools of a run.

Modules: `approvals`, `cards`, `peers`, `exchange`, `http`, `messages`, `peer_client`, `results`,
`configuration`, `signatures`, `spec`, `task_state`, `tools`.
"""

from .approvals import PeerApproval, PeerApprovals
from .configuration import load_peers
from .peers import A2aPeers, connect
from .spec import A2aPeer, Auth

__all__ = ["A2aPeer", "A2aPeers", "Auth", "PeerApproval", "PeerApprovals", "connect", "load_peers"]
