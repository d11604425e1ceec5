"""Copies of what a filter hides (`capture.py`): where they are made and how they become outputs.

A copy is made by the command itself, in a place where it can write (`scratch_files`). When the
command has ended, the file is moved into the session's folder, which no command reaches, and from
then on it is read like any output.
"""

from __future__ import annotations

import os

from ferrule.core.value_class import frozen
from ferrule.sandbox.sandbox import Sandbox

from .capture import (
    NOTES_BYTES,
    NOTES_SUFFIX,
    CapturePlan,
    NotCaptured,
    describe_copy,
    plan_capture,
)
from .output_folder import OutputFolder, file_identity
from .outputs import OutputStream
from .plan import SHELL_COMMAND, CommandPlan
from .scratch_files import ScratchFile, plan_hidden_file
from .session_commands import CommandHandle

_CHUNK_BYTES = 1 << 20


@frozen
class OutputCopy:
    """A copy that a command will make in `file`."""

    plan: CapturePlan
    file: ScratchFile

    @property
    def argv(self) -> tuple[str, ...]:
        """The words to run instead of the planned ones."""
        command = self.plan.command
        return (*SHELL_COMMAND, command) if isinstance(command, str) else command

    def collect(self, handle: CommandHandle, folder: OutputFolder) -> None:
        """Make the copy an output of the command that has ended, and add it to its record."""
        name = f"{handle.command_id}.copy"
        notes = self.file.take(NOTES_BYTES, NOTES_SUFFIX)
        moved = _move(self.file, folder, name)
        if moved is None:
            return
        size = moved.st_size
        shown = str(folder.path / name)
        handle.extra_streams["copy"] = OutputStream(
            folder, name, 0, size=size, stored_bytes=size, identity=file_identity(moved)
        )
        handle.extra_fields["output_capture"] = describe_copy(self.plan, size, notes or b"", shown)


def plan_copy(planned: CommandPlan, sandbox: Sandbox, folder: OutputFolder) -> OutputCopy | None:
    """Plan a copy of what this command's last filter hides; None if there is nothing to copy."""
    file = plan_hidden_file(sandbox, folder)
    if file is None:
        return None
    plan = plan_capture(planned.text or planned.argv, file.seen, shell=SHELL_COMMAND[0])
    return None if isinstance(plan, NotCaptured) else OutputCopy(plan, file)


def _move(file: ScratchFile, folder: OutputFolder, name: str) -> os.stat_result | None:
    """Move the file to its new place; None if it is not one that we would show."""
    descriptor = file.open()
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
        file.remove()


def _copy(source: int, folder: OutputFolder, name: str) -> os.stat_result:
    target = folder.create(name)
    try:
        while data := os.read(source, _CHUNK_BYTES):
            os.write(target, data)
        return os.fstat(target)
    finally:
        os.close(target)
