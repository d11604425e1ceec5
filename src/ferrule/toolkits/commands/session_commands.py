"""The commands of a session: those that run, and those whose output can still be read.

One `Commands` per session, in its memory. Every command, waited for or not, is a `Handle` with a
task that sees it to its end; a call that waits for it only watches. So timeout, standard input and
what is kept are the same in the foreground and in the background.

* A handle belongs to an identity (tenant, user, session); to any other it does not exist.
* `close` ends every command and removes every file. If the event loop goes down first, its
  cancellation ends the commands; if the process dies, the launcher does, and the next session
  removes the files.
* Finished commands are kept for reading, the newest `KEPT` of them and at most `KEPT_BYTES` of
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
"""Where it lies in `Context.memory`."""
KEPT = 256
KEPT_BYTES = 1024**3
FRESH = 32
"""Finished commands whose output can be shown without reading it from its files."""
_STALE = 1024
"""Bytes of an older one's output that are still shown, of its beginning and of its end."""


def owner(identity: Identity) -> tuple[str, str, str]:
    """Whom a command belongs to: runs of one session share their commands."""
    return identity.tenant, identity.user, identity.session


@dataclass(slots=True, eq=False)
class Handle:
    """One command, from its start to the end of the session. Times: `started_at` and `ended_at` in
    ms since 1970.
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
    """Further outputs that were kept, by name: readable like the three."""
    added: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of its record."""
    when_over: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """Called in their order when it has ended, before anybody who waits for it goes on."""
    hints: list[str] = field(default_factory=list[str])
    """What may explain how it ended, besides what the record finds out itself."""
    unheard: int = 0
    """Reports since somebody last asked for it."""
    awaited: int = 0
    """Calls that wait for its end: who gets an answer needs no report."""
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
        """True if it has ended."""
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
        """How long it ran, or has run so far."""
        return self.duration_ms if self.over else int((time.monotonic() - self.began) * 1000)

    def streams(self) -> Iterator[Stream]:
        """All outputs that were kept."""
        yield from (
            self.outputs.combined,
            self.outputs.stdout,
            self.outputs.stderr,
            *self.extras.values(),
        )

    @property
    def stored(self) -> int:
        """Bytes in all its files."""
        return self.outputs.stored + sum(stream.stored for stream in self.extras.values())

    async def wait(self, seconds: float | None = None) -> bool:
        """Until it has ended, at most `seconds`. True if it has. Cancelling this ends nothing.
        Raises what kept it from starting.
        """
        self.unheard = 0
        self.awaited += 1
        try:
            async with asyncio.timeout(seconds):
                await self.done.wait()
        except TimeoutError:
            pass  # it may have ended in this very moment: what counts is how it stands
        finally:
            self.awaited -= 1
        if self.failure is not None:
            raise self.failure
        return self.over


