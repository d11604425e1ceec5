"""Which names of a workspace are ignored: the nearest ignore file with a matching rule says."""

from __future__ import annotations

from collections.abc import Sequence

from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen

from .gitignore import FILE_NAME, MAX_BYTES, IgnoreFile
from .workspace import Workspace


@frozen
class IgnoreRules:
    """The ignore file of one folder. Names are relative to the workspace."""

    folder: str
    file: IgnoreFile

    @staticmethod
    def read(workspace: Workspace, folder: str) -> IgnoreRules | None:
        """Read the ignore file of a folder; None if it is missing or unreadable."""
        name = f"{folder}/{FILE_NAME}" if folder else FILE_NAME
        try:
            return IgnoreRules(folder, IgnoreFile(workspace.read(name, limit=MAX_BYTES)))
        except ToolFailed:
            return None

    def check(self, name: str, *, folder: bool) -> bool | None:
        """Return whether the file ignores a name below its folder; None if it says nothing."""
        below = name[len(self.folder) + 1 :] if self.folder else name
        return self.file.check(below, folder=folder)


def is_ignored(rules: Sequence[IgnoreRules], name: str, *, folder: bool) -> bool:
    """Return what the nearest ignore file with a matching rule says (gitignore(5)).

    `rules` are those of the folders above a name, the nearest first. False if none has one.
    """
    for one in rules:
        verdict = one.check(name, folder=folder)
        if verdict is not None:
            return verdict
    return False
