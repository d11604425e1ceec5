"""Copies of files that a call is about to change, so that a session can be rewound.

Around each call of a tool whose side effect is `write`, the state of every path that its parameters
name for writing goes into the journal (`events.FilesSeen`, in the form of `states`), before and
after; the content before goes into the artifact store, by its hash, for the session's owner. The
folders above a path are recorded too, and everything below a folder, up to `MAX_PATHS`; what is
beyond is not kept, and a notice (`BEYOND`) says so. Commands (side effect `execute`) name no paths:
`snapshots` has theirs.

Not covered: what a tool changes that its parameters do not name, permissions (apart from whether a
file can be run), times, and whatever a person or another program does meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ferrule.core.calls import ToolResult
from ferrule.core.errors import ToolFailed
from ferrule.core.events import FilesSeen
from ferrule.core.identity import Identity
from ferrule.engine.threads import run_blocking
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage.artifacts.store import ArtifactStore, Scope
from ferrule.tools.context import Context
from ferrule.tools.definition import SideEffect, Tool

from .states import BEYOND, NOTHING, KeepContent, read_state

if TYPE_CHECKING:
    from .snapshots import CommandSnapshots

MAX_PATHS = 500
"""Maximum number of paths of a call."""
TOOL = "copy before a change"
"""The tool that the store names as the source of such an artifact."""


class FileCopies:
    """Keeps the file copies of one session."""

    def __init__(self, store: ArtifactStore, workspace: Workspace) -> None:
        self.store = store
        self.workspace = workspace
        self._snapshots: CommandSnapshots | None = None

    async def around(
        self,
        tool: Tool,
        values: Mapping[str, Any],
        context: Context,
        run: Callable[[], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Run the call, and record the state of the paths that it names before and after.

        Around a command, of all paths that it changed. Raises what `run` raises, and JournalError.
        """
        keep = self._keep_around(context.identity)
        if tool.side_effect is SideEffect.EXECUTE:
            return await self._get_snapshots().around(tool, values, context, keep, run)
        paths = [
            str(values[name])
            for name, touch in tool.touches.items()
            if touch.kind == "write" and name in values
        ]
        if not paths:
            return await run()
        before = await run_blocking(lambda: read_states(self.workspace, paths, keep))
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

    def _get_snapshots(self) -> CommandSnapshots:
        # Loaded by sessions that run a command only.
        from .snapshots import CommandSnapshots

        if self._snapshots is None:
            self._snapshots = CommandSnapshots(self.workspace)
        return self._snapshots

    def _keep_around(self, who: Identity) -> KeepContent:
        scope = Scope.from_identity(who)
        return lambda data: self._keep(scope, data)

    def _keep(self, scope: Scope, data: bytes) -> None:
        self.store.put(scope, [data], mime="application/octet-stream", tool=TOOL)


def read_states(
    workspace: Workspace,
    paths: Iterable[str],
    keep: KeepContent | None,
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
