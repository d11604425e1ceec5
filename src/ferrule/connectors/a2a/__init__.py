"""The A2A client: agents that speak A2A (Agent2Agent) over HTTP; their skills are tools of a run.

Modules: `cards`, `configuration`, `exchange`, `http`, `messages`, `peer_approvals`, `peer_client`,
`peers`, `plugin`, `results`, `signatures`, `spec`, `task_state`, `tools`.
"""

from .configuration import load_peers
from .peer_approvals import PeerApproval, PeerApprovals
from .peers import A2aPeers, connect
from .spec import A2aPeer, Auth

__all__ = ["A2aPeer", "A2aPeers", "Auth", "PeerApproval", "PeerApprovals", "connect", "load_peers"]
