"""The tools of Gemini CLI, under its names and with its parameters (version 0.20 and later).

Google's API has no types for them: what Gemini's models know are these names. Fields: the tool
declarations of Gemini CLI (`base-declarations.ts`). Qwen Code began as a copy of it: what still
differs in names alone is taken from there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from ferrule.toolkits.commands.run_command_tool import runs_with_others
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import Tool

from . import qwen
from .calls import ShapeCalls
from .found_files import read_each
from .qwen import REPLACED
from .renamed_arguments import rename_parameters

__all__ = ["RENAMED", "REPLACED", "SHAPES"]

_CALLS = ShapeCalls(
    {
        "run_command": "run_shell_command",
        "edit_file": "replace",
        "list_files": "list_directory",
        "search_files": "grep_search",
        "path": "file_path",
        "line_start": "start_line",
        "line_end": "end_line",
        "replace_all": "allow_multiple",
    }
)


@tool(side_effect="none", risk="safe", inline=True)
async def read_many_files(
    context: Context,
    include: Annotated[list[str], "Paths and globs: `src/**/*.py`."],
) -> str:
    """Read several text files at once."""
    return await read_each(_CALLS, context, include)


@tool(side_effect="none", risk="safe", inline=True, parallel=False)
async def replace_text(
    context: Context,
    file_path: Annotated[str, "Path of the file."],
    old_string: Annotated[str, "The text to replace, unique, with its indentation."],
    new_string: Annotated[str, "The text to put in its place."],
    instruction: Annotated[str, "What the change is for."] = "",
    allow_multiple: Annotated[bool, "Replace every occurrence."] = False,
) -> str:
    """Replace a piece of text in a file."""
    return await _CALLS.call(
        context,
        "edit_file",
        {
            "path": file_path,
            "old_string": old_string,
            "new_string": new_string,
            "replace_all": allow_multiple,
        },
    )


@tool(
    side_effect="none",
    risk="safe",
    inline=True,
    parallel=runs_with_others,
    timeout=3660,
)
async def run_shell_command(
    context: Context,
    command: Annotated[str, "A command line for bash."],
    description: Annotated[str, "What it is for."] = "",
    dir_path: Annotated[str, "Folder to run it in. Default: where the last `cd` led."] = "",
    is_background: Annotated[bool, "Do not wait for its end, e.g. of a server."] = False,
) -> str:
    """Run a command line in a shell whose folder and exported variables live on. Returns its
    output, and its exit status if that is not 0.
    """
    arguments: dict[str, Any] = {"command": command, "background": is_background}
    if dir_path:
        arguments["cwd"] = dir_path
    return await _CALLS.run_command(context, arguments)


RENAMED = {
    "read_file": {"path": "file_path", "line_start": "start_line", "line_end": "end_line"},
    "write_file": {"path": "file_path"},
}
"""Tools that stay, with the names that their parameters have there."""

SHAPES: tuple[Tool, ...] = (
    read_many_files,
    replace(replace_text, name="replace"),
    run_shell_command,
    rename_parameters(
        qwen.grep_search,
        {"path": "dir_path", "glob": "include_pattern", "limit": "total_max_matches"},
    ),
    rename_parameters(qwen.glob, {"path": "dir_path"}),
    rename_parameters(qwen.list_directory, {"path": "dir_path"}),
)
