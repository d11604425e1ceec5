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
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from stat import S_ISDIR, S_ISREG

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.entry import show_path
from ferrule.permissions.filesystem.folder_trees import ScannedName
from ferrule.permissions.filesystem.gitignore import FILE_NAME, PathPatterns
from ferrule.permissions.filesystem.ignore_rules import IgnoreRules, is_ignored
from ferrule.permissions.filesystem.workspace import (
    READ_LIMIT,
    VERSION_CONTROL,
    WALK_LIMIT,
    FileEntry,
    Workspace,
)

from .rows import SearchResult

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
        yield from map(itemgetter(0), _find_below(workspace, scope, found, stop))
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
    is_wanted = _Filter(start, scope) if scope.include or scope.exclude else None
    for name, status in _Walk(workspace, start, scope, found.withheld).find_files(stop):
        if is_wanted is not None and not is_wanted(name):
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


@frozen
class _Folder:
    """A folder of a walk: what of it is left to look at, and the ignore files for it."""

    prefix: str
    left: Iterator[ScannedName]
    rules: list[IgnoreRules]


class _Walk:
    """A walk over the files below a folder, sorted by name."""

    def __init__(self, workspace: Workspace, start: str, scope: Scope, left_out: list[str]) -> None:
        self._workspace = workspace
        self._start = start
        self._scope = scope
        self._left_out = left_out
        self._seen = 0

    def find_files(self, stop: Callable[[], bool]) -> Iterator[ScannedName]:
        """Yield the files, as far as hidden folders, version control and ignore files let them."""
        open_folders = [self._enter(self._start, self._read_rules_above())]
        while open_folders and not stop():
            folder = open_folders[-1]
            for last, status in folder.left:
                is_file = S_ISREG(status.st_mode)
                if last in VERSION_CONTROL or not (is_file or S_ISDIR(status.st_mode)):
                    continue
                name = folder.prefix + (last if last.isascii() else show_path(last))
                if folder.rules and is_ignored(folder.rules, name, folder=not is_file):
                    continue
                if is_file:
                    yield name, status
                elif below := self._enter_if_permitted(name, last, folder.rules):
                    open_folders.append(below)
                    break
            else:
                open_folders.pop()

    def _enter_if_permitted(
        self, folder: str, last: str, above: list[IgnoreRules]
    ) -> _Folder | None:
        if last.startswith(".") and not self._scope.hidden:
            return None
        try:
            return self._enter(folder, above)
        except ToolFailed as error:
            if error.error_type is ErrorType.LIMIT:
                raise
            self._left_out.append(folder)
            return None

    def _enter(self, folder: str, above: list[IgnoreRules]) -> _Folder:
        was_listed = folder != self._start
        scanned = self._workspace.scan(folder, was_listed=was_listed, left_out=self._left_out)
        self._seen += len(scanned)
        if self._seen > WALK_LIMIT:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"more than {WALK_LIMIT} entries below `{self._start or '.'}`; name a smaller "
                "folder",
            )
        if not self._scope.ignored and _has_rules(scanned):
            above = [*_read_rules(self._workspace, folder), *above]
        return _Folder(f"{folder}/" if folder else "", iter(scanned), above)

    def _read_rules_above(self) -> list[IgnoreRules]:
        """Read the ignore files above the start, nearest first; none if they ignore the start."""
        if self._scope.ignored or not self._start:
            return []
        found: list[IgnoreRules] = []
        parts = self._start.split("/")
        for depth in range(len(parts)):
            found = [*_read_rules(self._workspace, "/".join(parts[:depth])), *found]
        return [] if is_ignored(found, self._start, folder=True) else found


def _has_rules(scanned: Sequence[ScannedName]) -> bool:
    for last, status in scanned:  # sorted, so that most folders have one name to look at
        if last >= FILE_NAME:
            return last == FILE_NAME and S_ISREG(status.st_mode)
    return False


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
        if self._exclude is not None and any(map(self._exclude.match, names)):
            return False
        return self._include is None or any(map(self._include.match, names))


def _compile_globs(globs: Sequence[str], parameter: str) -> PathPatterns | None:
    if not globs:
        return None
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
    patterns = PathPatterns(lines)
    if patterns.unusable:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED,
            f"`{parameter}`: `{patterns.unusable[0]}` matches no name; is a bracket not closed?",
        )
    return patterns


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
