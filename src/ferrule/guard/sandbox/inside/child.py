"""The last steps before a command runs in a sandbox: in its own process, as pid 1 forked it."""

from __future__ import annotations

import os
import signal
import socket
import stat

from . import namespaces, tree
from .protocol import Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import Session

HERE, FAILED, BROKEN, LISTENER = b"here", b"failed ", b"broken ", b"listener"


def become(
    launch: Launch, session: Session, standard: list[int], channel: socket.socket, listener: socket.socket
) -> None:
    """Turn this process into the command. Never returns.

    `channel` leads to the supervisor: a message on it carries our process id as it is seen from outside; it
    closes when the program runs. `listener` leads to pid 1.
    """
    try:
        os.setsid()
        channel.send(HERE)
        for to, source in enumerate(standard):
            os.dup2(source, to)
        _close_others(channel.fileno(), listener.fileno())
        _enter_folder(launch)
        for number in tree.DEFAULTS:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        namespaces.limit(session.limits)
        namespaces.drop_capabilities()
        session.confine(listener)
        os.execve(launch.program, launch.argv, launch.environment)
    except OSError as error:
        word = FAILED + str(error.errno).encode() if error.filename == launch.program else _broken(error)
        channel.send(word)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        channel.send(_broken(error))
    finally:
        os._exit(126)


def _broken(error: BaseException) -> bytes:
    return BROKEN + f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:1000]


def _close_others(*kept: int) -> None:
    """Every descriptor but the standard ones and these."""
    low = 3
    for one in sorted(kept):
        os.closerange(low, one)
        low = one + 1
    os.closerange(low, _highest())


def _highest() -> int:
    return max(map(int, os.listdir("/proc/self/fd"))) + 1  # noqa: PTH208  no pathlib in here


def _enter_folder(launch: Launch) -> None:
    """The folder that was opened outside, by its path in the view: only if it is the same one."""
    os.chdir(launch.folder)
    if launch.inode is None:
        return
    status = os.stat(".")  # noqa: PTH116  no pathlib in here
    if not stat.S_ISDIR(status.st_mode) or (status.st_dev, status.st_ino) != tuple(launch.inode):
        raise RuntimeError(
            f"`{launch.folder}` is another folder in the sandbox: it was moved, or is out of sight"
        )
