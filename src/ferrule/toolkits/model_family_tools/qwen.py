"""The tools of Qwen Code, under its names and with its parameters (version 0.15)."""

from __future__ import annotations

from typing import Annotated, Any

from ferrule.toolkits.commands.run_command_tool import runs_with_others
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, Tool

from .calls import ShapeCalls
from .found_files import find_names

REPLACED = ("run_command", "list_files", "search_files", "edit_file")
"""Tools whose place these take."""

_CALLS = ShapeCalls(
    {
        "run_command": "run_shell_command",
        "edit_file": "edit",
        "list_files": "list_directory",
        "search_files": "grep_search",
        "path": "file_path",
    }
)


@tool(side_effect="none", risk="safe", inline=True, parallel=False)
async def edit(
    context: Context,
    file_path: Annotated[str, "Path of the file."],
    old_string: Annotated[str, "The text to replace, unique, with its indentation."],
    new_string: Annotated[str, "The text to put in its place."],
    replace_all: Annotated[bool, "Replace every occurrence."] = False,
) -> str:
    """Replace a piece of text in a file."""
    arguments = {
        "path": file_path,
        "old_string": old_string,
        "new_string": new_string,
        "replace_all": replace_all,
    }
    return await _CALLS.call(context, "edit_file", arguments)


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
    is_background: Annotated[bool, "Do not wait for its end, e.g. of a server."] = False,
    timeout: Annotated[int | None, "Milliseconds after which it is ended."] = None,
    description: Annotated[str, "What it is for."] = "",
    directory: Annotated[str, "Folder to run it in. Default: where the last `cd` led."] = "",
) -> str:
    """Run a command line in a shell whose folder and exported variables live on. Returns its
    output, and its exit status if that is not 0.
    """
    arguments: dict[str, Any] = {"command": command, "background": is_background}
    if directory:
        arguments["cwd"] = directory
    if timeout is not None:
        arguments["timeout"] = timeout / 1000
    return await _CALLS.run_command(context, arguments)


@tool(side_effect="none", risk="safe", inline=True)
async def grep_search(
    context: Context,
    pattern: Annotated[str, "A regular expression."],
    glob: Annotated[str | None, "Only files that match this glob."] = None,
    path: Annotated[str, "The folder or file to search."] = ".",
    limit: Annotated[int, "Stop after this many matches."] = 100,
) -> str:
    """Search the files of a folder for text. Returns rows `file:line:text`."""
    arguments = {"pattern": pattern, "path": path, "file_filter": glob, "max_results": limit}
    return await _CALLS.call(context, "search_files", arguments)


@tool(side_effect="read", risk="low")
def glob(
    context: Context,
    pattern: Annotated[str, "`**/*.py`, `docs/*.md`."],
    path: Annotated[str, READS, "The folder to look in."] = ".",
) -> str:
    """Find files by their names, the last changed first."""
    return find_names(context, pattern, path)


@tool(side_effect="none", risk="safe", inline=True)
async def list_directory(
    context: Context, path: Annotated[str, "The folder to list."] = "."
) -> str:
    """List a folder."""
    return await _CALLS.call(context, "list_files", {"path": path})


RENAMED = {"read_file": {"path": "file_path"}, "write_file": {"path": "file_path"}}
"""Tools that stay, with the names that their parameters have there."""

SHAPES: tuple[Tool, ...] = (edit, run_shell_command, grep_search, glob, list_directory)
