"""Pid 1 of a sandbox: prepares a process for the command and waits for it.

It is made before its command is known, and so is the process that becomes the command, already
confined. What is left for the moment when a command comes is what only the command can tell. When
pid 1 ends, the kernel ends every process of its namespace, whatever it did to hide.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket

from . import command_start, process_tree, supervision
from .kernel import landlock, mounts, namespaces, proxy_ports
from .mediator.answers import MediatorRunner
from .protocol import Launch, Report, receive_launch
from .session import SandboxRecord

_MAX_PORTS = 1000


def run(session: SandboxRecord, orders: socket.socket, channel: socket.socket) -> None:
    """Be pid 1. Never returns.

    `channel` and `orders` both lead to the supervisor: over `orders` our mounts go out and the
    launch comes in.
    """
    try:
        namespaces.disable_dumping()
        session.template.join_shared()
        namespaces.unshare_command()
        mounts.apply_steps(session.command_steps)
        wake = process_tree.SignalPipe()
        _hand_out_mounts(orders)
        session.template.join_inner()
        namespaces.drop_bounding_set()
        # What a preview writes to is mounted when the command comes, and Landlock's rules need
        # what is mounted.
        descriptors = receive_launch(orders) if session.restrict_late else None
        if session.landlock_rules:
            # Before the fork: what is done on the command's behalf is restricted in the same way.
            landlock.restrict(
                landlock.Ruleset(session.landlock_rules, tcp=True, abstract_sockets=True)
            )
        prepared = _PreparedCommand(session, channel)
        descriptors = descriptors or receive_launch(orders)
        if descriptors is None:
            os._exit(0)
        prepared.serve(descriptors, orders, wake)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        with contextlib.suppress(OSError):  # closed once the command has its own words
            channel.send(command_start.describe_failure(error))
        os._exit(1)
    os._exit(0)


def _hand_out_mounts(orders: socket.socket) -> None:
    """Give the supervisor our mount namespace: it makes the last mounts.

    We may not, once Landlock restricts us.
    """
    mine = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    socket.send_fds(orders, [b"+"], [mine])
    os.close(mine)


def _open_proxy_ports(report: Report) -> int:
    """Listen on a port for the command and hand the sockets out. Returns the port."""
    for port in range(proxy_ports.PORT, proxy_ports.PORT + _MAX_PORTS):
        try:
            listening = proxy_ports.listen(port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue  # another command of the session listens there
            raise
        with socket.socket(fileno=os.dup(report.control)) as control:
            proxy_ports.send_sockets(control, b"ports\n", listening)
        return port
    raise RuntimeError("no port is free for the network proxy: too many commands run at once")


class _PreparedCommand:
    """A process that becomes the command, and the channel to it. Made ahead of the command."""

    def __init__(self, session: SandboxRecord, channel: socket.socket) -> None:
        self.session = session
        self.here, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.here.close()
            command_start.become_command(session, channel, theirs)
        theirs.close()
        channel.close()

    def serve(
        self, descriptors: list[int], orders: socket.socket, wake: process_tree.SignalPipe
    ) -> None:
        """Have the process run a command, and answer its calls until everything is over."""
        launch = Launch.read(descriptors[0])
        report = Report(descriptors[1])
        port = _open_proxy_ports(report) if launch.proxy_environment else 0
        view = _lock_view(self.session)
        with contextlib.suppress(BrokenPipeError):  # it was killed: that is waited for below
            command_start.send_launch(self.here, [descriptors[0], *descriptors[3:6], *view], port)
        for descriptor in (descriptors[0], *descriptors[2:], *view):
            os.close(descriptor)
        # The child gets ready while the mediator starts.
        mediator = MediatorRunner(
            self.session, launch, self.here, report, mounts.folders_above_masks(launch.steps)
        )
        attention = process_tree.EventLoop(wake, [report.control, orders.fileno()])
        mediator.register(attention)
        supervision.supervise(self.pid, launch.grace, report, attention, mediator.opener_pids)
        mediator.release_names()
        if not process_tree.has_children():
            # Nobody else is in our namespace: there is no need to wait until the kernel has
            # removed the view.
            report.send("done")


def _lock_view(session: SandboxRecord) -> list[int]:
    """Enter the view that the command will have, now that nothing more is laid over it.

    Returns its descriptor, if there is a view of its own.
    """
    if session.template.inner < 0:
        return []
    namespaces.lock_mounts()
    return [os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)]
