"""The commands of a session: those that run, and those whose output can still be read.

There is one `Commands` per session, in its memory. Every command, whether a call waits for it or
not, is a `CommandHandle` with a task that follows it to its end; a waiting call only watches. So
timeout, standard input and what is kept are the same in the foreground and in the background.

* A handle belongs to an identity (tenant, user, session); for any other it does not exist.
* `close` ends every command and removes every file. If the event loop stops first, its cancellation
  ends the commands; if the process dies, the launcher dies too, and the next session removes the
  files.
* Finished commands are kept for reading: the newest `MAX_KEPT` of them, with at most
  `MAX_KEPT_BYTES` of output.
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
from ferrule.core.value_class import frozen
from ferrule.permissions.child_environment import ChildEnvironment
from ferrule.sandbox.command import Command, CommandResult, RunningCommand
from ferrule.sandbox.sandbox import Sandbox
from ferrule.tools.context import Context

from .output_folder import OutputFolder
from .outputs import Outputs, OutputStream
from .plan import CommandPlan
from .session_sandbox import SessionSandbox

MEMORY_KEY = "ferrule.commands"
"""The key of the session's commands in `Context.memory`."""
MAX_KEPT = 256
MAX_KEPT_BYTES = 1024**3
MAX_IN_MEMORY = 32
"""Finished commands whose output can be shown without reading their files."""
_STALE_BYTES = 1024
"""Bytes of an older command's output that are still shown, of its beginning and of its end."""


@frozen
class ShellState:
    """Where the next command starts, relative to the workspace, and with which variables."""

    folder: str = "."
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    removed: tuple[str, ...] = ()


def owner_key(identity: Identity) -> tuple[str, str, str]:
    """Return the owner of a command: the runs of one session share their commands."""
    return identity.tenant, identity.user, identity.session


@dataclass(slots=True, eq=False)
class CommandHandle:
    """One command, from its start to the end of the session.

    `started_at` and `ended_at` are in milliseconds since 1970.
    """

    owner: tuple[str, str, str]
    call_id: str
    plan: CommandPlan
    folder: str
    environment: ChildEnvironment
    timeout_seconds: float
    outputs: Outputs
    running: RunningCommand
    command_id: str
    handle_id: str
    policy_context: Mapping[str, Any] = field(default_factory=dict[str, Any])
    extra_streams: dict[str, OutputStream] = field(default_factory=dict[str, OutputStream])
    """Further outputs that were kept, by name; they are read like the first three."""
    extra_fields: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of its record."""
    end_callbacks: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """Called in order when it has ended, before anybody who waits for it goes on."""
    failed_producers: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """What failed before a filter, with its exit status (`pipe_status`)."""
    hints: list[str] = field(default_factory=list[str])
    """Explanations of how it ended, besides those that the record finds itself."""
    job: int = 0
    """Its number in the session's background (`jobs`); 0: a call waits for it."""
    shown_bytes: int = 0
    """Bytes of its output that calls have returned."""
    unanswered_reports: int = 0
    """Reports since somebody last asked about the command."""
    waiting_calls: int = 0
    """Calls that wait for its end; they get a result and need no report."""
    started_at: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    started_monotonic: float = field(default_factory=time.monotonic)
    duration_ms: int = 0
    ended_at: int | None = None
    ended: CommandResult | None = None
    failure: BaseException | None = None
    cancelled: bool = False
    done: asyncio.Event = field(default_factory=asyncio.Event)
    report_timer: asyncio.TimerHandle | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the command has ended."""
        return self.ended_at is not None

    @property
    def status(self) -> str:
        """`running`, `completed`, `timed_out` or `killed`."""
        if not self.has_ended:
            return "running"
        if self.ended is None or self.ended.killed:
            return "killed"
        return "timed_out" if self.ended.timed_out else "completed"

    @property
    def has_failed(self) -> bool:
        """Whether it ended by itself and a status was not 0: its own, or one behind a filter."""
        if self.status != "completed" or self.ended is None:
            return False
        return self.ended.exit_code != 0 or bool(self.failed_producers)

    @property
    def elapsed_ms(self) -> int:
        """How long the command ran, or has run so far."""
        if self.has_ended:
            return self.duration_ms
        return int((time.monotonic() - self.started_monotonic) * 1000)

    def streams(self) -> Iterator[OutputStream]:
        """Yield all outputs that were kept."""
        yield self.outputs.combined
        yield self.outputs.stdout
        yield self.outputs.stderr
        yield from self.extra_streams.values()

    @property
    def stored_bytes(self) -> int:
        """The number of bytes in all its files."""
        return self.outputs.stored_bytes + sum(
            stream.stored_bytes for stream in self.extra_streams.values()
        )

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until the command has ended, at most `seconds`. Return whether it has.

        Cancelling this does not end the command. Raises the error that kept it from starting.
        """
        self.unanswered_reports = 0
        self.waiting_calls += 1
        try:
            async with asyncio.timeout(seconds):
                await self.done.wait()
        except TimeoutError:
            pass  # It may have ended at this very moment: the answer is its state below.
        finally:
            self.waiting_calls -= 1
        if self.failure is not None:
            raise self.failure
        return self.has_ended


