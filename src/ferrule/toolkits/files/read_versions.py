"""What a session has read, so that a change made by someone else is not overwritten unseen.

Kept in `Context.memory` as name -> SHA-256 of the content that a tool last returned or wrote. A
file that was never read is not guarded: the model cannot be mistaken about its content.
"""

from __future__ import annotations

import hashlib
from typing import cast

from ferrule.tools.context import Context

_MEMORY_KEY = "files.seen"


def compute_digest(data: bytes) -> str:
    """Return the digest in the form that `Workspace.write(expect=)` takes."""
    return hashlib.sha256(data).hexdigest()


def remember(context: Context, name: str, digest: str) -> None:
    """Record the content of a file that the model has been shown or has written."""
    _known_digests(context)[name] = digest


def recall(context: Context, name: str) -> str | None:
    """Return the digest of what was last seen, None if the file was not."""
    return _known_digests(context).get(name)


def forget(context: Context, name: str) -> None:
    """Forget a file, or everything below a folder, that is gone from this name."""
    known = _known_digests(context)
    for path in _paths_below(known, name):
        known.pop(path, None)


def rename(context: Context, old: str, new: str) -> None:
    """Carry what was seen over to the new name of a file or folder."""
    known = _known_digests(context)
    forget(context, new)
    for path in _paths_below(known, old):
        known[new + path.removeprefix(old)] = known.pop(path)


def _paths_below(known: dict[str, str], name: str) -> list[str]:
    return [path for path in list(known) if path == name or path.startswith(name + "/")]


def has_changed(context: Context, name: str, found: str) -> bool:
    """Return whether the file was seen and now holds something else."""
    return recall(context, name) not in (None, found)


def _known_digests(context: Context) -> dict[str, str]:
    return cast(dict[str, str], context.memory.setdefault(_MEMORY_KEY, {}))
