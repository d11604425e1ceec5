"""The fork server: has a supervisor ready for the next command, which then starts at once.

One process with one thread. It holds no command's arguments or environment: records are read by the
supervisor. It is a subreaper, so that what a killed supervisor leaves behind comes to it and is
ended. When its socket ends, or the process that uses it, it has all supervisors end their commands,
waits for them and exits.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import socket
import sys
import time

from . import process_tree, supervision
from .kernel import cgroup_limits
from .protocol import LAUNCH_BYTE, Launch, Report, receive_launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import SandboxRecord

SPARE_DELAY = 0.003
"""Seconds after which the next supervisor is made.

Until then the command that took the last one starts undisturbed.
"""

OWNER_CHECK_SECONDS = 0.5
"""How often is looked whether our owner still lives, where its end is not told."""

SHUTDOWN_SECONDS = 15.0
"""Seconds that supervisors have at the end.

Longer than any default grace period and the killing after it.
"""


def main(socket_number: int, session_number: int, owner_pid: int) -> None:
    """Serve until the socket ends. Never returns.

    `session_number` is the descriptor of the session's record, -1 for none.
    """
    os.set_inheritable(socket_number, False)
    server = socket.socket(fileno=socket_number)
    owner = _watch_owner(owner_pid)
    session = _read_session(session_number)
    process_tree.become_subreaper()
    os.chdir("/")
    if session is not None and session.engine_environment:
        from .container import relay

        relay.serve(server, owner, session, owner_pid)
        os._exit(0)
    # What is loaded now is never freed: left out of garbage collection, its pages stay shared with
    # every fork.
    gc.collect()
    gc.freeze()
    _Server(server, owner, session, owner_pid).serve()
    os._exit(0)


def _watch_owner(owner_pid: int) -> list[int]:
    """Return a descriptor that becomes readable when our owner ends.

    It works even if a fork of the owner still holds the socket.
    """
    if process_tree.PORTABLE or not hasattr(os, "pidfd_open"):
        return []
    try:
        owner = os.pidfd_open(owner_pid)
    except OSError:
        os._exit(1)
    if os.getppid() != owner_pid:
        os._exit(1)  # it ended before we looked: the id may be another's
    return [owner]


def _read_session(number: int) -> SandboxRecord | None:
    if number < 0:
        return None
    from .session import SandboxRecord

    session = SandboxRecord.read(number)
    os.close(number)
    if session.engine_environment:
        return session  # another server, in the container, makes itself ready
    # Loaded here, once, for all that will be forked.
    from . import namespace_supervisor as namespace_supervisor

    session.prepare()
    if session.backend != "namespaces":
        from . import mediated_command

        mediated_command.prepare_filter(session)
    return session


class _Server:
    def __init__(
        self,
        server: socket.socket,
        owner: list[int],
        session: SandboxRecord | None,
        owner_pid: int,
    ) -> None:
        self.owner_pid = owner_pid
        self.server = server
        self.owner = owner
        self.session = session
        self.wake = process_tree.SignalPipe()
        self.supervisors: set[int] = set()
        self.spare: socket.socket | None = None

    def serve(self) -> None:
        watched = [self.wake.reader, self.server.fileno(), *self.owner]
        self.spare = self._fork()
        while True:
            idle = None if self.owner else OWNER_CHECK_SECONDS
            ready, _, _ = select.select(
                watched, [], [], SPARE_DELAY if self.spare is None else idle
            )
            if not self.owner and os.getppid() != self.owner_pid:
                break
            if not ready:
                self.spare = self.spare or self._fork()
                continue
            self._reap()
            if any(one in ready for one in self.owner):
                break
            if self.server.fileno() in ready:
                descriptors = receive_launch(self.server)
                if descriptors is None:
                    break
                self._pass_on(descriptors)
        self._shut_down()

    def _pass_on(self, descriptors: list[int]) -> None:
        """Hand a command to the waiting supervisor, or to another one if that was killed."""
        for _ in range(2):
            spare = self.spare or self._fork()
            self.spare = None
            if spare is None:
                break
            with spare:
                try:
                    socket.send_fds(spare, [LAUNCH_BYTE], descriptors)
                    break
                except OSError:
                    continue
        for descriptor in descriptors:
            os.close(descriptor)

    def _fork(self) -> socket.socket | None:
        """Make a new supervisor; None, after a moment, if no process can be made."""
        ours, theirs = socket.socketpair()
        # A signal to end that came before the fork has its own wake-up pipe would be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR1,))
        try:
            pid = os.fork()
        except OSError:
            pid = -1
        if pid == 0:
            ours.close()
            self._supervise(theirs)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGUSR1,))
        theirs.close()
        if pid < 0:
            ours.close()
            time.sleep(0.05)
            return None
        self.supervisors.add(pid)
        return ours

    def _supervise(self, channel: socket.socket) -> None:
        """Be a supervisor, in the fork. Never returns."""
        status = 1
        try:
            self.server.close()
            self.wake.close()
            wake = process_tree.SignalPipe()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGUSR1,))
            process_tree.become_subreaper()
            if self.session is None:
                _supervise_unconfined(channel, wake, self.owner)
            else:
                _supervise_confined(self.session, channel, wake, self.owner)
            status = 0
        finally:
            # Without the interpreter's clean-up: who waits for the end of the socket waits less.
            os._exit(status)

    def _reap(self) -> None:
        self.wake.drain()
        orphaned = False
        for pid, status in process_tree.reap_all().items():
            orphaned = orphaned or pid not in self.supervisors or status != 0
            self.supervisors.discard(pid)
        if orphaned:
            self._end_orphans()

    def _end_orphans(self) -> None:
        """Kill what a killed supervisor left: whatever is below us and below no other supervisor.

        Called again for each orphan that ends, so that what one of them forked meanwhile is found
        too.
        """
        for pid, (start, _, _) in process_tree.list_descendants(
            os.getpid(), self.supervisors
        ).items():
            process_tree.signal_process(pid, start, signal.SIGKILL)

    def _shut_down(self) -> None:
        """Have everything ended. What ignores even that is left to init."""
        if self.spare is not None:
            self.spare.close()
        for pid in self.supervisors:
            os.kill(pid, signal.SIGUSR1)
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        while process_tree.has_children():
            seconds_left = deadline - time.monotonic()
            if seconds_left <= 0:
                break
            select.select([self.wake], [], [], min(seconds_left, 1.0))
            self._reap()
        if self.session is not None:
            cgroup_limits.leave(self.session.groups)


def _supervise_confined(
    session: SandboxRecord, channel: socket.socket, wake: process_tree.SignalPipe, owner: list[int]
) -> None:
    """Supervise a command of a sandbox, with the session's backend."""
    if session.backend == "bubblewrap":
        from .bubblewrap_supervisor import supervise_in_bubblewrap as supervise
    elif session.backend == "namespaces":
        from .namespace_supervisor import supervise_in_namespaces as supervise
    else:
        from .mediated_supervisor import supervise_mediated as supervise
    supervise(session, channel, wake, owner)


def _supervise_unconfined(
    channel: socket.socket, wake: process_tree.SignalPipe, owner: list[int]
) -> None:
    """Supervise a command that nothing confines."""
    descriptors = receive_launch(channel)
    if descriptors is None:
        return
    report = Report(descriptors[1])
    report.send("taken")
    try:
        launch = Launch.read(descriptors[0])
        os.close(descriptors[0])
        child = supervision.start_unconfined(launch, descriptors, report)
        if child is not None:
            attention = process_tree.EventLoop(wake, [report.control, *owner])
            supervision.supervise(child, launch.grace, report, attention)
            report.send("done")
    except Exception as error:
        report.send(f"broken {type(error).__name__}: {error}")
        raise


def start() -> None:
    """Run as a program.

    The last three arguments are the socket, the session's record and the process that uses us.
    """
    main(*map(int, sys.argv[-3:]))