@dataclass(frozen=True, slots=True)
class Reports:
    """What is told of a command in the background: every `seconds`, if there is something new, and
    when it is over.

    `tell` takes the words of `words`. After `most` reports that nobody followed up, the next one is
    that it is over: a command must not fill the history of a model that does something else.
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
        """The commands of this session. They end with it."""
        found = context.memory.setdefault(KEY, Commands())
        assert isinstance(found, Commands)
        if found._closes_with is None:
            found._closes_with = context
            context.on_close(found.close)
        return found

    @property
    def running(self) -> int:
        """How many run."""
        return sum(not handle.over for handle in self._handles.values())

    @property
    def folder(self) -> Folder:
        """Where outputs are kept; made with the first command."""
        if self._folder is None:
            self._folder = Folder()
        return self._folder

    def outputs(self, command_id: str, *, keep: int, limit: int, merged: bool) -> Outputs:
        """Fresh files for a command."""
        return Outputs(self.folder, command_id, keep=keep, limit=limit, merged=merged)

    async def start(
        self,
        sandbox: Sandbox,
        command: Command,
        make: Callable[[Running], Handle],
        *,
        most: int,
    ) -> Handle:
        """Start a command and see it to its end. Raises ToolFailed if it cannot be started, or too
        many run.

        A call that is cancelled while the command is being started leaves nothing behind.
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
            # The session ended meanwhile, and has ended what it knew of.
            await _whole(running.end())
            raise ToolFailed(
                ErrorType.CANCELLED, "the session was closed while the command was being started"
            )
        handle = make(running)
        self._handles[handle.command_id] = handle
        task = asyncio.create_task(self._see_to_its_end(handle))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return handle

    async def _see_to_its_end(self, handle: Handle) -> None:
        try:
            handle.ended = await handle.running.wait()
        except asyncio.CancelledError:
            # The loop is going down, and nobody will be there to end it later.
            handle.cancelled = True
            handle.ended = await handle.running.end()
            raise
        except Exception as error:  # noqa: BLE001  boundary: whoever waits for it is told, whatever it was
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
        """Tell from now on how it goes, and that it is over (unless someone ended it on
        purpose).
        """
        if handle.over:
            return
        said = handle.outputs.combined.size
        handle.unheard = 0
        later = asyncio.get_running_loop().call_later

        def progress() -> None:
            nonlocal said
            if handle.outputs.combined.size != said and handle.unheard < reports.most:
                said = handle.outputs.combined.size
                handle.unheard += 1
                reports.tell(reports.words(handle))
            handle.news = later(reports.seconds, progress)

        def over() -> None:
            if not handle.cancelled and not handle.awaited:
                reports.tell(reports.words(handle))

        handle.when_over.append(over)
        handle.news = later(reports.seconds, progress)

    async def kill(self, handle: Handle) -> bool:
        """End a command. True if it was this that ended it."""
        if handle.over or handle.cancelled:
            return False
        handle.cancelled = True
        await _whole(handle.running.end())
        await handle.done.wait()
        return handle.status == "killed"

    def find(self, name: str, identity: Identity) -> Handle:
        """By command id, handle id, or the exact path of one of its outputs. Raises
        ToolFailed(not_found).
        """
        for handle in self._handles.values():
            if handle.owner == owner(identity) and (
                name in (handle.command_id, handle.handle_id)
                or any(name == stream.path for stream in handle.streams())
            ):
                return handle
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            f"there is no command `{name[:200]}` in this session; use the `command_id` or a "
            "path that a command's "
            "result named",
        )

    async def close(self) -> None:
        """End all that runs, remove all that was kept. Safe to call twice; commands can be started
        again after it.
        """
        self._closed += 1
        while tasks := [task for task in self._tasks if not task.get_loop().is_closed()]:
            running = [handle for handle in self._handles.values() if not handle.over]
            await asyncio.gather(*(self.kill(handle) for handle in running))
            await asyncio.wait(tasks)
        await self.confined.close()
        self._handles.clear()
        self._closes_with = None
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.close()

    def _forget_old(self, newest: Handle) -> None:
        finished = [handle for handle in self._handles.values() if handle.over]
        stored = sum(handle.stored for handle in finished)
        while (
            finished and (len(finished) > KEPT or stored > KEPT_BYTES) and finished[0] is not newest
        ):
            oldest = finished.pop(0)
            stored -= oldest.stored
            del self._handles[oldest.command_id]
            for stream in oldest.streams():
                stream.folder.remove(stream.name)
        for stale in finished[:-FRESH]:
            stale.outputs.shrink(_STALE)


def fresh_ids() -> tuple[str, str]:
    """A command id and a handle id that nobody can guess."""
    return f"cmd_{uuid4().hex[:20]}", f"handle_{uuid4().hex[:20]}"


_pending: set[asyncio.Future[Any]] = set()


async def _whole(work: Any) -> None:
    """Do this to its end: a second cancellation must not leave the first one's work half done."""
    task = asyncio.ensure_future(work)
    _pending.add(task)
    task.add_done_callback(_pending.discard)
    await asyncio.shield(task)
