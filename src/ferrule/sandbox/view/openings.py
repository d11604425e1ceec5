"""What a policy opens, by its real path: folders that commands see besides, and what is left out.

    opened = resolve_openings(policy, policy.command_writable)
    opened.folders      # shown, at their real paths
    opened.left_out     # named by the policy and not shown or not written, each with the reason

The folders of a policy are the person's: their settings, command line and answers name them, or the
program that made the policy. What a path leads to may be somebody else's choice, though. A path
that commands can put something else in the place of, by a link in the workspace or in a folder that
was opened for writing, opens nothing; its real path does.

A folder that has a protected name, or lies in one (`~/.vscode`, which editors obey), is opened for
reading alone: names are judged by their real place, whatever folder was opened.

A folder inside what commands can write is seen there anyway. If it was opened for reading, it is
made read-only in its place.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from ferrule.core.value_class import frozen
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.provenance import (
    CommandWritable,
    Origin,
    TrustedPath,
    UntrustedPath,
    trust_place,
)
from ferrule.sandbox.policy import SandboxPolicy

Access = Literal["read", "write", "scratch"]
"""What commands may do in an opened folder; `scratch`: they write it, and it holds only that."""


@frozen
class OpenedFolder:
    """A folder or file that commands see because a person opened it, at its real path."""

    path: TrustedPath
    access: Access


@frozen
class LeftOut:
    """What of a policy's openings is not given: `access` to a path. `why` names the next step."""

    path: str
    why: str
    access: Literal["read", "write"] = "read"


@frozen
class Openings:
    """What a policy opens.

    Attributes:
        root: The workspace.
        folders: What is shown besides, outermost first.
        writable: What commands can write.
        read_only: Real paths in what they can write that they are to find read-only.
        left_out: What the policy names and nobody sees, or nobody writes.
    """

    root: TrustedPath
    folders: tuple[OpenedFolder, ...]
    writable: CommandWritable
    read_only: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def select(self, access: Access) -> tuple[TrustedPath, ...]:
        """Return the paths that were opened for this."""
        return tuple(one.path for one in self.folders if one.access == access)

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names in what commands can write that they may neither replace nor move."""
        shown = (self.root, *(one.path for one in self.folders), *self.read_only)
        inside = (str(path) for path in shown if self.writable.is_inside(path))
        return tuple(dict.fromkeys((*self.writable.held, *inside)))


def resolve_openings(policy: SandboxPolicy, writable: CommandWritable) -> Openings:
    """Return what a policy opens as the machine is now.

    Args:
        policy: What a person opened, as they named it.
        writable: What commands of the policy can write.

    Raises:
        UntrustedPath: Commands put something else in the place of the workspace.
    """
    resolver = _Resolver(writable, policy.names)
    for path in policy.readable:
        resolver.add(path, "read")
    for path in policy.writable:
        resolver.add(path, "write")
    for path in policy.scratch:
        resolver.add(path, "scratch")
    return Openings(
        root=_trust_root(str(policy.root), writable),
        folders=tuple(sorted(resolver.folders.values(), key=lambda one: one.path.split("/"))),
        writable=writable,
        read_only=tuple(sorted(resolver.read_only)),
        left_out=tuple(resolver.left_out),
    )


def _trust_root(root: str, writable: CommandWritable) -> TrustedPath:
    """Return the workspace. If it lies in another writable folder, no link may lead to it."""
    others = tuple(folder for folder in writable.folders if folder != root)
    step = CommandWritable(others).find_replaceable(root)
    if step is not None and os.path.realpath(root) != root:
        raise UntrustedPath(
            root, step, f"commands can write `{step}`", hint="start again in the folder itself"
        )
    return trust_place(root, Origin.PERSON, CommandWritable((root,)), reason="the workspace")


class _Resolver:
    def __init__(self, writable: CommandWritable, names: ProtectedNames) -> None:
        self._writable = writable
        self._names = names
        self.folders: dict[str, OpenedFolder] = {}
        self.read_only: set[str] = set()
        self.left_out: list[LeftOut] = []

    def add(self, named: str, access: Access) -> None:
        """Add a path of the policy. What is opened for writing need not be opened for reading."""
        try:
            path = trust_place(named, Origin.PERSON, self._writable, reason=_REASONS[access])
        except UntrustedPath as error:
            self._add_inside(named, error, access)
            return
        try:
            os.stat(path)  # noqa: PTH116  text, as the policy has it
        except FileNotFoundError:
            self.left_out.append(LeftOut(named, "it does not exist; make it, or leave it out"))
        except PermissionError:
            why = "a folder above it is closed to you; change its rights, or leave it out"
            self.left_out.append(LeftOut(named, why))
        except OSError as error:
            why = f"{error.strerror}; correct the path, or leave it out"
            self.left_out.append(LeftOut(named, why))
        else:
            if access == "write" and self._refuse_writing(path):
                access = "read"
            self.folders[path] = OpenedFolder(path, access)

    def _refuse_writing(self, path: str) -> bool:
        """Return whether nobody writes a path, whatever opened it; it is left out then."""
        why = self._names.find_protection(_name_in_repository(path))
        if why:
            why = f"{why}; a person changes it by hand"
            self.left_out.append(LeftOut(path, why, "write"))
        return bool(why)

    def _add_inside(self, named: str, error: UntrustedPath, access: Access) -> None:
        """Add a path whose place commands can change: it shows nothing that is not seen already."""
        if os.path.realpath(named) != named:
            self.left_out.append(LeftOut(named, f"{error.detail}; {error.hint}"))
        elif access == "read" and os.path.exists(named):  # noqa: PTH110  text, as the policy has it
            self.read_only.add(named)


def _name_in_repository(path: str) -> str:
    """Return a path relative to the work tree that it is in, or to the root of the machine."""
    for folder in (path, *map(str, Path(path).parents)):
        if os.path.lexists(f"{folder}/.git"):
            return path.removeprefix(folder).strip("/")
    return path.strip("/")


_REASONS: dict[Access, str] = {
    "read": "opened for reading",
    "write": "opened for writing",
    "scratch": "for what commands put there",
}
