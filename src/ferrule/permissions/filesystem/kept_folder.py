"""Puts files back into a workspace that were kept of another one.

Tools cannot write some names that they may read (`.git`, `.github/workflows`), so `Workspace` does
not serve. What is kept of them is what a person put there, not what a tool wrote. As there, every
name is opened by descriptor beneath the root, and no link is followed.
"""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from . import atomic_write, open_beneath
from .regular_files import make_folder, open_regular, stat_name


class KeptFolder:
    """The folder of a workspace, for those who put it back. Open until `close`.

    Names are relative to it, as `Workspace` returns them. Every method raises OSError, and
    `read` ToolFailed if it is no regular file.
    """

    def __init__(self, root: Path) -> None:
        self._open = open_beneath.select_open_folder()
        self._root = os.open(root, open_beneath.PATH_ONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._root)

    def read_link(self, name: str) -> bytes:
        """Return where a link points."""
        *above, last = name.split("/")
        with self._folder(above) as folder:
            return os.readlink(os.fsencode(last), dir_fd=folder)

    def read(self, name: str) -> bytes:
        """Return the content of a regular file, whatever other names it has."""
        *above, last = name.split("/")
        with (
            self._folder(above) as folder,
            os.fdopen(open_regular(folder, last, name), "rb") as file,
        ):
            return file.read()

    def write(self, name: str, data: bytes, *, executable: bool) -> None:
        """Write a file, in place of whatever has the name."""
        *above, last = name.split("/")
        with self._folder(above) as folder:
            self._remove(folder, last)
            with atomic_write.write_temporary(folder, data, None) as temporary:
                if executable:
                    mode = stat.S_IMODE(stat_name(folder, temporary).st_mode)
                    os.chmod(temporary, mode | (mode & 0o444) >> 2, dir_fd=folder)
                atomic_write.rename(folder, temporary, folder, last, replace=True)

    def make_link(self, name: str, target: bytes) -> None:
        """Make a link, in place of whatever has the name."""
        *above, last = name.split("/")
        with self._folder(above) as folder:
            self.delete(name)
            os.symlink(target, os.fsencode(last), dir_fd=folder)

    def make_folder(self, name: str) -> None:
        """Make a folder, in place of a file or link with the name."""
        *above, last = name.split("/")
        with self._folder(above) as folder:
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(stat_name(folder, last).st_mode):
                    os.unlink(last, dir_fd=folder)
            make_folder(folder, last, last=True)

    def delete(self, name: str) -> None:
        """Delete a file, a link, or a folder if it is empty; nothing if there is none."""
        *above, last = name.split("/")
        with suppress(FileNotFoundError), self._folder(above) as folder:
            if stat.S_ISDIR(stat_name(folder, last).st_mode):
                os.rmdir(last, dir_fd=folder)
            else:
                os.unlink(last, dir_fd=folder)

    def _remove(self, folder: int, name: str) -> None:
        """Remove an empty folder that a file takes the place of."""
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(stat_name(folder, name).st_mode):
                os.rmdir(name, dir_fd=folder)

    def _folder(self, above: list[str]) -> AbstractContextManager[int]:
        return open_beneath.folder_descriptor(self._open, self._root, above)
