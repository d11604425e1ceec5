"""Copies of what a filter hides (`capture.py`): where they are made and how they become outputs.

A copy is made by the command itself, in a place where it can write. When the command has ended, the
file is moved into the session's folder, which no command reaches, and from then on it is read like
any output. Anything but a regular file with one name is left where it is: a command can put
anything in its place.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from uuid import uuid4

from ferrule.core.value_class import frozen
from ferrule.sandbox.sandbox import Sandbox

from .capture import CapturePlan, NotCaptured, finish_capture, plan_capture
from .output_folder import OutputFolder, file_identity
from .outputs import OutputStream
from .plan import SHELL_COMMAND, CommandPlan
from .session_commands import CommandHandle

_CHUNK_BYTES = 1 << 20


@frozen
class OutputCopy:
    """A copy that a command will make. `found` is the path of its file for this process."""

    plan: CapturePlan
    found: Path

    @property
    def argv(self) -> tuple[str, ...]:
        """The words to run instead of the planned ones."""
        command = self.plan.command
        return (*SHELL_COMMAND, command) if isinstance(command, str) else command

    def collect(self, handle: CommandHandle, folder: OutputFolder) -> None:
        """Make the copy an output of the command that has ended, and add it to its record."""
        name = f"{handle.command_id}.copy"
        capture = finish_capture(self.plan, self.found, shown=str(folder.path / name))
        if capture is None:
            return
        moved = _move(self.found, folder, name)
        if moved is None:
            return
        size = moved.st_size
        handle.extra_streams["copy"] = OutputStream(
            folder, name, 0, size=size, stored_bytes=size, identity=file_identity(moved)
        )
        handle.extra_fields["output_capture"] = capture


def plan_copy(planned: CommandPlan, sandbox: Sandbox, folder: OutputFolder) -> OutputCopy | None:
    """Plan a copy of what this command's last filter hides; None if there is nothing to copy."""
    place = find_writable_folder(sandbox, folder)
    if place is None:
        return None
    found, seen = place
    name = uuid4().hex
    plan = plan_capture(planned.text or planned.argv, f"{seen}/{name}", shell=SHELL_COMMAND[0])
    if isinstance(plan, NotCaptured):
        return None
    found.mkdir(mode=0o700, exist_ok=True)
    return OutputCopy(plan, found / name)


def find_writable_folder(sandbox: Sandbox, folder: OutputFolder) -> tuple[Path, str] | None:
    """Return a folder that the sandbox's commands can write: its path for us, and for them."""
    if sandbox.protections().backend == "none":
        found = folder.path / "copies"
        return found, str(found)
    scratch = sandbox.scratch_folder
    if scratch is None:
        return None
    return scratch[0] / ".copies", f"{scratch[1]}/.copies"


def _move(found: Path, folder: OutputFolder, name: str) -> os.stat_result | None:
    """Move the file to its new place; None if it is not one that we would show."""
    descriptor = open_own_file(found)
    if descriptor is None:
        return None
    try:
        # Copied, not renamed: whoever still has the old file open writes only into the old file.
        return _copy(descriptor, folder, name)
    except OSError:
        folder.remove(name)  # A full disk costs only the copy.
        return None
    finally:
        os.close(descriptor)
        found.unlink(missing_ok=True)


def open_own_file(found: Path) -> int | None:
    """Open a file that a command has made; None if it is anything but a file with one name."""
    try:
        descriptor = os.open(found, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if is_own_file(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def is_own_file(descriptor: int) -> bool:
    """Whether this is a regular file with one name, so none of another folder."""
    status = os.fstat(descriptor)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _copy(source: int, folder: OutputFolder, name: str) -> os.stat_result:
    target = folder.create(name)
    try:
        while data := os.read(source, _CHUNK_BYTES):
            os.write(target, data)
        return os.fstat(target)
    finally:
        os.close(target)
