"""Supervises a command that has no namespaces of its own: in a container, or with Landlock alone.

The supervisor is the command's mediator too. With Landlock alone it first gives up what no command
may have, so that nothing that it opens for one lies outside. The command gives up more: it reaches
no socket by name, and (from version 6 of Landlock) no process that it did not start.

Not protected: see `sandbox.backends.selection`. Before version 6, and in a container, a command can
end its supervisor, since it is a process of the same user: then every call that was to be mediated
fails, and the server ends what is left.
"""

from __future__ import annotations

import os
import socket

from . import command_start, mediated_command, process_tree, supervision
from .kernel import landlock, namespaces
from .protocol import Launch, Report, receive_launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import SandboxRecord


def supervise_mediated(
    session: SandboxRecord, channel: socket.socket, wake: process_tree.SignalPipe, owner: list[int]
) -> None:
    """Wait for the launch that `channel` brings, and supervise the command to its end."""
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
    try:
        namespaces.disable_dumping()
        if session.backend == mediated_command.LANDLOCK:
            landlock.restrict(
                landlock.Ruleset(session.landlock_rules, signals=True, abstract_sockets=True)
            )
        start_channel, command_channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid, answering = mediated_command.start(
            session, launch, descriptors, command_channel, report
        )
    except Exception as error:
        report.send(f"broken {type(error).__name__}: {error}")
        raise
    with start_channel:
        if not _wait_for_start(start_channel, pid, report):
            process_tree.end_descendants(attention, 0.0, pid)
            return
    answering.register(attention)
    supervision.supervise(pid, launch.grace, report, attention, answering.opener_pids)
    answering.release_names()
    report.send("done")


def _wait_for_start(start_channel: socket.socket, pid: int, report: Report) -> bool:
    """Wait until the program runs, and report that."""
    message = start_channel.recv(2048)
    if message == command_start.HERE:
        message = start_channel.recv(2048)
        if not message:
            report.send(f"started {pid}")
            return True
    report.send(
        (message or b"broken the process that was to run it ended").decode("utf-8", "replace")
    )
    os.waitpid(pid, 0)
    return False
