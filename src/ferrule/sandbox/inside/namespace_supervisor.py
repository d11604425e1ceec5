"""Supervises one command in namespaces: makes them and pid 1, and sees that pid 1 ends.

It also finishes the view and passes the launch on. The supervisor's process is outside the sandbox:
nothing in there can see or signal it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct

from . import command_start, pid1, process_tree, supervision
from .kernel import mounts, namespaces
from .kernel.libc import call_libc
from .protocol import LAUNCH_BYTE, Launch, Report, receive_descriptors, receive_launch
from .session import SandboxRecord

_MARGIN = 2.0
"""Seconds beyond the grace period after which pid 1 is killed if it has not ended by itself."""
_CREDENTIALS = struct.Struct("iII")
_CLOSED = command_start.BROKEN + b"the process that was to become it ended"


def supervise_in_namespaces(
    session: SandboxRecord, channel: socket.socket, wake: process_tree.SignalPipe, owner: list[int]
) -> None:
    """Make a sandbox, wait for the launch that `channel` brings, and supervise it to its end."""
    if session.problem:
        _report_failure(channel, f"its view cannot be built: {session.problem}")
        return
    try:
        session.template.join_user()
        namespaces.unshare_processes(user=False)
        first_process = _Pid1(session, wake)
    except OSError as error:
        _report_failure(
            channel,
            f"no sandbox could be made: {error.strerror} ({error.filename or 'namespaces'})",
        )
        return
    descriptors = receive_launch(channel)
    if descriptors is None:
        first_process.remove()
        return
    report = Report(descriptors[1])
    report.send("taken")
    launch = Launch.read(descriptors[0])
    try:
        first_process.finish(launch.steps)
    except (OSError, mounts.StepFailed) as error:
        first_process.remove()
        report.send(f"broken {error}")
        return
    with contextlib.suppress(BrokenPipeError):  # pid 1 has ended, and said why
        socket.send_fds(first_process.orders, [LAUNCH_BYTE], descriptors)
    for descriptor in (descriptors[0], *descriptors[2:]):
        os.close(descriptor)
    attention = process_tree.EventLoop(wake, [report.control, *owner])
    if _wait_for_start(first_process, report, attention):
        supervision.end_child(
            first_process.pid, attention, launch.grace + process_tree.KILL_SECONDS + _MARGIN
        )
    first_process.remove()
    report.send("done")


def _report_failure(channel: socket.socket, why: str) -> None:
    descriptors = receive_launch(channel)
    if descriptors is not None:
        Report(descriptors[1]).send(f"broken {why}")


class _Pid1:
    """Pid 1 and the sockets to it."""

    def __init__(self, session: SandboxRecord, wake: process_tree.SignalPipe) -> None:
        self.orders, orders = socket.socketpair()
        self.start_channel, start_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.start_channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.pid = os.fork()
        if self.pid == 0:
            wake.close()
            self.orders.close()
            self.start_channel.close()
            pid1.run(session, orders, start_channel)
        orders.close()
        start_channel.close()
        # Nothing comes if pid 1 failed: its words are read when there is somebody to tell them.
        self.mounts = receive_descriptors(self.orders, 1, 1)[1]
        self.child = 0

    def finish(self, steps: list[mounts.Step]) -> None:
        """Lay over the view what only this command needs.

        Raises StepFailed, and OSError if pid 1 or the waiting process has ended.
        """
        for descriptor in self.mounts:
            call_libc("setns", descriptor, namespaces.NEW_MOUNTS)
            os.close(descriptor)
            mounts.apply_steps(steps)
        while select.select([self.start_channel], [], [], 0)[0]:
            message = self.read_message()
            if message:
                # Something ended it while it waited, so that nothing of the command was done.
                raise OSError(message.removeprefix(command_start.BROKEN).decode("utf-8", "replace"))

    def read_message(self) -> bytes:
        """Read a message of the process that becomes the command.

        Returns an empty one if it is alive, else why it does not become the command.
        """
        message, ancillary, _, _ = self.start_channel.recvmsg(
            2048, socket.CMSG_SPACE(_CREDENTIALS.size)
        )
        if message == command_start.HERE:
            # The kernel translates the process id on its way out.
            self.child = _CREDENTIALS.unpack(ancillary[0][2])[0]
            return b""
        return message or _CLOSED

    def remove(self) -> None:
        """End what is left, and wait for it."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # it was waited for already


def _wait_for_start(
    first_process: _Pid1, report: Report, attention: process_tree.EventLoop
) -> bool:
    """Wait until the program runs, and report that."""
    while True:
        ready, _, _ = select.select(
            [first_process.start_channel, *attention.stop_descriptors], [], []
        )
        if first_process.start_channel not in ready:
            return False
        message = first_process.read_message()
        if message == _CLOSED and first_process.child:
            # Closed, as it is when a program is executed.
            report.send(f"started {first_process.child}")
            return True
        if message:
            report.send(message.decode("utf-8", "replace"))
            return False
