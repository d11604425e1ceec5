"""Snapshots of a workspace around commands, so that what a command changed can be undone.

A command names the files that it changes nowhere, so all of them are copied before it runs: into
one file without a name, which only this process can reach and which is gone with the session.
Before a later command only what has changed since is copied, as the times, sizes and inodes of
files say. When the command ends, the files that differ go into the journal (`events.FilesSeen`),
and their content before into the artifact store. Commands that run at the same time share one
snapshot: the one from before the first of them.

Left out of a snapshot is what a `WorkspaceScan` leaves out, names that no tool may touch, and files
of more than `MAX_FILE_SIZE`. There is none of a workspace with more than `MAX_ENTRIES` names or
`MAX_BYTES`, of a command that goes on in the background, and of one that only reads (`READERS`).

Not protected: what a person or another program changes while a command runs is taken for the
command's own, and a change that leaves size, inode and both times as they were is not seen.
"""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from ferrule.core.calls import ToolResult
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.events import FilesSeen
from ferrule.core.value_class import frozen
from ferrule.engine.threads import run_blocking
from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.command_analysis.program_facts import word_set
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage import paths
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

from .states import (
    BEYOND,
    MAX_FILE_SIZE,
    NOTHING,
    KeepContent,
    describe_content,
    read_state,
)
from .workspace_scan import Stamp, WorkspaceScan, WorkspaceTooLarge, make_stamp

MAX_BYTES = 256 << 20
"""Maximum bytes of one snapshot, and of the copies that a session keeps until it ends."""
MAX_CHANGES = 2_000
"""Maximum changed paths of one command that can be undone."""
READERS = word_set("""
    basename cat cd cut df diff dirname du echo false grep head ls nl pwd realpath stat tail test
    tr true uname wc which
""")
"""Programs that change no file, whatever their arguments are (redirections apart)."""


@frozen
class SnapshotEntry:
    """One name: its stamp, what it is, and where its content begins (-1: it is not kept)."""

    stamp: Stamp
    kind: str
    offset: int = -1
    size: int = 0
    executable: bool = False


