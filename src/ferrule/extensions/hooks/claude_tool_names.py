"""Tools as the contract of command hooks has them: names, inputs, responses, and the way back.

    names = find_contract_names(call)              ("Edit", "MultiEdit", "replace_lines")
    inputs = build_tool_inputs(call, "Edit", root) one for each file that the call changes

Guards are written for a handful of tools. So whatever changes files is `Write`, `Edit` or
`MultiEdit` for them, whatever runs something is `Bash`, and the first name in the row is the one
that a guard of everything reads. Paths are absolute, a command is one text, and a response is an
object, as they are there. An MCP tool is `mcp__server__tool` first.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import NotJson, ToolPost, ToolPre

_FILE_TOOLS = ("Write", "Edit", "MultiEdit")
_NAMES: dict[str, tuple[str, ...]] = {
    "run_command": ("Bash",),
    "read_file": ("Read",),
    "read_file_tail": ("Read",),
    "write_file": ("Write",),
    "edit_file": ("Edit", "MultiEdit"),
    "replace_lines": ("Edit", "MultiEdit"),
    "insert_lines": ("Edit", "MultiEdit"),
    "search_files": ("Grep",),
    "grep_search": ("Grep",),
    "list_files": ("LS", "Glob"),
    "file_tree": ("Glob", "LS"),
    "delegate": ("Task", "Agent"),
    "git_fetch": ("Bash",),
    "git_pull_ff_only": ("Bash",),
}
OWN_NAMES = {
    "Bash": "run_command",
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "edit_file",
    "MultiEdit": "edit_file",
    "Grep": "search_files",
    "Glob": "file_tree",
    "LS": "list_files",
    "Task": "delegate",
    "Agent": "delegate",
}
"""The tool that a name of the contract means here."""

_GIT_COMMANDS = {"git_pull_ff_only": "git pull --ff-only", "git_fetch": "git fetch"}
_PATH_ARGUMENTS = ("path", "source", "target")

ToolEvent = ToolPre | ToolPost


@frozen
class ToolInput:
    """A call's `tool_input`: its values, and the argument that each of them comes from.

    Values without an origin are made up for the contract and cannot be changed.
    """

    values: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    folder: str = ""

    def restore_arguments(
        self, given: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments that an `updatedInput` means; what it leaves out is left out.

        Raises NotJson if it changes what no argument of the tool stands for.
        """
        restored: dict[str, Any] = {}
        for key, value in given.items():
            origin = self.origins.get(key)
            if key in self.values and self.values[key] == value:
                if origin is not None:
                    restored[origin] = arguments[origin]
            elif origin is not None:
                restored[origin] = self._restore_value(key, value, arguments[origin])
            elif key in self.values:
                raise NotJson(f"it changes `{key}`, for which this tool has no argument")
            else:
                restored[key] = value
        return restored

    def _restore_value(self, key: str, value: Any, before: Any) -> Any:
        if key == "file_path" and isinstance(value, str):
            return _relative(value, self.folder)
        if key == "timeout" and isinstance(value, (int, float)):
            return value / 1000
        if key == "command" and isinstance(value, str) and isinstance(before, (list, tuple)):
            return shlex.split(value)
        return value


# ---- names


def find_contract_names(call: ToolEvent) -> tuple[str, ...]:
    """Return the names that a matcher may mean a call's tool by, the contract's own first."""
    known = _NAMES.get(call.name)
    if known is not None:
        return (*known, call.name)
    by_effect: tuple[str, ...] = ()
    if _list_touched(call, "write"):
        by_effect = _FILE_TOOLS
    elif _runs_something(call):
        by_effect = ("Bash",)
    if call.tool is not None and call.tool.source.startswith("mcp"):
        return (f"mcp__{call.name}", call.name, *by_effect)
    return (*by_effect, call.name)


def _runs_something(call: ToolEvent) -> bool:
    effect = call.side_effect if isinstance(call, ToolPre) else ""
    if call.tool is not None:
        effect = str(call.tool.side_effect)
    return effect == "execute" or bool(_list_touched(call, "command"))


def _list_touched(call: ToolEvent, kind: str) -> list[Any]:
    """Return what the call's arguments name of a kind (`write`, `command`)."""
    if isinstance(call, ToolPre) and call.tool is None:
        return list(call.writes if kind == "write" else call.commands)
    if call.tool is None or call.arguments is None:
        return []
    return [one.value for one in call.tool.subjects(call.arguments) if one.kind == kind]


# ---- inputs


def build_tool_inputs(call: ToolEvent, name: str, folder: str) -> list[ToolInput]:
    """Return a call's input under a name of the contract, once for each file that it changes.

    Args:
        call: The call.
        name: The name that the hook is told: one of `find_contract_names`.
        folder: The workspace, against which paths are absolute.
    """
    arguments = dict(call.arguments or {})
    if name == "Bash":
        return [_command_input(call, arguments, folder)]
    if name in _FILE_TOOLS:
        return [
            _file_input(arguments, name, origin, path, folder)
            for origin, path in _changed_files(call, arguments)
        ]
    values = dict(arguments)
    origins = {key: key for key in arguments}
    if name == "Read":
        _rename_path(values, origins, folder)
        _add_line_range(values, arguments)
    elif name in ("Grep", "Glob", "LS"):
        values["path"] = _absolute(str(arguments.get("path") or "."), folder)
    elif name in ("Task", "Agent"):
        values.setdefault("subagent_type", arguments.get("agent", ""))
        values.setdefault("prompt", arguments.get("task", ""))
    return [ToolInput(values, origins, folder)]


