"""What a session's tools have changed in files, as a unified diff against the copies kept."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage.artifacts.store import ArtifactStore, Scope

from .rewind import RewindPoint
from .states import NOTHING, parse_content, read_state


def diff_files(
    point: RewindPoint, workspace: Workspace, store: ArtifactStore, scope: Scope
) -> Iterator[str]:
    """Yield a unified diff, line by line, from the point to the files as they are now.

    A file that is not text, or of which no copy is kept, is one line that says so.
    """
    for path, before in sorted(point.wanted.items()):
        now = read_state(workspace, path, None)
        if now == before or "dir" in (now, before):
            continue
        try:
            old = _read_copy(before, store, scope)
            new = "" if now == NOTHING else workspace.read(path).decode()
        except (FerruleError, ToolFailed, OSError, UnicodeDecodeError):
            yield f"{path}: changed (not text, or no copy is kept)"
            continue
        names = [
            "/dev/null" if state == NOTHING else f"{side}/{path}"
            for state, side in ((before, "a"), (now, "b"))
        ]
        yield from difflib.unified_diff(
            old.splitlines(), new.splitlines(), names[0], names[1], lineterm=""
        )
        was, is_now = parse_content(before), parse_content(now)
        if was and is_now and was[1] != is_now[1]:
            yield f"{path}: can {'' if is_now[1] else 'no longer '}be run"


def _read_copy(state: str, store: ArtifactStore, scope: Scope) -> str:
    """Return the text of a kept file. Raises what the store raises, and UnicodeDecodeError."""
    if state == NOTHING:
        return ""
    content = parse_content(state)
    if content is None:
        raise ToolFailed(ErrorType.NOT_FOUND, f"no copy is kept of {state}")
    artifact = store.find(scope, f"art-{content[0]}")
    return store.read(scope, artifact.reference, 0, artifact.size).decode()
