"""Runs a program so that it, and all it starts, is gone when the call is over.

Every program goes through `toolkits.warden`, which owns the tree of processes. This side passes the
folder as a descriptor, reads output as it comes, and keeps the time. The rules:

* One pipe for both outputs unless `errors` is given: only so is the order of arrival true.
* Timeout, cancellation, a sink that has enough: SIGTERM, `grace` seconds, SIGKILL, for every descendant.
* What the program leaves behind when it ends is ended as well, and named.
* `run_process` returns within `timeout + grace` and a few seconds, whatever holds the pipes.
* If our process dies, the warden sees its socket close and ends the tree.

Linux only (pidfd, /proc, subreaper). Not protected: what the program asks another service to do
(systemd-run, at, a container engine) is not its descendant; only a sandbox can refuse that.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed

Sink = Callable[[bytes], bool]
"""Takes output as it comes; False means: enough, end the program."""

_WARDEN = str(Path(__file__).with_name("warden.py"))
_CHUNK = 65536
_DRAIN = 0.5
"""Seconds that pipes may stay open after the last process is gone (someone else was handed their end)."""
_WARDEN_TIME = 5.0
"""Seconds beyond the grace that the warden may take to report."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended.

    `exit_code` is None if a signal ended it (`signal` has its name) or if nobody knows. `stopped`: a sink
    had enough. `left`: processes it left behind, ended by us; `alive`: what may still be running.
    """

    exit_code: int | None
    signal: str = ""
    timed_out: bool = False
    stopped: bool = False
    duration_ms: int = 0
    left: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()


class Capture:
    """A sink that keeps the first `head` and the last `tail` bytes and counts the rest."""

    def __init__(self, head: int, tail: int) -> None:
        self.size = 0
        self._head, self._tail = bytearray(), bytearray()
        self._head_limit, self._tail_limit = head, tail

    def __call__(self, data: bytes) -> bool:
        self.size += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]
        return True

    def text(self) -> str:
        """What was kept, as text: bytes that are not UTF-8 are replaced, a gap is said."""
        tail = bytes(self._tail[-self._tail_limit :]) if self._tail_limit else b""
        missing = self.size - len(self._head) - len(tail)
        if not missing:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        head = _whole_characters(bytes(self._head))
        while tail and tail[0] & 0xC0 == 0x80:
            tail = tail[1:]
        missing = self.size - len(head) - len(tail)
        gap = f"\n[... {missing} bytes left out ...]\n"
        return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")


def _whole_characters(data: bytes) -> bytes:
    """Without a UTF-8 sequence that was cut at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if needed > back else data
    return data


def find_program(name: str, path: str, *, outside: str = "") -> str | None:
    """The file that `name` stands for, by the absolute folders of `path`, or None.

    Relative folders (also the empty one) are skipped, and so are folders at or below `outside`: a file
    that a tool could have written must not take the place of a program that was allowed by its name.
    """
    for folder in path.split(os.pathsep):
        if not folder.startswith("/") or (outside and _below(folder, outside)):
            continue
        candidate = os.path.join(folder, name)  # noqa: PTH118  names of programs are text, not paths of ours
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):  # noqa: PTH113  as above
            if outside and _below(candidate, outside):
                continue
            return candidate
    return None


def _below(path: str, folder: str) -> bool:
    real, root = Path(path).resolve(), Path(folder).resolve()
    return real == root or root in real.parents


async def run_process(
    argv: Sequence[str],
    *,
    program: str,
    directory: int,
    environment: Mapping[str, str],
    output: Sink,
    errors: Sink | None = None,
    stdin: bytes = b"",
    timeout: float,
    grace: float = 0.5,
) -> Ended:
    """Run `program` with the words `argv` in the folder that `directory` is a descriptor of.

    `output` gets standard output, and standard error too unless `errors` is given. Standard input is
    `stdin` and then its end. `timeout` and `grace` are seconds. Raises ToolFailed if the program cannot be
    started. When cancelled, the tree of processes is ended before the cancellation goes on.
    """
    run = _Run(output, errors)
    run.start(argv, program, directory, environment, stdin, grace)
    timed_out = False
    try:
        async with asyncio.timeout(timeout):
            await run.over.wait()
    except TimeoutError:
        timed_out = True
    finally:
        closing = asyncio.ensure_future(run.close(grace))
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)
        # Shielded: a second cancellation must not leave the first one's work half done.
        await asyncio.shield(closing)
    return run.ended(argv, timed_out)


_closing: set[asyncio.Future[None]] = set()


