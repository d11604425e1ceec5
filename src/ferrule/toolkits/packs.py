"""Packs: tools that work on a folder, assembled for an agent with one call.

    agent_read_tools     group `read`: read_file, read_file_tail, list_directory,
                         get_file_outline, search_files, git_inspect
    agent_edit_tools     group `edit`: write_file, edit_file, create_directory, delete_path
    agent_command_tools  group `command`: run_command, read_command_output,
                         read_command_output_tail
    agent_host_tools     read and command together; edits are a pack of their own on purpose

A pack takes its own options by name and those of `tools.pack_options.PackOptions`. It adds nothing
to what the tools may do: the workspace of the run is the boundary, `root` only narrows it, and
every call passes the permission gate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, Unpack, cast

from ferrule.core.errors import ConfigError
from ferrule.tools import toolset
from ferrule.tools.definition import Tool
from ferrule.tools.pack_options import PackOptions, apply_options, check_options

from .commands import CommandOptions, command_tools
from .commands.policy import Behavior
from .files.browse import file_outline, list_files
from .files.tools import create_dir, delete_path, edit_file, read_file, read_file_tail, write_file
from .git.git_command import git_command
from .search.pack import make_search_tool
from .subfolder import FolderPath, limit_tools, move_tools, read_folder

T = TypeVar("T")

_READ_TOOLS = (read_file, read_file_tail, list_files, file_outline)
_EDIT_TOOLS = (write_file, edit_file, create_dir, delete_path)
_REQUIRED_NAMES = {
    "list_files": "list_directory",
    "file_outline": "get_file_outline",
    "git_command": "git_inspect",
    "create_dir": "create_directory",
}
"""Names of our tools -> what requirement 001 calls them.

Several names for one tool never occur in one pack.
"""


class SearchOptions(TypedDict, total=False):
    """Options of `search_files`.

    `max_search_matches` and `search_exclude_globs` are other names for the same options.
    """

    search_max_matches: int
    max_search_matches: int
    exclude_globs: Iterable[str]
    search_exclude_globs: Iterable[str]


class RunCommandOptions(TypedDict, total=False):
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


class ReadPackOptions(PackOptions, SearchOptions, total=False):
    """Options of `agent_read_tools` besides `root`."""


class CommandPackOptions(PackOptions, RunCommandOptions, total=False):
    """Options of `agent_command_tools` besides `root`."""


class HostPackOptions(PackOptions, SearchOptions, RunCommandOptions, total=False):
    """Options of `agent_host_tools` besides `root`."""


def agent_read_tools(
    root: FolderPath = None, **options: Unpack[ReadPackOptions]
) -> tuple[Tool, ...]:
    """Return tools that look and change nothing.

    Args:
        root: The folder of the workspace that the tools are limited to; None: all of it.

    Raises:
        ConfigError: An option, key or name does not exist; the message names the nearest.
    """
    check_options(options, ReadPackOptions)
    search, shape = _split_options(options, SearchOptions)
    return apply_options(_make_read_tools(root, search), shape)


def agent_edit_tools(root: FolderPath = None, **options: Unpack[PackOptions]) -> tuple[Tool, ...]:
    """Return tools that change files. Arguments and errors are those of `agent_read_tools`."""
    return apply_options(_make_edit_tools(root), options)


def agent_command_tools(
    root: FolderPath = None, **options: Unpack[CommandPackOptions]
) -> tuple[Tool, ...]:
    """Return tools that run programs and read their output.

    Arguments and errors are those of `agent_read_tools`.
    """
    check_options(options, CommandPackOptions)
    run, shape = _split_options(options, RunCommandOptions)
    return apply_options(_make_command_tools(root, run, shape), shape)


def agent_host_tools(
    root: FolderPath = None, **options: Unpack[HostPackOptions]
) -> tuple[Tool, ...]:
    """Return `agent_read_tools` and `agent_command_tools` as one set."""
    check_options(options, HostPackOptions)
    search, rest = _split_options(options, SearchOptions)
    run, shape = _split_options(rest, RunCommandOptions)
    return apply_options(
        (*_make_read_tools(root, search), *_make_command_tools(root, run, shape)), shape
    )


def _make_read_tools(root: FolderPath, options: Mapping[str, Any]) -> tuple[Tool, ...]:
    search = make_search_tool(
        max_matches=_take_either(options, "search_max_matches", "max_search_matches", 50),
        exclude_globs=_check_globs(
            _take_either(options, "exclude_globs", "search_exclude_globs", ())
        ),
    )
    tools = (*limit_tools((*_READ_TOOLS, search), root), *move_tools([git_command], root))
    return _rename_as_required(tools, "read")


def _make_edit_tools(root: FolderPath) -> tuple[Tool, ...]:
    return _rename_as_required(limit_tools(_EDIT_TOOLS, root), "edit")


def _make_command_tools(
    root: FolderPath, options: Mapping[str, Any], shape: PackOptions
) -> tuple[Tool, ...]:
    # Loaded only for packs that run commands.
    behavior = _take_either(options, "command_behavior", "run_command_behavior", None)
    passed_on = (
        "max_inline_bytes",
        "allow_argv_prefixes",
        "preserve_filtered_output",
        "lifecycle",
    )
    given: dict[str, Any] = {name: options[name] for name in passed_on if name in options}
    tools = command_tools(
        CommandOptions(
            root=read_folder(root) if root is not None else "",
            cwd=os.fspath(cast("str | os.PathLike[str]", options.get("cwd", ""))),
            behavior=Behavior.from_mapping(behavior or {}),
            command_policy=_take_either(options, "command_policy", "allow_command", None),
            output_format=_record_format(shape),
            names=dict(shape.get("names") or {}),
            namespace=shape.get("namespace", ""),
            **given,
        )
    )
    readers = [tool.name for tool in tools if tool.name.startswith("read_command_output")]
    keyed = toolset.add_to_groups(tools, "command")
    return toolset.annotate(keyed, {"run_command": {"result_readers": readers}})


def _record_format(shape: PackOptions) -> Any:
    """Return JSON text unless the caller formats the records; then they are passed as values."""
    if shape.get("result_formatter") or shape.get("formatters"):
        return "value"
    if "output_format" not in shape:
        return "json"
    return "display" if shape["output_format"] == "display" else "value"


def _rename_as_required(tools: Iterable[Tool], group: str) -> tuple[Tool, ...]:
    """Return the tools under the names that the requirement gives them."""
    found = tuple(tools)
    present = {tool.name for tool in found}
    new_names = {key: key for name, key in _REQUIRED_NAMES.items() if name in present}
    return toolset.rename(toolset.add_to_groups(found, group, keys=_REQUIRED_NAMES), new_names)


def _check_globs(globs: Any) -> tuple[str, ...]:
    if isinstance(globs, str):
        raise ConfigError(
            f"exclude_globs: found the text {globs!r}", hint=f"give a list: [{globs!r}]"
        )
    return tuple(globs)


def _split_options(options: Mapping[str, Any], kind: type) -> tuple[dict[str, Any], Any]:
    """Split options into those of one kind and the others. None counts as not given."""
    names = kind.__annotations__
    own = {name: value for name, value in options.items() if name in names and value is not None}
    others = {name: value for name, value in options.items() if name not in names}
    return own, others


def _take_either(options: Mapping[str, Any], name: str, other: str, default: T) -> T:
    if name in options and other in options:
        raise ConfigError(f"`{name}` and `{other}` are one option", hint=f"give `{name}` alone")
    return cast("T", options.get(name, options.get(other, default)))
