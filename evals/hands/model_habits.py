"""How families of models write the calls of a task: names, aliases and forms seen in the field.

`anthropic`: the tools that Claude was trained on, with arguments of Claude Code's (`description`, a
timeout in milliseconds, `run_in_background`, `output_mode`). `openai`: function tools, with the
names of Codex, Cursor and others. `gpt`: a newer model of OpenAI, which edits by patches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .model_server import Call

MODELS = {
    "anthropic": "anthropic:claude-sonnet-5",
    "openai": "openai:strong-1",
    "gpt": "openai:gpt-5.2",
}
"""The model that is named to Ferrule, by family."""


def write_call(family: str, step: dict[str, Any], work: str, number: int) -> Call:
    """Return a step of a task as a model of the family calls it.

    Args:
        family: A key of `MODELS`.
        step: One entry of a turn in `tasks/*.yaml`.
        work: The absolute path that stands for `{work}`.
        number: The number of the call; names change with it, as those of models do.
    """
    given = {key: _fill(value, work) for key, value in step.items()}
    if "shell" in given:
        return _shell(family, given, work, number)
    if "read" in given:
        return _read(family, given, number)
    if "edit" in given:
        return _edit(family, given, work, number)
    if "write" in given:
        return _write(family, given, number)
    if "search" in given:
        return _search(family, given, number)
    return _list(family, given["list"])


def _fill(value: Any, work: str) -> Any:
    return value.replace("{work}", work) if isinstance(value, str) else value


def _shell(family: str, given: dict[str, Any], work: str, number: int) -> Call:
    command = given["shell"].rstrip("\n")
    values: dict[str, Any] = {"command": command}
    if family == "anthropic":
        values["description"] = "Run a command"
        if "timeout" in given:
            values["timeout"] = given["timeout"] * 1000
        if "background" in given:
            values["run_in_background"] = True
        return "bash", values
    if number % 3 == 0:
        values = {"cmd": command, "workdir": work, "justification": "look at the project"}
    elif number % 3 == 1:
        values = {"command": ["bash", "-lc", command], "workdir": work}
    if "timeout" in given:
        values["timeout_ms"] = given["timeout"] * 1000
    if "background" in given:
        values["is_background" if number % 2 else "background"] = True
    return "run_command", values


def _read(family: str, given: dict[str, Any], number: int) -> Call:
    path, lines = given["read"], given.get("lines")
    if family == "anthropic":
        values: dict[str, Any] = {"command": "view", "path": path}
        return "str_replace_based_edit_tool", values | ({"view_range": lines} if lines else {})
    values = {("file_path", "path", "target_file")[number % 3]: path}
    if lines and number % 2:
        values |= {"offset": lines[0], "limit": lines[1] - lines[0] + 1}
    elif lines:
        values |= {"start_line": lines[0], "end_line": lines[1]}
    return "read_file", values


def _edit(family: str, given: dict[str, Any], work: str, number: int) -> Call:
    path, old, new = given["edit"], given["old"], given["new"]
    if family == "anthropic":
        values = {"command": "str_replace", "path": path, "old_str": old, "new_str": new}
        return "str_replace_based_edit_tool", values
    if family == "openai":
        path_name = "file_path" if number % 2 else "path"
        values = {path_name: path, "old_string": old, "new_string": new, "replace_all": False}
        return "edit_file", values
    lines = Path(path).read_text().split("\n")  # whole lines, which the model has read
    return "apply_patch", {"input" if number % 2 else "patch": _patch(lines, path, old, new, work)}


def _patch(lines: list[str], path: str, old: str, new: str, work: str) -> str:
    text = "\n".join(lines)
    first = text[: text.index(old)].count("\n")
    last = first + old.count("\n")
    removed = lines[first : last + 1]
    added = "\n".join(removed).replace(old, new, 1).split("\n")
    before = lines[max(0, first - 2) : first]
    after = lines[last + 1 : min(last + 3, len(lines) - 1)]
    name = path.removeprefix(f"{work}/")
    body = [f" {line}" for line in before] + [f"-{line}" for line in removed]
    body += [f"+{line}" for line in added] + [f" {line}" for line in after]
    return "\n".join(["*** Begin Patch", f"*** Update File: {name}", "@@", *body, "*** End Patch"])


def _write(family: str, given: dict[str, Any], number: int) -> Call:
    if family == "anthropic":
        values = {"command": "create", "path": given["write"], "file_text": given["text"]}
        return "str_replace_based_edit_tool", values
    path, content = ("file_path", "content") if number % 2 else ("path", "contents")
    return "write_file", {path: given["write"], content: given["text"]}


def _search(family: str, given: dict[str, Any], number: int) -> Call:
    values: dict[str, Any] = {"pattern": given["search"], "path": given["path"]}
    if family == "anthropic":
        values |= {"output_mode": "content", "-n": True, "head_limit": 50}
    elif number % 2:
        values = {"query": given["search"], "path": given["path"], "include": "**/*"}
    return "search_files", values


def _list(family: str, path: str) -> Call:
    if family == "anthropic":
        return "str_replace_based_edit_tool", {"command": "view", "path": path}
    return "list_files", {"dir_path": path}
