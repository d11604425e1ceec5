"""The last steps before a command runs in a sandbox, in its own process as forked by pid 1.

Some steps are taken before the command is known. What is known only with the command is its view,
its descriptors, its folder and its program: the process then enters the view with the last rights
that it has, gives them up and filters its calls.
"""

from __future__ import annotations

import os
import signal
import socket
import stat

from . import process_tree
from .kernel import namespaces, proxy_ports
from .kernel.libc import call_libc
from .protocol import Launch, receive_descriptors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .session import SandboxRecord

HERE = b"here"
"""The command's process says that it is alive, before it is the program."""
FAILED = b"failed "
"""Its program cannot be executed: an error number follows."""
BROKEN = b"broken "
"""It cannot become its program: the reason follows."""


def become_command(session: SandboxRecord, channel: socket.socket, orders: socket.socket) -> None:
    """Turn this process into the command that `orders` brings. Never returns.

    `channel` leads to the supervisor: a message on it carries our process id as seen from outside;
    it closes when the program runs. `orders` leads to pid 1, which is given the filter's
    descriptor.
    """
    try:
        os.setsid()
        channel.send(HERE)
        close_others(channel.fileno(), orders.fileno())
        namespaces.set_resource_limits(session.limits)
        namespaces.deny_new_rights()
        _run(session, channel, orders)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        channel.send(describe_failure(error))
    finally:
        os._exit(126)


def send_launch(orders: socket.socket, descriptors: list[int], port: int) -> None:
    """Send the launch to a process that waits in `become_command`. For pid 1.

    `descriptors` are the record of the launch, standard input, output and error, and the view;
    `port` is that of the proxy.
    """
    socket.send_fds(orders, [b"%d" % port], descriptors)


def _run(session: SandboxRecord, channel: socket.socket, orders: socket.socket) -> None:
    """Wait for the launch and execute its program.

    Returns if none comes, or if it cannot be executed.
    """
    message, received = receive_descriptors(orders, 16, 5)
    if not message:
        return
    for view in received[4:]:
        call_libc("setns", view, namespaces.NEW_MOUNTS)
    namespaces.drop_capabilities()
    session.install_filter(orders)
    launch = Launch.read(received[0])
    for to, source in enumerate(received[1:4]):
        os.dup2(source, to)
    for name, text in launch.proxy_environment.items():
        launch.environment[name] = text.replace(str(proxy_ports.PORT), message.decode())
    enter_folder(launch)
    for number in process_tree.RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execve(launch.program, launch.argv, launch.environment)
    except OSError as error:
        channel.send(FAILED + str(error.errno).encode())


def describe_failure(error: BaseException) -> bytes:
    """Return the message about an error that keeps the command from starting."""
    return BROKEN + f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:1000]


def close_others(*kept: int) -> None:
    """Close every descriptor but the standard ones and these.

    What is opened later is closed when the program is executed.
    """
    low = 3
    for descriptor in sorted(kept):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, _highest_descriptor())


def _highest_descriptor() -> int:
    return max(map(int, os.listdir("/proc/self/fd"))) + 1  # noqa: PTH208  no pathlib in here


def enter_folder(launch: Launch) -> None:
    """Enter the folder that was opened outside, by its path in the view, if it is the same one."""
    os.chdir(launch.folder)
    if launch.inode is None:
        return
    status = os.stat(".")  # noqa: PTH116  no pathlib in here
    if not stat.S_ISDIR(status.st_mode) or (status.st_dev, status.st_ino) != tuple(launch.inode):
        raise RuntimeError(
            f"`{launch.folder}` is another folder in the sandbox: it was moved, or is not visible"
        )
