"""What a sandbox must enforce, as data: nothing platform-specific.

A policy says what a command may touch, and which protections must be *enforced* for it to run at
all. How each is enforced, and by what, is up to a sandbox backend (`backends/selection.py`). A
backend that enforces less than the policy requires leaves protections missing: an error where
nobody can be asked, otherwise one question to a person.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from ferrule.core.value_class import frozen, options
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.permissions.provenance import CommandWritable
from ferrule.permissions.repositories import add_repository


class Protection(StrEnum):
    """A protection that a sandbox can enforce."""

    FILE_READS = "file_reads"
    """Only the workspace, the system folders and the temporary folder can be read."""
    FILE_WRITES = "file_writes"
    """Only the workspace and the temporary folder can be written."""
    NAMES = "names"
    """Reserved and secret names in the workspace can be neither seen nor changed."""
    NEW_NAMES = "new_names"
    """Reserved names that do not exist yet cannot be created."""
    EXEC = "exec"
    """Only programs of the system folders and the workspace run, and none gains rights by that."""
    NETWORK = "network"
    """No packet leaves, except to the hosts that the policy names."""
    UNIX_SOCKETS = "unix_sockets"
    """No socket of a process outside can be reached, including abstract ones."""
    SIGNALS = "signals"
    """Processes outside can be neither signalled nor traced nor listed."""
    MEMORY = "memory"
    PROCESSES = "processes"
    """The number of processes is bounded, and none outlives the command."""


class Enforcement(StrEnum):
    """How far a backend enforces a protection."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


ALL_PROTECTIONS = frozenset(Protection)
DEFAULT_REQUIRED = ALL_PROTECTIONS - {Protection.MEMORY, Protection.PROCESSES}
"""The protections that are required unless the policy says otherwise."""


@options
class ResourceLimits:
    """Limits: sizes in bytes, processes as a count. None: no limit.

    `memory` and `processes` apply to all commands of a session together where the machine offers
    that, elsewhere to each process; the report says which.
    """

    memory: int | None = 8 * 1024**3
    processes: int | None = 1024
    file_size: int | None = 4 * 1024**3


@options
class SandboxPolicy:
    """What the commands of one session may do. Folders are absolute paths.

    `root` is the workspace, `names` are the names that are refused in it. `readable` and `writable`
    are further folders that a person opened; `scratch` folders hold only what commands put there,
    so nothing in them is covered. `network` lists the hosts that can be reached: `host`,
    `host:port` or `*.domain`. `require` are the protections without which no command runs. With
    `preview` nothing is written; changes are collected instead. Commands also get a `/tmp` of their
    own that outlives a command, not the session. `git_hooks`: git may run the hooks of the
    repository, confined like the rest of a command.
    """

    root: Path
    names: ProtectedNames = DEFAULT_NAMES
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    require: frozenset[Protection] = DEFAULT_REQUIRED
    preview: bool = False
    git_hooks: bool = True

    @property
    def opened(self) -> CommandWritable:
        """What commands can write because the policy names it."""
        return CommandWritable.from_folders(self.root, *self.writable, *self.scratch)

    @property
    def command_writable(self) -> CommandWritable:
        """What commands can write under this policy, with the repository of the workspace.

        That may lie outside: a linked worktree and a submodule are written in the folder of the
        repository that they belong to.
        """
        return add_repository(os.path.realpath(self.root), self.opened)


@frozen
class AppliedProtections:
    """What confined a command, as shown in its result, in the journal and by `ferrule doctor`.

    `backend` is its name (`namespaces`, `bubblewrap`, `landlock`, `none`, …). `enforcement`
    says for each protection how far it is enforced, `mechanisms` by what, in a few words.
    """

    backend: str
    enforcement: Mapping[Protection, Enforcement]
    mechanisms: Mapping[Protection, str] = field(default_factory=dict[Protection, str])

    def find_missing(self, required: frozenset[Protection]) -> tuple[Protection, ...]:
        """Return what is required and not fully enforced, in the order of declaration."""
        return tuple(
            aspect
            for aspect in Protection
            if aspect in required and self.enforcement.get(aspect) is not Enforcement.YES
        )

    def as_record(self) -> dict[str, object]:
        """Return the record for results and the journal.

        Its form is `{"kind": backend, "enforced": [protections], "not_enforced": [protections]}`.
        """
        enforced = self._list_enforced()
        return {
            "kind": self.backend,
            "enforced": enforced,
            "not_enforced": [str(aspect) for aspect in Protection if aspect not in enforced],
        }

    def describe(self) -> str:
        """Describe in one line the backend, what it enforces, and how far the rest is enforced."""
        enforced = ", ".join(self._list_enforced()) or "nothing"
        summary = f"commands are confined by `{self.backend}`: {enforced}"
        rest = [
            f"{aspect} {self.enforcement.get(aspect, Enforcement.NO)} "
            f"({self.mechanisms.get(aspect, '')})"
            for aspect in Protection
            if self.enforcement.get(aspect) is not Enforcement.YES
        ]
        return f"{summary}; not in full: {'; '.join(rest)}" if rest else summary

    def _list_enforced(self) -> list[str]:
        return [
            str(aspect) for aspect in Protection if self.enforcement.get(aspect) is Enforcement.YES
        ]


UNCONFINED = AppliedProtections("none", dict.fromkeys(Protection, Enforcement.NO))
