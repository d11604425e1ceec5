"""Pid 1 of a sandbox: builds the view, starts the command, waits for it, and takes everything along when it ends.

It is made before its command is known: what all commands of a session share is ready when one comes. When pid 1
ends, the kernel ends every process of its namespace, whatever it did to hide.
"""

from __future__ import annotations

import errno
import os
import socket

from . import child, landlock, mounts, namespaces, ports, supervise, tree
from .creation import Mediator, lower_rights
from .protocol import Launch, Report, receive
from .session import Session

MOST_NAMED = 100
"""Refused names that are reported: a command that tries a million times has made its point."""

MOST_PORTS = 1000


def run(session: Session, orders: socket.socket, channel: socket.socket) -> None:
    """Be pid 1. Never returns. `orders` brings the launch, `channel` leads to the supervisor."""
    try:
        namespaces.hide_from_children()
        session.template.join_shared()
        namespaces.leave_own()
        mounts.apply(session.own_steps)
        namespaces.bound_capabilities()
        wake = tree.Wake()
        descriptors = receive(orders)
        if descriptors is None:
            os._exit(0)
        launch = Launch.read(descriptors[0])
        mounts.apply(launch.steps)
        if session.wall:
            # Before the fork: what is done on the command's behalf is held by the same wall.
            landlock.restrict(landlock.Spec(session.wall, tcp=True, abstract_sockets=True))
        report = Report(descriptors[1])
        if launch.proxied:
            _lead_out(launch, report)
        attention = tree.Attention(wake, [report.control, orders.fileno()])
        _serve(session, launch, descriptors, channel, report, attention)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        channel.send(child.BROKEN + f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:1000])
        os._exit(1)
    os._exit(0)


def _lead_out(launch: Launch, report: Report) -> None:
    """Listen for the command, hand that out, and tell the command where."""
    for port in range(ports.PORT, ports.PORT + MOST_PORTS):
        try:
            listening = ports.listen(port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                continue  # another command of the session listens there
            raise
        with socket.socket(fileno=os.dup(report.control)) as control:
            ports.hand_out(control, b"ports\n", listening)
        for name, text in launch.proxied.items():
            launch.environment[name] = text.replace(str(ports.PORT), str(port))
        return
    raise RuntimeError("no port is left for the way to the network: too many commands run at once")


def _serve(
    session: Session,
    launch: Launch,
    descriptors: list[int],
    channel: socket.socket,
    report: Report,
    attention: tree.Attention,
) -> None:
    here, there = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        here.close()
        child.become(launch, session, descriptors[3:6], channel, there)
    there.close()
    channel.close()
    for descriptor in (descriptors[0], *descriptors[2:]):
        os.close(descriptor)
    answering = _Answering(session, launch, here, report)
    answering.join(attention)
    supervise.watch_over(pid, launch.grace, report, attention, answering.openers)


class _Answering:
    """The mediator of the command's creating calls, and what is said of its work."""

    def __init__(self, session: Session, launch: Launch, here: socket.socket, report: Report) -> None:
        self.report = report
        self.told = 0
        self.mediator: Mediator | None = None
        # Whoever made the view could do more with files than the command may. Done while the command gets ready.
        lower_rights()
        with here:
            _, found, _, _ = socket.recv_fds(here, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if found:
            session.rules.own = frozenset(launch.own)
            session.rules.anchor(mounts.above(launch.steps))
            self.mediator = Mediator(found[0], session.rules, session.lock)

    def join(self, attention: tree.Attention) -> None:
        if self.mediator is not None:
            attention.answers[self.mediator.fileno()] = self.answer

    def openers(self) -> set[int]:
        return self.mediator.openers if self.mediator is not None else set()

    def answer(self) -> None:
        assert self.mediator is not None
        self.mediator.handle_one()
        while self.mediator.made:
            made = self.mediator.made.pop()
            self.report.say(f"made {made.device} {made.inode}")
        for name in self.mediator.refused[self.told : MOST_NAMED]:
            self.report.say(f"refused {name}")
        self.told = len(self.mediator.refused)
