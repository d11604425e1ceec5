"""Read the files beside a `SKILL.md` that no ordinary tool reaches.

These are the files of the person's folders, and those below `.ferrule`. A path is normalized as
text first and must stay in the skill's own folder. Then it is opened beneath the folder by
descriptor, following no link (`permissions.filesystem.workspace`), or taken from exactly the bytes
that were trusted. Secret names are refused here as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.paths import parts, shown
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import DEFAULT

from .skill_file import FILE

MOST_LISTED = 60
MOST_BYTES = 1024 * 1024
_MOST_WALKED = 1_000


class Resources(Protocol):
    """The files of one skill.

    `names` returns paths relative to its folder, sorted, at most `MOST_LISTED` and without
    `SKILL.md`. `read` raises ToolFailed for a path that is outside the folder, missing, secret, a
    link, or larger than `MOST_BYTES`.
    """

    def names(self) -> list[str]: ...
    def read(self, path: str) -> bytes: ...


def below(folder: str, path: str) -> str:
    """Return `folder/path` without `.` and `..`.

    Raises ToolFailed if the path leads out of the folder, or may not be read.
    """
    try:
        relative = "/".join(parts(path, ()))  # Without roots, absolute paths are refused.
    except ToolFailed as error:
        if error.error_type is ErrorType.PERMISSION_DENIED:
            raise _outside(path) from None
        raise
    reason = DEFAULT.check(relative, write=False)
    if reason:
        raise ToolFailed(ErrorType.PERMISSION_DENIED, f"{shown(path)}: {reason}")
    return f"{folder}/{relative}" if relative else folder


def _outside(path: str) -> ToolFailed:
    return ToolFailed(
        ErrorType.PERMISSION_DENIED,
        (
            f"{shown(path)} is not in the skill's folder; give a path relative to it, as the "
            "skill names it"
        ),
    )


def _missing(path: str, names: list[str]) -> ToolFailed:
    listed = ", ".join(map(shown, names[:10])) or "no files besides `SKILL.md`"
    return ToolFailed(
        ErrorType.NOT_FOUND, f"not found: the skill has no {shown(path)}; it has {listed}"
    )


@dataclass(frozen=True, slots=True)
class OnDisk:
    """Files below `folder` of a tree outside the workspace. Each is opened when it is read."""

    tree: Workspace
    folder: str

    def names(self) -> list[str]:
        found: list[str] = []
        # Where the walk fails, the list ends.
        with suppress(ToolFailed):
            for entry in self.tree.walk(self.folder, limit=_MOST_WALKED):
                if entry.kind == "file" and entry.path != f"{self.folder}/{FILE}":
                    found.append(entry.path.removeprefix(f"{self.folder}/"))
        return sorted(found)[:MOST_LISTED]

    def read(self, path: str) -> bytes:
        try:
            return self.tree.read(below(self.folder, path), limit=MOST_BYTES)
        except ToolFailed as error:
            if error.error_type is ErrorType.NOT_FOUND:
                raise _missing(path, self.names()) from None
            raise


@dataclass(frozen=True, slots=True)
class Trusted:
    """Files below `folder` as `storage.trust` read them, by their names in the workspace."""

    files: Mapping[str, bytes]
    folder: str

    def names(self) -> list[str]:
        start = f"{self.folder}/"
        found = [name.removeprefix(start) for name in self.files if name.startswith(start)]
        readable = [
            name for name in found if name != FILE and DEFAULT.check(name, write=False) is None
        ]
        return sorted(readable)[:MOST_LISTED]

    def read(self, path: str) -> bytes:
        data = self.files.get(below(self.folder, path))
        if data is None:
            raise _missing(path, self.names())
        if len(data) > MOST_BYTES:
            raise ToolFailed(
                ErrorType.LIMIT, f"{shown(path)} has {len(data)} bytes, more than {MOST_BYTES}"
            )
        return data
