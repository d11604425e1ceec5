"""Tools that are kept to one folder of the workspace: what they name must lie in it, or the call is
refused.

The workspace stays the boundary, and names stay names from its root, so rules, refusals and results
speak of the same paths as everywhere; a folder only makes less of it reachable. A folder outside of
the workspace makes every call a
refusal: where tools work is the run's decision, not a pack's.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.paths import shown
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import Names
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

Folder = str | os.PathLike[str] | None
"""A folder of the workspace, absolute or from its root; None and `.` are the workspace itself."""


def confined(tools: Iterable[Tool], folder: Folder) -> tuple[Tool, ...]:
    """The tools, kept to `folder`: a path argument that names something else is refused before
    anything is opened.

    Where a call leaves a path at `.`, it means the folder.
    """
    start = os.fspath(folder) if folder is not None else "."
    return tuple(tool if start == "." else _confined(tool, start) for tool in tools)


def _confined(tool: Tool, start: str) -> Tool:
    if tool.context_parameter is None or not any(
        t.kind in ("read", "write") for t in tool.touches.values()
    ):
        return tool
    handler, preview, context = tool.handler, tool.preview, tool.context_parameter

    def kept(values: Mapping[str, Any], given: Context) -> dict[str, Any]:
        return _kept(tool, values, start, given.resource(Workspace))

    def left_open(values: Mapping[str, Any]) -> bool:
        return any(values.get(name) in ("", ".") for name in tool.touches)

    def run(**values: Any) -> Any:
        answer = handler(**kept(values, values[context]))
        return _placed(answer, start, values[context]) if left_open(values) else answer

    async def run_async(**values: Any) -> Any:
        answer = await handler(**kept(values, values[context]))
        return _placed(answer, start, values[context]) if left_open(values) else answer

    tool = replace(tool, handler=run_async if tool.is_async else run)
    if preview is None:
        return tool

    async def show(values: Mapping[str, Any], context: Any) -> str:
        try:
            return await preview(kept(values, context), context)
        except ToolFailed as failure:
            return f"[this call would fail: {failure}]"

    return replace(tool, preview=show)


def _kept(
    tool: Tool, values: Mapping[str, Any], start: str, workspace: Workspace
) -> dict[str, Any]:
    folder = within(workspace, start)
    changed = dict(values)
    for parameter, touch in tool.touches.items():
        value = values.get(parameter)
        if touch.kind not in ("read", "write") or value is None:
            continue
        paths = (
            [value]
            if isinstance(value, str)
            else [str(one) for one in cast("Iterable[object]", value)]
        )
        found = [_below(workspace, path, folder) for path in paths]
        changed[parameter] = found[0] if isinstance(value, str) else found
    return changed


def _placed(answer: Any, start: str, context: Context) -> Any:
    """A text whose names begin in the folder, with a line that says so: in a call they begin at the
    workspace.

    Values name paths from the workspace already.
    """
    folder = context.resource(Workspace).name(start)
    if not folder or not isinstance(answer, str):
        return answer
    return (
        f"{answer}\n[names here begin in {shown(folder + '/')}: to other tools write them as "
        f"`{folder}/NAME`]"
    )


def within(workspace: Workspace, start: str) -> str:
    """The name of a folder that tools are kept to. Raises ToolFailed(permission_denied) if it is
    not in the workspace.
    """
    try:
        return workspace.permit(start, write=False)
    except ToolFailed as failure:
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"nothing was done: these tools are kept to {shown(start)}, which no tool of "
            f"this run may use ({failure}); "
            "ask the person to change it",
        ) from None


def _below(workspace: Workspace, path: str, folder: str) -> str:
    if path in ("", "."):
        return folder or "."
    name = workspace.name(path)
    if not folder or name == folder or name.startswith(f"{folder}/"):
        return path
    example = "..." if path.startswith("/") else name
    raise ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"{shown(path)} lies outside of {shown(folder + '/')}, which this tool is kept to; "
        "paths begin at the workspace, "
        f"as in {shown(f'{folder}/{example}')}",
    )


@dataclass(frozen=True, slots=True)
class _NamesBelow(Names):
    """The lists of a workspace, asked from one of its folders."""

    folder: str = ""
    outer: Names = Names()

    def check(self, name: str, *, write: bool) -> str | None:
        whole = f"{self.folder}/{name}" if name else self.folder
        # The base class by name: `super()` does not work in a dataclass with slots.
        return self.outer.check(whole, write=write) or Names.check(self, name, write=write)


def subfolder(workspace: Workspace, start: str) -> Workspace:
    """A folder of a workspace as a workspace: for what works on a whole one, such as a repository.

    What the outer one refuses, it refuses too. Raises ToolFailed if there is no such folder, or a
    link leads to it.
    """
    name = within(workspace, start)
    if not name:
        return workspace
    outer = workspace.names
    names = _NamesBelow(outer.reserved, outer.secret, outer.protected, name, outer)
    expected = workspace.descriptor(name)
    try:
        inner = Workspace(workspace.root / name, names=names)
        found = inner.descriptor("")
        try:
            if not os.path.samestat(os.fstat(expected), os.fstat(found)):
                raise ToolFailed(
                    ErrorType.PERMISSION_DENIED,
                    f"{shown(start)} changed while it was opened; try again",
                )
        finally:
            os.close(found)
    finally:
        os.close(expected)
    return inner


def based(tools: Iterable[Tool], start: Folder) -> tuple[Tool, ...]:
    """The tools, with the folder as their workspace: names begin there. For tools of a
    repository.
    """
    folder = os.fspath(start) if start is not None else "."
    return tuple(tool if folder == "." else _based(tool, folder) for tool in tools)


def _based(tool: Tool, start: str) -> Tool:
    handler, preview, name = tool.handler, tool.preview, tool.context_parameter
    if name is None or not tool.is_async:
        return tool

    def at(context: Context) -> Context:
        inner = subfolder(context.resource(Workspace), start)
        return replace(context, resources={**context.resources, Workspace: inner})

    async def run(**values: Any) -> Any:
        answer = await handler(**{**values, name: at(values[name])})
        return _placed(answer, start, values[name])

    async def show(values: Mapping[str, Any], context: Any) -> str:
        assert preview is not None
        try:
            return await preview(values, at(context))
        except ToolFailed as failure:
            return f"[this call would fail: {failure}]"

    return replace(tool, handler=run, preview=show if preview else None)
