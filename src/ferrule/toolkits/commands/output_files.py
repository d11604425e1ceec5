"""Whole outputs in files with short names, which later commands and file tools can read.

They are in the folder `out` of the session's own temporary folder and end with the session.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from ferrule.core.value_class import frozen
from ferrule.sandbox.sandbox import Sandbox

from .output_copies import find_writable_folder, is_own_file
from .outputs import OutputStream
from .session_commands import SessionCommands

_FOLDER = "out"
_MAX_FILES = 100
"""Files of one session; the oldest is removed first."""
_CHUNK_BYTES = 1 << 20
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen
class OutputFile:
    """A file in `out`, where commands can put anything in the place of the folder and its files.

    So both are opened one beneath the other and links are not followed: nothing outside the
    session's temporary folder is read, made or removed.

    Attributes:
        above: The session's temporary folder, for this process; no command can replace it.
        name: The name of the file in `out`.
        seen: Its path for commands.
    """

    above: Path
    name: str
    seen: str

    def create(self) -> int:
        """Return a descriptor for writing. Raises OSError if it exists or cannot be made."""
        with self._open_folder() as folder:
            return os.open(self.name, _WRITE_FLAGS, 0o600, dir_fd=folder)

    def open(self) -> int | None:
        """Return a descriptor for reading; None if it is anything but a file with one name."""
        try:
            with self._open_folder() as folder:
                descriptor = os.open(self.name, _READ_FLAGS, dir_fd=folder)
        except OSError:
            return None
        if is_own_file(descriptor):
            return descriptor
        os.close(descriptor)
        return None

    def remove(self) -> None:
        """Remove the file, if it is there."""
        with suppress(OSError), self._open_folder() as folder:
            os.unlink(self.name, dir_fd=folder)

    @contextmanager
    def _open_folder(self) -> Generator[int]:
        """Open `out`, and make it if it is not there."""
        self.above.mkdir(mode=0o700, parents=True, exist_ok=True)
        above = os.open(self.above, _FOLDER_FLAGS)
        try:
            with suppress(FileExistsError):
                os.mkdir(_FOLDER, 0o700, dir_fd=above)
            folder = os.open(_FOLDER, _FOLDER_FLAGS, dir_fd=above)
        finally:
            os.close(above)
        try:
            yield folder
        finally:
            os.close(folder)

    def prepare(self) -> bool:
        """Make the folder for a command that writes the file. Return whether it is one."""
        try:
            with self._open_folder():
                return True
        except OSError:
            return False


def plan_output_file(sandbox: Sandbox, commands: SessionCommands) -> OutputFile | None:
    """Return an unused file for an output; None where commands have no folder of their own."""
    place = find_writable_folder(sandbox, commands.folder)
    if place is None:
        return None
    above = place[0].parent
    seen = os.path.dirname(place[1])  # noqa: PTH120  text of another system's view
    number = commands.count_output_file()
    OutputFile(above, f"{number - _MAX_FILES}.txt", "").remove()
    file = OutputFile(above, f"{number}.txt", f"{seen}/{_FOLDER}/{number}.txt")
    return file if file.prepare() else None


def keep_output(stream: OutputStream, sandbox: Sandbox, commands: SessionCommands) -> str:
    """Put a whole output into a file, and return its path for commands; empty if it cannot be."""
    file = plan_output_file(sandbox, commands)
    if file is None:
        return ""
    try:
        _copy(stream, file)
    except OSError:
        return ""  # The result is still shown in part; `> FILE` keeps it whole.
    return file.seen


def _copy(stream: OutputStream, file: OutputFile) -> None:
    source = stream.folder.open(stream.name, stream.identity)
    try:
        target = file.create()
        try:
            while data := os.read(source, _CHUNK_BYTES):
                os.write(target, data)
        finally:
            os.close(target)
    finally:
        os.close(source)
