"""Opens files outside of a workspace: those of the person, the machine and repositories."""

from __future__ import annotations

import os
from io import BufferedReader
from pathlib import Path

READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Flags with which opening never waits for a pipe and never acquires a terminal."""


def open_for_reading(
    path: str | Path, *, follow_links: bool = False, folder: int | None = None
) -> BufferedReader:
    """Open what has this path for reading, whatever it is, without waiting for a pipe.

    The caller looks at its status before it reads: only a folder is refused here.

    Args:
        path: The path.
        follow_links: Whether the last part of the path may be a link.
        folder: A descriptor of the folder that a relative path begins at.

    Raises:
        OSError: It cannot be opened, or is a folder.
    """
    flags = READ & ~os.O_NOFOLLOW if follow_links else READ
    # What `opener` opened is closed again if it is a folder.
    return open(path, "rb", opener=lambda name, _: os.open(name, flags, dir_fd=folder))
