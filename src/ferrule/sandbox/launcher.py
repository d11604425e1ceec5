"""The fork server as our process sees it: starts it, sends it commands, ends it.

A `Launcher` has one server. It is started when the first command comes, and again if it was killed.
Sending a command is one small message with descriptors, so a launcher belongs to no event loop and
may be used from several threads. The server ends when its socket closes or our process dies,
whatever we forgot to clean up.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from ferrule.core.errors import FerruleError
from ferrule.permissions.filesystem.open_beneath import PORTABLE, is_portable
from ferrule.permissions.provenance import UntrustedPath, find_interpreter
from ferrule.tools.forking import make_lock

from .inside.protocol import LAUNCH_BYTE
from .trusted_process import start_program

_PACKAGE_FOLDER = str(Path(__file__).parent)
_SERVER_CODE = "import sys; sys.path.append(sys.argv[1]); from inside.server import start; start()"
_SEND_TIMEOUT = 10.0
"""Seconds that a busy server may take to accept another command."""
_EXIT_TIMEOUT = 20.0
"""Seconds that the server may take to end everything."""


class _Server:
    """The running server, if there is one: its socket and its process."""

    def __init__(self) -> None:
        self.lock = make_lock()
        self.socket: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.owner_pid = 0

    def stop(self, channel: socket.socket | None = None) -> None:
        """End the server and wait for it; with `channel`, only if that is still its socket."""
        with self.lock:
            if self.socket is None or (channel is not None and channel is not self.socket):
                return
            if self.owner_pid != os.getpid():
                self.abandon()
                return
            self.socket.close()
            process = self.process
            self.socket = None
            self.process = None
        if process is not None:
            _wait_or_kill(process)

    def abandon(self) -> None:
        """Drop the server in a fork of the process that started it: it is not ours to end."""
        if self.socket is not None:
            self.socket.close()
        if self.process is not None:
            self.process.returncode = 0  # nobody here can wait for it, and none should warn of that
        self.socket = self.process = None


class Launcher:
    """Sends commands to a fork server of its own. `close` or `close_now` ends what it still runs.

    A launcher that is dropped, or lives until the interpreter exits, closes itself.

    Args:
        session: Returns the record of what holds for all its commands (`inside.session`). Without
            it, nothing is confined.
    """

    def __init__(self, session: Callable[[], bytes] | None = None) -> None:
        self._session = session
        self._server = _Server()
        self._finalizer = weakref.finalize(self, self._server.stop)

    @property
    def pid(self) -> int | None:
        """Process id of the server; None if none was started."""
        return self._server.process.pid if self._server.process else None

    def start(self) -> None:
        """Start the server, if it does not run."""
        self._ensure_running()

    async def send(self, descriptors: Sequence[int]) -> None:
        """Hand over one command, as described in `inside.protocol`.

        The descriptors stay the caller's.

        Raises:
            FerruleError: The server was ended twice during the attempt.
        """
        for _ in range(2):
            channel = self._ensure_running()
            try:
                await _send(channel, descriptors)
            except (BrokenPipeError, ConnectionError):
                self._server.stop(channel)
            else:
                return
        raise FerruleError(
            "the process that starts commands was ended twice while a command was sent to it"
        )

    def _ensure_running(self) -> socket.socket:
        with self._server.lock:
            if self._server.socket is not None and self._server.owner_pid != os.getpid():
                self._server.abandon()
            return self._server.socket or self._start_server()

    def _start_server(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        session_record = open_memory_file(self._session()) if self._session else -1
        inherited = [number for number in (theirs.fileno(), session_record) if number >= 0]
        arguments = [str(theirs.fileno()), str(session_record), str(os.getpid())]
        try:
            self._server.process = start_program(
                find_interpreter(),
                ["-I", "-S", "-c", _SERVER_CODE, _PACKAGE_FOLDER, *arguments],
                environment={PORTABLE: "1"} if is_portable() else {},
                inherited=inherited,
                is_session=True,
            )
        except (OSError, UntrustedPath):
            ours.close()
            raise
        finally:
            theirs.close()
            if session_record >= 0:
                os.close(session_record)
        ours.setblocking(False)
        self._server.socket = ours
        self._server.owner_pid = os.getpid()
        return ours

    async def close(self) -> None:
        """End the server and everything that it runs, in bounded time.

        The next command starts another server.
        """
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """End the server like `close`, for callers without an event loop."""
        self._server.stop()


async def _send(channel: socket.socket, descriptors: Sequence[int]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _SEND_TIMEOUT
    while True:
        try:
            socket.send_fds(channel, [LAUNCH_BYTE], descriptors)
        except BlockingIOError:
            if loop.time() >= deadline:
                raise
            # Its queue is full, which takes hundreds of commands at once: it empties in
            # milliseconds.
            await asyncio.sleep(0.005)
        else:
            return


def _wait_or_kill(server: subprocess.Popen[bytes]) -> None:
    try:
        server.wait(_EXIT_TIMEOUT)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def open_memory_file(data: bytes) -> int:
    """Return a descriptor to read `data` from.

    It is a file in memory, so it can be of any size and needs no writer.
    """
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if hasattr(os, "memfd_create") and not is_portable():
        descriptor = os.memfd_create("ferrule", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
