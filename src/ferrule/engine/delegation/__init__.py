"""Sub-agents: a call that has another agent do a task, in a session of its own.

Modules: `tool` (the tool `delegate`), `delegation` (what may be delegated), `delegated_tools`
(which tools come along), `delegated_task` (one task), `sub_agent_session` (its session),
`session_delegation` (the driver extension), `sub_agent`, `registry`, `lineage` (shared budgets),
`verification` (checks of the work).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .lineage import Lineage
    from .registry import SubAgentRegistry
    from .sub_agent import DelegationLimits, SubAgent
    from .sub_agent_session import SubAgentParts

__all__ = ["DelegationLimits", "Lineage", "SubAgent", "SubAgentParts", "SubAgentRegistry"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".lineage": ("Lineage",),
        ".registry": ("SubAgentRegistry",),
        ".sub_agent": (
            "DelegationLimits",
            "SubAgent",
        ),
        ".sub_agent_session": ("SubAgentParts",),
    },
)
