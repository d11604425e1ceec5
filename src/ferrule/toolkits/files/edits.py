"""How the edit tools change a text, apply the change to a file, and preview it.

An edit is a `Change`: it is made from the checked arguments of a call and takes the text of the
file. Running the tool and previewing it use the same `Change`, so a person sees what will happen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.paths import quote_path
from ferrule.permissions.filesystem.workspace import READ_LIMIT, Workspace, check_text
from ferrule.toolkits.session_folder import Place, find_place
from ferrule.tools.context import Context
from ferrule.tools.definition import Preview

from . import diff, lines, read_versions
from .edit_application import Applied, Replacement, apply_edits
from .edit_matching import Edit
from .edit_refusals import describe_grade
from .preview import make_preview


@frozen
class Changed:
    """A text after a change, what was done, and how loosely it fitted if not exactly.

    `line` is where a text was found, 0 for a change that says itself which lines it means.
    """

    text: str
    done: str
    note: str = ""
    line: int = 0


Change = Callable[[str, str], Changed]
"""(text of the file, its name for messages) -> what it becomes. Raises ToolFailed."""


def apply_change(context: Context, path: str, change: Change) -> str:
    """Apply a change to an existing file and return a description of what was done.

    The file must still hold what the session last saw and what was read here.

    Raises:
        ToolFailed: The file is refused, has changed, or the change does not fit it.
    """
    place = find_place(context, path)
    workspace = place.workspace
    path = place.path
    name, text, digest = _read_current(place, context, change)
    changed = change(text, quote_path(name))
    new = changed.text
    lines.check_encoding(text, new, quote_path(name))
    data = lines.encode(check_size(new))
    if new != text:
        workspace.write(path, data, expect=digest, create=False)
    read_versions.remember(context, name, read_versions.compute_digest(data))
    if new == text:
        return f"{quote_path(name)} reads that way already: no change"
    total = format_count(len(lines.split_lines(new)), "line")
    note = f"; {changed.note}" if changed.note else ""
    return f"{changed.done}{note}; {quote_path(name)} has {total} now"


def _read_current(place: Place, context: Context, change: Change) -> tuple[str, str, str]:
    """Return name, text and digest of a file that is about to be edited."""
    path = place.path
    place.workspace.check_name(path, write=True)
    name = place.name()
    data = place.workspace.read(path)
    digest = read_versions.compute_digest(data)
    if read_versions.has_changed(context, name, digest):
        raise _refuse_changed(path, data, change)
    check_text(data, path)
    return name, lines.decode(data), digest


def _refuse_changed(path: str, data: bytes, change: Change) -> ToolFailed:
    """Return the error for a file that was changed since the session saw it.

    Who changed it is not known. What it holds now is: so it says whether the edit would still fit.
    """
    message = f"{quote_path(path)} has changed since it was read; nothing was written. "
    try:
        check_text(data, path)
        changed = change(lines.decode(data), quote_path(path))
    except ToolFailed as failure:
        hint = f"Read it again first. As it is now, this edit would not fit: {failure}"
    else:
        hint = "Read it again first"
        if changed.line:
            around = f"line_start: {max(1, changed.line - 10)}, line_end: {changed.line + 20}"
            hint = (
                f"Read it again first: this edit would still fit, at line {changed.line}; call "
                f"`read_file` with `{around}`, then repeat it"
            )
    return ToolFailed(ErrorType.IO_ERROR, message + hint)


def preview_change(
    make_change: Callable[[Mapping[str, Any]], Change], *, new_file: bool = False
) -> Preview:
    """Return a preview that shows the change to the file at `path` as a unified diff.

    Args:
        make_change: Makes the change from the arguments of the call.
        new_file: Whether the file may be missing.
    """
    return make_preview(
        lambda values, context: _diff(values, context, make_change(values), new_file)
    )


def _diff(values: Mapping[str, Any], context: Context, change: Change, new_file: bool) -> str:
    place = find_place(context, str(values["path"]))
    workspace = place.workspace
    path = place.path
    workspace.check_name(path, write=True)
    name = place.name()
    text = ""
    note = ""
    if not new_file or exists(workspace, path):
        try:
            name, text, _ = _read_current(place, context, change)
        except ToolFailed as failure:
            # Writing a whole file works even if its old content cannot be shown.
            if not new_file or failure.error_type not in (ErrorType.PARSE_ERROR, ErrorType.LIMIT):
                raise
            note = f"[replaces what is there, which is not shown: {failure}]\n"
    changed = change(text, quote_path(name))
    if changed.note:
        note += f"[{changed.note}]\n"
    if not new_file:
        lines.check_encoding(text, changed.text, quote_path(name))
    elif not lines.is_unicode(text):
        note += "[the file was not UTF-8 and will be]\n"
    return note + diff.unified_diff(name, text, changed.text)


def plan_content_replacement(values: Mapping[str, Any]) -> Change:
    """Replace the whole text by `content`."""

    def change(text: str, where: str) -> Changed:
        new = lines.check_unicode(values["content"], "content")
        new = lines.convert_line_endings(new, lines.detect_line_ending(text))
        return Changed(check_size(new), "")

    return change


def plan_text_replacement(values: Mapping[str, Any]) -> Change:
    """Replace texts by others: `old_string`, `new_string`, `replace_all`, and `more_edits`."""

    def change(text: str, where: str) -> Changed:
        problems = find_edit_problems(values)
        if problems:
            raise invalid_arguments(problems[0])
        edits = [
            Edit(
                lines.check_unicode(each["old_string"], "old_string"),
                lines.check_unicode(each["new_string"], "new_string"),
                everywhere=number == 0 and bool(values.get("replace_all")),
            )
            for number, each in enumerate([values, *(values.get("more_edits") or ())])
        ]
        applied = apply_edits(text, edits, where)
        return Changed(
            applied.text,
            "; ".join(_describe_replacements(each) for each in applied.replacements),
            _describe_grades(applied),
            applied.replacements[0][0].line,
        )

    return change


def find_edit_problems(values: Mapping[str, Any]) -> list[str]:
    """List what is wrong with the keys of `more_edits`."""
    further = cast("list[dict[str, str]]", values.get("more_edits") or [])
    return [
        f"`more_edits[{number}]` must have `old_string` and `new_string` and nothing else, "
        f"found {', '.join(f'`{key}`' for key in sorted(each)) or 'nothing'}"
        for number, each in enumerate(further)
        if set(each) != {"old_string", "new_string"}
    ]


def _describe_replacements(made: tuple[Replacement, ...]) -> str:
    count = sum(each.count for each in made)
    if count == 1:
        return f"replaced the text at line {made[0].line}"
    return f"replaced {count} occurrences"


def _describe_grades(applied: Applied) -> str:
    """Say which old texts did not fit exactly, and how they did; empty if all fitted exactly."""
    notes: list[str] = []
    for number, made in enumerate(applied.replacements, 1):
        grade = made[0].grade
        if grade != "exact":
            edit = f" of edit {number}" if len(applied.replacements) > 1 else ""
            notes.append(f"`old_string`{edit} {describe_grade(grade)}")
    return "; ".join(notes)


def plan_line_replacement(values: Mapping[str, Any]) -> Change:
    """Replace lines `line_start` to `line_end` by those of `new_content`."""

    def change(text: str, where: str) -> Changed:
        first = int(values["line_start"])
        last = int(values["line_end"])
        total = len(lines.split_lines(text))
        problems = find_replacement_problems(values)
        if problems:
            raise invalid_arguments(problems[0])
        if last > total:
            raise invalid_arguments(
                f"lines {first}-{last} are past the end: {where} has {format_count(total, 'line')}"
            )
        new = lines.check_unicode(values["new_content"], "new_content")
        if new:
            new_lines = format_count(len(lines.split_lines(new)), "line")
            done = f"replaced lines {first}-{last} by {new_lines}"
        else:
            done = f"deleted lines {first}-{last}"
        return Changed(lines.replace_lines(text, first, last, new), done)

    return change


def plan_line_insertion(values: Mapping[str, Any]) -> Change:
    """Insert the lines of `new_content` before `line_start`.

    `line_end` must be the same if it is given.
    """

    def change(text: str, where: str) -> Changed:
        line = int(values["line_start"])
        total = len(lines.split_lines(text))
        problems = find_insertion_problems(values)
        if problems:
            raise invalid_arguments(problems[0])
        if line > total + 1:
            raise invalid_arguments(
                f"line {line} is past the end: {where} has {format_count(total, 'line')}, so "
                f"{total + 1} appends"
            )
        new = lines.check_unicode(values["new_content"], "new_content")
        if not new:
            raise invalid_arguments("`new_content` is empty: there is nothing to insert")
        place = "at the end" if line > total else f"before line {line}"
        done = f"inserted {format_count(len(lines.split_lines(new)), 'line')} {place}"
        return Changed(lines.replace_lines(text, line, line - 1, new), done)

    return change


def exists(workspace: Workspace, path: str) -> bool:
    """Return whether anything, also a link, has this name. Raises ToolFailed if it is refused."""
    try:
        workspace.stat(path)
    except ToolFailed as failure:
        if failure.error_type is not ErrorType.NOT_FOUND:
            raise
        return False
    return True


def check_size(text: str) -> str:
    """Return the text. Raises ToolFailed if it is larger than a tool may write."""
    # Characters first: counting bytes of a text that is far too long would double it.
    if len(text) > READ_LIMIT or len(lines.encode(text)) > READ_LIMIT:
        raise invalid_arguments(
            f"the file would be larger than {READ_LIMIT} bytes, the most that tools write; split it"
        )
    return text


def find_line_range_problems(values: Mapping[str, Any]) -> list[str]:
    """List what is wrong with `line_start` and `line_end`, whatever the file holds.

    Either may be left out.
    """
    first = values.get("line_start")
    last = values.get("line_end")
    if first is None:
        first = 1
    if first < 1:
        return [f"`line_start` = {first}: lines are counted from 1"]
    if last is not None and last < first:
        return [f"`line_end` = {last} lies before `line_start` = {first}"]
    return []


def find_replacement_problems(values: Mapping[str, Any]) -> list[str]:
    """List what is wrong with the range of lines that is to be replaced."""
    return [
        f"{problem}; to add lines use `insert_lines`"
        for problem in find_line_range_problems(values)
    ]


def find_insertion_problems(values: Mapping[str, Any]) -> list[str]:
    """List what is wrong with the place where lines are to be inserted."""
    line = values["line_start"]
    end = values.get("line_end")
    if line < 1:
        return [f"`line_start` = {line}: lines are counted from 1"]
    if end is not None and end != line:
        problem = f"`line_end` = {end} must equal `line_start` = {line}"
        return [f"{problem}; to change lines use `replace_lines`"]
    return []


def format_count(number: int, unit: str, many: str = "") -> str:
    """Format a number with its unit: `1 line`, `2 lines`."""
    return f"{number} {unit if number == 1 else many or unit + 's'}"


def invalid_arguments(message: str) -> ToolFailed:
    """Return the error for arguments that cannot be used."""
    return ToolFailed(ErrorType.VALIDATION_FAILED, message)
