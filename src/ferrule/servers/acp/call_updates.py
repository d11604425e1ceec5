"""A call as an editor shows it: its kind, title, files and arguments.

Everything here is read from the tool's definition and the call's arguments; nothing is read from
disk. Titles and fenced texts contain text of strangers: they are shown as data, on one line or
inside a fence that they cannot close.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ferrule.core.calls import ToolCall, ToolResult, encode_json, read_arguments
from ferrule.core.errors import ToolFailed
from ferrule.core.invisible_characters import escape_for_approval, escape_invisible
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.tools.definition import SideEffect, Tool

_KINDS = {
    "delete_path": "delete",
    "move_path": "move",
    "search_files": "search",
    "tool_search": "search",
    "add_task": "think",
    "list_tasks": "think",
    "update_task": "think",
}
"""Built-in tools whose kind does not follow from their side effect."""
_EFFECTS = {
    SideEffect.READ: "read",
    SideEffect.WRITE: "edit",
    SideEffect.EXECUTE: "execute",
    SideEffect.UNDECLARED: "other",
    SideEffect.EXTERNAL: "other",
    SideEffect.NONE: "other",
}
_LINES = ("line_start", "line")
"""Parameters that give a line of the file."""
MAX_TITLE = 120
MAX_SHOWN = 20_000
"""Most characters of a title, and of a result's text."""


def call_kind(tool: Tool | None) -> str:
    """Return the protocol's kind of a tool.

    One of `read`, `edit`, `delete`, `move`, `search`, `execute`, `think`, `fetch`, `other`.
    """
    if tool is None:
        return "other"
    if tool.rule_name in _KINDS:
        return _KINDS[tool.rule_name]
    kinds = {touch.kind for touch in tool.touches.values()}
    if "url" in kinds or (tool.side_effect is SideEffect.EXTERNAL and tool.source == "http"):
        return "fetch"
    return _EFFECTS.get(tool.side_effect, "other")


def raw_input(call: ToolCall) -> Any:
    """Return the arguments for `rawInput`, as an object even if the model sent something else."""
    found = read_arguments(call.arguments)
    return {"arguments": call.arguments} if found is None else found


def call_title(call: ToolCall, tool: Tool | None) -> str:
    """Return the tool and its subject in back-ticks, on one line: `edit_file note.txt`."""
    about = ""
    for subject in _subjects(tool, read_arguments(call.arguments) or {}):
        words = " ".join(subject) if isinstance(subject, tuple) else subject
        about = " ".join(escape_for_approval(words).split()).replace("`", "'")
        break
    if len(about) > MAX_TITLE:
        about = f"{about[:MAX_TITLE]}…"
    name = " ".join(escape_for_approval(call.tool).split())[:MAX_TITLE]
    return f"{name} `{about}`" if about else name


def _subjects(tool: Tool | None, values: Mapping[str, Any]) -> list[str | tuple[str, ...]]:
    """Return what the call touches, a command before the folder it starts in."""
    if tool is None:
        return []
    found = [one for one in tool.subjects(values) if one.kind != "variables"]
    return [one.value for one in sorted(found, key=lambda one: one.kind != "command") if one.value]


def call_locations(
    call: ToolCall, tool: Tool | None, workspace: Workspace | None
) -> list[dict[str, Any]]:
    """Return the files that the arguments name, as absolute paths, with a line if one is given.

    Paths outside the workspace are left out.
    """
    values = read_arguments(call.arguments) or {}
    if tool is None or workspace is None:
        return []
    line = next(
        (values[name] for name in _LINES if type(values.get(name)) is int and values[name] > 0),
        None,
    )
    found: list[dict[str, Any]] = []
    for subject in tool.subjects(values):
        if subject.kind not in ("read", "write") or not isinstance(subject.value, str):
            continue
        path = absolute_path(workspace, subject.value)
        if path is not None:
            found.append({"path": path} if line is None else {"path": path, "line": line})
    return found


def absolute_path(workspace: Workspace, path: str) -> str | None:
    """Return the absolute path of what a model named, or None outside the workspace."""
    try:
        return str(Path(workspace.root) / workspace.name(path))
    except ToolFailed:
        return None


def text_content(text: str) -> dict[str, Any]:
    """Return a tool's text as content of a call, fenced (editors read Markdown) and bounded."""
    cut = f"\n… {len(text) - MAX_SHOWN} more characters" if len(text) > MAX_SHOWN else ""
    return {"type": "content", "content": {"type": "text", "text": fence(text[:MAX_SHOWN] + cut)}}


def fence(text: str) -> str:
    """Put a text in a fence that it cannot close, with invisible characters spelled out."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}\n{escape_invisible(text).rstrip()}\n{mark}"


def result_text(result: ToolResult) -> str:
    """Return what a person reads of a result: its value, or its error."""
    if result.success:
        return result.data if isinstance(result.data, str) else encode_json(result.data)
    return f"{result.error_type}: {result.error_message or ''}"


def raw_output(result: ToolResult) -> dict[str, Any]:
    """Return the result object for `rawOutput`, without text data, which is shown as content."""
    shape = result.to_envelope()
    if isinstance(shape["data"], str):
        del shape["data"]
    return shape
