"""Supervises a command that Landlock and a filter hold, with no namespace: the supervisor is its
mediator too.

The supervisor gives up first what no command may have, so that nothing it opens for one lies
outside. The command gives up more: it reaches no socket by name, and (Landlock's version 6) no
process that it did not start.

Not protected: see `sandbox.backends.selection`. Before version 6 a command can end its supervisor,
since it is a process of the same user: then every call that was to be mediated fails, and the
server ends what is left.
"""

from __future__ import annotations

import os
import socket

from . import mediated_command, process_tree, supervision
from .kernel import landlock, namespaces
from .protocol import Launch, Report, receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import Session


def supervise_alone(
    session: Session, channel: socket.socket, wake: process_tree.Wake, owner: list[int]
) -> None:
    """Wait for the launch that `channel` brings, and see it through."""
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
    try:
        namespaces.hide_from_children()
        landlock.restrict(landlock.Spec(session.wall, signals=True, abstract_sockets=True))
        birth, words = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid, answering = mediated_command.start(session, launch, descriptors, words, report)
    except Exception as error:
        report.say(f"broken {type(error).__name__}: {error}")
        raise
    with birth:
        if not _started(birth, pid, report):
            process_tree.end_descendants(attention, 0.0, pid)
            return
    answering.join(attention)
    supervision.watch_over(pid, launch.grace, report, attention, answering.openers)
    answering.leave_room()
    report.say("done")


def _started(birth: socket.socket, pid: int, report: Report) -> bool:
    """Wait until the program runs, and say so."""
    word = birth.recv(2048)
    if word == mediated_command.HERE:
        word = birth.recv(2048)
        if not word:
            report.say(f"started {pid}")
            return True
    report.say((word or b"broken the process that was to run it ended").decode("utf-8", "replace"))
    os.waitpid(pid, 0)
    return False
