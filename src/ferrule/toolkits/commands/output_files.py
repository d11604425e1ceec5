"""Whole outputs in files with short names, which later commands and file tools can read.

They are in the folder `out` of the session's own temporary folder and end with the session.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ferrule.sandbox.sandbox import Sandbox

from .output_copies import find_writable_folder
from .outputs import OutputStream
from .session_commands import SessionCommands

_FOLDER = "out"
_MAX_FILES = 100
"""Files of one session; the oldest is removed first."""
_CHUNK_BYTES = 1 << 20
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_output_file(sandbox: Sandbox, commands: SessionCommands) -> tuple[Path, str] | None:
    """Return an unused path for an output, for this process and for commands.

    None where commands have no folder of their own.
    """
    place = find_writable_folder(sandbox, commands.folder)
    if place is None:
        return None
    above = place[0].parent
    seen = os.path.dirname(place[1])  # noqa: PTH120  text of another system's view
    folder = above / _FOLDER
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        return None  # A command put something else in its place.
    number = commands.count_output_file()
    (folder / f"{number - _MAX_FILES}.txt").unlink(missing_ok=True)
    name = f"{number}.txt"
    return folder / name, f"{seen}/{_FOLDER}/{name}"


def keep_output(stream: OutputStream, sandbox: Sandbox, commands: SessionCommands) -> str:
    """Put a whole output into a file, and return its path for commands; empty if it cannot be."""
    place = make_output_file(sandbox, commands)
    if place is None:
        return ""
    file, seen = place
    try:
        _copy(stream, file)
    except OSError:
        return ""  # The result is still shown in part; `> FILE` keeps it whole.
    return seen


def _copy(stream: OutputStream, file: Path) -> None:
    source = stream.folder.open(stream.name, stream.identity)
    try:
        target = os.open(file, _FLAGS, 0o600)
        try:
            while data := os.read(source, _CHUNK_BYTES):
                os.write(target, data)
        finally:
            os.close(target)
    finally:
        os.close(source)
