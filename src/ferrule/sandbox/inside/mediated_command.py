"""A command and its mediator side by side, where no other process of ours makes the last mounts.

For pid 1 in a bubblewrap (`bubblewrap_supervisor.py`) and for a supervisor with Landlock alone
(`mediated_supervisor.py`): forks the command, which confines itself and becomes its program, and
answers the calls that its filter stops.
"""

from __future__ import annotations

# sending descriptors needs it, and where calls are filtered nothing can be loaded any more
import array as array
import os
import signal
import socket

from . import process_tree
from .command_start import FAILED, HERE, close_others, describe_failure, enter_folder
from .kernel import landlock, mounts, namespaces, seccomp
from .mediator.answers import MediatorRunner
from .mediator.attributes import ATTRIBUTE_CALLS
from .mediator.open_and_remove_calls import OPENING_CALLS, REMOVING_CALLS
from .mediator.withheld_files import WithheldFiles
from .protocol import Launch, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import SandboxRecord

LANDLOCK = "landlock"
"""The backend of a session without namespaces."""


def start(
    session: SandboxRecord,
    launch: Launch,
    descriptors: list[int],
    channel: socket.socket,
    report: Report,
) -> tuple[int, MediatorRunner]:
    """Fork the command. Returns its process id and what answers its calls.

    Its messages come over `channel`, which closes here now, and in the command when the program
    runs.
    """
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _become(session, launch, descriptors[3:6], channel, theirs)
    theirs.close()
    channel.close()
    for descriptor in (descriptors[0], *descriptors[2:]):
        os.close(descriptor)
    above = mounts.folders_above_masks(launch.steps)
    if session.backend != LANDLOCK:
        return pid, MediatorRunner(session, launch, ours, report, above, more=REMOVING_CALLS)
    private_folders = session.writable_folders
    covers = WithheldFiles(
        launch.steps, session.held_folder, (*session.roots, *private_folders), private_folders[-1]
    )
    more = {**REMOVING_CALLS, **OPENING_CALLS, **ATTRIBUTE_CALLS}
    return pid, MediatorRunner(session, launch, ours, report, above, more=more, covers=covers)


def prepare_filter(session: SandboxRecord) -> bytes:
    """Assemble the filter ahead of time."""
    alone = session.backend == LANDLOCK
    return seccomp.prepare_filter(
        alone, True, connect=not alone, removals=True, opens=alone, by_name=alone or session.locked
    )


def _become(
    session: SandboxRecord,
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
        close_others(channel.fileno(), listener.fileno())
        enter_folder(launch)
        for number in process_tree.RESET_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        namespaces.set_resource_limits(session.limits)
        namespaces.deny_new_rights()
        namespaces.drop_capabilities()
        _confine(session, listener)
        os.execve(launch.program, launch.argv, launch.environment)
    except OSError as error:
        word = (
            FAILED + str(error.errno).encode()
            if error.filename == launch.program
            else describe_failure(error)
        )
        channel.send(word)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        channel.send(describe_failure(error))
    finally:
        os._exit(126)


def _confine(session: SandboxRecord, listener: socket.socket) -> None:
    """Give up the last rights: from here on the mediator decides what is opened and created."""
    alone = session.backend == LANDLOCK
    if alone:
        # A domain of its own inside the mediator's: it can neither signal nor inspect the mediator.
        landlock.restrict(landlock.Ruleset((), files=False))
    descriptor = seccomp.install_filter(
        alone, True, connect=not alone, removals=True, opens=alone, by_name=alone or session.locked
    )
    if descriptor is not None:
        socket.send_fds(listener, [b"+"], [descriptor])
        os.close(descriptor)
    listener.close()
