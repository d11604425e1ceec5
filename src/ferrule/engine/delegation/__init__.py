"""Sub-agents: a call that has another agent do a task, in a session of its own.

Modules: `delegate_tool` (the tool `delegate`), `delegation` (what may be delegated),
`delegated_tools` (which tools come along), `delegated_task` (one task), `interrupted_task` (what an
ended process left of one), `inherited_parts` (its session), `session_delegation` (the driver
extension), `sub_agent`, `registry`, `session_tree` (shared budgets), `verification` (checks of the
work).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ferrule.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from .inherited_parts import SubAgentParts
    from .registry import SubAgentRegistry
    from .session_tree import Lineage
    from .sub_agent import DelegationLimits, SubAgent

__all__ = ["DelegationLimits", "Lineage", "SubAgent", "SubAgentParts", "SubAgentRegistry"]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        ".session_tree": ("Lineage",),
        ".registry": ("SubAgentRegistry",),
        ".sub_agent": (
            "DelegationLimits",
            "SubAgent",
        ),
        ".inherited_parts": ("SubAgentParts",),
    },
)
