"""Copies of what a filter hides (`capture.py`): where they are made, and how they become outputs
like the others.

A copy is made by the command itself, where it can write; when it is over the file is moved into the
session's folder, which no command reaches, and from then on it is read like any output. What is not
a plain file with one name is left where it is: a command can put anything in its place.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from ferrule.sandbox.sandbox import Sandbox

from .capture import CapturePlan, LeftAlone, finish_capture, plan_capture
from .output_folder import Folder, identity_of
from .outputs import Stream
from .plan import SHELL, Planned
from .session_commands import Handle

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy to come. `found` is where our process sees the file that the command writes."""

    plan: CapturePlan
    found: Path

    @property
    def argv(self) -> tuple[str, ...]:
        """The words to run instead of those that were planned."""
        command = self.plan.command
        return (*SHELL, command) if isinstance(command, str) else command

    def collect(self, handle: Handle, folder: Folder) -> None:
        """When the command is over: the copy becomes one of its outputs, and its record says so."""
        name = f"{handle.command_id}.copy"
        told = finish_capture(self.plan, self.found, shown=str(folder.path / name))
        taken = None if told is None else _moved(self.found, folder, name)
        if told is not None and taken is not None:
            size = taken.st_size
            handle.extras["copy"] = Stream(
                folder, name, 0, size=size, stored=size, identity=identity_of(taken)
            )
            handle.added["output_capture"] = told


def arrange(planned: Planned, sandbox: Sandbox, folder: Folder) -> Copy | None:
    """A copy of what this command's last filter hides; None where there is none to make."""
    place = _place(sandbox, folder)
    if place is None:
        return None
    found, seen = place
    name = uuid4().hex
    plan = plan_capture(planned.text or planned.argv, f"{seen}/{name}", shell=SHELL[0])
    if isinstance(plan, LeftAlone):
        return None
    found.mkdir(mode=0o700, exist_ok=True)
    return Copy(plan, found / name)


def _place(sandbox: Sandbox, folder: Folder) -> tuple[Path, str] | None:
    """A folder that commands of this sandbox can write: as we see it, and as they do."""
    if sandbox.applied().rung == "none":
        found = folder.path / "copies"
        return found, str(found)
    scratch = sandbox.scratch
    return None if scratch is None else (scratch[0] / ".copies", f"{scratch[1]}/.copies")


def _moved(found: Path, folder: Folder, name: str) -> os.stat_result | None:
    """The file at its new place; None if it is none that we would show."""
    try:
        descriptor = os.open(found, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            return None
        # Copied, not renamed: whoever still has the old file open writes into the old file.
        return _copied(descriptor, folder, name)
    except OSError:
        folder.remove(name)  # a full disk costs the copy and nothing else
        return None
    finally:
        os.close(descriptor)
        found.unlink(missing_ok=True)


def _copied(source: int, folder: Folder, name: str) -> os.stat_result:
    target = folder.create(name)
    try:
        while data := os.read(source, _CHUNK):
            os.write(target, data)
        return os.fstat(target)
    finally:
        os.close(target)
