"""Tools that explore the workspace without reading whole files: a folder, a tree, an outline.

Names that no tool may touch are left out, and the result states how many there were.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.folder_trees import ScannedName
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import VERSION_CONTROL, FileEntry, Workspace
from ferrule.toolkits.examples import with_examples
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, Tool
from ferrule.tools.number_ranges import require_ranges

from . import lines
from .edits import format_count, invalid_arguments
from .outline import MAX_DEFINITIONS, find_definitions

ALIASES = {
    "ls": "list_files",
    "list_directory": "list_files",
    "get_file_tree": "file_tree",
    "get_file_outline": "file_outline",
    "grep_search": "search_files",
    "read_lines": "read_file",
    "create_directory": "create_dir",
    "run_shell_command": "run_command",
}
"""Tool names that other systems and models use -> the name registered here.

For messages and documentation.
"""

NOT_EXPANDED = frozenset({"node_modules", "bower_components", "__pycache__", "venv"})
"""Folders that `file_tree` lists but does not open unless asked: their content is generated."""

MAX_LISTED_ENTRIES = 1000
MAX_TREE_ENTRIES = 5000
MAX_UNOPENED_FOLDERS = 20
"""Unopened folders whose number of entries `file_tree` reports."""

_KINDS = {"file": "FILE", "dir": "DIR", "link": "LINK", "other": "OTHER"}


@tool(
    side_effect="read", risk="safe", impossible=require_ranges(max_entries=(1, MAX_LISTED_ENTRIES))
)
def list_files(
    context: Context,
    path: Annotated[str, READS, "Folder to list, relative to the workspace."] = ".",
    show_hidden: Annotated[bool, "Include names that begin with a dot."] = False,
    sort_by: Annotated[
        Literal["name", "size", "modified"], "What to sort by, smallest or oldest first."
    ] = "name",
    reverse: Annotated[bool, "Largest, newest or last first."] = False,
    max_entries: Annotated[
        int, "How many entries to show, at most 1000. Sorting comes first."
    ] = 500,
) -> str:
    """List one folder as a table: type, size, time of the last change (UTC), name. Folders end with
    `/`; links are not followed.
    """
    if not 1 <= max_entries <= MAX_LISTED_ENTRIES:
        raise invalid_arguments(
            f"`max_entries` = {max_entries}: must lie between 1 and {MAX_LISTED_ENTRIES}"
        )
    left_out: list[str] = []
    found = context.resource(Workspace).entries(path, left_out=left_out)
    entries = [entry for entry in found if show_hidden or not entry.name.startswith(".")]
    entries.sort(key=lambda entry: (_sort_key(entry, sort_by), entry.name), reverse=reverse)
    rows = [_format_row(entry) for entry in entries[:max_entries]]
    notes = [_format_totals(entries)]
    if len(entries) > max_entries:
        notes.append(
            f"[{max_entries} of {len(entries)} entries shown; raise `max_entries` or sort "
            "differently]"
        )
    hidden = len(found) - len(entries)
    if hidden:
        notes.append(
            f"[{format_count(hidden, 'hidden entry', 'hidden entries')} not shown; pass "
            "`show_hidden: true`]"
        )
    if left_out:
        notes.append(
            f"[{format_count(len(left_out), 'entry', 'entries')} not shown: no tool may touch them]"
        )
    return "\n".join([*rows, *notes])


@tool(side_effect="read", risk="safe", impossible=require_ranges(max_entries=(1, MAX_TREE_ENTRIES)))
def file_tree(
    context: Context,
    path: Annotated[str, READS, "Folder to begin at, relative to the workspace."] = ".",
    show_hidden: Annotated[bool, "Include names that begin with a dot."] = False,
    max_entries: Annotated[int, "How many entries to open folders for, at most 5000."] = 1000,
) -> list[str]:
    """List the paths of all files below a folder. A path ending with `/` is a folder that is empty
    or was not opened (name it as `path` to see it); one ending with `@` is a link. Folders of
    version control are left out.
    """
    if not 1 <= max_entries <= MAX_TREE_ENTRIES:
        raise invalid_arguments(
            f"`max_entries` = {max_entries}: must lie between 1 and {MAX_TREE_ENTRIES}"
        )
    workspace = context.resource(Workspace)
    start = workspace.name(path)
    opened, closed = _open_folders(workspace, path, start, show_hidden, max_entries)
    paths: list[str] = []
    shown_here = opened[start][:max_entries]
    left_out = len(opened[start]) - len(shown_here)
    waiting = shown_here[::-1]
    while waiting:
        entry = waiting.pop()
        below = opened.get(entry.path)
        if below:
            waiting += below[::-1]
            continue
        suffix = {"dir": "/", "link": "@"}.get(entry.kind, "")
        paths.append(entry.path + suffix)
    if left_out:
        more = "raise `max_entries`, or use" if max_entries < MAX_TREE_ENTRIES else "use"
        paths.append(
            f"[{left_out} of {len(opened[start])} entries of {quote_path(path)} not shown; {more} "
            "`list_files` or `search_files`]"
        )
    paths += [
        f"[{name}/ holds {size} entries and was not opened: name it as `path`]"
        for name, size in closed[:MAX_UNOPENED_FOLDERS]
    ]
    if len(closed) > MAX_UNOPENED_FOLDERS:
        paths.append(f"[{len(closed) - MAX_UNOPENED_FOLDERS} more folders were not opened]")
    return paths


@tool(side_effect="read", risk="medium")
def file_outline(
    path: Annotated[str, READS, "Path of the file, relative to the workspace."], context: Context
) -> str:
    """List what a source file defines (classes, functions, headings), one per line as `N:
    definition` with its line number.
    """
    text = context.resource(Workspace).read_text(path)
    found, note = find_definitions(path, text.removeprefix("\ufeff"))
    rows = [
        f"{definition.line}: {'  ' * definition.depth}{definition.text}"
        for definition in found[:MAX_DEFINITIONS]
    ]
    if not rows:
        line_count = format_count(len(lines.split_lines(text)), "line")
        rows.append(f"[no definitions found in {quote_path(path)}, {line_count}]")
    if len(found) > MAX_DEFINITIONS:
        rows.append(f"[{len(found) - MAX_DEFINITIONS} more definitions not shown]")
    if note:
        rows.append(f"[{note}]")
    return "\n".join(rows)


TOOLS: tuple[Tool, ...] = with_examples(list_files, file_tree, file_outline)


def _open_folders(
    workspace: Workspace, path: str, start: str, show_hidden: bool, most: int
) -> tuple[dict[str, list[FileEntry]], list[tuple[str, int]]]:
    """Open folders level by level while there is room, so that one deep corner cannot use it all.

    Returns:
        The entries of each opened folder, and the folders that did not fit with their number of
        entries.
    """
    closed: list[tuple[str, int]] = []
    first = workspace.entries(path)
    opened = {start: [entry for entry in first if _is_visible(entry.name, show_hidden)]}
    room = most - len(opened[start])
    level = opened[start] if room > 0 else []
    while level:
        following: list[FileEntry] = []
        for folder in level:
            if folder.kind != "dir" or folder.name in NOT_EXPANDED:
                continue
            found = _scan_below(workspace, folder, show_hidden)
            if len(found) <= room:
                # Made only here: most of a large tree is counted and not shown.
                below = [
                    FileEntry.from_stat(f"{folder.path}/{name}", status) for name, status in found
                ]
                opened[folder.path] = below
                room -= len(below)
                following += below
            else:
                closed.append((folder.path, len(found)))
        level = following if room > 0 else []
    return opened, closed


def _scan_below(workspace: Workspace, folder: FileEntry, show_hidden: bool) -> list[ScannedName]:
    try:
        scanned = workspace.scan(folder.path)
    except ToolFailed:
        return []  # Gone or not permitted: it stays in the list as a folder that was not opened.
    return [one for one in scanned if _is_visible(one[0], show_hidden)]


def _is_visible(name: str, show_hidden: bool) -> bool:
    return name not in VERSION_CONTROL and (show_hidden or not name.startswith("."))


def _sort_key(entry: FileEntry, sort_by: str) -> float | str:
    if sort_by == "name":
        return entry.name
    if sort_by == "modified":
        return entry.modified
    return _size(entry)


def _size(entry: FileEntry) -> int:
    # The size that a file system reports for a folder means nothing to the reader.
    return entry.size if entry.kind == "file" else 0


def _format_row(entry: FileEntry) -> str:
    size = format_size(entry.size) if entry.kind == "file" else "-"
    time = datetime.fromtimestamp(entry.modified, UTC).strftime("%Y-%m-%d %H:%M")
    name = quote_path(entry.name)[1:-1] + ("/" if entry.kind == "dir" else "")
    return f"{_KINDS[entry.kind]:<5} {size:>9}  {time}  {name}"


def _format_totals(entries: list[FileEntry]) -> str:
    files = [entry for entry in entries if entry.kind == "file"]
    folders = sum(entry.kind == "dir" for entry in entries)
    others = len(entries) - len(files) - folders
    parts = [format_count(len(files), "file"), format_count(folders, "folder")]
    if others:
        parts.append(format_count(others, "link or other", "links and others"))
    return f"total: {', '.join(parts)}, {format_size(sum(entry.size for entry in files))}"


def format_size(size: int) -> str:
    """Format a number of bytes in units of 1024: `512 B`, `1.5 KB`, `3.0 GB`."""
    if size < 1024:
        return f"{size} B"
    units = ("KB", "MB", "GB", "TB")
    power = 1
    while size >= 1024 ** (power + 1) and power < len(units):
        power += 1
    return f"{size / 1024**power:.1f} {units[power - 1]}"
