"""Say what was meant by options that agents and runs do not have.

Options are grouped here, and other libraries have other names for them; a name from elsewhere leads
to the one that means it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, signature
from typing import Any

from ferrule.core.limits import Limits
from ferrule.core.similar_names import explain_unknown_options
from ferrule.models.client import ModelOptions

from .agent_options import Host, Permissions, Storage, ToolCalling
from .plugins.protocol import Parts

_GROUPS: dict[str, type] = {
    "permissions": Permissions,
    "limits": Limits,
    "storage": Storage,
    "tool_calling": ToolCalling,
    "model_options": ModelOptions,
    "host": Host,
}
_TURNS = "limits=Limits(max_turns=...)"
_SEARCH = "tool_calling=ToolCalling(search=...)"
_MODE = 'tool_calling="native", "constrained", "text" or "commands"'
_TYPED = "output_type=..."
_LEADS = {
    **dict.fromkeys(("max_iterations", "max_steps", "max_tool_calls_per_turn"), _TURNS),
    **dict.fromkeys(("recursion_limit", "usage_limits"), _TURNS),
    **dict.fromkeys(("system", "system_prompt", "prompt", "preamble"), "instructions=..."),
    **dict.fromkeys(("tool_search", "tool_selection"), _SEARCH),
    **dict.fromkeys(("tool_format", "tool_mode", "tool_call_style"), _MODE),
    **dict.fromkeys(("result_type", "response_format", "response_model"), _TYPED),
    **dict.fromkeys(
        ("base_url", "api_key"), "OpenAIChat(name, base_url=..., api_key=...) as model"
    ),
    "parallel_tool_calls": "tool_calling=ToolCalling(parallel=...)",
    "allowed_tools": "the tools themselves, or permissions=Permissions(allow=[...])",
    "loop_until_done": "nothing; a run ends with the first answer that has no calls",
    "mcp_servers": "tools=servers.tools, inside `async with connect_mcp([...]) as servers`",
    "compact": 'context={"compact": "auto"}; `session.compact()` compacts at once',
    "memory": "`agent.session()`, which keeps its history, or run(text, history=...)",
    "deps": "run(text, deps=...), and deps_type=... here",
    "history": "run(text, history=...)",
    "message_history": "run(text, history=...)",
    **dict.fromkeys(
        ("session", "session_id", "thread_id", "conversation_id", "resume"),
        "`agent.session(id=..., resume=True)`, and call `run` of that session",
    ),
    "require_successful_tools": "run(text, require_successful_tools=[...])",
}
"""Names that other programs have -> what to write here."""


def explain_agent_options(names: Iterable[str], function: Callable[..., Any]) -> str:
    """Return what is wrong with options that `Agent` does not have, and what was meant."""
    unknown = list(names)
    for name in unknown:
        if lead := _find_lead(name):
            return f"unexpected `{name}`: write {lead}"
    options = [
        name
        for name, one in signature(function).parameters.items()
        if one.kind is not Parameter.VAR_KEYWORD and name != "self"
    ]
    return explain_unknown_options(unknown, options)


def explain_run_options(unknown: Sequence[str], options: Sequence[str]) -> str:
    """Return what is wrong with options that a run does not have, and what was meant."""
    said = explain_unknown_options(unknown, options)
    for name in unknown:
        lead = _find_lead(name)
        if lead.startswith("`"):
            return f"{said}; for `{name}` write {lead}"
        if lead and not lead.startswith("run("):
            return f"{said}; for `{name}` give the agent {lead}"
    return f"{said}; everything else is given to `Agent(...)`"


def _find_lead(name: str) -> str:
    """Return what to write for a name of a group's option, or of another program; "" if nothing."""
    if name in _LEADS:
        return _LEADS[name]
    for argument, group in _GROUPS.items():
        if name in signature(group).parameters:
            return (
                f"{argument}={group.__name__}({name}=...), with "
                f"`from ferrule import {group.__name__}`"
            )
    if name in signature(Parts).parameters and name not in ("tools", "instructions"):
        return f"plugins=[Parts({name}=...)], with `from ferrule.plugins import Parts`"
    return ""
