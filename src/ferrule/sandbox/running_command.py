"""A command from its start to its end, seen from our event loop: its output, its reports, its time.

* Output is read as it comes. Pipes may stay open for a moment after the last process is gone, since
  someone else was handed their end; then they are closed.
* One task keeps the time and ends the command. It is cancelled with the event loop, and ends the
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

from .command import Command, Ended, Sink
from .inside.protocol import END, Launch
from .launcher import Launcher, in_memory
from .policy import Applied

_CHUNK = 65536
_DRAIN = 0.5
"""Seconds that pipes may stay open after the last process is gone."""
_START_TIME = 60.0
"""Seconds until it must run: a thousand commands at once take ten."""
_SUPERVISOR_TIME = 5.0
"""Seconds beyond the grace that the supervisor may take to report."""


_MOST = 8
"""Descriptors that one report may carry."""


class NotSetUp(ToolFailed):
    """The program was not at fault: what was to hold it could not be made. Trying again can
    help.
    """


_closing: set[asyncio.Future[None]] = set()


@dataclass(slots=True, eq=False)
class Execution:
    """One started command: fulfils `command.Running`."""

    command: Command
    applied: Applied
    told: Callable[[str, str, list[int]], bool] = lambda word, rest, descriptors: False
    """Hears each line first, with the descriptors that came along; True: it has taken them, and
    nothing is kept.
    """
    finish: Callable[[Ended], Awaitable[Ended]] | None = None
    """Called once all is gone, for what else is to be told and put away."""
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _first: asyncio.Event = field(default_factory=asyncio.Event)
    _attention: asyncio.Event = field(default_factory=asyncio.Event)
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[int] = field(default_factory=set[int])
    _control: socket.socket | None = None
    _said: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    _half: bytes = b""
    _keeper: asyncio.Task[Ended] | None = None
    _stopped: bool = False
    _killed: bool = False
    _timed_out: bool = False
    _began: float = 0.0
    _finished: float = 0.0

    @property
    def pid(self) -> int:
        return int(self._words("started")[0])

    @property
    def process_group(self) -> int:
        """Every command leads a group, and a session, of its own."""
        return self.pid

    def when_over(self, call: Callable[[Execution], object]) -> None:
        """Have something called once all is gone. Only after `begin`."""
        assert self._keeper is not None
        self._keeper.add_done_callback(lambda _: call(self))

    async def wait(self) -> Ended:
        """Until all is gone. Cancelling it ends nothing."""
        assert self._keeper is not None
        return await asyncio.shield(self._keeper)

    async def end(self) -> Ended:
        """SIGTERM, the command's grace, SIGKILL, for all it started."""
        self._killed = self._killed or not self._over.is_set()
        self._attention.set()
        return await self.wait()

    async def begin(self, launcher: Launcher, launch: Launch) -> None:
        """Hand it to the server and wait until it runs. Raises ToolFailed, leaving nothing, if it
        cannot.
        """
        self._began = asyncio.get_running_loop().time()
        record = in_memory(encode(launch))
        try:
            for _ in range(2):
                await self._hand_over(launcher, record)
                async with asyncio.timeout(_START_TIME):
                    await self._first.wait()
                if self._said:
                    break
                # The server ended before it read this: another one takes it.
                self._again()
        except BaseException as error:
            closing = asyncio.ensure_future(self._close())
            _closing.add(closing)
            closing.add_done_callback(_closing.discard)
            # Shielded: a second cancellation must not leave the first one's work half done.
            await asyncio.shield(closing)
            if isinstance(error, TimeoutError):
                raise ToolFailed(
                    ErrorType.TIMEOUT,
                    f"{shlex.quote(self.command.argv[0])} was not run: it could not be "
                    "started within "
                    f"{_START_TIME:g} s; run less at once",
                ) from None
            raise
        finally:
            os.close(record)
        self._check_started()
        self._keeper = asyncio.create_task(self._keep(), name=f"ferrule command {self.pid}")

    async def _hand_over(self, launcher: Launcher, record: int) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._control = ours
        given = [theirs.detach()]
        try:
            stdin = self.command.stdin
            given.append(os.dup(stdin) if isinstance(stdin, int) else in_memory(stdin))
            for sink in (self.command.output, self.command.errors):
                if sink is not None:
                    reader, writer = os.pipe()
                    given.append(writer)
                    self._open.add(reader)
                    os.set_blocking(reader, False)
                    loop.add_reader(reader, self._read, reader, sink)
            loop.add_reader(ours.fileno(), self._listen)
            control, source, output = given[:3]
            await launcher.send(
                [record, control, self.command.directory, source, output, given[-1]]
            )
        finally:
            for descriptor in given:
                os.close(descriptor)

    def _again(self) -> None:
        self._let_go()
        for event in (self._over, self._first, self._attention, self._quiet):
            event.clear()

    def _read(self, descriptor: int, sink: Sink) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._close_output(descriptor)
        elif not self._stopped and not sink(data):
            self._stopped = True
            self._attention.set()

    def _listen(self) -> None:
        assert self._control is not None
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, _CHUNK, _MOST)
        except BlockingIOError:
            return
        except ConnectionError:
            data, descriptors = b"", list[int]()
        *lines, self._half = (self._half + data).split(b"\n")
        for line in lines:
            word, _, rest = line.decode("utf-8", "replace").partition(" ")
            if self.told(word, rest, descriptors):
                descriptors = []
            else:
                self._said.setdefault(word, []).append(rest)
        for descriptor in descriptors:
            os.close(descriptor)
        began = not self._said.keys().isdisjoint(("started", "failed", "broken"))
        # Who sees it begin is not who sees it end: a short command's end may be told first.
        if (not data or ("done" in self._said and began)) and not self._over.is_set():
            loop = asyncio.get_running_loop()
            self._finished = loop.time()
            loop.remove_reader(self._control.fileno())
            self._avenge()
            self._over.set()
            self._attention.set()
        if not data or began:
            self._first.set()

    def _avenge(self) -> None:
        """The supervisor was killed before its work was done: end at least the program's own
        group.
        """
        started = self._words("started")
        if started and "done" not in self._said:
            try:
                os.killpg(int(started[0]), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return  # gone, or not ours: `ended` says that something may still run

    async def _keep(self) -> Ended:
        try:
            async with asyncio.timeout(self.command.timeout):
                await self._attention.wait()
        except TimeoutError:
            self._timed_out = True
        finally:
            await self._close()
            ended = self._ended()
            if self.finish is not None:
                ended = await self.finish(ended)
        return ended

    async def _close(self) -> None:
        """End what runs, read what is left, let go of everything. Bounded."""
        try:
            if not self._over.is_set():
                self._end()
                await _within(self.command.grace + _SUPERVISOR_TIME, self._over)
            if self._open:
                await _within(_DRAIN, self._quiet)
        finally:
            # Also when the loop is shutting down: the closed socket makes the supervisor end the
            # tree.
            self._let_go()

    def _end(self) -> None:
        if self._control is not None and not self._over.is_set():
            try:
                self._control.send(END)
            except OSError:
                return  # the supervisor is gone: `_over` follows

    def _let_go(self) -> None:
        for descriptor in list(self._open):
            self._close_output(descriptor)
        if self._control is not None and self._control.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self._control.close()

    def _close_output(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._open.discard(descriptor)
        if not self._open:
            self._quiet.set()

    def _words(self, first: str) -> list[str]:
        """What was said after this word, line by line."""
        return self._said.get(first, [])

    def _check_started(self) -> None:
        if self._words("started"):
            return
        self._let_go()
        if failed := self._words("failed"):
            raise not_started(self.command.argv[0], int(failed[0]), self.command.program)
        name = shlex.quote(self.command.argv[0])
        if broken := self._words("broken"):
            raise NotSetUp(ErrorType.INTERNAL_ERROR, f"{name} was not run: {broken[0]}")
        raise ToolFailed(
            ErrorType.INTERNAL_ERROR,
            f"{name} was to be started, and its supervisor was ended from outside or by it: "
            "nobody knows how far it "
            "came; look at what it would have done before trying again",
        )

    def _ended(self) -> Ended:
        """What the supervisor's words mean."""
        code = next(map(int, self._words("exited")), None)
        alive = [*self._words("alive")]
        if "done" not in self._said:
            name = self.command.argv[0]
            alive.append(f"`{name}` and what it started (their supervisor ended early)")
        return Ended(
            exit_code=code if code is not None and code >= 0 else None,
            signal=_signal_name(-code) if code is not None and code < 0 else "",
            timed_out=self._timed_out,
            stopped=self._stopped,
            killed=self._killed,
            duration_ms=int(((self._finished or self._began) - self._began) * 1000),
            left=tuple(self._words("left")),
            alive=tuple(alive),
            refused=tuple(dict.fromkeys(self._words("refused"))),
        )


async def _within(seconds: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def encode(launch: Launch) -> bytes:
    """As the server reads it. Raises ToolFailed for words that no program can be given."""
    words = [
        launch.program,
        *launch.argv,
        *(text for pair in launch.environment.items() for text in pair),
    ]
    if any("\0" in text for text in words):
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, "a command cannot contain the character NUL; leave it out"
        )
    try:
        for text in words:
            os.fsencode(text)
    except UnicodeEncodeError:
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, "the command is not valid Unicode text"
        ) from None
    return launch.encode()


def not_started(word: str, number: int, program: str) -> ToolFailed:
    """Why a program could not be executed, told by the error number."""
    name = shlex.quote(word)
    if number == errno.ENOENT and os.path.isabs(program) and os.path.exists(program):  # noqa: PTH110, PTH117  names of programs are text
        return ToolFailed(
            ErrorType.NOT_FOUND,
            f"{name} was not run: `{program}`, or its interpreter, is out of sight for commands",
        )
    if number == errno.ENOENT:
        return ToolFailed(ErrorType.NOT_FOUND, f"{name} was not run: there is no such program")
    if number == errno.EACCES:
        return ToolFailed(ErrorType.IO_ERROR, f"{name} was not run: it is not an executable file")
    if number == errno.ENOEXEC:
        said = "it is not a program; name its interpreter first (`sh script`, `python3 script`)"
        return ToolFailed(ErrorType.IO_ERROR, f"{name} was not run: {said}")
    if number == errno.E2BIG:
        return ToolFailed(
            ErrorType.VALIDATION_FAILED, f"{name} was not run: the command line is too long"
        )
    return ToolFailed(ErrorType.IO_ERROR, f"{name} was not run: {os.strerror(number)}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
