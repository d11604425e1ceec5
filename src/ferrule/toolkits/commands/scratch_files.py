"""Files that commands write for Ferrule, in the temporary folder of the session.

Commands can put anything in the place of such a file, and of the folder that it lies in: a link, a
pipe, something that was not asked for. So folder and file are opened one beneath the other, links
are not followed, and anything but a regular file with one name counts as no file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from ferrule.core.value_class import frozen
from ferrule.sandbox.sandbox import Sandbox

from .output_folder import OutputFolder

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@frozen
class ScratchFile:
    """A file in a folder of the session's temporary folder.

    Attributes:
        above: The session's temporary folder, for this process; no command can replace it.
        folder: The name of the folder in it.
        name: The name of the file.
        seen: Its path for commands.
    """

    above: Path
    folder: str
    name: str
    seen: str

    def prepare(self) -> bool:
        """Make the folder for a command that writes the file. Return whether it is one."""
        try:
            with self.open_folder():
                return True
        except OSError:
            return False

    def exists(self) -> bool:
        """Return whether anything has its name, whatever it is."""
        try:
            with self.open_folder() as folder:
                os.stat(self.name, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return False
        return True

    def move_to(self, other: ScratchFile) -> bool:
        """Rename the file to another one, whose content is lost. Return whether it worked."""
        try:
            with self.open_folder() as source, other.open_folder() as target:
                os.rename(self.name, other.name, src_dir_fd=source, dst_dir_fd=target)
        except OSError:
            return False
        return True

    def create(self) -> int:
        """Return a descriptor for writing. Raises OSError if it exists or cannot be made."""
        with self.open_folder() as folder:
            return os.open(self.name, _WRITE_FLAGS, 0o600, dir_fd=folder)

    def open(self, suffix: str = "") -> int | None:
        """Return a descriptor for reading; None if it is anything but a file with one name.

        Args:
            suffix: The end of the name, for another file beside this one.
        """
        try:
            with self.open_folder() as folder:
                descriptor = os.open(self.name + suffix, _READ_FLAGS, dir_fd=folder)
        except OSError:
            return None
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            return descriptor
        os.close(descriptor)
        return None

    def take(self, limit: int, suffix: str = "") -> bytes | None:
        """Read the beginning of the file and remove it; None if there is no such file."""
        descriptor = self.open(suffix)
        if descriptor is None:
            return None
        try:
            return os.read(descriptor, limit)
        except OSError:
            return None
        finally:
            os.close(descriptor)
            self.remove(suffix)

    def remove(self, suffix: str = "") -> None:
        """Remove the file, if it is there."""
        with suppress(OSError), self.open_folder() as folder:
            os.unlink(self.name + suffix, dir_fd=folder)

    @contextmanager
    def open_folder(self) -> Generator[int]:
        """Open the folder, and make it if it is not there. Raises OSError if it is none."""
        self.above.mkdir(mode=0o700, parents=True, exist_ok=True)
        above = os.open(self.above, _FOLDER_FLAGS)
        try:
            with suppress(FileExistsError):
                os.mkdir(self.folder, 0o700, dir_fd=above)
            folder = os.open(self.folder, _FOLDER_FLAGS, dir_fd=above)
        finally:
            os.close(above)
        try:
            yield folder
        finally:
            os.close(folder)


def plan_hidden_file(sandbox: Sandbox, folder: OutputFolder) -> ScratchFile | None:
    """Return an unused file that a command can write, under a name that no other has.

    None where commands have no folder of their own, or have put something in its place.
    """
    file = plan_scratch_file(sandbox, folder, ".copies", uuid4().hex)
    return file if file is not None and file.prepare() else None


def plan_scratch_file(
    sandbox: Sandbox, outputs: OutputFolder, folder: str, name: str
) -> ScratchFile | None:
    """Return a file of this name; None where commands have no folder of their own."""
    if sandbox.protections().backend == "none":
        above, seen = outputs.path, str(outputs.path)
    elif sandbox.scratch_folder is not None:
        above, seen = sandbox.scratch_folder
    else:
        return None
    return ScratchFile(above, folder, name, f"{seen}/{folder}/{name}")
