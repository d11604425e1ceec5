"""The fork server of a sandbox in containers: takes launches, and has a container carry them out.

It runs outside, in place of the server that forks supervisors. A container is started with the
first command and stays: the next command whose view is made by the same arguments of the engine is
handed to it. Where they differ, since other names are to be masked, there is another container from
then on, and the one before ends with the last command that it runs.

A container ends when its standard input does: with this process, whatever ends it.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import stat
import time

from .. import process_tree
from ..protocol import Launch, Report, receive_launch
from .channels import Channels, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..session import SandboxRecord

NAME = "<name>"
"""What stands for the container's name in the engine's arguments."""
LABEL = "ferrule.place"
"""The label of every container. Its value is the same for sessions that see each other's folders.

An engine can serve several people and machines; containers of others are none of our business.
"""
CONTROL, INPUT, OUTPUT, ERRORS = range(4)
"""Channels of a command, counted from its number."""
FIRST_INNER = 1 << 31
"""The first channel that is opened from inside the container."""
SESSION = 0
"""The channel on which the session's record comes, before any command."""

_OWNER_CHECK_SECONDS = 0.5
_SHUTDOWN_SECONDS = 17.0
"""Seconds that containers have to end: longer than the server in them takes."""
_REMOVAL_SECONDS = 10.0
_DRAIN_SECONDS = 0.5
"""Seconds in which nothing comes of an output that somebody else still holds, after the command."""


def serve(server: socket.socket, owner: list[int], session: SandboxRecord, owner_pid: int) -> None:
    """Serve until the socket or the owner ends."""
    relay = _Relay(server, owner, session, owner_pid)
    relay.serve()
    relay.shut_down()


class _Command:
    """One command: what is attached for it, and what of its reports is kept back."""

    def __init__(self, container: _Container, number: int, control: socket.socket) -> None:
        self.container = container
        self.number = number
        self.control = control
        self.outputs = 0
        self.has_started = False
        self.has_failed = False
        self.done_at = 0.0
        """When it was over, and its outputs were not. 0: it is not over."""
        self.listener_path = ""
        self._partial_line = b""

    def report(self, line: bytes) -> None:
        self.container.channels.write(self.number, line + b"\n")

    def receive(self, data: bytes) -> None:
        """Take what the supervisor in the container reports."""
        if not data:
            if self.has_failed:
                self.finish()
            elif not self.done_at:
                # Its supervisor was killed: only the container's end is certain to end all.
                self.container.channels.end()
            return
        *lines, self._partial_line = (self._partial_line + data).split(b"\n")
        for line in lines:
            word = line.partition(b" ")[0]
            if word == b"started":
                # Its number in the container is another process's here.
                self.has_started = True
                self.report(b"started %d" % os.getpid())
            elif word == b"done":
                self.done_at = time.monotonic()
            elif word != b"taken":
                self.has_failed = self.has_failed or word in (b"failed", b"broken")
                self.report(line)
        self.finish_if_drained()

    def note_output_over(self) -> None:
        self.outputs -= 1
        self.finish_if_drained()

    def finish_if_drained(self) -> None:
        """Report the end, once its outputs have ended or nothing comes of them any more.

        Pipes that are closed before would lose what is under way.
        """
        if not self.done_at or self.number not in self.container.commands:
            return
        quiet_since = max(self.done_at, self.container.last_data)
        if self.outputs <= 0 or time.monotonic() - quiet_since > _DRAIN_SECONDS:
            self.report(b"done")
            self.finish()

    def finish(self) -> None:
        """Let go of everything. Without `done` before, nobody knows what may still run."""
        if self.container.commands.pop(self.number, None) is None:
            return
        for channel in (INPUT, OUTPUT, ERRORS):
            self.container.channels.drop(self.number + channel)
        self.container.channels.close_sink(self.number)
        if self.listener_path:
            os.unlink(self.listener_path)  # noqa: PTH108  no pathlib in here


