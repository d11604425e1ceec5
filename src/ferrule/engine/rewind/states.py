"""What is at a path, as one word: the form in which journals remember files.

A state is `` (nothing there), `dir`, `link`, `file:<sha256>` with `+x` behind it for a file that
can be run, `large:<size>` for a file that is too large to be kept, or `other`: something else, or
something that may not be read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace

MAX_FILE_SIZE = 16 << 20
"""Maximum bytes of a file that is kept."""
BEYOND = "copies"
"""Topic of the notice that a call changes more than is kept."""
NOTHING = ""
_EXECUTABLE = "+x"

KeepContent = Callable[[bytes], None]
"""Keeps the content of a file. Raises FerruleError or OSError if it cannot."""


def describe_content(data: bytes, *, executable: bool) -> str:
    """Return the state of a file with this content."""
    return f"file:{hashlib.sha256(data).hexdigest()}{_EXECUTABLE if executable else ''}"


def parse_content(state: str) -> tuple[str, bool] | None:
    """Return the hash (hex) of a file's state and whether it can be run; None for any other."""
    kind, _, digest = state.partition(":")
    if kind != "file":
        return None
    return digest.removesuffix(_EXECUTABLE), digest.endswith(_EXECUTABLE)


def read_state(workspace: Workspace, name: str, keep: KeepContent | None) -> str:
    """Return the current state of a path, and give the content of a file to `keep`."""
    try:
        entry = workspace.stat(name)
        if entry.kind != "file":
            return entry.kind
        if entry.size > MAX_FILE_SIZE:
            return f"large:{entry.size}"
        data = workspace.read(name, limit=MAX_FILE_SIZE)
    except FileNotFoundError:
        return NOTHING
    except ToolFailed as error:
        return NOTHING if error.error_type is ErrorType.NOT_FOUND else "other"
    except OSError:
        return "other"
    if keep is not None:
        try:
            keep(data)
        except (FerruleError, OSError):
            return f"large:{len(data)}"
    return describe_content(data, executable=bool(entry.mode & 0o111))
