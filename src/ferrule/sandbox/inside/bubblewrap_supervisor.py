"""A command in a view that bubblewrap makes: supervised outside, started and mediated by a process
of ours inside.

Outside, `supervise_wrapped` starts bubblewrap, which lays all mounts and becomes `main` as pid 1 of
its process namespace. `main` gets the launch, forks the command and answers its creating and
removing calls, with the view of files that it has and no more rights. When it ends, the kernel ends
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

from . import mediated_command, process_tree, supervision
from .kernel import landlock, mounts, namespaces, proxy_ports
from .protocol import TAKE, Launch, Report, receive
from .session import Session

_MARGIN = 2.0
"""Seconds beyond the grace after which all is killed if it has not ended by itself."""
_CREDENTIALS = struct.Struct("iII")
_MOST_PORTS = 1000
_START = (
    "import sys; sys.path.append(sys.argv[1]); from inside.bubblewrap_supervisor import main; "
    "main()"
)


def supervise_wrapped(
    session: Session, channel: socket.socket, wake: process_tree.Wake, owner: list[int]
) -> None:
    """Wait for the launch that `channel` brings, start bubblewrap, and see it through."""
    descriptors = receive(channel)
    if descriptors is None:
        return
    report = Report(descriptors[1])
    report.say("taken")
    if session.problem:
        report.say(f"broken {session.problem}")
        return
    launch = Launch.read(descriptors[0])
    attention = process_tree.Attention(wake, [report.control, *owner])
    inside = _Inside(session, launch, wake)
    with contextlib.suppress(OSError):  # bubblewrap has ended, and said why
        socket.send_fds(inside.orders, [TAKE], descriptors)
    for descriptor in (descriptors[0], *descriptors[2:]):
        os.close(descriptor)
    if inside.started(report, attention):
        supervision.end_gently(
            inside.pid, attention, launch.grace + process_tree.STUBBORN + _MARGIN
        )
    process_tree.end_descendants(attention, 0.0, inside.pid)
    report.say("done")


class _Inside:
    """Bubblewrap, and the ways to what it starts."""

    def __init__(self, session: Session, launch: Launch, wake: process_tree.Wake) -> None:
        self.orders, orders = socket.socketpair()
        self.birth, birth = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.birth.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.said = os.memfd_create("ferrule", os.MFD_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            self._wrap(launch, [orders.fileno(), birth.fileno(), session.record, session.lock])
        orders.close()
        birth.close()

    def _wrap(self, launch: Launch, given: list[int]) -> None:
        """Become bubblewrap. Never returns."""
        try:
            os.dup2(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), 0)
            for to in (1, 2):
                os.dup2(self.said, to)
            for descriptor in given:
                os.set_inheritable(descriptor, True)
            words = [
                *launch.wrapper,
                "-I",
                "-S",
                "-c",
                _START,
                launch.program_folder,
                *map(str, given),
            ]
            os.execve(words[0], words, {})
        except OSError as error:
            os.write(2, f"{launch.wrapper[0]}: {error.strerror}".encode())
        finally:
            os._exit(126)

    def started(self, report: Report, attention: process_tree.Attention) -> bool:
        """Wait until the program runs, and say so. The kernel translates the process id on its way
        out.
        """
        pid = 0
        while True:
            ready, _, _ = select.select([self.birth, *attention.ends], [], [])
            if self.birth not in ready:
                return False
            word, ancillary, _, _ = self.birth.recvmsg(2048, socket.CMSG_SPACE(_CREDENTIALS.size))
            if word == mediated_command.HERE:
                pid = _CREDENTIALS.unpack(ancillary[0][2])[0]
            elif not word and pid:
                report.say(f"started {pid}")
                return True
            else:
                report.say((word or self._why()).decode("utf-8", "replace"))
                return False

    def _why(self) -> bytes:
        said = os.pread(self.said, 4096, 0).strip().splitlines()
        return mediated_command.BROKEN + (
            said[-1] if said else b"bubblewrap ended and did not say why"
        )


def main() -> None:
    """As pid 1 in the view: the last words are the descriptors of orders, channel, session and
    lock. Never returns.
    """
    order, word, record, lock = map(int, sys.argv[-4:])
    for descriptor in (order, word, record, lock):
        os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=word)
    try:
        session = Session.read(record)
        session.lock = lock
        if session.locked:
            # In the namespaces that bubblewrap made the last process would take what lies over
            # names along when it ends.
            namespaces.leave_user()
            namespaces.lock_mounts()
            mounts.close_proc()
        namespaces.hide_from_children()
        namespaces.bound_capabilities()
        session.name_rules()
        mediated_command.prepare(session)
        wake = process_tree.Wake()
        orders = socket.socket(fileno=order)
        descriptors = receive(orders)
        if descriptors is None:
            os._exit(0)
        launch = Launch.read(descriptors[0])
        report = Report(descriptors[1])
        if session.wall:
            landlock.restrict(landlock.Spec(session.wall, tcp=True, abstract_sockets=True))
        if launch.proxied:
            _lead_out(launch, report)
        attention = process_tree.Attention(wake, [report.control, orders.fileno()])
        pid, answering = mediated_command.start(session, launch, descriptors, channel, report)
        answering.join(attention)
        supervision.watch_over(pid, launch.grace, report, attention, answering.openers)
        answering.leave_room()
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        if channel.fileno() >= 0:
            channel.send(
                mediated_command.BROKEN
                + f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:1000]
            )
        os._exit(1)
    os._exit(0)


def _lead_out(launch: Launch, report: Report) -> None:
    """Listen for the command, hand that out, and tell the command where. Its network is its own:
    any port is free.
    """
    with socket.socket(fileno=os.dup(report.control)) as control:
        proxy_ports.hand_out(control, b"ports\n", proxy_ports.listen(proxy_ports.PORT))
    launch.environment.update(launch.proxied)