@frozen
class ProgressReports:
    """How a command in the background is reported.

    Every `seconds` if there is something new, and when it ends. `describe` describes the command,
    `send` sends the text, and `send_end` that of the end. After `max_unanswered` reports that
    nobody followed up, the next one is its end: a command must not fill the history of a model that
    is doing something else.
    """

    seconds: float
    send: Callable[[str], None]
    send_end: Callable[[str], None]
    describe: Callable[[CommandHandle], str]
    max_unanswered: int = 5


class SessionCommands:
    """All commands of one session."""

    def __init__(self) -> None:
        self._handles: dict[str, CommandHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._folder: OutputFolder | None = None
        self._starting = 0
        self._closed = 0
        self._closes_with: Context | None = None
        self._output_files = 0
        self.jobs: dict[int, CommandHandle] = {}
        """Commands that went into the background, by their number."""
        self.sandbox = SessionSandbox()
        """The session's own sandbox."""
        self.shell = ShellState()
        """What the next command of the plain `run_command` starts with."""
        self.agreed_variables: dict[str, str] = {}
        """Variables of the shell that a person let commands have which rules allow without them."""

    @staticmethod
    def from_context(context: Context) -> SessionCommands:
        """Return the commands of this session. They end with it."""
        found = context.memory.setdefault(MEMORY_KEY, SessionCommands())
        assert isinstance(found, SessionCommands)
        if found._closes_with is None:
            found._closes_with = context
            context.on_close(found.close)
        return found

    @property
    def running_count(self) -> int:
        """The number of commands that are running."""
        return sum(not handle.has_ended for handle in self._handles.values())

    @property
    def folder(self) -> OutputFolder:
        """The folder of the outputs; created with the first command."""
        if self._folder is None:
            self._folder = OutputFolder()
        return self._folder

    def add_job(self, handle: CommandHandle) -> None:
        """Give a command that goes on in the background its number."""
        handle.job = max(self.jobs, default=0) + 1
        self.jobs[handle.job] = handle

    def count_output_file(self) -> int:
        """Return the number of the next output file, from 1."""
        self._output_files += 1
        return self._output_files

    def create_outputs(self, command_id: str, *, keep: int, limit: int, merged: bool) -> Outputs:
        """Create the output files of a command."""
        return Outputs(self.folder, command_id, keep=keep, limit=limit, merged=merged)

    async def start(
        self,
        sandbox: Sandbox,
        command: Command,
        make_handle: Callable[[RunningCommand], CommandHandle],
        *,
        max_running: int,
    ) -> CommandHandle:
        """Start a command and follow it to its end.

        A call that is cancelled while the command is being started leaves nothing behind.

        Raises:
            ToolFailed: The command cannot be started, or too many are running.
        """
        if self.running_count + self._starting >= max_running:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"{max_running} commands are running; wait for one of them, or end one, before the "
                f"next",
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
        handle = make_handle(running)
        self._handles[handle.command_id] = handle
        task = asyncio.create_task(self._follow(handle))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return handle

    async def _follow(self, handle: CommandHandle) -> None:
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

    def _finish(self, handle: CommandHandle) -> None:
        handle.outputs.close()
        handle.ended_at = time.time_ns() // 1_000_000
        ran = handle.ended.duration_ms if handle.ended is not None else 0
        handle.duration_ms = ran or int((time.monotonic() - handle.started_monotonic) * 1000)
        if handle.report_timer is not None:
            handle.report_timer.cancel()
        try:
            for call in handle.end_callbacks:
                call()
        finally:
            handle.done.set()
            self._forget_old(handle)

    def report(self, handle: CommandHandle, reports: ProgressReports) -> None:
        """Report progress from now on, and the end unless someone ended the command on purpose."""
        if handle.has_ended:
            return
        reported_size = handle.outputs.combined.size
        handle.unanswered_reports = 0
        later = asyncio.get_running_loop().call_later

        def report_progress() -> None:
            nonlocal reported_size
            size = handle.outputs.combined.size
            if size != reported_size and handle.unanswered_reports < reports.max_unanswered:
                reported_size = size
                handle.unanswered_reports += 1
                reports.send(reports.describe(handle))
            handle.report_timer = later(reports.seconds, report_progress)

        def report_end() -> None:
            if not handle.cancelled and not handle.waiting_calls:
                reports.send_end(reports.describe(handle))

        handle.end_callbacks.append(report_end)
        handle.report_timer = later(reports.seconds, report_progress)

    async def kill(self, handle: CommandHandle) -> bool:
        """End a command. Return whether this call ended it."""
        if handle.has_ended or handle.cancelled:
            return False
        handle.cancelled = True
        await _complete(handle.running.end())
        await handle.done.wait()
        return handle.status == "killed"

    def find(self, name: str, identity: Identity) -> CommandHandle:
        """Find a command by command id, handle id, or the exact path of one of its outputs.

        Raises:
            ToolFailed: `not_found` if this identity has no such command.
        """
        for handle in self._handles.values():
            if handle.owner != owner_key(identity):
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

    async def restart_shell(self) -> int:
        """End every running command and forget the shell's state. Return how many were ended."""
        running = [handle for handle in self._handles.values() if not handle.has_ended]
        await asyncio.gather(*(self.kill(handle) for handle in running))
        self.shell = ShellState()
        self.agreed_variables.clear()
        return len(running)

    async def close(self) -> None:
        """End every running command and remove everything that was kept.

        Safe to call twice; commands can be started again afterwards.
        """
        self._closed += 1
        while tasks := [task for task in self._tasks if not task.get_loop().is_closed()]:
            running = [handle for handle in self._handles.values() if not handle.has_ended]
            await asyncio.gather(*(self.kill(handle) for handle in running))
            await asyncio.wait(tasks)
        await self.sandbox.close()
        self._handles.clear()
        self.jobs.clear()
        self._closes_with = None
        folder = self._folder
        self._folder = None
        if folder is not None:
            folder.close()

    def _forget_old(self, newest: CommandHandle) -> None:
        finished = [handle for handle in self._handles.values() if handle.has_ended]
        stored = sum(handle.stored_bytes for handle in finished)
        while finished and finished[0] is not newest:
            if len(finished) <= MAX_KEPT and stored <= MAX_KEPT_BYTES:
                break
            oldest = finished.pop(0)
            stored -= oldest.stored_bytes
            del self._handles[oldest.command_id]
            self.jobs.pop(oldest.job, None)
            for stream in oldest.streams():
                stream.folder.remove(stream.name)
        for stale in finished[:-MAX_IN_MEMORY]:
            stale.outputs.shrink(_STALE_BYTES)


def new_ids() -> tuple[str, str]:
    """Return a command id and a handle id that nobody can guess."""
    return f"cmd_{uuid4().hex[:20]}", f"handle_{uuid4().hex[:20]}"


_pending: set[asyncio.Future[Any]] = set()


async def _complete(work: Any) -> None:
    """Complete this work: a second cancellation must not leave it half done."""
    task = asyncio.ensure_future(work)
    _pending.add(task)
    task.add_done_callback(_pending.discard)
    await asyncio.shield(task)