class _Container:
    """A container, its engine's process, and the commands in it."""

    def __init__(self, session: SandboxRecord, arguments: Sequence[str], name: str) -> None:
        self.name = name
        self.arguments = arguments
        self.environment = session.engine_environment
        self.folder = os.path.dirname(session.view_folder)  # noqa: PTH120  no pathlib in here
        self.commands: dict[int, _Command] = {}
        self.last_data = 0.0
        self._next_number = 4
        self._errors = _open_nameless_file(self.folder)
        self.pid, reader, writer = self._start()
        self.channels = Channels(reader, writer, self._open_proxy)
        self.channels.open(SESSION, session.as_values())

    def _start(self) -> tuple[int, int, int]:
        inner, writer = os.pipe()
        reader, outer = os.pipe()
        try:
            pid = os.posix_spawn(
                self.arguments[0],
                [self.name if word == NAME else word for word in self.arguments],
                self.environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, source, to)
                    for to, source in enumerate((inner, outer, self._errors))
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=process_tree.RESET_SIGNALS,
            )
        except OSError:
            os.close(writer)
            os.close(reader)
            raise
        finally:
            os.close(inner)
            os.close(outer)
        return pid, reader, writer

    @property
    def is_ending(self) -> bool:
        """Whether it takes no more commands."""
        return self.channels.is_over or self.channels.writer < 0

    def run(self, launch: Launch, descriptors: list[int]) -> None:
        """Have a command run. The descriptors are closed when they are not needed any more.

        Raises OSError if it cannot be; then they are not closed.
        """
        record, control_number, directory, *standard = descriptors
        number = self._next_number
        self._next_number += 4
        control = socket.socket(fileno=os.dup(control_number))
        command = _Command(self, number, control)
        if launch.proxy_environment:
            self._listen(command)
        os.close(record)
        os.close(directory)
        self.commands[number] = command
        stream = self.channels.attach(number, control_number, control_number)
        stream.receive = command.receive
        stream.on_over = control.close
        has_input = not _is_null(standard[0])
        is_merged = _is_same(standard[1], standard[2])
        self.channels.open(
            number,
            {"launch": launch.as_values(), "has_input": has_input, "is_merged": is_merged},
        )
        if has_input:
            self.channels.attach(number + INPUT, source=standard[0])
        else:
            os.close(standard[0])
        self._attach_output(command, OUTPUT, standard[1])
        if is_merged:
            os.close(standard[2])
        else:
            self._attach_output(command, ERRORS, standard[2])

    def _attach_output(self, command: _Command, channel: int, descriptor: int) -> None:
        stream: Stream = self.channels.attach(command.number + channel, sink=descriptor)
        stream.on_over = command.note_output_over
        command.outputs += 1

    def _listen(self, command: _Command) -> None:
        """Hand out a listening socket for the command's connections to the proxy.

        They come through the container's output and are connected to it here.
        """
        command.listener_path = f"{self.folder}/proxy-{self.name[-2:]}-{command.number}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(command.listener_path)
            listener.listen(128)
            socket.send_fds(command.control, [b"ports\n"], [listener.fileno()])

    def _open_proxy(self, channel: int, value: dict[str, object]) -> None:
        """Connect to the proxy what a command opened in the container."""
        if channel < FIRST_INNER or channel in self.channels.streams:
            return
        command = self.commands.get(int(str(value["command"])))
        connection = socket.socket(socket.AF_UNIX)
        # More than wait in the kernel's queue are refused: nobody else is to wait for them.
        connection.setblocking(False)
        number = connection.detach()
        self.channels.attach(channel, number, number)
        try:
            if command is None:
                raise ConnectionRefusedError
            with socket.socket(fileno=os.dup(number)) as same:
                same.connect(command.listener_path)
        except OSError:
            self.channels.drop(channel)

    def fail(self) -> None:
        """Report to who waits that the container is gone, and why. Nothing in it runs any more."""
        lines = os.pread(self._errors, 4096, 0).decode("utf-8", "replace").strip().splitlines()
        why = lines[-1] if lines else "the container ended and did not say why"
        is_removed = any(one.has_started for one in self.commands.values()) and self.remove()
        for command in list(self.commands.values()):
            if not command.has_started:
                command.report(f"broken {why}".encode())
            elif is_removed:
                command.report(b"done")
            command.finish()
        for channel in list(self.channels.streams):
            self.channels.flush(channel)
            self.channels.drop(channel)
        os.close(self.channels.reader)
        self.channels.end()
        os.close(self._errors)

    def remove(self) -> bool:
        """Remove the container, and return whether it is gone."""
        self.ask_engine("rm", "--force", self.name)
        left = self.ask_engine("ps", "--all", "--quiet", "--filter", f"name=^{self.name}$")
        return left is not None and not left.strip()

    def ask_engine(self, *arguments: str) -> str | None:
        """Return what the engine prints; None if it fails."""
        import subprocess  # not loaded while everything goes well

        try:
            ran = subprocess.run(
                [self.arguments[0], *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_REMOVAL_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return None if ran.returncode else ran.stdout.decode("utf-8", "replace")


class _Relay:
    def __init__(
        self, server: socket.socket, owner: list[int], session: SandboxRecord, owner_pid: int
    ) -> None:
        self.server = server
        self.owner = owner
        self.owner_pid = owner_pid
        self.session = session
        self.wake = process_tree.SignalPipe()
        self.containers: list[_Container] = []
        self.current: _Container | None = None
        self._count = 0
        self._ended: dict[int, int] = {}

    def serve(self) -> None:
        is_serving = True
        while is_serving:
            ready = self._wait([self.server.fileno(), *self.owner])
            if ready is None or any(one in ready for one in self.owner):
                return
            if self.server.fileno() in ready:
                descriptors = receive_launch(self.server)
                is_serving = descriptors is not None
                if descriptors is not None:
                    self._take(descriptors)

    def _take(self, descriptors: list[int]) -> None:
        report = Report(descriptors[1])
        report.send("taken")
        launch = Launch.read(descriptors[0])
        try:
            self._find(launch.wrapper).run(launch, descriptors)
        except OSError as error:
            report.send(f"broken {launch.wrapper[0]}: {error}")
            for descriptor in descriptors:
                os.close(descriptor)

    def _remove_abandoned(self) -> None:
        """Remove containers of sessions whose process is gone, in a process of its own."""
        labels = [word for word in self.containers[0].arguments if word.startswith(f"{LABEL}=")]
        if os.fork() != 0:
            return
        try:
            remove_abandoned(self.containers[0], labels[0])
        finally:
            os._exit(0)

    def _find(self, arguments: list[str]) -> _Container:
        """Return the container with this view, which may have to be started."""
        current = self.current
        if current is None or current.arguments != arguments or current.is_ending:
            self._count += 1
            folder = os.path.dirname(self.session.view_folder)  # noqa: PTH120  no pathlib in here
            name = f"{os.path.basename(folder)}-{self._count:02d}"  # noqa: PTH119  no pathlib in here
            self.current = current = _Container(self.session, arguments, name)
            self.containers.append(current)
            self._end_unused()
            if self._count == 1:
                self._remove_abandoned()
        return current

    def _end_unused(self) -> None:
        for container in self.containers:
            if container is not self.current and not container.commands:
                container.channels.end()

    def _wait(self, watched: list[int], seconds: float | None = None) -> set[int] | None:
        """Pass on what is there to be passed on, waiting for it.

        Returns which descriptors of `watched` can be read; None when the owner is gone.
        """
        poll = select.poll()
        for descriptor in (self.wake.reader, *watched):
            poll.register(descriptor, select.POLLIN)
        sources: dict[int, tuple[_Container, int]] = {}
        sinks: dict[int, tuple[_Container, int]] = {}
        for container in self.containers:
            sources |= {one: (container, to) for one, to in container.channels.readers().items()}
            sinks |= {one: (container, to) for one, to in container.channels.writers().items()}
        for descriptor in {*sources, *sinks}:
            events = select.POLLIN if descriptor in sources else 0
            poll.register(descriptor, events | (select.POLLOUT if descriptor in sinks else 0))
        found = poll.poll(self._timeout(seconds))
        if not self.owner and os.getppid() != self.owner_pid:
            return None
        ready = {descriptor for descriptor, _ in found}
        for descriptor, event in found:
            if descriptor in sinks and event & (select.POLLOUT | select.POLLERR):
                container, channel = sinks[descriptor]
                container.channels.flush(channel)
            if descriptor in sources and event & ~select.POLLOUT:
                container, channel = sources[descriptor]
                if channel < 0:
                    container.last_data = time.monotonic()
                container.channels.read(channel)
        self._look_after()
        return ready

    def _timeout(self, seconds: float | None) -> float | None:
        """Return how long to wait, in milliseconds."""
        waits_for_output = any(
            command.done_at for one in self.containers for command in one.commands.values()
        )
        bounds = [seconds] if seconds is not None else []
        if waits_for_output:
            bounds.append(_DRAIN_SECONDS / 5)
        if not self.owner:
            bounds.append(_OWNER_CHECK_SECONDS)
        return max(0.0, min(bounds)) * 1000 if bounds else None

    def _look_after(self) -> None:
        self.wake.drain()
        self._ended |= process_tree.reap_all()
        for container in list(self.containers):
            for command in list(container.commands.values()):
                command.finish_if_drained()
            if container.channels.is_over and container.pid in self._ended:
                del self._ended[container.pid]
                self.containers.remove(container)
                container.fail()
        self._end_unused()

    def shut_down(self) -> None:
        """Have all containers end, and wait for that; remove what does not."""
        for container in self.containers:
            container.channels.end()
        deadline = time.monotonic() + _SHUTDOWN_SECONDS
        while self.containers and time.monotonic() < deadline:
            self._wait([], min(1.0, deadline - time.monotonic()))
        for container in self.containers:
            os.kill(container.pid, signal.SIGKILL)
            container.remove()


def remove_abandoned(container: _Container, label: str) -> None:
    """Remove the containers with this label whose session is over: nobody holds its lock."""
    listed = container.ask_engine(
        "ps", "--all", "--filter", f"label={label}", "--format", "{{.Names}}"
    )
    folder = os.path.dirname(container.folder)  # noqa: PTH120  no pathlib in here
    names = (listed or "").split()
    abandoned = [one for one in names if not _is_locked(f"{folder}/{one.rpartition('-')[0]}/lock")]
    if abandoned:
        container.ask_engine("rm", "--force", *abandoned)


def _is_locked(path: str) -> bool:
    try:
        lock = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _is_null(descriptor: int) -> bool:
    """Return whether a descriptor is of the null device: some programs ask for it."""
    found = os.fstat(descriptor)
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == os.stat(os.devnull).st_rdev  # noqa: PTH116  no pathlib in here


def _is_same(one: int, other: int) -> bool:
    first = os.fstat(one)
    second = os.fstat(other)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)


def _open_nameless_file(folder: str) -> int:
    """Open a file that nobody else finds."""
    path = f"{folder}/engine-errors"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)  # noqa: PTH108  no pathlib in here
    return descriptor
