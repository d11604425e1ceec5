"""Tools that explore the workspace without reading whole files: a folder, a tree, an outline.

Names that no tool may touch are left out, and the result states how many there were.
"""

from __future__ import annotations

import heapq
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.entry import FileEntry, Kind, kind_of_mode, show_path
from ferrule.permissions.filesystem.folder_trees import FolderListing, ScannedName
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import VERSION_CONTROL, Workspace
from ferrule.toolkits.examples import with_examples
from ferrule.toolkits.session_folder import find_place, find_session_confinement
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, Tool
from ferrule.tools.number_ranges import require_ranges

from . import lines
from .edits import format_count, invalid_arguments
from .outline import MAX_DEFINITIONS, find_definitions

NOT_EXPANDED = frozenset({"node_modules", "bower_components", "__pycache__", "venv"})
"""Folders that `file_tree` lists but does not open unless asked: their content is generated."""

MAX_LISTED_ENTRIES = 1000
MAX_TREE_ENTRIES = 5000
MAX_MEASURED_ENTRIES = 10_000
"""Entries of a folder of which `list_files` adds up the sizes when it sorts by name."""

MAX_UNOPENED_FOLDERS = 20
"""Unopened folders whose number of entries `file_tree` reports."""

_NOT_MEASURED = (
    f"[sizes are not added up for more than {MAX_MEASURED_ENTRIES} entries unless `sort_by` is "
    '"size" or "modified"]'
)

_Branch = tuple[str, Kind]
"""A path from the workspace on, as it is shown, and what it is."""

_KINDS = {"file": "FILE", "dir": "DIR", "link": "LINK", "other": "OTHER"}


@tool(
    side_effect="read",
    risk="safe",
    impossible=require_ranges(max_entries=(1, MAX_LISTED_ENTRIES)),
    confined_by=find_session_confinement,
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
    place = find_place(context, path)
    workspace = place.workspace
    path = place.path
    listing = workspace.list_names(path, left_out=left_out)
    hidden = 0 if show_hidden else listing.leave_out_hidden()
    count = len(listing.names)
    if sort_by == "name" and count > MAX_MEASURED_ENTRIES:
        notes = [_format_counts(listing.counts()), _NOT_MEASURED]
        select = heapq.nlargest if reverse else heapq.nsmallest
        shown = workspace.stat_names(path, select(max_entries, listing.names))
    else:
        measured = workspace.stat_names(path, listing.names)
        measured.sort(key=_SORT_KEYS[sort_by], reverse=reverse)
        notes = [_format_totals(measured)]
        count = len(measured)
        shown = measured[:max_entries]
    rows = [_format_row(FileEntry.from_stat(name, status)) for name, status in shown]
    if count > max_entries:
        notes.append(
            f"[{max_entries} of {count} entries shown; raise `max_entries` or sort differently]"
        )
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
        branch, kind = waiting.pop()
        below = opened.get(branch)
        if below:
            waiting += below[::-1]
            continue
        paths.append(branch + {"dir": "/", "link": "@"}.get(kind, ""))
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
) -> tuple[dict[str, list[_Branch]], list[tuple[str, int]]]:
    """Open folders level by level while there is room, so that one deep corner cannot use it all.

    Returns:
        The branches of each opened folder, and the folders that did not fit with their number of
        entries.
    """
    closed: list[tuple[str, int]] = []
    first = _make_branches(start, _leave_out_unseen(workspace.list_names(path), show_hidden))
    opened = {start: first}
    room = most - len(first)
    level = first if room > 0 else []
    while level:
        following: list[_Branch] = []
        for folder, kind in level:
            if kind != "dir" or folder.rpartition("/")[2] in NOT_EXPANDED:
                continue
            found = _list_below(workspace, folder, show_hidden)
            if len(found.names) <= room:
                # Made only here: most of a large tree is counted and not shown.
                below = _make_branches(folder, found)
                opened[folder] = below
                room -= len(below)
                following += below
            else:
                closed.append((folder, len(found.names)))
        level = following if room > 0 else []
    return opened, closed


def _make_branches(folder: str, found: FolderListing) -> list[_Branch]:
    above = f"{folder}/" if folder else ""
    return [(above + show_path(name), found.kind(name)) for name in sorted(found.names)]


def _list_below(workspace: Workspace, folder: str, show_hidden: bool) -> FolderListing:
    try:
        found = workspace.list_names(folder)
    except ToolFailed:
        # Gone or not permitted: it stays in the list as a folder that was not opened.
        return FolderListing([], {})
    return _leave_out_unseen(found, show_hidden)


def _leave_out_unseen(found: FolderListing, show_hidden: bool) -> FolderListing:
    found.leave_out(VERSION_CONTROL)
    if not show_hidden:
        found.leave_out_hidden()
    return found


def _order_by_name(found: ScannedName) -> str:
    return found[0]


def _order_by_time(found: ScannedName) -> tuple[float, str]:
    return found[1].st_mtime, found[0]


def _order_by_size(found: ScannedName) -> tuple[int, str]:
    # The size that a file system reports for a folder means nothing to the reader.
    size = found[1].st_size if stat.S_ISREG(found[1].st_mode) else 0
    return size, found[0]


_SORT_KEYS: Mapping[str, Callable[[ScannedName], Any]] = {
    "name": _order_by_name,
    "modified": _order_by_time,
    "size": _order_by_size,
}


def _format_row(entry: FileEntry) -> str:
    size = format_size(entry.size) if entry.kind == "file" else "-"
    time = datetime.fromtimestamp(entry.modified, UTC).strftime("%Y-%m-%d %H:%M")
    name = quote_path(entry.name)[1:-1] + ("/" if entry.kind == "dir" else "")
    return f"{_KINDS[entry.kind]:<5} {size:>9}  {time}  {name}"


def _format_totals(found: list[ScannedName]) -> str:
    counts = Counter[Kind]()
    size = 0
    for _, status in found:
        kind = kind_of_mode(status.st_mode)
        counts[kind] += 1
        if kind == "file":
            size += status.st_size
    return f"{_format_counts(counts)}, {format_size(size)}"


def _format_counts(counts: Counter[Kind]) -> str:
    files = counts["file"]
    folders = counts["dir"]
    others = counts.total() - files - folders
    parts = [format_count(files, "file"), format_count(folders, "folder")]
    if others:
        parts.append(format_count(others, "link or other", "links and others"))
    return f"total: {', '.join(parts)}"


def format_size(size: int) -> str:
    """Format a number of bytes in units of 1024: `512 B`, `1.5 KB`, `3.0 GB`."""
    if size < 1024:
        return f"{size} B"
    units = ("KB", "MB", "GB", "TB")
    power = 1
    while size >= 1024 ** (power + 1) and power < len(units):
        power += 1
    return f"{size / 1024**power:.1f} {units[power - 1]}"
