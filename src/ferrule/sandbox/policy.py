"""What a sandbox must hold, as data: no I/O, no platform.

A policy says what a command may touch and which aspects must be *enforced* for it to run at all.
How each aspect is enforced, and by what, is a rung's business (`selection.py`). A rung that
enforces less than the policy requires is a gap: an error where nobody can be asked, one question to
a person otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from pathlib import Path

from ferrule.core.frozen import frozen
from ferrule.permissions.protected_names import DEFAULT, Names


class Aspect(StrEnum):
    """Something a sandbox can hold."""

    FILE_READS = "file_reads"
    """Only the workspace, the system folders and the temporary folder can be read."""
    FILE_WRITES = "file_writes"
    """Only the workspace and the temporary folder can be written."""
    NAMES = "names"
    """Reserved and secret names in the workspace can be neither seen nor changed."""
    NEW_NAMES = "new_names"
    """Reserved names that do not exist yet cannot be created."""
    EXEC = "exec"
    """Only programs of the system folders and the workspace run, and none gains rights by running.
    """
    NETWORK = "network"
    """No packet leaves, except to the hosts that the policy names."""
    UNIX_SOCKETS = "unix_sockets"
    """No socket of a process outside can be reached, abstract ones included."""
    SIGNALS = "signals"
    """Processes outside can be neither signalled, traced nor listed."""
    MEMORY = "memory"
    PROCESSES = "processes"
    """The number of processes is bounded, and none outlives the command."""


class Holds(StrEnum):
    """How far a rung enforces an aspect."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"


ALL = frozenset(Aspect)
MUST = ALL - {Aspect.MEMORY, Aspect.PROCESSES}
"""What is required unless the policy says otherwise."""


@frozen
class Bounds:
    """Sizes in bytes, counts of processes. None: no bound.

    `memory` and `processes` hold for all commands of a session together where the machine offers
    that, for each process elsewhere; the report says which.
    """

    memory: int | None = 8 * 1024**3
    processes: int | None = 1024
    file_size: int | None = 4 * 1024**3


@frozen
class Policy:
    """What commands of one session may do. Folders are absolute.

    `root` is the workspace. `names` are refused in it. `temporary` is bound as `/tmp` and outlives
    a command, not the session. `readable` and `writable` are further folders a person opened.
    `network` are the hosts that can be reached: `host`, `host:port` or `*.domain`. `preview`:
    nothing is written; changes are collected. `require` are the aspects without which no command
    runs.
    """

    root: Path
    names: Names = DEFAULT
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    bounds: Bounds = field(default_factory=Bounds)
    require: frozenset[Aspect] = MUST
    preview: bool = False


@frozen
class Applied:
    """What held a command: in its result, in the journal, in `ferrule doctor`.

    `rung` is the name of the mechanism (`namespaces`, `bubblewrap`, `landlock`, `none`, …), `holds`
    says for each aspect how far, `how` by what, in a few words.
    """

    rung: str
    holds: Mapping[Aspect, Holds]
    how: Mapping[Aspect, str] = field(default_factory=dict[Aspect, str])

    def missing(self, required: frozenset[Aspect]) -> tuple[Aspect, ...]:
        """What is required and not fully held, in the order of `Aspect`."""
        return tuple(a for a in Aspect if a in required and self.holds.get(a) is not Holds.YES)

    def as_record(self) -> dict[str, object]:
        """`{"kind": rung, "enforced": [aspects], "not_enforced": [aspects]}`, for results and the
        journal.
        """
        held = [str(a) for a in Aspect if self.holds.get(a) is Holds.YES]
        return {
            "kind": self.rung,
            "enforced": held,
            "not_enforced": [str(a) for a in Aspect if a not in held],
        }

    def in_words(self) -> str:
        """One line: the mechanism, what it holds, and how far the rest is held."""
        rest = [
            f"{aspect} {self.holds.get(aspect, Holds.NO)} ({self.how.get(aspect, '')})"
            for aspect in Aspect
            if self.holds.get(aspect) is not Holds.YES
        ]
        held = ", ".join(str(aspect) for aspect in Aspect if self.holds.get(aspect) is Holds.YES)
        said = f"commands are held by `{self.rung}`: {held or 'nothing'}"
        return f"{said}; not in full: {'; '.join(rest)}" if rest else said


UNCONFINED = Applied("none", dict.fromkeys(Aspect, Holds.NO))
