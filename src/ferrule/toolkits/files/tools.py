"""Tools that read, write and edit the files of the workspace.

All of them use `permissions.filesystem.workspace`, so what is refused there is refused here. An
edit reads the file, makes the new text, and writes it only if the file still holds what was read.
A file that the session has seen before must also still hold what the session saw.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from ferrule.core.errors import ToolFailed
from ferrule.core.media import Media
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import ABSENT, Workspace, check_text
from ferrule.toolkits.examples import with_examples
from ferrule.toolkits.session_folder import find_place, find_session_confinement
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import READS, WRITES, Tool
from ferrule.tools.media_types import looks_like_medium
from ferrule.tools.number_ranges import require_ranges

from . import edits, lines, read_versions, reading, rereading
from .edits import exists, format_count, invalid_arguments
from .preview import make_preview

MAX_TAIL_LINES = 2000
"""Most lines that `read_file_tail` returns."""


def _describe_move(values: Mapping[str, Any], context: Context) -> str:
    workspace = context.resource(Workspace)
    source = str(values["source"])
    target = str(values["target"])
    entry = workspace.stat(source)
    new = workspace.check_name(target, write=True)
    line = f"move {entry.kind} {quote_path(entry.path)} to {quote_path(new)}"
    if not exists(workspace, target):
        return line
    if values.get("overwrite"):
        return f"{line}, replacing what is there"
    return f"{line} (refused: it exists already)"


def _describe_deletion(values: Mapping[str, Any], context: Context) -> str:
    workspace = context.resource(Workspace)
    path = str(values["path"])
    workspace.check_name(path, write=True)
    entry = workspace.stat(path)
    if entry.kind != "dir":
        return f"delete {entry.kind} {quote_path(entry.path)} ({format_count(entry.size, 'byte')})"
    below = [found.path for found in workspace.walk(path, hidden=True, limit=10_000)]
    total = format_count(len(below), "entry", "entries")
    rows = [f"delete folder {quote_path(entry.path)} with {total} below it"]
    rows += [f"  {quote_path(name)}" for name in below[:20]]
    if len(below) > 20:
        rows.append(f"  and {len(below) - 20} more")
    return "\n".join(rows)


def _decode_lines(found: list[bytes], first: int) -> list[str]:
    text = [line.decode(errors="replace") for line in found]
    if text and first == 1:
        text[0] = text[0].removeprefix("\ufeff")  # A byte order mark is not part of the first line.
    return text


def _format_lines(
    found: list[bytes], first: int, note: str, *, whole: bool = False
) -> tuple[str, list[str]]:
    """Return the text that shows these lines, and each line as it is shown."""
    text = _decode_lines(found, first)
    shown = text if whole else [lines.cut_middle(line) for line in text]
    parts = [lines.number_lines(shown, first) if first else "".join(shown).removesuffix("\n")]
    if note:
        parts.append(note)
    if shown != text:
        cut = sum(one != other for one, other in zip(text, shown, strict=True))
        parts.append(
            f"[{format_count(cut, 'long line')} cut in the middle; `read_file` with `full: true` "
            "shows whole lines]"
        )
    replaced = "\ufffd" in "".join(text) and any(
        "\ufffd" in line and b"\xef\xbf\xbd" not in raw
        for line, raw in zip(text, found, strict=True)
    )
    if replaced:
        parts.append(
            "[some bytes are not UTF-8 and appear as \ufffd; edits elsewhere in the file keep them]"
        )
    return "\n".join(parts), shown


@tool(
    side_effect="read",
    risk="medium",
    inline=True,
    impossible=edits.find_line_range_problems,
    confined_by=find_session_confinement,
)
def read_file(
    path: Annotated[str, READS, "Path of the file, relative to the workspace."],
    context: Context,
    line_start: Annotated[
        int | None, "First line to read, counted from 1. Default: the first."
    ] = None,
    line_end: Annotated[int | None, "Last line to read, inclusive. Default: the last."] = None,
    full: Annotated[
        bool, "Show whole lines, however long, and also what has not changed since you read it."
    ] = False,
) -> str | Media:
    """Read a text file. Each line comes as `N: line`, counted from 1; the numbers are not part of
    the file. Pictures and PDFs are shown.
    """
    place = find_place(context, path)
    problems = edits.find_line_range_problems({"line_start": line_start, "line_end": line_end})
    if problems:
        raise invalid_arguments(problems[0])
    first = 1 if line_start is None else line_start
    with place.workspace.open(place.path) as file:
        if looks_like_medium(file.read(reading.MEDIUM_START)):
            file.seek(0)
            return reading.read_medium(file, path)
        file.seek(0)
        room = reading.choose_room(file, has_range=full or line_end is not None)
        line_size = room if full else lines.MAX_SHOWN_LINE
        part = reading.read_lines(file, path, first, line_end, room=room, line_size=line_size)
    name = place.name()
    if part.digest:
        read_versions.remember(context, name, part.digest)
    if first > max(part.total, 1):
        raise invalid_arguments(
            f"`line_start` = {first} is past the end: {quote_path(path)} has "
            f"{format_count(part.total, 'line')}"
        )
    if not part.total:
        return "[the file is empty]"
    complete = len(part.lines) == part.total and (line_end or part.total) <= part.total
    last = first + len(part.lines) - 1
    more = f"; go on at line {last + 1}" if last < min(line_end or part.total, part.total) else ""
    note = "" if complete else f"[lines {first}-{last} of {part.total}{more}]"
    text, shown = _format_lines(part.lines, first, note, whole=full)
    without_ends = tuple([line.rstrip("\r\n") for line in shown])
    now = rereading.Reading(name, first, without_ends, text, note)
    return rereading.answer_again(context, now, line_end, full=full)


@tool(
    side_effect="read",
    risk="medium",
    inline=True,
    impossible=require_ranges(line_count=(1, MAX_TAIL_LINES)),
    confined_by=find_session_confinement,
)
def read_file_tail(
    path: Annotated[str, READS, "Path of the file, relative to the workspace."],
    context: Context,
    line_count: Annotated[int, "How many lines to read from the end, at most 2000."] = 50,
) -> str:
    """Read the last lines of a text file, such as a log, with their line numbers."""
    if not 1 <= line_count <= MAX_TAIL_LINES:
        raise invalid_arguments(
            f"`line_count` = {line_count}: must lie between 1 and {MAX_TAIL_LINES}"
        )
    place = find_place(context, path)
    with place.workspace.open(place.path) as file:
        part = reading.read_last_lines(file, path, line_count)
    if part.digest is None:
        note = (
            f"[the last {format_count(len(part.lines), 'line')} of a large file, without numbers]"
        )
        return _format_lines(part.lines, 0, note)[0]
    read_versions.remember(context, place.name(), part.digest)
    if not part.total:
        return "[the file is empty]"
    complete = len(part.lines) == part.total
    note = "" if complete else f"[lines {part.first}-{part.total} of {part.total}]"
    return _format_lines(part.lines, part.first, note)[0]


def _read_old_text(workspace: Workspace, path: str) -> str:
    """Return what a file held that is replaced whole; "" if it cannot be read as text."""
    try:
        data = workspace.read(path)
        check_text(data, path)
    except ToolFailed:
        return ""
    return lines.decode(data)


@tool(
    side_effect="write",
    risk="high",
    preview=edits.preview_change(edits.plan_content_replacement, new_file=True),
    confined_by=find_session_confinement,
)
def write_file(
    path: Annotated[str, WRITES, "Path of the file, relative to the workspace."],
    content: Annotated[str, "The whole new content of the file."],
    context: Context,
) -> str:
    """Create a text file, or replace the whole content of one. Missing folders are made. To change
    a part of a file use `edit_file`.
    """
    place = find_place(context, path)
    workspace = place.workspace
    path = place.path
    inside = workspace.check_name(path, write=True)
    name = place.name()
    content = lines.check_unicode(content, "content")
    edits.check_size(content)
    if path.endswith("/"):
        raise invalid_arguments(
            f"{quote_path(path)} names a folder; add a file name (missing folders are made)"
        )
    folder = inside.rpartition("/")[0]
    if folder:
        workspace.make_dir(folder)
    old = exists(workspace, path)
    replaced = _read_old_text(workspace, path) if old else ""
    kept = lines.convert_line_endings(content, lines.detect_line_ending(replaced))
    data = kept.encode()
    workspace.write(path, data, expect=read_versions.recall(context, name) if old else ABSENT)
    read_versions.remember(context, name, read_versions.compute_digest(data))
    what = "replaced" if old else "new"
    if kept != content:
        what += ", with the CRLF line ends that it had"
    if not lines.is_unicode(replaced):
        what += ", which was not UTF-8 and is now"
    return (
        f"wrote {quote_path(name)}: {what}, {format_count(len(data), 'byte')}, "
        f"{format_count(len(lines.split_lines(content)), 'line')}"
    )


@tool(
    side_effect="write",
    risk="high",
    preview=edits.preview_change(edits.plan_text_replacement),
    impossible=edits.find_edit_problems,
    confined_by=find_session_confinement,
)
def edit_file(
    path: Annotated[str, WRITES, "Path of the file, relative to the workspace."],
    old_string: Annotated[str, "The text to replace, as it is in the file."],
    new_string: Annotated[str, "The text to put in its place."],
    context: Context,
    replace_all: Annotated[
        bool, "Replace every occurrence. Otherwise `old_string` must occur exactly once."
    ] = False,
    more_edits: Annotated[
        list[dict[str, str]] | None,
        "Further edits of the same file, each `{old_string, new_string}`, found in the file as it "
        "is before the call. All are made, or none.",
    ] = None,
) -> str:
    """Replace a piece of text in a file. `old_string` must be unique in the file; copy it with its
    indentation and without line numbers.
    """
    values = {
        "path": path,
        "old_string": old_string,
        "new_string": new_string,
        "replace_all": replace_all,
        "more_edits": more_edits,
    }
    return edits.apply_change(context, path, edits.plan_text_replacement(values))


@tool(
    side_effect="write",
    risk="high",
    preview=edits.preview_change(edits.plan_line_replacement),
    impossible=edits.find_replacement_problems,
    confined_by=find_session_confinement,
)
def replace_lines(
    path: Annotated[str, WRITES, "Path of the file, relative to the workspace."],
    line_start: Annotated[int, "First line to replace, counted from 1."],
    line_end: Annotated[int, "Last line to replace, inclusive."],
    new_content: Annotated[str, "The new lines. Empty: the lines are deleted."],
    context: Context,
) -> str:
    """Replace a range of lines of a file. Read the file first to see the line numbers."""
    values = {
        "path": path,
        "line_start": line_start,
        "line_end": line_end,
        "new_content": new_content,
    }
    return edits.apply_change(context, path, edits.plan_line_replacement(values))


@tool(
    side_effect="write",
    risk="high",
    preview=edits.preview_change(edits.plan_line_insertion),
    impossible=edits.find_insertion_problems,
    confined_by=find_session_confinement,
)
def insert_lines(
    path: Annotated[str, WRITES, "Path of the file, relative to the workspace."],
    line_start: Annotated[
        int, "Line to insert before, counted from 1; one more than the file has appends."
    ],
    new_content: Annotated[str, "The new lines."],
    context: Context,
    line_end: Annotated[int | None, "Must equal `line_start` if it is given."] = None,
) -> str:
    """Insert lines before a line of a file. Read the file first to see the line numbers."""
    values = {
        "path": path,
        "line_start": line_start,
        "line_end": line_end,
        "new_content": new_content,
    }
    return edits.apply_change(context, path, edits.plan_line_insertion(values))


@tool(side_effect="write", risk="medium")
def create_dir(
    path: Annotated[str, WRITES, "Path of the folder, relative to the workspace."], context: Context
) -> str:
    """Create a folder, and the folders above it that are missing. One that exists is left as it
    is.
    """
    entry = context.resource(Workspace).make_dir(path)
    return f"folder {quote_path(entry.path + '/')} exists"


@tool(
    side_effect="write",
    risk="high",
    preview=make_preview(_describe_move),
)
def move_path(
    source: Annotated[
        str, WRITES, "Path of the file or folder to move, relative to the workspace."
    ],
    target: Annotated[str, WRITES, "Its new path, name included."],
    context: Context,
    overwrite: Annotated[
        bool, "Whether a file may take the place of a file that is at `target`."
    ] = False,
) -> str:
    """Move or rename a file or folder. Missing folders above `target` are made."""
    workspace = context.resource(Workspace)
    old = workspace.check_name(source, write=True)
    new = workspace.check_name(target, write=True)
    workspace.stat(source)  # Before folders are made for nothing.
    folder = new.rpartition("/")[0]
    if folder and not f"{folder}/".startswith(f"{old}/"):
        workspace.make_dir(folder)
    workspace.move(source, target, overwrite=overwrite)
    read_versions.rename(context, old, new)
    return f"moved {quote_path(old)} to {quote_path(new)}"


@tool(
    side_effect="write",
    risk="high",
    preview=make_preview(_describe_deletion),
)
def delete_path(
    path: Annotated[str, WRITES, "Path of the file or folder, relative to the workspace."],
    context: Context,
    recursive: Annotated[
        bool, "Delete a folder with all that is in it. Otherwise it must be empty."
    ] = False,
) -> str:
    """Delete a file or a folder. There is no way back."""
    workspace = context.resource(Workspace)
    name = workspace.check_name(path, write=True)
    workspace.delete(path, recursive=recursive)
    read_versions.forget(context, name)
    return f"deleted {quote_path(name)}"


TOOLS: tuple[Tool, ...] = with_examples(
    read_file,
    read_file_tail,
    write_file,
    edit_file,
    replace_lines,
    insert_lines,
    create_dir,
    move_path,
    delete_path,
)
