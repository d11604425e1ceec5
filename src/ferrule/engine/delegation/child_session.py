"""The parts of a sub-agent's session: each the same as the delegating session's, or less.

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
"""Modes that differ only in how much they allow without asking.

`plan` and `dontAsk` each forbid something of their own.
"""


@frozen
class ForAgent:
    """Asks the session's approver, and says which sub-agent is asking."""

    asked: Callable[[], Approver]
    agent: str

    async def ask(self, request: ApprovalRequest) -> Answer:
        """Ask, as `Approver.ask`."""
        return await self.asked().ask(
            replace(request, reason=f"the agent `{self.agent}`: {request.reason}")
        )


def tightened(gate: Gate, approver: Approver, mode: Mode | str) -> tuple[Gate, Approver]:
    """Return a gate and an approver that enforce both the gate's mode and this one.

    Never more is allowed than by the gate itself.
    """
    if mode == "dontAsk":
        tighter = gate if gate.mode == "plan" else gate.with_mode("dontAsk")
        return tighter, NobodyToAsk()
    if mode == "plan":
        if gate.mode == "dontAsk":
            approver = NobodyToAsk()
        return gate.with_mode("plan"), approver
    for known, looseness in _LOOSENESS.items():
        if known == mode and looseness < _LOOSENESS.get(gate.mode, 0):
            return gate.with_mode(known), approver
    return gate, approver


@frozen
class Below:
    """What a sub-agent has of its own, instead of the delegating agent's.

    `model` is "" for the same model. `gate` is the session's and not the agent's: what was granted
    for the session holds for its sub-agents.
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
