"""What a session has read, so that nobody's change in between is overwritten unseen.

Kept in `Context.memory` as name -> SHA-256 of the content that a tool last returned or wrote. A
file that was never read is not guarded: there is nothing the model could be mistaken about.
"""

from __future__ import annotations

import hashlib
from typing import cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.permissions.filesystem.paths import shown
from ferrule.tools.context import Context

_KEY = "files.seen"


def digest(data: bytes) -> str:
    """The form that `Workspace.write(expect=)` takes."""
    return hashlib.sha256(data).hexdigest()


def remember(context: Context, name: str, digest: str) -> None:
    """This content of the file has been shown, or was written by the model."""
    _all(context)[name] = digest


def recall(context: Context, name: str) -> str | None:
    """The digest of what was last seen, None if the file was not."""
    return _all(context).get(name)


def forget(context: Context, name: str) -> None:
    """The file, or all that was below the folder, is gone from this name."""
    known = _all(context)
    for one in [n for n in list(known) if n == name or n.startswith(name + "/")]:
        known.pop(one, None)


def moved(context: Context, old: str, new: str) -> None:
    """The file or folder has another name; what was seen is still what it holds."""
    known = _all(context)
    forget(context, new)
    for one in [n for n in list(known) if n == old or n.startswith(old + "/")]:
        known[new + one.removeprefix(old)] = known.pop(one)


def check(context: Context, name: str, found: str, path: str) -> None:
    """Raises ToolFailed(io_error) if the file was seen and now holds something else."""
    last = recall(context, name)
    if last is not None and last != found:
        raise ToolFailed(
            ErrorType.IO_ERROR,
            (
                f"{shown(path)} has changed since it was read; nothing was written. Read it "
                "again first"
            ),
        )


def _all(context: Context) -> dict[str, str]:
    return cast(dict[str, str], context.memory.setdefault(_KEY, {}))
