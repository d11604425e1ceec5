"""What a sub-agent is made of: the parts of the session that delegates, each of them the same or
less.

The gate, its rules and grants, the person who is asked, hooks, workspace, resources, scopes,
identity and journal are the session's; its tools are some of the session's; its mode is the tighter
of two. Its history, memory and session are its own. `Agent.below` puts it together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ferrule.core.frozen import frozen
from ferrule.core.limits import Limits
from ferrule.permissions.approvals import Answer, ApprovalRequest, Approver, NobodyToAsk
from ferrule.permissions.gate import Gate, Mode
from ferrule.tools.definition import Tool

from .lineage import Lineage

if TYPE_CHECKING:
    from ferrule.engine.hooks.events import EventHook

_LOOSENESS: dict[Mode, int] = {"default": 0, "acceptEdits": 1, "auto": 1, "bypassPermissions": 2}
"""Modes that differ only in how much they allow unasked; `plan` and `dontAsk` each forbid something
of their own.
"""


@frozen
class ForAgent:
    """Asks whom the session asks, and says which agent wants it."""

    asked: Callable[[], Approver]
    agent: str

    async def ask(self, request: ApprovalRequest) -> Answer:
        """As `Approver.ask`."""
        return await self.asked().ask(
            replace(request, reason=f"the agent `{self.agent}`: {request.reason}")
        )


def tightened(gate: Gate, approver: Approver, mode: Mode | str) -> tuple[Gate, Approver]:
    """Gate and approver under which both hold: the gate's mode and this one. Never more is allowed
    than by the gate itself.
    """
    if mode == "dontAsk":
        return (gate if gate.mode == "plan" else gate.with_mode("dontAsk")), NobodyToAsk()
    if mode == "plan":
        return gate.with_mode("plan"), NobodyToAsk() if gate.mode == "dontAsk" else approver
    for known, looseness in _LOOSENESS.items():
        if known == mode and looseness < _LOOSENESS.get(gate.mode, 0):
            return gate.with_mode(known), approver
    return gate, approver


@frozen
class Below:
    """What is another one's in a sub-agent than in the agent whose session delegates. `model` "":
    the same model.

    `gate` is that of the session, not of the agent: what was granted for the session holds for all
    below it.
    """

    session_id: str
    instructions: str
    tools: tuple[Tool, ...]
    model: str
    limits: Limits
    gate: Gate
    approver: Approver
    hooks: tuple[EventHook, ...]
    lineage: Lineage
