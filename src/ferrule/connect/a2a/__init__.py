"""Agents that speak A2A (Agent2Agent): what they are good at becomes tools of a run, over HTTP."""

from .approvals import Approval, Approvals
from .connecting import Peers, connect
from .reading import load_peers
from .spec import A2aPeer, Auth

__all__ = ["A2aPeer", "Approval", "Approvals", "Auth", "Peers", "connect", "load_peers"]
