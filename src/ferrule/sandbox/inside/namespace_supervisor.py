"""Supervises one command in namespaces: makes them and pid 1, finishes the view, passes the launch
on, and sees that pid 1 ends.

The supervisor's process is none of the sandbox's: nothing in there can see or signal it.
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
from .kernel.libc import call
from .protocol import TAKE, Launch, Report, receive, receive_descriptors
from .session import Session

_MARGIN = 2.0
"""Seconds beyond the grace after which pid 1 is killed if it has not ended all by itself."""
_CREDENTIALS = struct.Struct("iII")
_ENDED = command_start.BROKEN + b"the process that was to become it ended"


def supervise_confined(
    session: Session, channel: socket.socket, wake: process_tree.Wake, owner: list[int]
) -> None:
    """Make a sandbox, wait for the launch that `channel` brings, and see it through."""
    if session.problem:
        _refuse(channel, f"its view cannot be built: {session.problem}")
        return
    try:
        session.template.join_user()
        namespaces.leave_outside(user=False)
        inside = _Inside(session, wake)
    except OSError as error:
        _refuse(
            channel,
            f"no sandbox could be made: {error.strerror} ({error.filename or 'namespaces'})",
        )
        return
    descriptors = receive(channel)
    if descriptors is None:
        inside.remove()
        return
    report = Report(descriptors[1])
    report.say("taken")
    launch = Launch.read(descriptors[0])
    try:
        inside.finish(launch.steps)
    except (OSError, mounts.StepFailed) as error:
        inside.remove()
        report.say(f"broken {error}")
        return
    with contextlib.suppress(BrokenPipeError):  # pid 1 has ended, and said why
        socket.send_fds(inside.orders, [TAKE], descriptors)
    for descriptor in (descriptors[0], *descriptors[2:]):
        os.close(descriptor)
    attention = process_tree.Attention(wake, [report.control, *owner])
    if _started(inside, report, attention):
        supervision.end_gently(
            inside.pid, attention, launch.grace + process_tree.STUBBORN + _MARGIN
        )
    inside.remove()
    report.say("done")


def _refuse(channel: socket.socket, why: str) -> None:
    descriptors = receive(channel)
    if descriptors is not None:
        Report(descriptors[1]).say(f"broken {why}")


class _Inside:
    """Pid 1 and the ways to it."""

    def __init__(self, session: Session, wake: process_tree.Wake) -> None:
        self.orders, orders = socket.socketpair()
        self.birth, birth = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.birth.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.pid = os.fork()
        if self.pid == 0:
            wake.close()
            self.orders.close()
            self.birth.close()
            pid1.run(session, orders, birth)
        orders.close()
        birth.close()
        # Nothing comes if pid 1 failed: its words are read when there is somebody to tell them.
        self.mounts = receive_descriptors(self.orders, 1, 1)[1]
        self.child = 0

    def finish(self, steps: list[mounts.Step]) -> None:
        """Lay over the view what only this command needs. Raises StepFailed, and OSError if nobody
        waits in there any more.
        """
        for descriptor in self.mounts:
            call("setns", descriptor, namespaces.NEW_MOUNTS)
            os.close(descriptor)
            mounts.apply(steps)
        while select.select([self.birth], [], [], 0)[0]:
            if word := self.hear():
                # Something ended it while it waited, so that nothing of the command was done.
                raise OSError(word.removeprefix(command_start.BROKEN).decode("utf-8", "replace"))

    def hear(self) -> bytes:
        """What the process that becomes the command says: empty if it lives, else why it does not
        become it.
        """
        word, ancillary, _, _ = self.birth.recvmsg(2048, socket.CMSG_SPACE(_CREDENTIALS.size))
        if word == command_start.HERE:
            # The kernel translates the process id on its way out.
            self.child = _CREDENTIALS.unpack(ancillary[0][2])[0]
            return b""
        return word or _ENDED

    def remove(self) -> None:
        """End what is left, and wait for it."""
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # it was waited for already


def _started(inside: _Inside, report: Report, attention: process_tree.Attention) -> bool:
    """Wait until the program runs, and say so."""
    while True:
        ready, _, _ = select.select([inside.birth, *attention.ends], [], [])
        if inside.birth not in ready:
            return False
        word = inside.hear()
        if word == _ENDED and inside.child:
            # Closed, as it is when a program is executed.
            report.say(f"started {inside.child}")
            return True
        if word:
            report.say(word.decode("utf-8", "replace"))
            return False
