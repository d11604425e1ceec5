"""Pid 1 of a container: takes commands from outside and hands them to the fork server beside it.

The server is the one of the other backends (`inside/server.py`), and so are its supervisors: they
filter a command, answer its calls that create names, and end everything that it started. This
process only turns what comes over standard input into descriptors for them, and back.

It ends when its standard input does, and with it the kernel ends what is left in the container.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import sys
import time

from .. import process_tree, server
from ..kernel import namespaces, proxy_ports
from ..protocol import LAUNCH_BYTE, Launch
from ..session import SandboxRecord
from .channels import Channels
from .relay import CONTROL, ERRORS, FIRST_INNER, INPUT, OUTPUT, SESSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, cast
else:

    def cast(kind: object, value: object) -> object:
        """Do nothing: `typing` is not loaded here."""
        return value


_MAX_PORTS = 1000
_MAX_STREAMS = 512
"""Streams from which on no connection to the proxy is accepted: each needs a descriptor."""
_END_SECONDS = 16.0
"""Seconds in which the server ends everything."""


def main() -> None:
    """Run as pid 1. Never returns."""
    # Commands have our user id: nothing of us is to be read or written through /proc.
    namespaces.disable_dumping()
    reader = os.dup(0)
    writer = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 0)
    os.dup2(2, 1)
    try:
        _FirstProcess(reader, writer).serve()
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


class _FirstProcess:
    def __init__(self, reader: int, writer: int) -> None:
        self.wake = process_tree.SignalPipe()
        self.channels = Channels(reader, writer, self._open)
        self.server: socket.socket | None = None
        self.server_pid = 0
        self.listeners: dict[int, tuple[socket.socket, int]] = {}
        """Sockets that listen for a command's connections to the proxy, and its number."""
        self._next_channel = FIRST_INNER

    def serve(self) -> None:
        while not self.channels.is_over:
            self._wait(None)
            if self.server_pid and self.server_pid in process_tree.reap_all():
                raise OSError("the process that starts commands was ended")
        if self.server is not None:
            self.server.close()
        deadline = time.monotonic() + _END_SECONDS
        while process_tree.has_children() and time.monotonic() < deadline:
            self._wait(0.1)
            process_tree.reap_all()

    def _wait(self, seconds: float | None) -> None:
        poll = select.poll()
        poll.register(self.wake.reader, select.POLLIN)
        if len(self.channels.streams) < _MAX_STREAMS:
            for descriptor in self.listeners:
                poll.register(descriptor, select.POLLIN)
        sources = self.channels.readers()
        sinks = self.channels.writers()
        for descriptor in {*sources, *sinks}:
            events = select.POLLIN if descriptor in sources else 0
            poll.register(descriptor, events | (select.POLLOUT if descriptor in sinks else 0))
        for descriptor, event in poll.poll(None if seconds is None else seconds * 1000):
            if descriptor in self.listeners:
                self._accept(descriptor)
            if descriptor in sinks and event & (select.POLLOUT | select.POLLERR):
                self.channels.flush(sinks[descriptor])
            if descriptor in sources and event & ~select.POLLOUT:
                self.channels.read(sources[descriptor])
        self.wake.drain()

    def _open(self, channel: int, value: dict[str, object]) -> None:
        if channel == SESSION:
            self._start_server(value)
        else:
            self._start_command(channel, value)

    def _start_server(self, values: dict[str, object]) -> None:
        session = SandboxRecord(**_as_tuples(values))
        record = os.memfd_create("ferrule", os.MFD_CLOEXEC)
        os.write(record, session.encode())
        self.server, theirs = socket.socketpair()
        self.server_pid = os.fork()
        if self.server_pid == 0:
            self.wake.close()
            os.close(self.channels.reader)
            self.channels.end()
            self.server.close()
            os.setsid()
            server.main(theirs.detach(), record, os.getppid())
        theirs.close()
        os.close(record)

    def _start_command(self, number: int, value: dict[str, object]) -> None:
        assert self.server is not None
        launch = Launch(**_as_tuples(value["launch"]))
        launch.program = find_program(launch)
        if launch.proxy_environment:
            self._listen(number, launch)
        record = os.memfd_create("ferrule", os.MFD_CLOEXEC)
        os.write(record, launch.encode())
        here, control = socket.socketpair()
        stream = self.channels.attach(number + CONTROL, *[here.detach()] * 2)
        stream.on_over = lambda: self._forget(number)
        root = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
        handed = [record, control.detach(), root, self._open_input(number, value)]
        handed.append(self._open_output(number + OUTPUT))
        is_merged = bool(value["is_merged"])
        handed.append(os.dup(handed[-1]) if is_merged else self._open_output(number + ERRORS))
        socket.send_fds(self.server, [LAUNCH_BYTE], handed)
        for descriptor in handed:
            os.close(descriptor)

    def _open_input(self, number: int, value: dict[str, object]) -> int:
        if not value["has_input"]:
            return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        reader, writer = os.pipe()
        self.channels.attach(number + INPUT, sink=writer)
        return reader

    def _open_output(self, channel: int) -> int:
        reader, writer = os.pipe()
        self.channels.attach(channel, source=reader)
        return writer

    def _listen(self, number: int, launch: Launch) -> None:
        """Listen on a port of its own for a command, and tell the command which."""
        for port in range(proxy_ports.PORT, proxy_ports.PORT + _MAX_PORTS):
            try:
                sockets = proxy_ports.listen(port)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    continue  # another command of the session listens there
                raise
            break
        else:
            raise RuntimeError("no port is free for the network proxy: too many commands run")
        for one in sockets:
            one.setblocking(False)
            self.listeners[one.fileno()] = (one, number)
        for name, text in launch.proxy_environment.items():
            launch.environment[name] = text.replace(str(proxy_ports.PORT), str(port))
        launch.proxy_environment = {}

    def _accept(self, descriptor: int) -> None:
        listener, number = self.listeners[descriptor]
        try:
            connection, _ = listener.accept()
        except OSError:
            return  # whoever asked has gone
        channel = self._next_channel
        self._next_channel += 1
        self.channels.open(channel, {"command": number})
        self.channels.attach(channel, *[connection.detach()] * 2)

    def _forget(self, number: int) -> None:
        for descriptor, (listener, command) in list(self.listeners.items()):
            if command == number:
                del self.listeners[descriptor]
                listener.close()


def _as_tuples(value: Any) -> Any:
    """Return a JSON value with tuples in place of its lists, as records have them."""
    if isinstance(value, list):
        return tuple(_as_tuples(one) for one in cast("list[Any]", value))
    if isinstance(value, dict):
        return {name: _as_tuples(one) for name, one in cast("dict[str, Any]", value).items()}
    return value


def find_program(launch: Launch) -> str:
    """Return the program to execute: the one of this name in the container, if it has no other.

    What the machine has at a path need not be there in the image.
    """
    if os.path.exists(launch.program):  # noqa: PTH110  no pathlib in here
        return launch.program
    name = os.path.basename(launch.argv[0])  # noqa: PTH119  no pathlib in here
    for folder in launch.environment.get("PATH", os.defpath).split(":"):
        path = f"{folder}/{name}"
        if folder.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113  no pathlib in here
            return path
    return launch.program
