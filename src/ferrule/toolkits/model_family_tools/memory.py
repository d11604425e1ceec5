"""`memory`: notes that a model keeps in a folder of their own, seen as `/memories`.

The folder is a workspace of its own, with no link, no protected name and nothing outside within
reach; the files of the run's workspace are not in it. `PROVIDER_TYPE` names Anthropic's type; other
models get the same tool with its schema. Fields: the SDK's `MemoryTool20250818Param` and the six
commands of `BetaMemoryTool20250818Command`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, RetryCall, ToolFailed
from ferrule.core.value_class import frozen
from ferrule.engine.plugins.protocol import CatalogChanges, Parts, Setup
from ferrule.permissions.filesystem.workspace import ABSENT, Workspace
from ferrule.storage import paths
from ferrule.toolkits.files import lines
from ferrule.toolkits.files.browse import format_size
from ferrule.toolkits.files.edit_application import apply_edits
from ferrule.toolkits.files.edit_matching import Edit
from ferrule.toolkits.files.edits import check_size
from ferrule.tools.decorator import tool
from ferrule.tools.definition import PROVIDER_TYPE, Tool

from .calls import require

TOP = "/memories"
"""What the model calls the folder."""

MAX_FILES = 1000
MAX_SHOWN = 200

Command = Literal["view", "create", "str_replace", "insert", "delete", "rename"]


@frozen
class Memory:
    """The tool `memory`.

    Attributes:
        folder: An absolute path of a folder, `state` for one of Ferrule's own for the workspace,
            `no` or None for none.
    """

    name: ClassVar[str] = "memory"
    folder: str | None = "state"

    def setup(self, setup: Setup) -> Parts:
        """Make the folder.

        Raises:
            ConfigError: The folder is in the workspace or around it, or cannot be made.
        """
        if not self.folder or self.folder == "no" or setup.workspace is None:
            return Parts()
        folder = _make_folder(self.folder, setup.workspace.root)
        return Parts(catalog=CatalogChanges(add=lambda _: (make_memory_tool(folder),)))


def _make_folder(chosen: str, workspace: Path) -> Path:
    if chosen == "state":
        digest = hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]
        folder = paths.state() / "memory" / digest
    else:
        folder = Path(chosen).expanduser()
    if not folder.is_absolute():
        raise ConfigError(
            f"`tools.memory` is `{chosen}`",
            hint="say `state`, or an absolute path of a folder",
        )
    real = Path(os.path.realpath(folder))
    root = Path(os.path.realpath(workspace))
    if real.is_relative_to(root) or root.is_relative_to(real):
        raise ConfigError(
            f"`tools.memory`: `{folder}` and the workspace lie in one another",
            hint="name a folder outside, so that no other tool changes what is remembered",
        )
    paths.make_private_folder(folder)
    return folder


def make_memory_tool(folder: Path) -> Tool:
    """Return the tool for a folder, which must exist."""
    notes = Notes(Workspace(folder))

    @tool(side_effect="write", risk="low", parallel=False)
    def memory(  # noqa: PLR0913  the parameters of the API's tool
        command: Annotated[Command, "What to do."],
        path: Annotated[str | None, "`/memories`, or a file or folder in it."] = None,
        view_range: Annotated[
            list[int] | None, "For `view`: first and last line, from 1; -1 is the last."
        ] = None,
        file_text: Annotated[str | None, "For `create`: the whole content."] = None,
        old_str: Annotated[str | None, "For `str_replace`: the text to replace, unique."] = None,
        new_str: Annotated[str | None, "For `str_replace`: what takes its place."] = None,
        insert_line: Annotated[int | None, "For `insert`: the line to insert after."] = None,
        insert_text: Annotated[str | None, "For `insert`: the text."] = None,
        old_path: Annotated[str | None, "For `rename`: the path now."] = None,
        new_path: Annotated[str | None, "For `rename`: the path then."] = None,
    ) -> str:
        """Keep notes for later conversations in files below `/memories`. Look there before you
        begin a task.
        """
        if command == "rename":
            return notes.rename(
                require("old_path", old_path, command), require("new_path", new_path, command)
            )
        place = require("path", path, command)
        match command:
            case "view":
                return notes.view(place, view_range)
            case "create":
                return notes.create(place, require("file_text", file_text, command))
            case "str_replace":
                old = require("old_str", old_str, command)
                return notes.replace_text(place, old, new_str or "")
            case "insert":
                line = require("insert_line", insert_line, command)
                return notes.insert(place, line, require("insert_text", insert_text, command))
            case "delete":
                return notes.delete(place)

    made: Tool = memory
    return replace(made, annotations={PROVIDER_TYPE: "memory_20250818"})


class Notes:
    """The files below `/memories`.

    Args:
        workspace: The folder that they are in, a workspace of its own.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def view(self, path: str, view_range: list[int] | None = None) -> str:
        """Return a file with line numbers, or the names below a folder."""
        name = find_name(path)
        if self._workspace.stat(name).kind == "dir":
            return "\n".join(self._list(name))
        rows = lines.split_lines(self._read(name))
        first, last = _check_range(view_range, len(rows))
        numbered = lines.number_lines(rows[first - 1 : last], first)
        return numbered.removesuffix("\n") or "[the file is empty]"

    def create(self, path: str, text: str) -> str:
        """Create a file; one that is there stays."""
        name = self._find_file_name(path)
        if sum(1 for _ in self._walk("")) >= MAX_FILES:
            raise ToolFailed(
                ErrorType.LIMIT, f"there are {MAX_FILES} files; delete one that is out of date"
            )
        folder = name.rpartition("/")[0]
        if folder:
            self._workspace.make_dir(folder)
        self._workspace.write(name, check_size(text).encode(), expect=ABSENT)
        return f"created `{path}`"

    def replace_text(self, path: str, old: str, new: str) -> str:
        """Replace a text that is there once."""
        name = self._find_file_name(path)
        applied = apply_edits(self._read(name), (Edit(old, new),), f"`{path}`")
        self._workspace.write(name, check_size(applied.text).encode())
        return f"edited `{path}`"

    def insert(self, path: str, line: int, text: str) -> str:
        """Insert text after a line; 0 is before all."""
        name = self._find_file_name(path)
        rows = self._read(name).splitlines(keepends=True)
        if not 0 <= line <= len(rows):
            raise RetryCall(f"`insert_line` = {line}: `{path}` has {len(rows)} lines")
        if line and not rows[line - 1].endswith("\n"):
            rows[line - 1] += "\n"
        added = text if text.endswith("\n") else f"{text}\n"
        changed = "".join([*rows[:line], added, *rows[line:]])
        self._workspace.write(name, check_size(changed).encode())
        return f"inserted into `{path}` after line {line}"

    def delete(self, path: str) -> str:
        """Delete a file, or a folder with all that is in it."""
        self._workspace.delete(self._find_file_name(path), recursive=True)
        return f"deleted `{path}`"

    def rename(self, old: str, new: str) -> str:
        """Move a file or folder; one that is there stays."""
        source, target = self._find_file_name(old), self._find_file_name(new)
        if self._workspace.stat(source).kind not in ("file", "dir"):
            raise RetryCall(f"`{old}` is neither a file nor a folder")
        folder = target.rpartition("/")[0]
        if folder and not f"{folder}/".startswith(f"{source}/"):
            self._workspace.make_dir(folder)
        self._workspace.move(source, target)
        return f"`{old}` is `{new}` now"

    def _find_file_name(self, path: str) -> str:
        name = find_name(path)
        if not name:
            raise RetryCall(f"`{TOP}` itself stays; name a file or folder in it")
        return name

    def _read(self, name: str) -> str:
        return self._workspace.read_text(name)

    def _list(self, name: str) -> Iterator[str]:
        found = list(self._walk(name))
        yield from found[:MAX_SHOWN] or ["[no files yet]"]
        if len(found) > MAX_SHOWN:
            yield f"[{MAX_SHOWN} of {len(found)} files shown; view a folder]"

    def _walk(self, name: str) -> Iterator[str]:
        for entry in self._workspace.entries(name):
            if entry.kind == "dir":
                yield from self._walk(entry.path)
            elif entry.kind == "file":
                yield f"{TOP}/{entry.path} ({format_size(entry.size)})"


def find_name(path: str) -> str:
    """Return the name of a path below `/memories`, relative to it.

    Raises:
        RetryCall: It is no such path, or not written plainly.
    """
    inside = path == TOP or path.startswith(f"{TOP}/")
    parts = path.split("/")[2:]
    if not inside or any(part in (".", "..") for part in parts) or "" in parts[:-1]:
        raise RetryCall(f"`{path[:200]}` is no path of a note; paths begin with `{TOP}/`")
    return "/".join(parts).rstrip("/")


def _check_range(given: list[int] | None, total: int) -> tuple[int, int]:
    if given is None:
        return 1, total
    if len(given) != 2 or given[0] < 1:
        raise RetryCall(f"`view_range` is the first and the last line, from 1; found {given}")
    last = total if given[1] == -1 else given[1]
    return given[0], last