@dataclass(slots=True)
class _Run:
    """One program on its way: its descriptors, its warden, and what the warden said."""

    output: Sink
    errors: Sink | None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)
    _open: set[int] = field(default_factory=set[int])
    _control: socket.socket | None = None
    _warden: subprocess.Popen[bytes] | None = None
    _said: bytearray = field(default_factory=bytearray)
    _stopped: bool = False
    _began: float = 0.0
    _finished: float = 0.0

    def start(
        self,
        argv: Sequence[str],
        program: str,
        directory: int,
        environment: Mapping[str, str],
        stdin: bytes,
        grace: float,
    ) -> None:
        """Start the warden. Leaves nothing open if that fails."""
        specification = _encode(argv, program, environment, grace)
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        ours, theirs = socket.socketpair()
        given = [theirs.detach(), _input(stdin)]
        try:
            for sink in (self.output, self.errors):
                if sink is not None:
                    reader, writer = os.pipe2(os.O_CLOEXEC)
                    given.append(writer)
                    self._open.add(reader)
                    os.set_blocking(reader, False)
                    loop.add_reader(reader, self._read, reader, sink)
            self._warden = subprocess.Popen(
                [sys.executable, "-I", "-S", _WARDEN, str(given[0])],
                stdin=given[1],
                stdout=given[2],
                stderr=given[-1],
                # By descriptor: the folder that was checked, whatever bears its name by now.
                cwd=f"/proc/self/fd/{directory}",
                env={},
                pass_fds=given[:1],
                start_new_session=True,
            )
            ours.sendall(specification)
            ours.setblocking(False)
            loop.add_reader(ours.fileno(), self._listen)
            self._control = ours
        except OSError as error:
            ours.close()
            self._close_outputs()
            raise _not_started(argv, error.errno or 0) from error
        finally:
            for descriptor in given:
                os.close(descriptor)

    def _read(self, descriptor: int, sink: Sink) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._close_output(descriptor)
        elif not self._stopped and not sink(data):
            self._stopped = True
            self._end()

    def _listen(self) -> None:
        assert self._control is not None
        try:
            data = self._control.recv(_CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        self._said += data
        if not data:
            loop = asyncio.get_running_loop()
            self._finished = loop.time()
            loop.remove_reader(self._control.fileno())
            self._avenge()
            self.over.set()

    def _avenge(self) -> None:
        """The warden was killed before its work was done: end at least the program's own group."""
        started = re.search(rb"^started (\d+)$", self._said, re.MULTILINE)
        if started and not self._said.endswith(b"done\n"):
            try:
                os.killpg(int(started[1]), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                return  # gone, or not ours: `ended` says that something may still run

    def _end(self) -> None:
        if self._control is not None and not self.over.is_set():
            try:
                self._control.send(b"k")
            except OSError:
                return  # the warden is gone: `over` follows

    async def close(self, grace: float) -> None:
        """End what runs, read what is left, let go of everything. Bounded; never raises."""
        try:
            if not self.over.is_set():
                self._end()
                await _within(grace + _WARDEN_TIME, self.over)
            if self._open:
                await _within(_DRAIN, self._quiet)
        finally:
            # Also when the loop is shutting down: the closed socket makes the warden end the tree.
            self._let_go()

    def _let_go(self) -> None:
        loop = asyncio.get_running_loop()
        self._close_outputs()
        if self._control is not None:
            if not self.over.is_set():
                loop.remove_reader(self._control.fileno())
            self._control.close()
        if self._warden is not None:
            if self.over.is_set():
                self._warden.wait()
            else:
                threading.Thread(target=self._warden.wait, name="ferrule-warden", daemon=True).start()

    def _close_output(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._open.discard(descriptor)
        if not self._open:
            self._quiet.set()

    def _close_outputs(self) -> None:
        for descriptor in list(self._open):
            self._close_output(descriptor)

    def ended(self, argv: Sequence[str], timed_out: bool) -> Ended:
        """What the warden's words mean. Raises ToolFailed if it could not start the program."""
        lines = [line.partition(" ") for line in self._said.decode("utf-8", "replace").splitlines()]
        for word, _, rest in lines:
            if word == "failed":
                raise _not_started(argv, int(rest))
        words = {word for word, _, _ in lines}
        code = next((int(rest) for word, _, rest in lines if word == "exited"), None)
        alive = tuple(rest for word, _, rest in lines if word == "alive")
        if "done" not in words:
            alive = (*alive, f"`{argv[0]}` and what it started (their supervisor ended early)")
        return Ended(
            exit_code=code if code is not None and code >= 0 else None,
            signal=_signal_name(-code) if code is not None and code < 0 else "",
            timed_out=timed_out,
            stopped=self._stopped,
            duration_ms=int(((self._finished or self._began) - self._began) * 1000),
            left=tuple(rest for word, _, rest in lines if word == "left"),
            alive=alive,
        )


async def _within(seconds: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _encode(argv: Sequence[str], program: str, environment: Mapping[str, str], grace: float) -> bytes:
    """The specification as `toolkits.warden` reads it."""
    pairs = [text for pair in environment.items() for text in pair]
    fields = [str(grace), str(len(argv) + 1), program, *argv, *pairs]
    if any("\0" in text for text in fields):
        raise ToolFailed(
            ErrorType.VALIDATION_FAILED, "a command cannot contain the character NUL; leave it out"
        )
    try:
        data = b"\0".join(os.fsencode(text) for text in fields)
    except UnicodeEncodeError:
        raise ToolFailed(ErrorType.VALIDATION_FAILED, "the command is not valid Unicode text") from None
    return len(data).to_bytes(8, "big") + data


def _input(data: bytes) -> int:
    """A descriptor to read `data` from. A file in memory: it can be of any size and needs no writer."""
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    descriptor = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _not_started(argv: Sequence[str], number: int) -> ToolFailed:
    name = shlex.quote(argv[0])
    if number == errno.ENOENT:
        return ToolFailed(ErrorType.NOT_FOUND, f"{name} was not run: there is no such program")
    if number == errno.EACCES:
        return ToolFailed(ErrorType.IO_ERROR, f"{name} was not run: it is not an executable file")
    if number == errno.ENOEXEC:
        said = "it is not a program; name its interpreter first (`sh script`, `python3 script`)"
        return ToolFailed(ErrorType.IO_ERROR, f"{name} was not run: {said}")
    if number == errno.E2BIG:
        return ToolFailed(ErrorType.VALIDATION_FAILED, f"{name} was not run: the command line is too long")
    return ToolFailed(ErrorType.IO_ERROR, f"{name} was not run: {os.strerror(number)}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
