"""Where to search: which files below a folder are looked at, and which are not.

The list is the same with and without ripgrep. A file is searched if every rule agrees:

* the workspace may read it (`Workspace.entries` leaves out reserved and secret names; links, pipes
  and devices are never opened), also when it is named directly or hidden and ignored files are
  asked for;
* it is not in a folder of version control;
* no folder between it and the start begins with a dot, unless hidden ones are asked for. Hidden
  *files* in visible folders are searched (requirement 002 speaks of hidden directories);
* no `.gitignore` above it, nearest first, excludes it, also outside of a repository. What is named
  directly is searched even if it is ignored;
* a glob of `file_filter` matches it and none of `exclude`;
* it is not larger than 10 MB. Whether it is binary is found out when it is read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.entry import show_path
from ferrule.permissions.filesystem.folder_trees import ScannedName
from ferrule.permissions.filesystem.gitignore import FILE_NAME
from ferrule.permissions.filesystem.ignore_rules import IgnoreRules, is_ignored
from ferrule.permissions.filesystem.workspace import (
    READ_LIMIT,
    VERSION_CONTROL,
    WALK_LIMIT,
    FileEntry,
    Workspace,
)

from .rows import SearchResult

if TYPE_CHECKING:
    from pathspec import PathSpec
    from pathspec.pattern import Pattern

    Globs = PathSpec[Pattern]

_MAX_ALTERNATIVES = 64


@frozen
class Scope:
    """What to search: `path` as the model gave it, and globs as in gitignore, with `{a,b}`."""

    path: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    ignored: bool = False


def find_files(
    workspace: Workspace, scope: Scope, found: SearchResult, stop: Callable[[], bool]
) -> Iterator[str]:
    """Yield the names of the files to search, in the order of a sorted walk; see `find_entries`."""
    start = _find_start(workspace, scope)
    if start.kind == "dir":
        for name, _ in _find_below(workspace, scope, found, stop):
            yield name
    elif _is_searchable(workspace, start, found):
        yield start.path


def find_entries(
    workspace: Workspace, scope: Scope, found: SearchResult, stop: Callable[[], bool]
) -> Iterator[FileEntry]:
    """Yield the files to search, in the order of a sorted walk.

    Counts what is left out in `found`. Blocks. Ends early when `stop()` is true.

    Raises:
        ToolFailed: The start does not exist or may not be read.
    """
    start = _find_start(workspace, scope)
    if start.kind == "dir":
        for name, status in _find_below(workspace, scope, found, stop):
            yield FileEntry.from_stat(name, status)
    elif _is_searchable(workspace, start, found):
        yield start


def _find_start(workspace: Workspace, scope: Scope) -> FileEntry:
    """Return where a search begins: a folder, or a file that may be read."""
    start = workspace.check_name(scope.path, write=False)
    if VERSION_CONTROL.intersection(start.split("/")):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            f"`{scope.path}` belongs to version control, which is never searched; ask git for it",
        )
    _Filter(start, scope)  # raises for globs that are none, also if there is nothing to filter
    entry = workspace.stat(scope.path)
    if entry.kind not in ("dir", "file"):
        # Raises and gives the reason: a link is not followed, a pipe would block for ever.
        workspace.open(scope.path).close()
    return entry


def _find_below(
    workspace: Workspace, scope: Scope, found: SearchResult, stop: Callable[[], bool]
) -> Iterator[ScannedName]:
    """Yield the files to search below the folder where a search begins, each with its stat."""
    start = workspace.check_name(scope.path, write=False)
    is_wanted = _Filter(start, scope)
    for name, status in _walk(workspace, start, scope, found.withheld, stop):
        if not is_wanted(name):
            continue
        if _is_usual(name, status) or _is_searchable(
            workspace, FileEntry.from_stat(name, status), found
        ):
            yield name, status


def _is_usual(name: str, status: os.stat_result) -> bool:
    """Return whether a file can be searched at the first look, which is enough for nearly all."""
    return (
        status.st_size <= READ_LIMIT
        and status.st_nlink == 1
        and status.st_mode & 0o444 != 0
        and name.isascii()
        and name.isprintable()
        and "\\" not in name
    )


def _is_searchable(workspace: Workspace, entry: FileEntry, found: SearchResult) -> bool:
    """Return whether a file can be searched; count it in `found` if not."""
    if entry.size > READ_LIMIT:
        found.large += 1
        return False
    unusual = not entry.path.isprintable() or "\\" in entry.path or "\ufffd" in entry.path
    if unusual or entry.links > 1 or not entry.mode & 0o444:
        # Opened here and not only when it is read: ripgrep would leave out some of these files, and
        # the counts would differ.
        try:
            workspace.open(entry.path).close()
        except ToolFailed:
            found.unreadable += 1
            return False
    return True


def _walk(
    workspace: Workspace, start: str, scope: Scope, left_out: list[str], stop: Callable[[], bool]
) -> Iterator[ScannedName]:
    rules = [] if scope.ignored else _read_rules_above(workspace, start)
    if start and is_ignored(rules, start, folder=True):
        rules = []
    walk = _Walk(workspace, start, scope, left_out)
    walk.enter(start, rules)
    while walk.waiting and not stop():
        name, status, above = walk.waiting.pop()
        is_folder = stat.S_ISDIR(status.st_mode)
        if above and is_ignored(above, name, folder=is_folder):
            continue
        if is_folder:
            walk.enter_if_permitted(name, above)
        else:
            yield name, status


@dataclass(slots=True)
class _Walk:
    """A walk in progress: the files and folders that wait, with the ignore files above them."""

    workspace: Workspace
    start: str
    scope: Scope
    left_out: list[str]
    waiting: list[tuple[str, os.stat_result, list[IgnoreRules]]] = field(
        default_factory=list[tuple[str, os.stat_result, list[IgnoreRules]]]
    )
    seen: int = 0

    def enter(self, folder: str, above: list[IgnoreRules]) -> None:
        scanned = self.workspace.scan(folder, left_out=self.left_out)
        self.seen += len(scanned)
        if self.seen > WALK_LIMIT:
            below = self.start or "."
            raise ToolFailed(
                ErrorType.LIMIT,
                f"more than {WALK_LIMIT} entries below `{below}`; name a smaller folder",
            )
        if not self.scope.ignored and _has_rules(scanned):
            above = [*_read_rules(self.workspace, folder), *above]
        prefix = f"{folder}/" if folder else ""
        for last, status in reversed(scanned):
            if self._may_hold_text(last, status.st_mode):
                self.waiting.append((prefix + show_path(last), status, above))

    def _may_hold_text(self, last: str, mode: int) -> bool:
        """Return whether a name is that of a file, or of a folder that is entered."""
        if last in VERSION_CONTROL:
            return False
        if stat.S_ISDIR(mode):
            return self.scope.hidden or not last.startswith(".")
        return stat.S_ISREG(mode)

    def enter_if_permitted(self, folder: str, above: list[IgnoreRules]) -> None:
        try:
            self.enter(folder, above)
        except ToolFailed as error:
            if error.error_type is ErrorType.LIMIT:
                raise
            self.left_out.append(folder)


def _has_rules(scanned: Sequence[ScannedName]) -> bool:
    return any(last == FILE_NAME and stat.S_ISREG(status.st_mode) for last, status in scanned)


def _read_rules_above(workspace: Workspace, start: str) -> list[IgnoreRules]:
    """Read the ignore files of the folders above `start`, nearest first."""
    found: list[IgnoreRules] = []
    parts = start.split("/") if start else []
    for depth in range(len(parts)):
        found = [*_read_rules(workspace, "/".join(parts[:depth])), *found]
    return found


def _read_rules(workspace: Workspace, folder: str) -> list[IgnoreRules]:
    rules = IgnoreRules.read(workspace, folder)
    return [] if rules is None else [rules]


class _Filter:
    """`file_filter` and `exclude`, matched with the name from the root and from the start."""

    def __init__(self, start: str, scope: Scope) -> None:
        self._cut = len(start) + 1 if start else 0
        self._include = _compile_globs(scope.include, "file_filter")
        self._exclude = _compile_globs(scope.exclude, "exclude")

    def __call__(self, name: str) -> bool:
        if self._include is None and self._exclude is None:
            return True
        names = (name, name[self._cut :])
        if self._exclude is not None and any(map(self._exclude.match_file, names)):
            return False
        return self._include is None or any(map(self._include.match_file, names))


def _compile_globs(globs: Sequence[str], parameter: str) -> Globs | None:
    if not globs:
        return None
    from pathspec import GitIgnoreSpec

    for glob in globs:
        if glob.startswith("!") or not glob.strip():
            raise ToolFailed(
                ErrorType.VALIDATION_FAILED,
                f"`{parameter}`: `{glob}` is not a glob; write `*.py` or `src/**`, and use "
                "`exclude` to leave files out",
            )
    lines: list[str] = []
    for glob in globs:
        lines += _expand_braces(glob)
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise ToolFailed(ErrorType.VALIDATION_FAILED, f"`{parameter}`: {error}") from None


def _expand_braces(glob: str) -> list[str]:
    """Expand braces: `*.{ts,tsx}` -> `*.ts`, `*.tsx`. They may nest; at most 64 globs result."""
    close = glob.find("}")
    start = glob.rfind("{", 0, close) if close >= 0 else -1
    if start < 0:
        return [glob]
    found: list[str] = []
    for choice in glob[start + 1 : close].split(","):
        found += _expand_braces(glob[:start] + choice + glob[close + 1 :])
        if len(found) > _MAX_ALTERNATIVES:
            raise ToolFailed(
                ErrorType.VALIDATION_FAILED,
                f"`{glob}` stands for more than {_MAX_ALTERNATIVES} globs; pass fewer",
            )
    return found
