"""The view that all commands of a session share, made once: copying it for a command takes no time.

A short-lived process makes the namespaces and builds the view in them; the server keeps descriptors
of what it made. Commands share the network (a server that one started is there for the next), the
System V and POSIX IPC objects and the host's name, but see neither each other's processes nor each
other's mounts. The view holds a `/proc` of a process namespace that is over: the kernel allows a
new one only where an old one is visible.

There are two user namespaces, one inside the other: the outer one makes the mounts, commands live
in the inner one. The kernel then never takes a mask off its name, however long somebody holds the
folder (`namespaces.lock_mounts`).
"""

from __future__ import annotations

import os
import signal
import socket

from .kernel import mounts, namespaces, proxy_ports
from .kernel.libc import call_libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .kernel.mounts import Step

SHARED = ("net", "ipc", "uts", "mnt")
"""In the order in which a command's first process joins them."""


BUILD_SECONDS = 30.0
"""Seconds that building may take."""


class ViewTemplate:
    """Descriptors of namespaces. `user` and `inner` are -1 where there are no user namespaces."""

    def __init__(self, user: int, inner: int, shared: list[int]) -> None:
        self.user = user
        self.inner = inner
        self.shared = shared

    def join_user(self) -> None:
        """Get all rights in the outer user namespace, and none outside. For the supervisor."""
        if self.user >= 0:
            call_libc("setns", self.user, namespaces.NEW_USER)

    def join_shared(self) -> None:
        """Have the view become the root folder. For pid 1."""
        for descriptor in self.shared:
            call_libc("setns", descriptor, 0)

    def join_inner(self) -> None:
        """Give up the rights on the mounts that were made so far. For pid 1."""
        if self.inner >= 0:
            call_libc("setns", self.inner, namespaces.NEW_USER)


def build_template(user: bool, view: str, steps: list[Step]) -> ViewTemplate:
    """Build the view, in a user namespace with `user`.

    Raises OSError with what was refused.
    """

    def build(channel: socket.socket) -> None:
        _build_view(user, view, steps, channel)

    if not user:
        return ViewTemplate(-1, -1, _open_namespaces(build, SHARED))
    *shared, outer = _open_namespaces(build, (*SHARED, "user"))
    (inner,) = _open_namespaces(lambda channel: _build_inner_user(outer, channel), ("user",))
    return ViewTemplate(outer, inner, shared)


def _open_namespaces(build: Callable[[socket.socket], None], names: tuple[str, ...]) -> list[int]:
    """Run `build` in a process of its own and return descriptors of the namespaces that it made."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            ours.close()
            _build_and_wait(build, theirs)
        theirs.close()
        ours.settimeout(BUILD_SECONDS)
        try:
            message = ours.recv(4096)
            if message != b"ready":
                raise OSError(
                    message.decode("utf-8", "replace")
                    or "the process that was to build the view ended"
                )
            return [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise OSError(
                f"the view was not built within {BUILD_SECONDS:g} s: is a file system gone?"
            ) from None
        finally:
            ours.close()
            os.waitpid(pid, 0)


def _build_and_wait(build: Callable[[socket.socket], None], channel: socket.socket) -> None:
    """Run `build` and wait until the parent has opened the namespaces. Never returns."""
    try:
        build(channel)
        channel.recv(1)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        channel.send(f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(0)


def _build_inner_user(outer: int, channel: socket.socket) -> None:
    """Make a user namespace inside the one that made the mounts."""
    call_libc("setns", outer, namespaces.NEW_USER)
    namespaces.unshare_user()
    channel.send(b"ready")


def _build_view(user: bool, view: str, steps: list[Step], channel: socket.socket) -> None:
    """Make the namespaces, and the view in them."""
    namespaces.unshare_processes(user)
    namespaces.unshare_session()
    proxy_ports.bring_up_loopback()
    # Only a child is in the new process namespace, and may mount its /proc.
    child = os.fork()
    if child == 0:
        _enter_view(view, steps, channel)
    _, status = os.waitpid(child, 0)
    if status == 0:
        channel.send(b"ready")


def _enter_view(view: str, steps: list[Step], channel: socket.socket) -> None:
    try:
        mounts.build_view(view, steps)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        channel.send(str(error).encode())
        os._exit(1)
    os._exit(0)
