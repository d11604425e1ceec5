"""Copies of files that a call is about to change, so that a session can be rewound.

Around each call of a tool whose side effect is `write`, the state of every path that its parameters
name for writing goes into the journal (`events.FilesSeen`), before and after; the content before
goes into the artifact store, by its hash, for the session's owner.

A state is `` (nothing there), `dir`, `link`, `file:<sha256>`, `large:<size>` for a file that is too
large to be kept, or `other`: something else, or something that may not be read. The folders above a
path are recorded too, and everything below a folder, up to `MOST` paths; what is beyond is not
kept, and a notice (`BEYOND`) says so.

Not covered: what commands change (side effect `execute`), what a tool changes that its parameters
do not name, permissions, times, and whatever a person or another program does meanwhile.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from ferrule.core.calls import ErrorType, ToolResult
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.events import FilesSeen
from ferrule.core.identity import Identity
from ferrule.engine.threads import run_blocking
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage.artifacts.store import ArtifactStore, Scope
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

MAX_FILE_SIZE = 16 << 20
"""Maximum bytes of a file that is kept."""
MAX_PATHS = 500
"""Maximum number of paths of a call."""
BEYOND = "copies"
"""Topic of the notice that a call touches more paths than are kept."""
NOTHING = ""
TOOL = "copy before a change"
"""The tool that the store names as the source of such an artifact."""


class FileCopies:
    """Keeps the file copies of one session."""

    def __init__(self, store: ArtifactStore, workspace: Workspace) -> None:
        self.store = store
        self.workspace = workspace

    async def around(
        self,
        tool: Tool,
        values: Mapping[str, Any],
        context: Context,
        run: Callable[[], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Run the call, and record the state of the paths that it names before and after.

        Raises what `run` raises, and JournalError.
        """
        paths = [
            str(values[name])
            for name, touch in tool.touches.items()
            if touch.kind == "write" and name in values
        ]
        if not paths:
            return await run()
        before = await run_blocking(
            lambda: read_states(self.workspace, paths, self._keep_around(context.identity))
        )
        context.record(FilesSeen(context.call_id, "before", tuple(before), tuple(before.values())))
        if len(before) >= MAX_PATHS:
            said = (
                f"`{tool.name}` may change more than {MAX_PATHS} paths: only these can be put back "
                f"by "
                "a rewind"
            )
            context.note(BEYOND, said)
        try:
            return await run()
        finally:
            after = await run_blocking(lambda: read_states(self.workspace, paths, None, before))
            changed = {
                path: state for path, state in after.items() if before.get(path, NOTHING) != state
            }
            if changed:
                context.record(
                    FilesSeen(context.call_id, "after", tuple(changed), tuple(changed.values()))
                )

    def _keep_around(self, who: Identity) -> Callable[[bytes], None]:
        scope = Scope.from_identity(who)
        return lambda data: self._keep(scope, data)

    def _keep(self, scope: Scope, data: bytes) -> None:
        self.store.put(scope, [data], mime="application/octet-stream", tool=TOOL)


def read_states(
    workspace: Workspace,
    paths: Iterable[str],
    keep: Callable[[bytes], None] | None,
    besides: Iterable[str] = (),
) -> dict[str, str]:
    """Return the state of each path, of the folders above it, of all below it, and of `besides`.

    `keep` gets the content of each file. What the workspace does not let anybody read, or has too
    much of, is left out.
    """
    found = {name: read_state(workspace, name, keep) for name in besides}
    for path in paths:
        for name in _list_paths(workspace, path):
            if name not in found and len(found) < MAX_PATHS:
                found[name] = read_state(workspace, name, keep)
    return found


def _list_paths(workspace: Workspace, path: str) -> Iterator[str]:
    try:
        name = workspace.name(path)
        parts = name.split("/")
        # Also folders that do not exist yet: a tool may create them.
        yield from ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        yield name
        if workspace.stat(name).kind == "dir":
            yield from (entry.path for entry in workspace.walk(name))
    except (ToolFailed, OSError):
        return


def read_state(workspace: Workspace, name: str, keep: Callable[[bytes], None] | None) -> str:
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
    return f"file:{hashlib.sha256(data).hexdigest()}"
