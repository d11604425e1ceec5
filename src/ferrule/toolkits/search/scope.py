"""Where to search: which files below a folder are looked at, and which are not.

The same list for both ways of searching. A file is looked at if every rule agrees:

* the workspace may read it (`Workspace.entries` leaves out reserved and secret names; links, pipes
  and devices are never opened), also when it is named directly or hidden and ignored files are
  asked for;
* it is not in a folder of version control;
* no folder between it and the start begins with a dot, unless hidden ones are asked for. Hidden
  *files* in visible folders are looked at (requirement 002 speaks of hidden directories);
* no `.gitignore` above it, nearest first, says otherwise, also outside of a repository. What is
  named directly is searched even if it is ignored;
* a glob of `file_filter` matches it and none of `exclude`;
* it is not larger than 10 MB. Whether it is binary is seen when it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.gitignore import FILE, MOST_BYTES, IgnoreFile
from ferrule.permissions.filesystem.workspace import (
    READ_LIMIT,
    VERSION_CONTROL,
    WALK_LIMIT,
    Entry,
    Workspace,
)

from .rows import Found

if TYPE_CHECKING:
    from pathspec import PathSpec
    from pathspec.pattern import Pattern

    Globs = PathSpec[Pattern]

_BRACES = 64


@dataclass(frozen=True, slots=True)
class Scope:
    """`path` as the model gave it; globs in the language of gitignore, with `{a,b}`."""

    path: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class _Rules:
    """The ignore file of one folder."""

    folder: str
    file: IgnoreFile

    def verdict(self, name: str, *, folder: bool) -> bool | None:
        below = name[len(self.folder) + 1 :] if self.folder else name
        return self.file.verdict(below, folder=folder)


def find_files(
    workspace: Workspace, scope: Scope, found: Found, stop: Callable[[], bool]
) -> Iterator[str]:
    """Names of the files to look at, in the order of a sorted walk. Counts what is left out in
    `found`.

    Blocks. Ends early when `stop()` is true. Raises ToolFailed if the start is not there or may not
    be read.
    """
    start = workspace.permit(scope.path, write=False)
    if VERSION_CONTROL.intersection(start.split("/")):
        raise ToolFailed(
            ErrorType.PERMISSION_DENIED,
            (
                f"`{scope.path}` belongs to version control, which is never searched; use "
                "`git_command`"
            ),
        )
    wanted = _Filter(start, scope)
    entry = workspace.stat(scope.path)
    if entry.kind != "dir":
        if entry.kind != "file":
            # Raises, and says why: a link is not followed, a pipe would wait for its other end for
            # ever.
            workspace.open(scope.path).close()
        if _fits(workspace, entry, found):
            yield start
        return
    for one in _walk(workspace, start, scope, found.withheld, stop):
        if wanted(one.path) and _fits(workspace, one, found):
            yield one.path


def _fits(workspace: Workspace, entry: Entry, found: Found) -> bool:
    if entry.size > READ_LIMIT:
        found.large += 1
        return False
    unusual = not entry.path.isprintable() or "\\" in entry.path or "\ufffd" in entry.path
    if unusual or entry.links > 1 or not entry.mode & 0o444:
        # Tried here and not when it is read: ripgrep would leave out some, and the counts would
        # differ.
        try:
            workspace.open(entry.path).close()
        except ToolFailed:
            found.unreadable += 1
            return False
    return True


def _walk(
    workspace: Workspace, start: str, scope: Scope, left_out: list[str], stop: Callable[[], bool]
) -> Iterator[Entry]:
    rules = [] if scope.ignored else _rules_above(workspace, start)
    if start and _ignored(rules, start, folder=True):
        rules = []
    waiting: list[tuple[Entry, list[_Rules]]] = []
    seen = 0

    def enter(folder: str, above: list[_Rules]) -> None:
        nonlocal seen
        entries = workspace.entries(folder, left_out=left_out)
        seen += len(entries)
        if seen > WALK_LIMIT:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"more than {WALK_LIMIT} entries below `{start or '.'}`; name a smaller folder",
            )
        if not scope.ignored and any(e.name == FILE and e.kind == "file" for e in entries):
            above = [*_rules_of(workspace, folder), *above]
        waiting.extend((entry, above) for entry in reversed(entries))

    enter(start, rules)
    while waiting and not stop():
        entry, above = waiting.pop()
        folder = entry.kind == "dir"
        if entry.name in VERSION_CONTROL or (
            folder and entry.name.startswith(".") and not scope.hidden
        ):
            continue
        if _ignored(above, entry.path, folder=folder):
            continue
        if entry.kind == "file":
            yield entry
        elif folder:
            try:
                enter(entry.path, above)
            except ToolFailed as error:
                if error.error_type is ErrorType.LIMIT:
                    raise
                left_out.append(entry.path)


def _ignored(rules: Sequence[_Rules], name: str, *, folder: bool) -> bool:
    """What the nearest ignore file with an opinion says (gitignore(5)); none has one: not
    ignored.
    """
    for one in rules:
        verdict = one.verdict(name, folder=folder)
        if verdict is not None:
            return verdict
    return False


def _rules_above(workspace: Workspace, start: str) -> list[_Rules]:
    """The ignore files of the folders above `start`, nearest first."""
    found: list[_Rules] = []
    parts = start.split("/") if start else []
    for depth in range(len(parts)):
        found = [*_rules_of(workspace, "/".join(parts[:depth])), *found]
    return found


def _rules_of(workspace: Workspace, folder: str) -> list[_Rules]:
    """The ignore file of a folder as a list of one; of none if it is missing or cannot be read."""
    try:
        data = workspace.read(f"{folder}/{FILE}" if folder else FILE, limit=MOST_BYTES)
    except ToolFailed:
        return []
    return [_Rules(folder, IgnoreFile(data))]


class _Filter:
    """`file_filter` and `exclude`, tried on the name from the root and on the name from the
    start.
    """

    def __init__(self, start: str, scope: Scope) -> None:
        self._cut = len(start) + 1 if start else 0
        self._include = _globs(scope.include, "file_filter")
        self._exclude = _globs(scope.exclude, "exclude")

    def __call__(self, name: str) -> bool:
        names = (name, name[self._cut :])
        if self._exclude is not None and any(self._exclude.match_file(n) for n in names):
            return False
        return self._include is None or any(self._include.match_file(n) for n in names)


def _globs(globs: Sequence[str], parameter: str) -> Globs | None:
    if not globs:
        return None
    from pathspec import GitIgnoreSpec

    for glob in globs:
        if glob.startswith("!") or not glob.strip():
            raise ToolFailed(
                ErrorType.VALIDATION_FAILED,
                (
                    f"`{parameter}`: `{glob}` is no glob; write `*.py` or `src/**`, and use "
                    "`exclude` to leave files out"
                ),
            )
    lines = [line for glob in globs for line in _alternatives(glob)]
    try:
        return GitIgnoreSpec.from_lines(lines)
    except ValueError as error:
        raise ToolFailed(ErrorType.VALIDATION_FAILED, f"`{parameter}`: {error}") from None


def _alternatives(glob: str) -> list[str]:
    """`*.{ts,tsx}` -> `*.ts`, `*.tsx`. Nested braces work; at most 64 come of one glob."""
    close = glob.find("}")
    start = glob.rfind("{", 0, close) if close >= 0 else -1
    if start < 0:
        return [glob]
    found: list[str] = []
    for choice in glob[start + 1 : close].split(","):
        found += _alternatives(glob[:start] + choice + glob[close + 1 :])
        if len(found) > _BRACES:
            raise ToolFailed(
                ErrorType.VALIDATION_FAILED,
                f"`{glob}` stands for more than {_BRACES} globs; pass fewer",
            )
    return found
