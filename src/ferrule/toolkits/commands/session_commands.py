"""The commands of a session: those that run, and those whose output can still be read.

There is one `Commands` per session, in its memory. Every command, whether a call waits for it or
not, is a `Handle` with a task that follows it to its end; a waiting call only watches. So timeout,
standard input and what is kept are the same in the foreground and in the background.

* A handle belongs to an identity (tenant, user, session); for any other it does not exist.
* `close` ends every command and removes every file. If the event loop stops first, its cancellation
  ends the commands; if the process dies, the launcher dies too, and the next session removes the
  files.
* Finished commands are kept for reading: the newest `KEPT` of them, with at most `KEPT_BYTES` of
  output.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.child_environment import ChildEnvironment
from ferrule.sandbox.command import Command, Ended, Running
from ferrule.sandbox.sandbox import Sandbox
from ferrule.tools.context import Context

from .output_folder import Folder
from .outputs import Outputs, Stream
from .plan import Planned
from .session_sandbox import Confined

KEY = "ferrule.commands"
"""The key of the session's commands in `Context.memory`."""
KEPT = 256
KEPT_BYTES = 1024**3
FRESH = 32
"""Finished commands whose output can be shown without reading their files."""
_STALE_BYTES = 1024
"""Bytes of an older command's output that are still shown, of its beginning and of its end."""


def owner(identity: Identity) -> tuple[str, str, str]:
    """Return the owner of a command: the runs of one session share their commands."""
    return identity.tenant, identity.user, identity.session


@dataclass(slots=True, eq=False)
class Handle:
    """One command, from its start to the end of the session.

    `started_at` and `ended_at` are in milliseconds since 1970.
    """

    owner: tuple[str, str, str]
    call_id: str
    planned: Planned
    folder: str
    environment: ChildEnvironment
    seconds: float
    outputs: Outputs
    running: Running
    command_id: str
    handle_id: str
    policy_context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    extras: dict[str, Stream] = field(default_factory=dict[str, Stream])
    """Further outputs that were kept, by name; they are read like the first three."""
    added: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of its record."""
    when_over: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """Called in order when it has ended, before anybody who waits for it goes on."""
    hints: list[str] = field(default_factory=list[str])
    """Explanations of how it ended, besides those that the record finds itself."""
    unheard: int = 0
    """Reports since somebody last asked about the command."""
    awaited: int = 0
    """Calls that wait for its end; they get a result and need no report."""
    started_at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    began: float = field(default_factory=time.monotonic)
    duration_ms: int = 0
    ended_at: int | None = None
    ended: Ended | None = None
    failure: BaseException | None = None
    cancelled: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.TimerHandle | None = None

    @property
    def over(self) -> bool:
        """Whether the command has ended."""
        return self.ended_at is not None

    @property
    def status(self) -> str:
        """`running`, `completed`, `timed_out` or `killed`."""
        if not self.over:
            return "running"
        if self.ended is None or self.ended.killed:
            return "killed"
        return "timed_out" if self.ended.timed_out else "completed"

    @property
    def age_ms(self) -> int:
        """How long the command ran, or has run so far."""
        if self.over:
            return self.duration_ms
        return int((time.monotonic() - self.began) * 1000)

    def streams(self) -> Iterator[Stream]:
        """Yield all outputs that were kept."""
        yield self.outputs.combined
        yield self.outputs.stdout
        yield self.outputs.stderr
        yield from self.extras.values()

    @property
    def stored(self) -> int:
        """The number of bytes in all its files."""
        return self.outputs.stored + sum(stream.stored for stream in self.extras.values())

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until the command has ended, at most `seconds`. Return whether it has.

        Cancelling this does not end the command. Raises the error that kept it from starting.
        """
        self.unheard = 0
        self.awaited += 1
        try:
            async with asyncio.timeout(seconds):
                await self.done.wait()
        except TimeoutError:
            pass  # It may have ended at this very moment: the answer is its state below.
        finally:
            self.awaited -= 1
        if self.failure is not None:
            raise self.failure
        return self.over


@dataclass(frozen=True, slots=True)
class Reports:
    """How a command in the background is reported.

    Every `seconds` if there is something new, and when it ends. `words` describes the command and
    `tell` sends the text. After `most` reports that nobody followed up, the next one is its end: a
    command must not fill the history of a model that is doing something else.
    """

    seconds: float
    tell: Callable[[str], None]
    words: Callable[[Handle], str]
    most: int = 5


