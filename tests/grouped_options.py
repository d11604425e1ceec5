"""Options of an agent by their own names, put into the values that group them.

Tests that pass options through to `Agent` name them without knowing which value they belong to.
"""

from __future__ import annotations

from typing import Any

from ferrule import Host, Permissions, Storage, ToolCalling
from ferrule.engine.delegation.sub_agent import DelegationLimits
from ferrule.plugins import Parts

_GROUPS: dict[str, tuple[type, dict[str, str]]] = {
    "permissions": (
        Permissions,
        {name: name for name in ("allow", "ask", "deny", "mode", "approver", "scopes", "gate")},
    ),
    "storage": (Storage, {name: name for name in ("journal", "artifacts", "tenant", "user")}),
    "tool_calling": (
        ToolCalling,
        {
            "tool_mode": "mode",
            "fallback": "fallback",
            "results": "results",
            "tool_search": "search",
        },
    ),
    "host": (Host, {name: name for name in ("connect", "bus", "clock", "interruptible")}),
    "run_options": (dict, {name: name for name in ("join", "require_successful_tools")}),
}

_PARTS = ("hooks", "agents", "delegation", "resources")


def grouped(**options: Any) -> dict[str, Any]:
    """Return the arguments of `Agent` for these options."""
    made: dict[str, Any] = {}
    for argument, (group, names) in _GROUPS.items():
        given = {names[name]: options.pop(name) for name in names if name in options}
        if given:
            made[argument] = group(**given)
    if options.get("agents", ()) is None:
        del options["agents"]
    elif "agents" in options:
        options.setdefault("delegation", DelegationLimits())
    own = {name: options.pop(name) for name in _PARTS if name in options}
    if own:
        made["plugins"] = [*options.pop("plugins", ()), Parts(**own)]
    return {**made, **options}
