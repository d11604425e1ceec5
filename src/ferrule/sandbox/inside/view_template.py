"""The view that all commands of a session share, made once: each command gets a copy of it, which
takes no time.

A short-lived process makes the namespaces and builds the view in them; the server keeps descriptors
of what it made. Commands share the network (a server that one started is there for the next), the
ways between processes and the host's name, but see neither each other's processes nor each other's
mounts. The view holds a `/proc` of a process namespace that is
over: the kernel allows a new one only where an old one is in sight.

There are two user namespaces, one in the other: the outer one makes the mounts, commands live in
the inner one. The kernel then never takes off what lies over a name, however long somebody holds
the folder (`namespaces.lock_mounts`).
"""

from __future__ import annotations

import os
import signal
import socket

from .kernel import mounts, namespaces, proxy_ports
from .kernel.libc import call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .kernel.mounts import Step

SHARED = ("net", "ipc", "uts", "mnt")
"""In the order in which a command's first process joins them."""


PATIENCE = 30.0
"""Seconds that building may take."""


class Template:
    """Descriptors of namespaces. `user` and `inner` are -1 where there are no user namespaces."""

    def __init__(self, user: int, inner: int, shared: list[int]) -> None:
        self.user = user
        self.inner = inner
        self.shared = shared

    def join_user(self) -> None:
        """For the supervisor: have all rights in there, and none outside."""
        if self.user >= 0:
            call("setns", self.user, namespaces.NEW_USER)

    def join_shared(self) -> None:
        """For pid 1: the view becomes its root folder."""
        for descriptor in self.shared:
            call("setns", descriptor, 0)

    def join_inner(self) -> None:
        """For pid 1: give up the rights on the mounts that were made so far."""
        if self.inner >= 0:
            call("setns", self.inner, namespaces.NEW_USER)


def make(user: bool, view: str, steps: list[Step]) -> Template:
    """Build the view; `user`: in a user namespace. Raises OSError with what was refused."""
    if not user:
        return Template(-1, -1, _hold(lambda channel: _build(False, view, steps, channel), SHARED))
    *shared, outer = _hold(lambda channel: _build(True, view, steps, channel), (*SHARED, "user"))
    (inner,) = _hold(lambda channel: _nest(outer, channel), ("user",))
    return Template(outer, inner, shared)


def _hold(build: Callable[[socket.socket], None], names: tuple[str, ...]) -> list[int]:
    """Descriptors of the namespaces that a process of its own makes with `build`."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pid = os.fork()
        if pid == 0:
            ours.close()
            _make(build, theirs)
        theirs.close()
        ours.settimeout(PATIENCE)
        try:
            word = ours.recv(4096)
            if word != b"ready":
                raise OSError(
                    word.decode("utf-8", "replace")
                    or "the process that was to build the view ended"
                )
            return [os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in names]
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            raise OSError(
                f"the view was not built within {PATIENCE:g} s: is a file system gone?"
            ) from None
        finally:
            ours.close()
            os.waitpid(pid, 0)


def _make(build: Callable[[socket.socket], None], channel: socket.socket) -> None:
    """In that process, which waits until somebody has taken hold of what it made. Never returns."""
    try:
        build(channel)
        channel.recv(1)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        channel.send(f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(0)


def _nest(outer: int, channel: socket.socket) -> None:
    """A user namespace in the one that made the mounts."""
    call("setns", outer, namespaces.NEW_USER)
    namespaces.leave_user()
    channel.send(b"ready")


def _build(user: bool, view: str, steps: list[Step], channel: socket.socket) -> None:
    """The namespaces, and the view in them."""
    namespaces.leave_outside(user)
    namespaces.leave_shared()
    proxy_ports.bring_up_loopback()
    # Only a child is in the new process namespace, and may mount its /proc.
    child = os.fork()
    if child == 0:
        _enter(view, steps, channel)
    _, status = os.waitpid(child, 0)
    if status == 0:
        channel.send(b"ready")


def _enter(view: str, steps: list[Step], channel: socket.socket) -> None:
    try:
        mounts.enter(view, steps)
    except BaseException as error:  # noqa: BLE001  the last frame of this process: who waits must hear why
        channel.send(str(error).encode())
        os._exit(1)
    os._exit(0)
