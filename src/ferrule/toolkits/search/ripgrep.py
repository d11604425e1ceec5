"""ripgrep as a prefilter: which of these files can have a matching line?

It is given names that were checked one by one, never a folder, so none of its own rules (ignore
files, hidden names, links, configuration) decides anything. It returns names only; content reaches
a model through `Workspace.open` alone, which checks every file again. If ripgrep fails, all files
remain candidates.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from ferrule.core.errors import ToolFailed
from ferrule.permissions.provenance import (
    CommandWritable,
    ProgramNotFound,
    TrustedProgram,
    find_program,
)
from ferrule.sandbox.command import TrustedCommand
from ferrule.toolkits.process import run_process

_OPTIONS = (
    "--no-config",
    "--color=never",
    "--no-messages",
    "--files-with-matches",
    "--null",
    "--text",
    "--encoding=none",
    "--no-mmap",
    "--no-ignore",
    "--hidden",
    "--no-follow",
    "--threads=1",
    "--engine=default",
)
_FOUND = 0
_NONE_FOUND = 1


def find_ripgrep(writable: CommandWritable) -> TrustedProgram | None:
    """Find the program: the one installed beside Python, else on PATH."""
    beside = (sysconfig.get_path("scripts"), str(Path(sys.executable).parent))
    search_path = os.pathsep.join((*beside, os.environ.get("PATH", os.defpath)))
    try:
        return find_program("rg", search_path, writable)
    except ProgramNotFound:
        return None


async def find_candidates(
    program: TrustedProgram,
    expression: str,
    names: Sequence[str],
    *,
    directory: int,
    timeout: float,
) -> list[str]:
    """Return those of `names`, in their order, in which ripgrep finds `expression`.

    All of them if ripgrep fails.

    Args:
        program: Path of ripgrep.
        expression: A regular expression as ripgrep reads it.
        names: Names of files.
        directory: Descriptor of the folder that the names are relative to.
        timeout: In seconds.
    """
    kept = bytearray()

    def keep(data: bytes) -> bool:
        kept.extend(data)
        return True

    command = TrustedCommand(
        ("rg", *_OPTIONS, "-e", expression, "--", *(f"./{name}" for name in names)),
        program=program,
        directory=directory,
        environment={},
        output=keep,
        errors=lambda data: True,
        timeout=timeout,
        grace=0.0,
    )
    try:
        ended = await run_process(command)
    except ToolFailed:
        return list(names)
    if ended.exit_code not in (_FOUND, _NONE_FOUND):
        return list(names)
    found = {os.fsdecode(name)[2:] for name in bytes(kept).split(b"\0") if name}
    return [name for name in names if name in found]
