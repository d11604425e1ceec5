"""The list of steps of a rebase that commands began: what is left of it when a command has ended.

git obeys the list when anybody goes on with the rebase, and one of its steps, `exec`, runs a
program. Commands may write the list in the repository of their workspace, since there is no rebase
without it. Once a command is gone, the steps that could run something are taken out, so that a
person who goes on runs none.

Not protected: a person who goes on with a rebase of commands while one of these still runs.
"""

from __future__ import annotations

import os
import stat

STEPS_FILE = "rebase-merge/git-rebase-todo"
"""The list, below the folder that HEAD of a work tree is in."""

_HARMLESS = frozenset(
    word
    for pair in (
        "p pick",
        "r reword",
        "e edit",
        "s squash",
        "f fixup",
        "d drop",
        "l label",
        "t reset",
        "m merge",
        "b break",
        "u update-ref",
        "noop",
    )
    for word in pair.split()
)
"""Steps that run no program: git-rebase(1), "INTERACTIVE MODE"."""
_MAX_BYTES = 16 * 1024 * 1024


def remove_programs(path: str) -> bool:
    """Take the steps that could run something out of a list. Return whether there were any.

    A list that cannot be read is emptied: git then stops and says so.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False  # there is none
    with os.fdopen(descriptor, "r+b") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return False
        text = file.read(_MAX_BYTES)
        lines = text.splitlines(keepends=True) if status.st_size <= _MAX_BYTES else []
        kept = b"".join(line for line in lines if _is_harmless(line))
        if kept == text:
            return False
        file.seek(0)
        file.truncate()
        file.write(kept)
    return True


def _is_harmless(line: bytes) -> bool:
    word = line.decode("utf-8", "replace").split(maxsplit=1)[:1]
    return not word or word[0].startswith("#") or word[0] in _HARMLESS
