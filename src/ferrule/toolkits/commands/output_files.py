"""Whole outputs in files with short names, which later commands and file tools can read.

They are in the folder `out` of the session's own temporary folder and end with the session.
"""

from __future__ import annotations

import os
from dataclasses import replace

from ferrule.sandbox.sandbox import Sandbox

from .outputs import OutputStream
from .scratch_files import ScratchFile, plan_scratch_file
from .session_commands import SessionCommands

_FOLDER = "out"
_MAX_FILES = 100
"""Files of one session; the oldest is removed first."""
_CHUNK_BYTES = 1 << 20


def plan_output_file(sandbox: Sandbox, commands: SessionCommands) -> ScratchFile | None:
    """Return an unused file for an output; None where commands have no folder of their own.

    Names that a command has taken are passed over.
    """
    for _ in range(_MAX_FILES):
        number = commands.count_output_file()
        file = plan_scratch_file(sandbox, commands.folder, _FOLDER, f"{number}.txt")
        if file is None or not file.prepare():
            return None
        if not file.exists():
            replace(file, name=f"{number - _MAX_FILES}.txt").remove()
            return file
    return None


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


def _copy(stream: OutputStream, file: ScratchFile) -> None:
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
