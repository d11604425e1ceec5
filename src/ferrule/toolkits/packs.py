"""Packs: tools that work on a folder, put together for an agent with one call.

    agent_read_tools     read_file, read_file_tail, list_directory, get_file_outline, search_files, git_inspect   group `read`
    agent_edit_tools     write_file, edit_file, create_directory, delete_path                                     group `edit`
    agent_command_tools  run_command, read_command_output, read_command_output_tail                               group `command`
    agent_host_tools     read and command together; edits are a pack of their own on purpose

A pack takes its own options by name and those of `tools.pack_options.Shape`. It adds nothing to
what the tools may do: the workspace of the run is the boundary, `root` only narrows it, and every
call goes through the gate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack, cast

from ferrule.core.errors import ConfigError
from ferrule.tools import toolset
from ferrule.tools.definition import Tool
from ferrule.tools.pack_options import Shape, check_options, shaped

from .files.browse import file_outline, list_files
from .files.tools import create_dir, delete_path, edit_file, read_file, read_file_tail, write_file
from .git.command import git_command
from .search.pack import search_tool
from .subfolder import Folder, based, confined

T = TypeVar("T")

_READ = (read_file, read_file_tail, list_files, file_outline)
_EDIT = (write_file, edit_file, create_dir, delete_path)
_KEYS = {
    "list_files": "list_directory",
    "file_outline": "get_file_outline",
    "git_command": "git_inspect",
    "create_dir": "create_directory",
}
"""Names of our tools -> what requirement 001 calls them. Several names for one thing never meet in
one pack.
"""


class SearchOptions(TypedDict, total=False):
    """`max_search_matches` and `search_exclude_globs` are other names of the same options."""

    search_max_matches: int
    max_search_matches: int
    exclude_globs: Iterable[str]
    search_exclude_globs: Iterable[str]


class RunOptions(TypedDict, total=False):
    """Options of `run_command`: see `toolkits.commands.policy.CommandOptions`, which they become.

    `command_behavior` (also `run_command_behavior`) holds defaults of every request,
    `command_policy` (also `allow_command`) is a function that allows, denies or rewrites one.
    `max_inline_bytes` caps output inside a result, whatever a call asks for.
    """

    cwd: str | os.PathLike[str]
    max_inline_bytes: int
    command_behavior: Mapping[str, Any]
    run_command_behavior: Mapping[str, Any]
    allow_argv_prefixes: Sequence[str | Sequence[str]] | None
    preserve_filtered_output: bool
    command_policy: Callable[..., Any] | None
    allow_command: Callable[..., Any] | None
    lifecycle: bool


class ReadPack(Shape, SearchOptions, total=False):
    """What `agent_read_tools` takes besides `root`."""


class CommandPack(Shape, RunOptions, total=False):
    """What `agent_command_tools` takes besides `root`."""


class HostPack(Shape, SearchOptions, RunOptions, total=False):
    """What `agent_host_tools` takes besides `root`."""


def agent_read_tools(root: Folder = None, **options: Unpack[ReadPack]) -> tuple[Tool, ...]:
    """Tools that look and change nothing, kept to `root` (a folder of the workspace; None: all of
    it).

    Raises ConfigError for an option, key or name that does not exist, naming the nearest.
    """
    check_options(options, ReadPack)
    search, shape = _taken(options, SearchOptions)
    return shaped(_read(root, search), shape)


def agent_edit_tools(root: Folder = None, **options: Unpack[Shape]) -> tuple[Tool, ...]:
    """Tools that change files, kept to `root`. Raises ConfigError as `agent_read_tools` does."""
    return shaped(_edit(root), options)


def agent_command_tools(root: Folder = None, **options: Unpack[CommandPack]) -> tuple[Tool, ...]:
    """Tools that run programs and read their output, kept to `root`. Raises ConfigError as
    `agent_read_tools` does.
    """
    check_options(options, CommandPack)
    run, shape = _taken(options, RunOptions)
    return shaped(_commands(root, run, shape), shape)


def agent_host_tools(root: Folder = None, **options: Unpack[HostPack]) -> tuple[Tool, ...]:
    """`agent_read_tools` and `agent_command_tools` as one set. Raises ConfigError as these do."""
    check_options(options, HostPack)
    search, rest = _taken(options, SearchOptions)
    run, shape = _taken(rest, RunOptions)
    return shaped((*_read(root, search), *_commands(root, run, shape)), shape)


def _read(root: Folder, options: Mapping[str, Any]) -> tuple[Tool, ...]:
    search = search_tool(
        max_matches=_either(options, "search_max_matches", "max_search_matches", 50),
        exclude_globs=_globs(_either(options, "exclude_globs", "search_exclude_globs", ())),
    )
    tools = (*confined((*_READ, search), root), *based([git_command], root))
    return _as_required(tools, "read")


def _edit(root: Folder) -> tuple[Tool, ...]:
    return _as_required(confined(_EDIT, root), "edit")


def _commands(root: Folder, options: Mapping[str, Any], shape: Shape) -> tuple[Tool, ...]:
    from .commands import CommandOptions, command_tools
    from .commands.policy import Behavior

    behavior = _either(options, "command_behavior", "run_command_behavior", None)
    given: dict[str, Any] = {
        name: options[name]
        for name in (
            "max_inline_bytes",
            "allow_argv_prefixes",
            "preserve_filtered_output",
            "lifecycle",
        )
        if name in options
    }
    made = command_tools(
        CommandOptions(
            root=os.fspath(root) if root is not None else "",
            cwd=os.fspath(cast("str | os.PathLike[str]", options.get("cwd", ""))),
            behavior=Behavior.of(behavior or {}),
            command_policy=_either(options, "command_policy", "allow_command", None),
            output_format=_record_format(shape),
            names=dict(shape.get("names") or {}),
            namespace=shape.get("namespace", ""),
            **given,
        )
    )
    readers = [tool.name for tool in made if tool.name.startswith("read_command_output")]
    return toolset.annotated(
        toolset.keyed(made, "command"), {"run_command": {"result_readers": readers}}
    )


def _record_format(shape: Shape) -> Any:
    """JSON text unless somebody wants the records shaped otherwise; then they come as they are."""
    if shape.get("result_formatter") or shape.get("formatters"):
        return "value"
    wanted = shape.get("output_format", "json")
    return "json" if "output_format" not in shape else "display" if wanted == "display" else "value"


def _as_required(tools: Iterable[Tool], group: str) -> tuple[Tool, ...]:
    """Tools under the names that the requirement gives them."""
    found = tuple(tools)
    known = {name: key for name, key in _KEYS.items() if any(tool.name == name for tool in found)}
    return toolset.renamed(
        toolset.keyed(found, group, keys=_KEYS), {key: key for key in known.values()}
    )


def _globs(globs: Any) -> tuple[str, ...]:
    if isinstance(globs, str):
        raise ConfigError(
            f"exclude_globs: found the text {globs!r}", hint=f"give a list: [{globs!r}]"
        )
    return tuple(globs)


def _taken(options: Mapping[str, Any], kind: type) -> tuple[dict[str, Any], Any]:
    """Options of one kind, and the others. An option whose value is None says nothing."""
    names = kind.__annotations__
    own = {name: value for name, value in options.items() if name in names and value is not None}
    return own, {name: value for name, value in options.items() if name not in names}


def _either(options: Mapping[str, Any], name: str, other: str, default: T) -> T:
    if name in options and other in options:
        raise ConfigError(f"`{name}` and `{other}` are one option", hint=f"give `{name}` alone")
    return cast("T", options.get(name, options.get(other, default)))
