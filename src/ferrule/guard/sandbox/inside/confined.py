"""Supervises one command in namespaces: makes them and pid 1, passes the launch on, and sees that pid 1 ends.

The supervisor stays outside (of all but the user namespace): nothing in the sandbox can see or signal it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct

from . import child, first, namespaces, supervise, tree
from .protocol import TAKE, Launch, Report, receive
from .session import Session

_MARGIN = 2.0
"""Seconds beyond the grace after which pid 1 is killed if it has not ended all by itself."""
_CREDENTIALS = struct.Struct("iII")


def supervise_confined(session: Session, channel: socket.socket, wake: tree.Wake, owner: list[int]) -> None:
    """Make a sandbox, wait for the launch that `channel` brings, and see it through."""
    if session.problem:
        _refuse(channel, f"its view cannot be built: {session.problem}")
        return
    try:
        session.template.join_user()
        namespaces.leave_outside(user=False)
        inside = _Inside(session, wake)
    except OSError as error:
        _refuse(channel, f"no sandbox could be made: {error.strerror} ({error.filename or 'namespaces'})")
        return
    descriptors = receive(channel)
    if descriptors is None:
        inside.remove()
        return
    report = Report(descriptors[1])
    report.say("taken")
    launch = Launch.read(descriptors[0])
    with contextlib.suppress(BrokenPipeError):  # pid 1 has ended, and said why
        socket.send_fds(inside.orders, [TAKE], descriptors)
    for descriptor in (descriptors[0], *descriptors[2:]):
        os.close(descriptor)
    attention = tree.Attention(wake, [report.control, *owner])
    if _started(inside, report, attention):
        supervise.end_gently(inside.pid, attention, launch.grace + tree.STUBBORN + _MARGIN)
    inside.remove()
    report.say("done")


def _refuse(channel: socket.socket, why: str) -> None:
    descriptors = receive(channel)
    if descriptors is not None:
        Report(descriptors[1]).say(f"broken {why}")


class _Inside:
    """Pid 1 and the ways to it."""

    def __init__(self, session: Session, wake: tree.Wake) -> None:
        self.orders, orders = socket.socketpair()
        self.birth, birth = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.birth.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.pid = os.fork()
        if self.pid == 0:
            wake.close()
            self.orders.close()
            self.birth.close()
            first.run(session, orders, birth)
        orders.close()
        birth.close()

    def remove(self) -> None:
        """End what is left, and wait for it."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # it was waited for already


def _started(inside: _Inside, report: Report, attention: tree.Attention) -> bool:
    """Wait until the program runs, and say so. The kernel translates the process id on its way out."""
    pid = 0
    while True:
        ready, _, _ = select.select([inside.birth, *attention.ends], [], [])
        if inside.birth not in ready:
            return False
        word, ancillary, _, _ = inside.birth.recvmsg(2048, socket.CMSG_SPACE(_CREDENTIALS.size))
        if word == child.HERE:
            pid = _CREDENTIALS.unpack(ancillary[0][2])[0]
        elif not word and pid:
            report.say(f"started {pid}")
            return True
        else:
            report.say((word or b"broken the first process of the sandbox ended").decode("utf-8", "replace"))
            return False
