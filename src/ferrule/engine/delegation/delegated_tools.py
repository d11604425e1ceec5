"""Which of a session's tools a sub-agent is given for one task: never one it lacks itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.similar_names import suggest_names
from ferrule.engine.background import TASK_TOOLS
from ferrule.engine.session_log import SessionLog
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import BUILTIN_NAMESPACE, Loading, Tool

from .delegated_task import DelegationRequest
from .sub_agent import DELEGATE, SubAgent, is_agent_name

_TASK_TOOLS = frozenset(tool.name for tool in TASK_TOOLS)


def choose_tools(
    definition: SubAgent,
    request: DelegationRequest,
    catalog: Catalog,
    log: SessionLog,
    *,
    last: bool,
) -> list[Tool]:
    """Return those of a session's tools that the agent may use and the request names.

    Args:
        definition: The agent.
        request: What is delegated.
        catalog: The session's tools.
        log: Is told of tools that the agent does without.
        last: Whether the agent is as deep as agents may be, so that it cannot delegate.

    Raises:
        ToolFailed: The request names a tool that is not there or that the agent may not use, or
            the session has none of the agent's tools.
    """
    _check_named(definition, request, catalog)
    wanted = (
        None if request.tools is None else {full_name(catalog.get(name)) for name in request.tools}
    )
    chosen = {
        tool.full_name
        for tool in catalog
        if definition.may_use(tool.full_name)
        and (wanted is None or tool.full_name in wanted)
        and not (last and tool.full_name == DELEGATE)
    }
    if DELEGATE in chosen:
        chosen |= _TASK_TOOLS
    _report_missing(definition, [tool.full_name for tool in catalog], chosen, log)
    # If a file's tool replaces another one, its script needs the replaced tool too.
    found = [
        t
        for t in catalog
        if t.full_name in chosen or (t.namespace == BUILTIN_NAMESPACE and t.name in chosen)
    ]
    listed = wanted is not None or definition.tools is not None
    return [_load(tool) if listed else tool for tool in found]


def full_name(tool: Tool | None) -> str:
    """Return a tool's full name; "" if there is no tool."""
    return tool.full_name if tool is not None else ""


def _check_named(definition: SubAgent, request: DelegationRequest, catalog: Catalog) -> None:
    for name in request.tools or ():
        tool = catalog.get(name)
        if tool is None or tool.loading is Loading.INTERNAL:
            suggestion = suggest_names(name, catalog.names(), count=3, cutoff=0.5)
            raise _invalid(f"there is no tool `{name}`" + (suggestion and f"; {suggestion}"))
        if not definition.may_use(tool.full_name):
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"the agent `{definition.name}` may not use `{name}`",
            )


def _report_missing(
    definition: SubAgent, there: Sequence[str], chosen: set[str], log: SessionLog
) -> None:
    missing = [
        pattern
        for pattern in definition.tools or ()
        if not any(is_agent_name(name, [pattern]) for name in there)
    ]
    if missing and not chosen:
        raise _invalid(
            f"the agent `{definition.name}` needs {', '.join(missing)}, and this session "
            "has none of it"
        )
    if missing:
        said = ", ".join(f"`{name}`" for name in missing)
        log.notice(
            "delegation",
            f"the agent `{definition.name}` does without {said}: this session has none",
        )


def _load(tool: Tool) -> Tool:
    """Make a tool available at once: an agent that was given it by name need not search for it."""
    return replace(tool, loading=Loading.ALWAYS) if tool.loading is Loading.DEFERRED else tool


def _invalid(why: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, why)
