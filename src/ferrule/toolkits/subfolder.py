"""Tools that are limited to one folder of the workspace; a path outside of it is refused.

The workspace stays the boundary, and names stay names from its root, so rules, refusals and results
use the same paths as everywhere; a folder only makes less of it reachable. If the folder lies
outside of the workspace, every call is refused: where tools work is the run's decision, not a
pack's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.path_denials import NamesOfFolder
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

FolderPath = str | os.PathLike[str] | None
"""A folder of the workspace, absolute or from its root; None and `.` are the workspace itself."""


def read_folder(folder: FolderPath) -> str:
    """Return the folder of a pack as text. Raises ConfigError for anything else, as a dict."""
    if folder is None:
        return "."
    try:
        return os.fspath(folder)
    except TypeError:
        raise ConfigError(
            f"the first argument of a pack of tools is a folder, found a {type(folder).__name__}",
            hint='write options as keywords: `agent_command_tools(".", max_inline_bytes=12000)`',
        ) from None


def limit_tools(tools: Iterable[Tool], folder: FolderPath) -> tuple[Tool, ...]:
    """Limit tools to `folder`: another path as an argument is refused before anything is opened.

    If a call leaves a path at `.`, it means the folder.
    """
    start = read_folder(folder)
    return tuple(tool if start == "." else _limit_tool(tool, start) for tool in tools)


def _limit_tool(tool: Tool, start: str) -> Tool:
    limits_paths = any(touch.kind in ("read", "write") for touch in tool.touches.values())
    if tool.context_parameter is None or not limits_paths:
        return tool
    handler = tool.handler
    preview = tool.preview
    context_name = tool.context_parameter

    def limit(values: Mapping[str, Any], context: Context) -> dict[str, Any]:
        return _limit_paths(tool, values, start, context.resource(Workspace))

    def explain(answer: Any, values: Mapping[str, Any]) -> Any:
        left_open = any(values.get(name) in ("", ".") for name in tool.touches)
        return _explain_names(answer, start, values[context_name]) if left_open else answer

    def run(**values: Any) -> Any:
        return explain(handler(**limit(values, values[context_name])), values)

    async def run_async(**values: Any) -> Any:
        return explain(await handler(**limit(values, values[context_name])), values)

    tool = tool.wrap(run_async if tool.is_async else run)
    if preview is None:
        return tool

    async def show(values: Mapping[str, Any], context: Any) -> str:
        return await preview(limit(values, context), context)

    return replace(tool, preview=show)


def _limit_paths(
    tool: Tool, values: Mapping[str, Any], start: str, workspace: Workspace
) -> dict[str, Any]:
    folder = resolve_folder(workspace, start)
    changed = dict(values)
    for parameter, touch in tool.touches.items():
        value = values.get(parameter)
        if touch.kind not in ("read", "write") or value is None:
            continue
        if isinstance(value, str):
            changed[parameter] = _resolve_below(workspace, value, folder)
        else:
            paths = cast("Iterable[object]", value)
            changed[parameter] = [_resolve_below(workspace, str(path), folder) for path in paths]
    return changed


def _explain_names(answer: Any, start: str, context: Context) -> Any:
    """Add a line to a text: its names begin in the folder, those of a call at the workspace.

    Values that are not text name paths from the workspace already.
    """
    folder = context.resource(Workspace).name(start)
    if not folder or not isinstance(answer, str):
        return answer
    return (
        f"{answer}\n[names here begin in {quote_path(folder + '/')}: to other tools write them as "
        f"`{folder}/NAME`]"
    )


def resolve_folder(workspace: Workspace, start: str) -> str:
    """Return the name of the folder that tools are limited to.

    Raises:
        ToolFailed: `permission_denied` if it is not in the workspace.
    """
    try:
        return workspace.check_name(start, write=False)
    except ToolFailed as failure:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"nothing was done: these tools are kept to {quote_path(start)}, which no tool of "
            f"this run may use ({failure}); ask the person to change it",
        ) from None


def _resolve_below(workspace: Workspace, path: str, folder: str) -> str:
    if path in ("", "."):
        return folder or "."
    name = workspace.name(path)
    if not folder or name == folder or name.startswith(f"{folder}/"):
        return path
    example = "..." if path.startswith("/") else name
    raise ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"{quote_path(path)} lies outside of {quote_path(folder + '/')}, which this tool is kept "
        f"to; "
        f"paths begin at the workspace, as in {quote_path(f'{folder}/{example}')}",
    )


def open_subfolder(workspace: Workspace, start: str) -> Workspace:
    """Return a folder as a workspace, for what works on a whole one, such as a repository.

    What the outer workspace refuses, it refuses too.

    Raises:
        ToolFailed: There is no such folder, or a link leads to it.
    """
    name = resolve_folder(workspace, start)
    if not name:
        return workspace
    outer = workspace.names
    names = outer.only_lists().extend(rules=[NamesOfFolder(name, outer)])
    expected = workspace.open_descriptor(name)
    try:
        inner = Workspace(workspace.root / name, names=names)
        found = inner.open_descriptor("")
        try:
            if not os.path.samestat(os.fstat(expected), os.fstat(found)):
                raise ToolFailed(
                    ErrorType.PERMISSION_DENIED,
                    f"{quote_path(start)} changed while it was opened; try again",
                )
        finally:
            os.close(found)
    finally:
        os.close(expected)
    return inner


@frozen
class WholeWorkspace:
    """The workspace of a run, in the context of tools that were moved to a folder of it."""

    workspace: Workspace


def find_whole_workspace(resources: Mapping[type, object]) -> Workspace:
    """Return the workspace of a run, whatever folder of it a tool was moved to."""
    found = resources.get(WholeWorkspace)
    if isinstance(found, WholeWorkspace):
        return found.workspace
    return cast("Workspace", resources[Workspace])


def enter_subfolder(context: Context, start: str) -> Context:
    """Return a context whose workspace is a folder of this one's. Raises as `open_subfolder`."""
    inner = open_subfolder(context.resource(Workspace), start)
    own = {
        WholeWorkspace: WholeWorkspace(find_whole_workspace(context.resources)),
        Workspace: inner,
    }
    return replace(context, resources={**context.resources, **own})


def move_tools(tools: Iterable[Tool], start: FolderPath) -> tuple[Tool, ...]:
    """Return the tools with the folder as their workspace: names begin there.

    For the tools of a repository.
    """
    folder = read_folder(start)
    return tuple(tool if folder == "." else _move_tool(tool, folder) for tool in tools)


def _move_tool(tool: Tool, start: str) -> Tool:
    handler = tool.handler
    preview = tool.preview
    name = tool.context_parameter
    if name is None or not tool.is_async:
        return tool

    async def run(**values: Any) -> Any:
        answer = await handler(**{**values, name: enter_subfolder(values[name], start)})
        return _explain_names(answer, start, values[name])

    async def show(values: Mapping[str, Any], context: Any) -> str:
        assert preview is not None
        return await preview(values, enter_subfolder(context, start))

    return tool.wrap(run, preview=show if preview else None)
