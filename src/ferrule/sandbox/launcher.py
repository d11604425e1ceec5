"""The fork server as our process sees it: starts it, hands it commands, ends it.

One `Launcher` has one server, started when the first command comes and again if it was killed.
Sending is one small message with descriptors, so a launcher belongs to no event loop; it may be
used from several threads. The server ends when its socket closes or our process dies, whatever we
forgot.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path

from ferrule.core.errors import FerruleError

from .inside.protocol import TAKE

_FOLDER = str(Path(__file__).parent)
_START = "import sys; sys.path.append(sys.argv[1]); from inside.server import start; start()"
_PATIENCE = 10.0
"""Seconds that a busy server may take to accept one more command."""
_FAREWELL = 20.0
"""Seconds that the server may take to end everything."""


class _Server:
    """The running server, if there is one: its socket and its process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.socket: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0

    def forget(self, channel: socket.socket | None = None) -> None:
        """End it and wait for it (only if `channel` is its socket, where that is given)."""
        with self.lock:
            if self.socket is None or (channel is not None and channel is not self.socket):
                return
            if self.owner != os.getpid():
                self.leave_to_parent()
                return
            self.socket.close()
            self.socket, process = None, self.process
            self.process = None
        if process is not None:
            _wait(process)

    def leave_to_parent(self) -> None:
        """In a fork of the process that started it: it is not ours, and does not watch us."""
        if self.socket is not None:
            self.socket.close()
        if self.process is not None:
            self.process.returncode = 0  # nobody here can wait for it, and none should warn of that
        self.socket = self.process = None


class Launcher:
    """Hands commands to a fork server of its own. `close` or `close_now` ends what it still runs.

    `session` gives the record of what holds for all of them (`inside.session`); without one,
    nothing is held. A launcher that is dropped, or lives until the interpreter ends, closes itself.
    """

    def __init__(self, session: Callable[[], bytes] | None = None) -> None:
        self._session = session
        self._server = _Server()
        self._finalizer = weakref.finalize(self, self._server.forget)

    @property
    def pid(self) -> int | None:
        """Of the server, if one was started."""
        return self._server.process.pid if self._server.process else None

    async def send(self, descriptors: Sequence[int]) -> None:
        """Hand over one command (see `inside.protocol`). The descriptors stay the caller's."""
        for _ in range(2):
            channel = self._running()
            try:
                await _send(channel, descriptors)
            except (BrokenPipeError, ConnectionError):
                self._server.forget(channel)
            else:
                return
        raise FerruleError(
            "the process that starts commands was ended twice while it was asked for one"
        )

    def _running(self) -> socket.socket:
        with self._server.lock:
            if self._server.socket is not None and self._server.owner != os.getpid():
                self._server.leave_to_parent()
            return self._server.socket or self._start()

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        record = in_memory(self._session()) if self._session else -1
        given = [number for number in (theirs.fileno(), record) if number >= 0]
        words = [*map(str, (theirs.fileno(), record, os.getpid()))]
        try:
            self._server.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, _FOLDER, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={},
                pass_fds=given,
                start_new_session=True,
            )
        except OSError:
            ours.close()
            raise
        finally:
            theirs.close()
            if record >= 0:
                os.close(record)
        ours.setblocking(False)
        self._server.socket, self._server.owner = ours, os.getpid()
        return ours

    async def close(self) -> None:
        """Ends the server, and with it all that it runs. Bounded. The next command starts another
        one.
        """
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """The same where no event loop runs."""
        self._server.forget()


async def _send(channel: socket.socket, descriptors: Sequence[int]) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE
    while True:
        try:
            socket.send_fds(channel, [TAKE], descriptors)
        except BlockingIOError:
            if loop.time() >= until:
                raise
            # Its queue is full, which takes hundreds of commands at once: it works them off in
            # milliseconds.
            await asyncio.sleep(0.005)
        else:
            return


def _wait(server: subprocess.Popen[bytes]) -> None:
    try:
        server.wait(_FAREWELL)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def in_memory(data: bytes) -> int:
    """A descriptor to read `data` from. A file in memory: it can be of any size and needs no
    writer.
    """
    if not data:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("ferrule", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
