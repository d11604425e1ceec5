"""Supervises a command in a view that bubblewrap builds, from outside and from inside.

Outside, `supervise_in_bubblewrap` starts bubblewrap, which makes all mounts and executes `main` as
pid 1 of its process namespace. `main` gets the launch, forks the command, and performs its creating
and removing calls with the same view of files and no more rights. When `main` ends, the kernel ends
what is left in there; when bubblewrap's own process ends, it ends `main`.

The code that runs inside is a copy of this folder, made before any command of the session ran.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import sys

from . import command_start, mediated_command, process_tree, supervision
from .kernel import landlock, mounts, namespaces, proxy_ports
from .protocol import LAUNCH_BYTE, Launch, Report, receive_launch
from .session import SandboxRecord

_MARGIN = 2.0
"""Seconds beyond the grace period after which everything that has not ended is killed."""
_CREDENTIALS = struct.Struct("iII")

_START = (
    "import sys; sys.path.append(sys.argv[1]); from inside.bubblewrap_supervisor import main; "
    "main()"
)


def supervise_in_bubblewrap(
    session: SandboxRecord, channel: socket.socket, wake: process_tree.SignalPipe, owner: list[int]
) -> None:
    """Wait for the launch that `channel` brings, start bubblewrap, and supervise it to its end."""
    descriptors = receive_launch(channel)
    if descriptors is None:
        return
    report = Report(descriptors[1])
    report.send("taken")
    if session.problem:
        report.send(f"broken {session.problem}")
        return
    launch = Launch.read(descriptors[0])
    attention = process_tree.EventLoop(wake, [report.control, *owner])
    bubblewrap = _Bubblewrap(session, launch, wake)
    with contextlib.suppress(OSError):  # bubblewrap has ended, and said why
        socket.send_fds(bubblewrap.orders, [LAUNCH_BYTE], descriptors)
    for descriptor in (descriptors[0], *descriptors[2:]):
        os.close(descriptor)
    if bubblewrap.wait_for_start(report, attention):
        supervision.end_child(
            bubblewrap.pid, attention, launch.grace + process_tree.KILL_SECONDS + _MARGIN
        )
    process_tree.end_descendants(attention, 0.0, bubblewrap.pid)
    report.send("done")


class _Bubblewrap:
    """Bubblewrap, and the sockets to what it starts."""

    def __init__(
        self, session: SandboxRecord, launch: Launch, wake: process_tree.SignalPipe
    ) -> None:
        self.orders, orders = socket.socketpair()
        self.start_channel, start_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.start_channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.output = os.memfd_create("ferrule", os.MFD_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            self._exec(
                launch, [orders.fileno(), start_channel.fileno(), session.record, session.lock]
            )
        orders.close()
        start_channel.close()

    def _exec(self, launch: Launch, inherited: list[int]) -> None:
        """Become bubblewrap. Never returns."""
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 0)
            for to in (1, 2):
                os.dup2(self.output, to)
            for descriptor in inherited:
                os.set_inheritable(descriptor, True)
            arguments = [
                *launch.wrapper,
                "-I",
                "-S",
                "-c",
                _START,
                launch.program_folder,
                *map(str, inherited),
            ]
            os.execve(arguments[0], arguments, {})
        except OSError as error:
            os.write(2, f"{launch.wrapper[0]}: {error.strerror}".encode())
        finally:
            os._exit(126)

    def wait_for_start(self, report: Report, attention: process_tree.EventLoop) -> bool:
        """Wait until the program runs, and report that.

        The kernel translates the process id on its way out.
        """
        pid = 0
        while True:
            ready, _, _ = select.select([self.start_channel, *attention.stop_descriptors], [], [])
            if self.start_channel not in ready:
                return False
            message, ancillary, _, _ = self.start_channel.recvmsg(
                2048, socket.CMSG_SPACE(_CREDENTIALS.size)
            )
            if message == command_start.HERE:
                pid = _CREDENTIALS.unpack(ancillary[0][2])[0]
            elif not message and pid:
                report.send(f"started {pid}")
                return True
            else:
                report.send((message or self._failure()).decode("utf-8", "replace"))
                return False

    def _failure(self) -> bytes:
        lines = os.pread(self.output, 4096, 0).strip().splitlines()
        reason = lines[-1] if lines else b"bubblewrap ended and did not say why"
        return command_start.BROKEN + reason


def main() -> None:
    """Run as pid 1 in the view. Never returns.

    The last arguments are the descriptors of orders, channel, session and lock.
    """
    order, word, record, lock = map(int, sys.argv[-4:])
    for descriptor in (order, word, record, lock):
        os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=word)
    try:
        session = SandboxRecord.read(record)
        session.lock = lock
        if session.locked:
            # In the namespaces that bubblewrap made, the masks would go away with the last
            # process, even for who still holds a folder.
            namespaces.unshare_user()
            namespaces.lock_mounts()
            mounts.make_proc_read_only()
        namespaces.disable_dumping()
        namespaces.drop_bounding_set()
        session.load_name_rules()
        mediated_command.prepare_filter(session)
        wake = process_tree.SignalPipe()
        orders = socket.socket(fileno=order)
        descriptors = receive_launch(orders)
        if descriptors is None:
            os._exit(0)
        launch = Launch.read(descriptors[0])
        report = Report(descriptors[1])
        if session.landlock_rules:
            landlock.restrict(
                landlock.Ruleset(session.landlock_rules, tcp=True, abstract_sockets=True)
            )
        if launch.proxy_environment:
            _open_proxy_ports(launch, report)
        attention = process_tree.EventLoop(wake, [report.control, orders.fileno()])
        pid, answering = mediated_command.start(session, launch, descriptors, channel, report)
        answering.register(attention)
        supervision.supervise(pid, launch.grace, report, attention, answering.opener_pids)
        answering.release_names()
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        if channel.fileno() >= 0:
            channel.send(command_start.describe_failure(error))
        os._exit(1)
    os._exit(0)


def _open_proxy_ports(launch: Launch, report: Report) -> None:
    """Listen on a port for the command, hand the sockets out, and tell the command the port.

    Its network namespace is its own, so any port is free.
    """
    with socket.socket(fileno=os.dup(report.control)) as control:
        proxy_ports.send_sockets(control, b"ports\n", proxy_ports.listen(proxy_ports.PORT))
    launch.environment.update(launch.proxy_environment)