def _command_input(call: ToolEvent, arguments: Mapping[str, Any], folder: str) -> ToolInput:
    values = dict(arguments)
    origins = {key: key for key in arguments}
    origin = next((key for key in ("command", "argv") if arguments.get(key)), "")
    values.pop("argv", None)
    origins.pop("argv", None)
    if origin:
        origins["command"] = origin
        values["command"] = _as_text(arguments[origin])
    else:
        touched = _list_touched(call, "command")
        values["command"] = _as_text(touched[0]) if touched else _describe_run(call, arguments)
    seconds = arguments.get("timeout")
    if isinstance(seconds, (int, float)):
        values["timeout"] = int(seconds * 1000)
    return ToolInput(values, origins, folder)


def _as_text(command: Any) -> str:
    if isinstance(command, (list, tuple)):
        return shlex.join(str(word) for word in cast("Sequence[Any]", command))
    return str(command)


def _describe_run(call: ToolEvent, arguments: Mapping[str, Any]) -> str:
    """Return a command line for a call that has none, such as `git commit fix`."""
    words = _GIT_COMMANDS.get(call.name, call.name.replace("git_", "git "))
    texts: list[str] = []
    for value in arguments.values():
        items: list[Any] = cast("list[Any]", value) if isinstance(value, (list, tuple)) else [value]
        texts += (item if isinstance(item, str) else json.dumps(item) for item in items)
    return " ".join((words, *map(shlex.quote, texts)))


def _changed_files(call: ToolEvent, arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the files that a call changes, each with the argument that names it, "" if none."""
    paths = _list_touched(call, "write")
    if not paths:
        paths = [arguments[key] for key in _PATH_ARGUMENTS if key in arguments]
    origins = {value: key for key, value in arguments.items() if isinstance(value, str)}
    return [(origins.get(str(path), ""), str(path)) for path in paths] or [("", "")]


def _file_input(
    arguments: Mapping[str, Any], name: str, origin: str, path: str, folder: str
) -> ToolInput:
    values = {key: value for key, value in arguments.items() if key != origin}
    origins = {key: key for key in values}
    values["file_path"] = _absolute(path, folder)
    if origin:
        origins["file_path"] = origin
    content_key = next((key for key in ("content", "new_content", "text") if key in arguments), "")
    if name == "Write":
        values.setdefault("content", arguments.get(content_key, arguments.get("new_string", "")))
        return ToolInput(values, origins, folder)
    if "new_string" not in arguments and content_key:
        values["new_string"] = values.pop(content_key)
        origins["new_string"] = origins.pop(content_key)
    values.setdefault("old_string", "")
    values.setdefault("new_string", "")
    if name == "MultiEdit":
        first = {key: values[key] for key in ("old_string", "new_string")}
        values["edits"] = [first, *(arguments.get("more_edits") or ())]
    return ToolInput(values, origins, folder)


def _rename_path(values: dict[str, Any], origins: dict[str, str], folder: str) -> None:
    if isinstance(values.get("path"), str):
        values["file_path"] = _absolute(values.pop("path"), folder)
        origins["file_path"] = origins.pop("path")


def _add_line_range(values: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    first, last = arguments.get("line_start"), arguments.get("line_end")
    if isinstance(first, int):
        values["offset"] = first
    if isinstance(last, int):
        values["limit"] = last - (first if isinstance(first, int) else 1) + 1


def _absolute(path: str, folder: str) -> str:
    return os.path.normpath(os.path.join(folder, path)) if folder else path  # noqa: PTH118  text


def _relative(path: str, folder: str) -> str:
    """Return a path as a tool takes it: below the workspace, or as it is."""
    prefix = folder.rstrip("/") + "/"
    return path[len(prefix) :] if folder and path.startswith(prefix) else path


# ---- responses


def build_tool_response(call: ToolPost, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object that a hook reads as `tool_response`.

    Args:
        call: The call's result.
        name: The name that the hook is told.
        values: The call's input, as the hook is told it.
    """
    result = call.result
    if name == "Bash":
        facts = _as_object(result, "stdout")
        return {"stdout": "", "stderr": "", "interrupted": False, "isImage": False, **facts}
    if name in _FILE_TOOLS:
        response = {"filePath": values.get("file_path", ""), "success": True}
        if name == "Write":
            response["content"] = values.get("content", "")
        else:
            response |= {"oldString": values["old_string"], "newString": values["new_string"]}
        return {**response, **_as_object(result, "message")}
    if name == "Read" and isinstance(result, str):
        file = {"filePath": values.get("file_path", ""), "content": result}
        return {"type": "text", "file": {**file, "numLines": len(result.splitlines())}}
    if name.startswith("mcp__") and isinstance(result, str):
        return {"content": [{"type": "text", "text": result}]}
    return _as_object(result, "content")


def _as_object(result: Any, key: str) -> dict[str, Any]:
    if isinstance(result, Mapping):
        return dict(cast("Mapping[str, Any]", result))
    return {} if result is None else {key: result}


def restore_result(value: Any, call: ToolPost) -> Any:
    """Return the result that an `updatedToolOutput` means: a text where the tool gave one."""
    if not isinstance(call.result, str) or not isinstance(value, Mapping):
        return value
    given = dict(cast("Mapping[str, Any]", value))
    file: Any = given.get("file")
    if isinstance(file, Mapping) and "content" in file:
        return cast("Mapping[str, Any]", file)["content"]
    for key in ("stdout", "message", "content", "text"):
        if isinstance(given.get(key), str):
            return given[key]
    return given