class Commands:
    """All commands of one session."""

    def __init__(self) -> None:
        self._handles: dict[str, Handle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder: Folder | None = None
        self._starting = 0
        self._closed = 0
        self._closes_with: Context | None = None
        self.confined = Confined()
        """The session's own sandbox."""

    @staticmethod
    def of(context: Context) -> Commands:
        """Return the commands of this session. They end with it."""
        found = context.memory.setdefault(KEY, Commands())
        assert isinstance(found, Commands)
        if found._closes_with is None:
            found._closes_with = context
            context.on_close(found.close)
        return found

    @property
    def running(self) -> int:
        """The number of commands that are running."""
        return sum(not handle.over for handle in self._handles.values())

    @property
    def folder(self) -> Folder:
        """The folder of the outputs; created with the first command."""
        if self._folder is None:
            self._folder = Folder()
        return self._folder

    def outputs(self, command_id: str, *, keep: int, limit: int, merged: bool) -> Outputs:
        """Create the output files of a command."""
        return Outputs(self.folder, command_id, keep=keep, limit=limit, merged=merged)

    async def start(
        self,
        sandbox: Sandbox,
        command: Command,
        make: Callable[[Running], Handle],
        *,
        most: int,
    ) -> Handle:
        """Start a command and follow it to its end.

        A call that is cancelled while the command is being started leaves nothing behind.

        Raises:
            ToolFailed: The command cannot be started, or too many are running.
        """
        if self.running + self._starting >= most:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"{most} commands are running; wait for one of them, or end one, before the next",
            )
        self._starting += 1
        closed = self._closed
        try:
            running = await sandbox.start(command)
        finally:
            self._starting -= 1
        if closed != self._closed:
            # The session ended meanwhile, and has ended only the commands it knew.
            await _complete(running.end())
            raise ToolFailed(
                ErrorType.CANCELLED, "the session was closed while the command was being started"
            )
        handle = make(running)
        self._handles[handle.command_id] = handle
        task = asyncio.create_task(self._follow(handle))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return handle

    async def _follow(self, handle: Handle) -> None:
        try:
            handle.ended = await handle.running.wait()
        except asyncio.CancelledError:
            # The event loop is stopping, and nothing will be there to end the command later.
            handle.cancelled = True
            handle.ended = await handle.running.end()
            raise
        except Exception as error:  # noqa: BLE001  boundary: whoever waits gets the error, whatever it is
            handle.failure = error
        finally:
            self._finish(handle)

    def _finish(self, handle: Handle) -> None:
        handle.outputs.close()
        handle.ended_at = time.time_ns() // 1_000_000
        ran = handle.ended.duration_ms if handle.ended is not None else 0
        handle.duration_ms = ran or int((time.monotonic() - handle.began) * 1000)
        if handle.news is not None:
            handle.news.cancel()
        try:
            for call in handle.when_over:
                call()
        finally:
            handle.done.set()
            self._forget_old(handle)

    def report(self, handle: Handle, reports: Reports) -> None:
        """Report progress from now on, and the end unless someone ended the command on purpose."""
        if handle.over:
            return
        reported_size = handle.outputs.combined.size
        handle.unheard = 0
        later = asyncio.get_running_loop().call_later

        def report_progress() -> None:
            nonlocal reported_size
            size = handle.outputs.combined.size
            if size != reported_size and handle.unheard < reports.most:
                reported_size = size
                handle.unheard += 1
                reports.tell(reports.words(handle))
            handle.news = later(reports.seconds, report_progress)

        def report_end() -> None:
            if not handle.cancelled and not handle.awaited:
                reports.tell(reports.words(handle))

        handle.when_over.append(report_end)
        handle.news = later(reports.seconds, report_progress)

    async def kill(self, handle: Handle) -> bool:
        """End a command. Return whether this call ended it."""
        if handle.over or handle.cancelled:
            return False
        handle.cancelled = True
        await _complete(handle.running.end())
        await handle.done.wait()
        return handle.status == "killed"

    def find(self, name: str, identity: Identity) -> Handle:
        """Find a command by command id, handle id, or the exact path of one of its outputs.

        Raises:
            ToolFailed: `not_found` if this identity has no such command.
        """
        for handle in self._handles.values():
            if handle.owner != owner(identity):
                continue
            if name in (handle.command_id, handle.handle_id):
                return handle
            if any(name == stream.path for stream in handle.streams()):
                return handle
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            f"there is no command `{name[:200]}` in this session; use the `command_id` or a "
            "path that a command's result named",
        )

    async def close(self) -> None:
        """End every running command and remove everything that was kept.

        Safe to call twice; commands can be started again afterwards.
        """
        self._closed += 1
        while tasks := [task for task in self._tasks if not task.get_loop().is_closed()]:
            running = [handle for handle in self._handles.values() if not handle.over]
            await asyncio.gather(*(self.kill(handle) for handle in running))
            await asyncio.wait(tasks)
        await self.confined.close()
        self._handles.clear()
        self._closes_with = None
        folder = self._folder
        self._folder = None
        if folder is not None:
            folder.close()

    def _forget_old(self, newest: Handle) -> None:
        finished = [handle for handle in self._handles.values() if handle.over]
        stored = sum(handle.stored for handle in finished)
        while finished and finished[0] is not newest:
            if len(finished) <= KEPT and stored <= KEPT_BYTES:
                break
            oldest = finished.pop(0)
            stored -= oldest.stored
            del self._handles[oldest.command_id]
            for stream in oldest.streams():
                stream.folder.remove(stream.name)
        for stale in finished[:-FRESH]:
            stale.outputs.shrink(_STALE_BYTES)


def fresh_ids() -> tuple[str, str]:
    """Return a command id and a handle id that nobody can guess."""
    return f"cmd_{uuid4().hex[:20]}", f"handle_{uuid4().hex[:20]}"


_pending: set[asyncio.Future[Any]] = set()


async def _complete(work: Any) -> None:
    """Complete this work: a second cancellation must not leave it half done."""
    task = asyncio.ensure_future(work)
    _pending.add(task)
    task.add_done_callback(_pending.discard)
    await asyncio.shield(task)
