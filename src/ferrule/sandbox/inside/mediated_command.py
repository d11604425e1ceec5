"""A command and its mediator side by side, where the last mounts are laid by somebody else or by
nobody.

For pid 1 of a bubblewrap (`bubblewrap_supervisor.py`) and for a supervisor under Landlock alone
(`landlock_supervisor.py`): forks the command, which confines itself and becomes its program, and
answers the calls that its filter stops.
"""

from __future__ import annotations

# sending descriptors needs it, and where calls are filtered nothing can be loaded any more
import array as array
import os
import signal
import socket
import stat

from . import process_tree
from .kernel import landlock, mounts, namespaces, seccomp
from .mediator.answers import Answering
from .mediator.attributes import ATTRIBUTES
from .mediator.guarded_calls import OPENS, REMOVALS
from .mediator.withheld_files import Covers
from .protocol import Launch, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import Session

HERE, FAILED, BROKEN = b"here", b"failed ", b"broken "
"""What the command's process says before it is the program: it lives, its program cannot be
executed, or why not.
"""

LANDLOCK = "landlock"
"""The way of a session in which no namespace holds."""


def start(
    session: Session, launch: Launch, descriptors: list[int], channel: socket.socket, report: Report
) -> tuple[int, Answering]:
    """Fork the command. Its words come over `channel`, which closes here, and in the command when
    the program runs.
    """
    here, there = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        here.close()
        _become(session, launch, descriptors[3:6], channel, there)
    there.close()
    channel.close()
    for descriptor in (descriptors[0], *descriptors[2:]):
        os.close(descriptor)
    above = mounts.above(launch.steps)
    if session.way != LANDLOCK:
        return pid, Answering(session, launch, here, report, above, more=REMOVALS)
    own = session.own_folders
    covers = Covers(launch.steps, session.held, (*session.roots, *own), own[-1])
    more = {**REMOVALS, **OPENS, **ATTRIBUTES}
    return pid, Answering(session, launch, here, report, above, more=more, covers=covers)


def prepare(session: Session) -> bytes:
    """The filter, assembled ahead."""
    alone = session.way == LANDLOCK
    return seccomp.prepare(
        alone, True, connect=not alone, removals=True, opens=alone, by_name=alone or session.locked
    )


def _become(
    session: Session,
    launch: Launch,
    standard: list[int],
    channel: socket.socket,
    listener: socket.socket,
) -> None:
    """Turn this process into the command. Never returns."""
    try:
        os.setsid()
        channel.send(HERE)
        for to, source in enumerate(standard):
            os.dup2(source, to)
        _close_others(channel.fileno(), listener.fileno())
        _enter_folder(launch)
        for number in process_tree.DEFAULTS:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        namespaces.limit(session.limits)
        namespaces.bound_rights()
        namespaces.drop_capabilities()
        _confine(session, listener)
        os.execve(launch.program, launch.argv, launch.environment)
    except OSError as error:
        word = (
            FAILED + str(error.errno).encode()
            if error.filename == launch.program
            else _broken(error)
        )
        channel.send(word)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        channel.send(_broken(error))
    finally:
        os._exit(126)


def _confine(session: Session, listener: socket.socket) -> None:
    """The last thing: from here on this process opens and makes nothing that its mediator does not
    allow.
    """
    alone = session.way == LANDLOCK
    if alone:
        # A domain of its own within the mediator's: it can neither signal that one nor look into
        # it.
        landlock.restrict(landlock.Spec((), files=False))
    descriptor = seccomp.install(
        alone, True, connect=not alone, removals=True, opens=alone, by_name=alone or session.locked
    )
    if descriptor is not None:
        socket.send_fds(listener, [b"+"], [descriptor])
        os.close(descriptor)
    listener.close()


def _broken(error: BaseException) -> bytes:
    return BROKEN + f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:1000]


def _close_others(*kept: int) -> None:
    """Every descriptor but the standard ones and these."""
    low = 3
    for one in sorted(kept):
        os.closerange(low, one)
        low = one + 1
    os.closerange(low, max(map(int, os.listdir("/proc/self/fd"))) + 1)  # noqa: PTH208  no pathlib in here


def _enter_folder(launch: Launch) -> None:
    """The folder that was opened outside, by its path: only if it is the same one."""
    os.chdir(launch.folder)
    if launch.inode is None:
        return
    status = os.stat(".")  # noqa: PTH116  no pathlib in here
    if not stat.S_ISDIR(status.st_mode) or (status.st_dev, status.st_ino) != tuple(launch.inode):
        raise RuntimeError(
            f"`{launch.folder}` is another folder in the sandbox: it was moved, or is out of sight"
        )
