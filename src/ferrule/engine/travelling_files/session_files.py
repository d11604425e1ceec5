"""When the files of a session are kept, and when a folder is given them.

They are kept before the first request to the model and after each call that may change them, before
the journal has the call's result: whoever goes on with the session has the files that its history
speaks of. Where no call changes files, nothing is looked at.

A folder is given the files when the session goes on elsewhere. Where it was last, the folder is
left as it is, like that of any session.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ferrule.core import events
from ferrule.core.calls import ToolResult
from ferrule.core.commands import Command
from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.vocabulary import SideEffect
from ferrule.engine.driver import Driver, DriverExtension
from ferrule.engine.hooks.call_hooks import Hook
from ferrule.engine.threads import run_blocking
from ferrule.storage import paths
from ferrule.storage.artifacts.store import Scope
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

from .kept_files import KeptFiles
from .repositories import check_repository

TOPIC = "workspace"
"""Topic of the notice that something was kept aside."""
_CHANGES_NOTHING = (SideEffect.NONE, SideEffect.READ)
_PART = 1_000
"""Most paths of one event."""


class SessionFiles(DriverExtension):
    """Keeps the files of a session, and brings them where it goes on."""

    def __init__(self, driver: Driver, max_bytes: int) -> None:
        super().__init__(driver)
        self._max_bytes = max_bytes
        self._past: list[events.WorkspaceKept] = []
        self._files: KeptFiles | None = None
        self._lock = asyncio.Lock()
        self._place = ""
        self._failure: FerruleError | None = None
        self._may_have_changed = False
        self._running: set[str] = set()
        self._has_background = False

    def rebuild(self, journal: Sequence[events.Event]) -> None:
        self._past = [event for event in journal if isinstance(event, events.WorkspaceKept)]

    def call_hooks(self) -> tuple[Hook, ...]:
        return (_AfterCalls(self),)

    async def start(self) -> None:
        """Bring the files, or keep those that are there. Raises what `KeptFiles` raises."""
        if self._files is not None:
            return
        async with self._lock:
            if self._files is None:
                await self._arrive()

    async def _arrive(self) -> None:
        copies = self.driver.dispatcher.file_copies
        if copies is None:
            raise ConfigError(
                "files can go along only with a workspace and an artifact store",
                hint="give the agent `workspace=` and `storage=Storage(artifacts=...)`",
            )
        workspace = copies.workspace
        identity = self.driver.log.identity
        check_repository(workspace.root)
        files = KeptFiles(workspace, copies.store, Scope.from_identity(identity), self._max_bytes)
        for event in self._past:
            files.remember(event.paths, event.states)
        self._place = _describe_place(workspace.root)
        use = _FolderUse(self._place, identity.session)
        if not self._past:
            self._record(await run_blocking(files.keep), files)
        elif self._past[-1].place != self._place:
            is_own = use.is_open()
            aside = await run_blocking(lambda: files.bring(is_own=is_own, begin=use.open))
            if aside:
                self.driver.log.notice(
                    TOPIC, f"files of an interrupted call were kept aside: {', '.join(aside)}"
                )
            self._record({}, files)
        use.open()
        self._files = files
        self.driver.cleanup.add(lambda: self._leave(use))

    async def _leave(self, use: _FolderUse) -> None:
        if not self._may_have_changed:
            use.close()

    async def before_request(self, turn: int) -> list[Command] | None:
        """Keep what has changed besides; end the run if files cannot be kept."""
        self._running.clear()
        await self.keep_changes()
        if self._failure is None:
            return None
        failure, self._failure = self._failure, None
        return self.driver.feed(
            events.ModelFailed(
                failure.code, failure.detail, failure.hint, retryable=failure.retryable
            )
        )

    async def after_run(self) -> None:
        await self.keep_changes()

    def begin_call(self, call_id: str, values: Mapping[str, Any]) -> None:
        """Take note that a call may change files from now on."""
        self._running.add(call_id)
        self._may_have_changed = True
        self._has_background = self._has_background or bool(values.get("background"))

    async def end_call(self, call_id: str) -> None:
        """Keep what a call has changed."""
        self._running.discard(call_id)
        self._may_have_changed = True
        await self.keep_changes()

    async def keep_changes(self) -> None:
        """Keep what calls have changed since the last time."""
        files = self._files
        if files is None or not self._may_have_changed or self._failure is not None:
            return
        async with self._lock:
            try:
                self._record(await run_blocking(files.keep), files)
            except (FerruleError, OSError) as error:
                self._failure = _as_failure(error)
                return
            self._may_have_changed = self._has_background or bool(self._running)

    def _record(self, changed: Mapping[str, str], files: KeptFiles) -> None:
        paths_ = sorted(changed)
        moved = not self._past or self._past[-1].place != self._place
        for first in range(0, len(paths_) or int(moved), _PART):
            some = tuple(paths_[first : first + _PART])
            event = events.WorkspaceKept(self._place, some, tuple(changed[one] for one in some))
            self.driver.log.add(event)
            self._past = [event]
        files.remember(changed.keys(), changed.values())


class _AfterCalls:
    """Keeps files after each call that may have changed them."""

    def __init__(self, files: SessionFiles) -> None:
        self._files = files

    async def before(self, tool: Tool, values: Mapping[str, Any], context: Context) -> None:
        if tool.side_effect not in _CHANGES_NOTHING:
            self._files.begin_call(context.call_id, values)

    async def after(self, tool: Tool, result: ToolResult, context: Context) -> None:
        if tool.side_effect not in _CHANGES_NOTHING:
            await self._files.end_call(context.call_id)


class _FolderUse:
    """The note that a session uses a folder, which stays if the process dies there."""

    def __init__(self, place: str, session: str) -> None:
        self._path = paths.state() / "workspaces-in-use" / place
        self._session = session

    def is_open(self) -> bool:
        """Whether this session used the folder last, and did not end well there."""
        try:
            return self._path.read_text(encoding="utf-8") == self._session
        except OSError:
            return False

    def open(self) -> None:
        paths.make_private_folder(self._path.parent)
        paths.write_private(self._path, self._session)

    def close(self) -> None:
        self._path.unlink(missing_ok=True)


def _describe_place(root: Path) -> str:
    """Return an id of a folder on this machine that no other folder has."""
    try:
        machine = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        machine = ""
    status = root.stat()
    parts = (machine or socket.gethostname(), str(root), str(status.st_dev), str(status.st_ino))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def _as_failure(error: FerruleError | OSError) -> FerruleError:
    if isinstance(error, FerruleError):
        return error
    return FerruleError(
        f"the files of the workspace could not be kept: {error.strerror or error}",
        code="workspace_not_kept",
        hint="see to the artifact store, and resume the session",
    )
