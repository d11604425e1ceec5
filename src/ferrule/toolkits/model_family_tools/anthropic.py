"""The tools that Anthropic's models were trained on: `bash` and `str_replace_based_edit_tool`.

Each call is a call of the tool that does such a thing (`run_command`, `read_file`, `edit_file`,
...), with its gate, preview, hooks and record; these change nothing themselves. `PROVIDER_TYPE`
names the tool type of the API, which Anthropic's client sends in place of a schema. Fields: the
SDK's `ToolBash20250124Param` and `ToolTextEditor20250728Param`, and the API's pages on both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from ferrule.core.errors import RetryCall
from ferrule.toolkits.commands.run_command_tool import runs_with_others
from ferrule.toolkits.session_folder import find_place
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import PROVIDER_TYPE, Tool

from .calls import ShapeCalls, require

REPLACED = ("run_command", "read_file", "list_files", "edit_file", "write_file")
"""Tools whose place these take."""


_KNOWN_AS = {
    "run_command": "bash",
    "edit_file": "str_replace",
    "write_file": "create",
    "read_file": "view",
    "list_files": "view",
    "insert_lines": "insert",
    "old_string": "old_str",
    "new_string": "new_str",
    "content": "file_text",
}
"""Names in our refusals that the model does not know, and the ones that it knows."""


_CALLS = ShapeCalls(_KNOWN_AS)


@tool(
    side_effect="none",
    risk="safe",
    inline=True,
    parallel=runs_with_others,
    timeout=3660,
)
async def bash(
    context: Context,
    command: Annotated[str, "The command line."] = "",
    restart: Annotated[bool, "Begin a new shell."] = False,
) -> str:
    """Run a command line in a shell whose folder and exported variables live on. Returns its
    output, and its exit status if that is not 0. With `&` at its end it goes on in the background:
    `jobs`, `wait %1`, `kill %1`.
    """
    if not command.strip() and not restart:
        raise RetryCall("`command` is empty; give a command line, or `restart: true`")
    given = {"command": command if command.strip() else "true", "restart": restart}
    return await _CALLS.run_command(context, given)


@tool(side_effect="none", risk="safe", inline=True, parallel=False)
async def str_replace_based_edit_tool(  # noqa: PLR0913  the parameters of the API's tool
    command: Annotated[
        Literal["view", "create", "str_replace", "insert"], "What to do with the file."
    ],
    path: Annotated[str, "Path of the file, or for `view` of a folder."],
    context: Context,
    view_range: Annotated[
        list[int] | None, "For `view`: first and last line, from 1; -1 is the last of the file."
    ] = None,
    file_text: Annotated[str | None, "For `create`: the whole content."] = None,
    old_str: Annotated[str | None, "For `str_replace`: the text to replace, unique."] = None,
    new_str: Annotated[str | None, "For `str_replace`: what takes its place."] = None,
    insert_line: Annotated[
        int | None, "For `insert`: the line to insert after, 0: before all."
    ] = None,
    insert_text: Annotated[str | None, "For `insert`: the text."] = None,
) -> str:
    """View a file or folder, create a file, replace a piece of text in it, or insert lines."""
    given: dict[str, Any] = {"path": path}
    match command:
        case "view":
            place = find_place(context, path)
            if place.workspace.stat(place.path).kind == "dir":
                return await _CALLS.call(context, "list_files", given)
            return await _CALLS.call(context, "read_file", {**given, **_read_range(view_range)})
        case "create":
            content = require("file_text", file_text, command)
            return await _CALLS.call(context, "write_file", {**given, "content": content})
        case "str_replace":
            edit = {
                "old_string": require("old_str", old_str, command),
                "new_string": new_str or "",
            }
            return await _CALLS.call(context, "edit_file", {**given, **edit})
        case "insert":
            line = require("insert_line", insert_line, command) + 1
            text = require("insert_text", insert_text, command)
            lines = {"line_start": line, "new_content": text}
            return await _CALLS.call(context, "insert_lines", {**given, **lines})


def _read_range(given: list[int] | None) -> dict[str, int]:
    if given is None:
        return {}
    if len(given) != 2:
        raise RetryCall(f"`view_range` is two numbers, the first and the last line; found {given}")
    first, last = given
    return {"line_start": first} if last == -1 else {"line_start": first, "line_end": last}


SHAPES: tuple[Tool, ...] = (
    replace(bash, annotations={PROVIDER_TYPE: "bash_20250124"}),
    replace(str_replace_based_edit_tool, annotations={PROVIDER_TYPE: "text_editor_20250728"}),
)
