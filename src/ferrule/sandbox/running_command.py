"""A command from start to end, as seen from our event loop: its output, its reports, its time.

* Output is read as it arrives. Pipes may stay open for a moment after the last process is gone,
  since somebody else was handed their other end; then they are closed.
* One task watches the time and ends the command. It is cancelled with the event loop, and ends the
  tree then too.
* Whatever happens to that task, the control socket is closed, and the supervisor ends the tree when
  it is.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import signal
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

from .command import Command, CommandResult, OutputSink, Refusal, TrustedCommand
from .inside.protocol import END, Launch
from .launcher import Launcher, open_memory_file
from .policy import AppliedProtections
from .unseen_programs import explain_unseen, folders_of

_CHUNK = 65536
_DRAIN_SECONDS = 0.5
"""Seconds that pipes may stay open after the last process is gone."""
_START_SECONDS = 60.0
"""Seconds until it must run: starting a thousand commands at once takes ten."""
_SUPERVISOR_SECONDS = 5.0
"""Seconds beyond the grace period that the supervisor may take to report."""


_MAX_DESCRIPTORS = 8
"""Descriptors that one report may carry."""


class SandboxSetupFailed(ToolFailed):
    """The sandbox could not be set up. The program is not at fault, and trying again can help."""


class ProgramUnseen(ToolFailed):
    """A program exists and commands do not see it, or its interpreter.

    `program` is its path, and `refusals` are the folders to read for it to run.
    """

    def __init__(self, name: str, program: str) -> None:
        super().__init__(ErrorType.NOT_FOUND, f"{name} was not run: {explain_unseen(program)}")
        self.program = program
        self.refusals = tuple(
            Refusal("read", folder, "commands do not see it") for folder in folders_of(program)
        )


_closing: set[asyncio.Future[None]] = set()


@dataclass(slots=True, eq=False)
class Execution:
    """One started command; implements the `command.RunningCommand` protocol."""

    command: Command | TrustedCommand
    protections: AppliedProtections
    on_report: Callable[[str, str, list[int]], bool] = lambda word, rest, descriptors: False
    """Receives each report line first, with the descriptors that came with it.

    If it returns True, it has taken them, and the line is not kept.
    """
    on_finish: Callable[[CommandResult], Awaitable[CommandResult]] | None = None
    """Called once everything is gone, to complete the result and clean up."""
    _ended_event: asyncio.Event = field(default_factory=asyncio.Event)
    _start_event: asyncio.Event = field(default_factory=asyncio.Event)
    _wake_event: asyncio.Event = field(default_factory=asyncio.Event)
    _outputs_closed: asyncio.Event = field(default_factory=asyncio.Event)
    _output_pipes: set[int] = field(default_factory=set[int])
    _control: socket.socket | None = None
    _reports: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _partial_line: bytes = b""
    _watching: asyncio.Task[CommandResult] | None = None
    _stopped: bool = False
    _killed: bool = False
    _timed_out: bool = False
    _started_at: float = 0.0
    _ended_at: float = 0.0

    @property
    def pid(self) -> int:
        return int(self._get_reports("started")[0])

    @property
    def process_group(self) -> int:
        """The process group. Every command leads a group, and a session, of its own."""
        return self.pid

    def add_done_callback(self, call: Callable[[Execution], object]) -> None:
        """Have `call` called once everything is gone. Only after `start`."""
        assert self._watching is not None
        self._watching.add_done_callback(lambda _: call(self))

    async def wait(self) -> CommandResult:
        """Wait until everything is gone. Cancelling the wait ends nothing."""
        assert self._watching is not None
        return await asyncio.shield(self._watching)

    async def end(self) -> CommandResult:
        """End everything that it started: SIGTERM, the command's grace period, SIGKILL."""
        self._killed = self._killed or not self._ended_event.is_set()
        self._wake_event.set()
        return await self.wait()

    async def start(self, launcher: Launcher, launch: Launch) -> None:
        """Hand the command to the server and wait until it runs.

        Raises:
            ToolFailed: It cannot be started. Nothing is left behind.
        """
        self._started_at = asyncio.get_running_loop().time()
        record = open_memory_file(encode_launch(launch))
        try:
            for _ in range(2):
                await self._hand_over(launcher, record)
                async with asyncio.timeout(_START_SECONDS):
                    await self._start_event.wait()
                if self._reports:
                    break
                # The server ended before it read this: another one takes it.
                self._reset()
        except BaseException as error:
            closing = asyncio.ensure_future(self._close())
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
            # Shielded: a second cancellation must not leave the first one's work half done.
            await asyncio.shield(closing)
            if isinstance(error, TimeoutError):
                raise ToolFailed(
                    ErrorType.TIMEOUT,
                    f"{shlex.quote(self.command.argv[0])} was not run: it could not be started "
                    f"within {_START_SECONDS:g} s; run less at once",
                ) from None
            raise
        finally:
            os.close(record)
        self._check_started()
        self._watching = asyncio.create_task(self._watch(), name=f"ferrule command {self.pid}")

    async def _hand_over(self, launcher: Launcher, record: int) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._control = ours
        descriptors = [theirs.detach()]
        try:
            stdin = self.command.stdin
            descriptors.append(os.dup(stdin) if isinstance(stdin, int) else open_memory_file(stdin))
            for sink in (self.command.output, self.command.errors):
                if sink is not None:
                    reader, writer = os.pipe()
                    descriptors.append(writer)
                    self._output_pipes.add(reader)
                    os.set_blocking(reader, False)
                    loop.add_reader(reader, self._read, reader, sink)
            loop.add_reader(ours.fileno(), self._read_reports)
            control, source, output = descriptors[:3]
            await launcher.send(
                [record, control, self.command.directory, source, output, descriptors[-1]]
            )
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _reset(self) -> None:
        self._release()
        for event in (self._ended_event, self._start_event, self._wake_event, self._outputs_closed):
            event.clear()

    def _read(self, descriptor: int, sink: OutputSink) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._close_output(descriptor)
        elif not self._stopped and not sink(data):
            self._stopped = True
            self._wake_event.set()

    def _read_reports(self) -> None:
        assert self._control is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _CHUNK, _MAX_DESCRIPTORS)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
            descriptors = list[int]()
        self._take_reports(data, descriptors)
        has_started = not self._reports.keys().isdisjoint(("started", "failed", "broken"))
        # Different processes report the start and the end: a short command's end may come first.
        is_over = not data or ("done" in self._reports and has_started)
        if is_over and not self._ended_event.is_set():
            loop = asyncio.get_running_loop()
            self._ended_at = loop.time()
            loop.remove_reader(self._control.fileno())
            self._kill_orphaned_group()
            self._ended_event.set()
            self._wake_event.set()
        if not data or has_started:
            self._start_event.set()

    def _take_reports(self, data: bytes, descriptors: list[int]) -> None:
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in lines:
            keyword, _, rest = line.decode("utf-8", "replace").partition(" ")
            if self.on_report(keyword, rest, descriptors):
                descriptors = []
            else:
                self._reports.setdefault(keyword, []).append(rest)
        for descriptor in descriptors:
            os.close(descriptor)

    def _kill_orphaned_group(self) -> None:
        """End at least the program's own group if the supervisor was killed before it was done."""
        started = self._get_reports("started")
        if started and "done" not in self._reports:
            try:
                os.killpg(int(started[0]), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return  # gone, or not ours: the result says that something may still run

    async def _watch(self) -> CommandResult:
        try:
            async with asyncio.timeout(self.command.timeout):
                await self._wake_event.wait()
        except TimeoutError:
            self._timed_out = True
        finally:
            await self._close()
            ended = self._result()
            if self.on_finish is not None:
                ended = await self.on_finish(ended)
        return ended

    async def _close(self) -> None:
        """End what runs, read what is left, release everything. Takes bounded time."""
        try:
            if not self._ended_event.is_set():
                self._request_end()
                await _wait_for(self.command.grace + _SUPERVISOR_SECONDS, self._ended_event)
            if self._output_pipes:
                await _wait_for(_DRAIN_SECONDS, self._outputs_closed)
        finally:
            # Also when the loop is shutting down: the closed socket makes the supervisor end the
            # tree.
            self._release()

    def _request_end(self) -> None:
        if self._control is not None and not self._ended_event.is_set():
            try:
                self._control.send(END)
            except OSError:
                return  # the supervisor is gone, so the end of the socket follows

    def _release(self) -> None:
        for descriptor in list(self._output_pipes):
            self._close_output(descriptor)
        if self._control is not None and self._control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()

    def _close_output(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._output_pipes.discard(descriptor)
        if not self._output_pipes:
            self._outputs_closed.set()

    def _get_reports(self, first: str) -> list[str]:
        """Return what was reported under this keyword, line by line."""
        return self._reports.get(first, [])

    def _check_started(self) -> None:
        if self._get_reports("started"):
            return
        self._release()
        failed = self._get_reports("failed")
        if failed:
            raise start_failure(self.command.argv[0], int(failed[0]), self.command.program)
        name = shlex.quote(self.command.argv[0])
        broken = self._get_reports("broken")
        if broken:
            raise SandboxSetupFailed(ErrorType.INTERNAL_ERROR, f"{name} was not run: {broken[0]}")
        raise ToolFailed(
            ErrorType.INTERNAL_ERROR,
            f"{name} may not have run: its supervisor was killed, by it or from outside; "
            "check what it would have changed before trying again",
        )

    def _result(self) -> CommandResult:
        """Build the result from the supervisor's reports."""
        status = next(map(int, self._get_reports("exited")), None)
        exit_code = status if status is not None and status >= 0 else None
        signal_name = _signal_name(-status) if status is not None and status < 0 else ""
        ended_at = self._ended_at or self._started_at
        alive = [*self._get_reports("alive")]
        if "done" not in self._reports:
            name = self.command.argv[0]
            alive.append(f"`{name}` and what it started (their supervisor ended early)")
        return CommandResult(
            exit_code=exit_code,
            signal=signal_name,
            timed_out=self._timed_out,
            stopped_by_sink=self._stopped,
            killed=self._killed,
            duration_ms=int((ended_at - self._started_at) * 1000),
            leftover_processes=tuple(self._get_reports("left")),
            surviving_processes=tuple(alive),
            refused_names=tuple(dict.fromkeys(self._get_reports("refused"))),
            refusals=tuple(
                Refusal("write", path, "commands cannot write there")
                for path in self._get_reports("denied")
            ),
        )


async def _wait_for(seconds: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def encode_launch(launch: Launch) -> bytes:
    """Encode a launch as the server reads it.

    Raises:
        ToolFailed: An argument or variable cannot be given to any program.
    """
    variables = launch.environment
    texts = [launch.program, *launch.argv, *variables.keys(), *variables.values()]
    together = "".join(texts)
    if "\0" in together:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, "a command cannot contain the character NUL; leave it out"
        )
    try:
        os.fsencode(together)
    except UnicodeEncodeError:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, "the command is not valid Unicode text"
        ) from None
    return launch.encode()


def start_failure(name: str, error_number: int, program: str) -> ToolFailed:
    """Return the error for a program that could not be executed, by the error number."""
    name = shlex.quote(name)
    if error_number == errno.ENOENT and os.path.isabs(program) and os.path.exists(program):  # noqa: PTH110, PTH117  names of programs are text
        return ProgramUnseen(name, program)
    if error_number == errno.ENOENT:
        return ToolFailed(ErrorType.NOT_FOUND, f"{name} was not run: there is no such program")
    if error_number == errno.EACCES:
        return ToolFailed(ErrorType.IO_ERROR, f"{name} was not run: it is not an executable file")
    if error_number == errno.ENOEXEC:
        why = "it is not a program; name its interpreter first (`sh script`, `python3 script`)"
        return ToolFailed(ErrorType.IO_ERROR, f"{name} was not run: {why}")
    if error_number == errno.E2BIG:
        return ToolFailed(
            ErrorType.VALIDATION_FAILED, f"{name} was not run: the command line is too long"
        )
    return ToolFailed(ErrorType.IO_ERROR, f"{name} was not run: {os.strerror(error_number)}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