class CommandSnapshots:
    """The snapshots of one session."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._lock = asyncio.Lock()
        self._running = 0
        self._entries: dict[str, SnapshotEntry] = {}
        self._scan = WorkspaceScan(workspace)
        self._copies = -1
        self._finalizer: weakref.finalize[Any, CommandSnapshots] | None = None
        self._end = 0
        self._refused = False
        self._is_closed_later = False

    async def around(
        self,
        tool: Tool,
        values: Mapping[str, Any],
        context: Context,
        keep: KeepContent,
        run: Callable[[], Awaitable[ToolResult]],
    ) -> ToolResult:
        """Run the call, and record what it changed in files.

        Raises what `run` raises, and JournalError.
        """
        if tool.polls or values.get("background") or self._refused:
            return await run()
        if _only_reads(tool, values):
            context.record(FilesSeen(context.call_id, "before"))
            return await run()
        if not await self._begin(context):
            return await run()
        try:
            return await run()
        finally:
            await self._finish(context, keep)

    async def _begin(self, context: Context) -> bool:
        async with self._lock:
            if not self._running:
                if not self._is_closed_later:
                    self._is_closed_later = True
                    context.on_close(self.close)
                try:
                    await run_blocking(self._take)
                except (WorkspaceTooLarge, OSError, ToolFailed) as error:
                    self._refuse(context, str(error))
                    return False
            self._running += 1
            return True

    async def _finish(self, context: Context, keep: KeepContent) -> None:
        async with self._lock:
            self._running -= 1
            try:
                before, after = await run_blocking(lambda: self._compare(keep))
            except (WorkspaceTooLarge, OSError, ToolFailed) as error:
                self._refuse(context, str(error))
                return
        kept = dict(list(before.items())[:MAX_CHANGES])
        if len(before) > len(kept):
            said = f"it changed {len(before)} paths: only {MAX_CHANGES} of them can be put back"
            context.note(BEYOND, said)
        context.record(FilesSeen(context.call_id, "before", tuple(kept), tuple(kept.values())))
        if kept:
            states = tuple(after[path] for path in kept)
            context.record(FilesSeen(context.call_id, "after", tuple(kept), states))

    def _refuse(self, context: Context, why: str) -> None:
        self._refused = True
        self._drop()
        context.note(BEYOND, f"what commands change here cannot be undone: {why}")

    async def close(self) -> None:
        """Drop all copies. The next command starts anew."""
        self._is_closed_later = False
        self._drop()

    def _drop(self) -> None:
        if self._finalizer is not None:
            self._finalizer()
        self._finalizer = None
        self._copies = -1
        self._end = 0
        self._entries.clear()

    # ---- in a thread

    def _take(self) -> None:
        """Copy what is new or changed since the last snapshot."""
        entries: dict[str, SnapshotEntry] = {}
        for name, status in self._scan.list_names():
            stamp = make_stamp(status)
            known = self._entries.get(name)
            if known is not None and known.stamp == stamp:
                entries[name] = known
            else:
                entries[name] = self._copy(name, status, stamp)
        self._entries = entries

    def _copy(self, name: str, status: os.stat_result, stamp: Stamp) -> SnapshotEntry:
        if stat.S_ISDIR(status.st_mode):
            return SnapshotEntry(stamp, "dir")
        if stat.S_ISLNK(status.st_mode):
            return SnapshotEntry(stamp, "link")
        if not stat.S_ISREG(status.st_mode):
            return SnapshotEntry(stamp, "other")
        executable = bool(status.st_mode & 0o111)
        if status.st_size > MAX_FILE_SIZE:
            return SnapshotEntry(stamp, f"large:{status.st_size}")
        try:
            data = self._workspace.read(name, limit=MAX_FILE_SIZE)
        except (ToolFailed, OSError):
            return SnapshotEntry(stamp, "other")
        offset = self._append(data)
        return SnapshotEntry(stamp, "file", offset, len(data), executable)

    def _append(self, data: bytes) -> int:
        if self._end + len(data) > MAX_BYTES:
            raise WorkspaceTooLarge(f"its files have more than {MAX_BYTES >> 20} MiB")
        if self._copies < 0:
            self._copies = _make_nameless_file()
            self._finalizer = weakref.finalize(self, os.close, self._copies)
        offset = self._end
        written = 0
        while written < len(data):
            part = memoryview(data)[written:]
            written += os.pwrite(self._copies, part, offset + written)
        self._end += len(data)
        return offset

    def _read_copy(self, entry: SnapshotEntry) -> bytes:
        parts: list[bytes] = []
        missing = entry.size
        while missing:
            part = os.pread(self._copies, missing, entry.offset + entry.size - missing)
            if not part:
                raise OSError("a copy of a file is cut short")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _compare(self, keep: KeepContent) -> tuple[dict[str, str], dict[str, str]]:
        """Return the states of changed paths before and after; keep the contents before."""
        before: dict[str, str] = {}
        after: dict[str, str] = {}
        seen: set[str] = set()
        for name, status in self._scan.list_names():
            seen.add(name)
            known = self._entries.get(name)
            if known is not None and known.stamp == make_stamp(status):
                continue
            if known is not None and known.kind == "dir" and stat.S_ISDIR(status.st_mode):
                continue
            after[name] = read_state(self._workspace, name, None)
            before[name] = self._describe(known)
        for name in self._entries.keys() - seen:
            before[name] = self._describe(self._entries[name])
            after[name] = NOTHING
        changed = {name: state for name, state in before.items() if state != after[name]}
        for name, state in changed.items():
            if state.startswith("file:"):
                changed[name] = self._keep(self._entries[name], state, keep)
        return changed, after

    def _describe(self, entry: SnapshotEntry | None) -> str:
        if entry is None:
            return NOTHING
        if entry.offset < 0:
            return entry.kind
        return describe_content(self._read_copy(entry), executable=entry.executable)

    def _keep(self, entry: SnapshotEntry, state: str, keep: KeepContent) -> str:
        try:
            keep(self._read_copy(entry))
        except (FerruleError, OSError):
            return f"large:{entry.size}"
        return state


def _make_nameless_file() -> int:
    """Return a descriptor of an empty file that nobody else can open."""
    try:
        descriptor, name = tempfile.mkstemp(dir=paths.make_private_folder(paths.cache()))
    except (FerruleError, OSError):
        # The cache cannot be written. The temporary folder is second: it may be memory.
        descriptor, name = tempfile.mkstemp()
    Path(name).unlink()
    return descriptor


def _only_reads(tool: Tool, values: Mapping[str, Any]) -> bool:
    """Return whether a call runs nothing but `READERS`, as far as its text can be judged."""
    names = [name for name, touch in tool.touches.items() if touch.kind == "command"]
    if len(names) != 1 or not values.get(names[0]):
        return False
    analysis = analyse_command(values[names[0]], root="/", home="/")
    if analysis.problem or analysis.over_limit or analysis.doubts:
        return False
    return bool(analysis.parts) and all(
        part.program in READERS
        and part.wrapped_program == part.program
        and not part.renamed
        and not part.assignments
        and not any(redirect.write for redirect in part.redirects)
        for part in analysis.parts
    )
