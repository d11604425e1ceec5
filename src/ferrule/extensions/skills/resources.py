"""Read the files beside a `SKILL.md` that no ordinary tool reaches.

These are the files of the person's folders, and those below `.ferrule`. A path is normalized as
text first and must stay in the skill's own folder. Then it is opened beneath the folder by
descriptor, following no link (`permissions.filesystem.workspace`), or taken from exactly the bytes
that were trusted. Secret names are refused here as everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.paths import quote_path, split_below_root
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.protected_names import DEFAULT_NAMES

from .skill_file import FILE_NAME

MAX_LISTED = 60
MOST_BYTES = 1024 * 1024
_MOST_WALKED = 1_000


class SkillFiles(Protocol):
    """The files of one skill.

    `list_names` returns paths relative to its folder, sorted, at most `MAX_LISTED` and without
    `SKILL.md`. `read` raises ToolFailed for a path that is outside the folder, missing, secret, a
    link, or larger than `MOST_BYTES`.
    """

    def list_names(self) -> list[str]: ...
    def read(self, path: str) -> bytes: ...


def join_below(folder: str, path: str) -> str:
    """Return `folder/path` without `.` and `..`.

    Raises ToolFailed if the path leads out of the folder, or may not be read.
    """
    try:
        relative = "/".join(
            split_below_root(path, ())
        )  # Without roots, absolute paths are refused.
    except ToolFailed as error:
        if error.error_type is ErrorType.PERMISSION_DENIED:
            raise _outside(path) from None
        raise
    reason = DEFAULT_NAMES.check(relative, write=False)
    if reason:
        raise ToolFailed(ErrorType.PERMISSION_DENIED, f"{quote_path(path)}: {reason}")
    return f"{folder}/{relative}" if relative else folder


def _outside(path: str) -> ToolFailed:
    return ToolFailed(
        ErrorType.PERMISSION_DENIED,
        (
            f"{quote_path(path)} is not in the skill's folder; give a path relative to it, as the "
            "skill names it"
        ),
    )


def _build_not_found(path: str, names: list[str]) -> ToolFailed:
    listed = ", ".join(map(quote_path, names[:10])) or "no files besides `SKILL.md`"
    return ToolFailed(
        ErrorType.NOT_FOUND, f"not found: the skill has no {quote_path(path)}; it has {listed}"
    )


@frozen
class DiskSkillFiles:
    """Files below `folder` of a tree outside the workspace. Each is opened when it is read."""

    tree: Workspace
    folder: str

    def list_names(self) -> list[str]:
        found: list[str] = []
        # Where the walk fails, the list ends.
        with suppress(ToolFailed):
            for entry in self.tree.walk(self.folder, limit=_MOST_WALKED):
                if entry.kind == "file" and entry.path != f"{self.folder}/{FILE_NAME}":
                    found.append(entry.path.removeprefix(f"{self.folder}/"))
        return sorted(found)[:MAX_LISTED]

    def read(self, path: str) -> bytes:
        try:
            return self.tree.read(join_below(self.folder, path), limit=MOST_BYTES)
        except ToolFailed as error:
            if error.error_type is ErrorType.NOT_FOUND:
                raise _build_not_found(path, self.list_names()) from None
            raise


@frozen
class TrustedSkillFiles:
    """Files below `folder` as `storage.trust` read them, by their names in the workspace."""

    files: Mapping[str, bytes]
    folder: str

    def list_names(self) -> list[str]:
        start = f"{self.folder}/"
        found = [name.removeprefix(start) for name in self.files if name.startswith(start)]
        readable = [
            name
            for name in found
            if name != FILE_NAME and DEFAULT_NAMES.check(name, write=False) is None
        ]
        return sorted(readable)[:MAX_LISTED]

    def read(self, path: str) -> bytes:
        data = self.files.get(join_below(self.folder, path))
        if data is None:
            raise _build_not_found(path, self.list_names())
        if len(data) > MOST_BYTES:
            raise ToolFailed(
                ErrorType.LIMIT, f"{quote_path(path)} has {len(data)} bytes, more than {MOST_BYTES}"
            )
        return data
