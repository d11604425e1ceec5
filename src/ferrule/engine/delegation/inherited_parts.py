"""The parts of a sub-agent's session: each the same as the delegating session's, or less.

The gate, its rules and grants, the person who is asked, hooks, workspace, resources, scopes,
identity and journal are the session's; its tools are some of the session's; its mode is the tighter
of two. Its history, memory and session are its own. `Agent.open_sub_agent` puts it together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ferrule.core.limits import Limits
from ferrule.core.value_class import frozen
from ferrule.core.vocabulary import PermissionMode
from ferrule.engine.hooks.events import EventHook
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest, Approver, DenyingApprover
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.tools.definition import Tool

from .session_tree import Lineage

_PERMISSIVENESS: dict[PermissionMode, int] = {
    "default": 0,
    "acceptEdits": 1,
    "auto": 1,
    "sandboxed": 2,
    "bypassPermissions": 3,
}
"""Modes that differ only in how much they allow without asking.

`plan` and `dontAsk` each forbid something of their own.
"""


@frozen
class AgentApprover:
    """Asks the session's approver, and says which sub-agent is asking."""

    current_approver: Callable[[], Approver]
    agent: str

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask, as `Approver.ask`.

        A mode is not offered: it would be the sub-agent's alone.
        """
        offers = tuple(offer for offer in request.offers if offer.choice != "mode")
        reason = f"the agent `{self.agent}`: {request.reason}"
        return await self.current_approver().ask(replace(request, reason=reason, offers=offers))


def tighten(
    gate: PermissionGate, approver: Approver, mode: PermissionMode | str
) -> tuple[PermissionGate, Approver]:
    """Return a gate and an approver that enforce both the gate's mode and this one.

    Never more is allowed than by the gate itself.
    """
    if mode == "dontAsk":
        tighter = gate if gate.mode == "plan" else gate.with_mode("dontAsk")
        return tighter, DenyingApprover()
    if mode == "plan":
        if gate.mode == "dontAsk":
            approver = DenyingApprover()
        return gate.with_mode("plan"), approver
    for known, looseness in _PERMISSIVENESS.items():
        if known == mode and looseness < _PERMISSIVENESS.get(gate.mode, 0):
            return gate.with_mode(known), approver
    return gate, approver


@frozen
class SubAgentParts:
    """What a sub-agent has of its own, instead of the delegating agent's.

    `model` is "" for the same model. `gate` is the session's and not the agent's: what was granted
    for the session holds for its sub-agents. `deps` are the delegating run's. The session of a task
    that `is_interrupted` is in the journal.
    """

    session_id: str
    instructions: str
    tools: tuple[Tool, ...]
    model: str
    limits: Limits
    gate: PermissionGate
    approver: Approver
    hooks: tuple[EventHook, ...]
    lineage: Lineage
    output_type: object = str
    deps: object = None
    is_interrupted: bool = False
