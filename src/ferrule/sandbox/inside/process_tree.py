"""Ends a tree of processes: everything that descends from this process, wherever it hid.

Only an ancestor can be the *subreaper* of its descendants (prctl(2), PR_SET_CHILD_SUBREAPER). A
grandchild that starts a new session and loses its parent is then handed to us instead of to init,
so that it can be found, ended and waited for, and "nothing is left" is a fact and not a guess.

Not protected: what gained other rights (setuid) cannot be ended; it is reported as alive. Where
there is no `/proc`, or it is switched off (`PORTABLE`), a process that left the command's group and
lost its parent is not found: it is nobody's descendant there.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from contextlib import suppress

from .kernel.libc import call_libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

KILL_SECONDS = 10.0
"""Seconds of killing after which what is still alive is reported as such."""

IGNORED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RESET_SIGNALS = tuple(
    number for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP)
)
"""Signals that a command must not inherit settings for.

The server ignores or handles some, and others may have been ignored when it was started.
"""

_PR_SET_CHILD_SUBREAPER = 36
PORTABLE = os.environ.get("FERRULE_PORTABLE") == "1" or not os.path.isdir("/proc/self")  # noqa: PTH112  no pathlib in here
_PS = ["/bin/ps", "-axo", "pid=,ppid=,state=,comm="]
_reaped: dict[int, int] = {}
"""Children that `has_children` has waited for where it cannot look without that."""


def become_subreaper() -> int:
    """Have orphaned descendants become our children.

    Returns 0, or an error number: ENOSYS where this is not Linux.
    """
    if PORTABLE:
        return errno.ENOSYS
    try:
        call_libc("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except OSError as error:
        return error.errno or 0
    return 0


class SignalPipe:
    """A descriptor that becomes readable when a signal comes.

    There is one for each process: it is made again after a fork.
    """

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, _ignore_signal)
        for number in IGNORED_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def fileno(self) -> int:
        return self.reader

    def drain(self) -> bytes:
        """Return the numbers of the signals that came since the last time."""
        numbers = b""
        try:
            while chunk := os.read(self.reader, 4096):
                numbers += chunk
        except BlockingIOError:
            pass
        return numbers

    def close(self) -> None:
        """Close it, before a new one is made in a forked child."""
        signal.set_wakeup_fd(-1)
        os.close(self.reader)
        os.close(self._writer)


def _ignore_signal(number: int, frame: object) -> None:
    """Do nothing: a handler must be set for the wake-up descriptor to be written."""


def reap_all() -> dict[int, int]:
    """Wait for all children that have ended: pid -> status as waitpid(2) gives it.

    Those that `has_children` had to wait for are among them.
    """
    ended = dict(_reaped)
    _reaped.clear()
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def reap(child: int) -> int | None:
    """Wait for all children that have ended. Returns the exit code of `child` if that is one."""
    status = reap_all().get(child)
    return None if status is None else os.waitstatus_to_exitcode(status)


def has_children() -> bool:
    """Return whether there are children, alive or not yet waited for."""
    try:
        if PORTABLE or not hasattr(os, "waitid"):
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid:
                _reaped[pid] = status
        else:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return bool(_reaped)
    return True


class EventLoop:
    """The descriptors that a process watches while it waits for others.

    `ends` become readable when everything is to be ended. `readers` are the functions to call when
    a descriptor has something to read.
    """

    def __init__(self, wake: SignalPipe, ends: list[int]) -> None:
        self.wake = wake
        self.stop_descriptors = ends
        self.readers: dict[int, Callable[[], object]] = {}

    def wait(self, seconds: float | None) -> bool:
        """Wait until a signal or message comes, at most `seconds`.

        Returns whether everything is to be ended.
        """
        return self._poll([self.wake.reader, *self.stop_descriptors, *self.readers], seconds)

    def pause(self, seconds: float) -> None:
        """Wait in the same way while everything is being ended."""
        self._poll([self.wake.reader, *self.readers], seconds)

    def _poll(self, descriptors: list[int], seconds: float | None) -> bool:
        ready, _, _ = select.select(descriptors, [], [], seconds)
        for descriptor in ready:
            if descriptor in self.readers:
                self.readers[descriptor]()
        return signal.SIGUSR1 in self.wake.drain() or any(
            one in ready for one in self.stop_descriptors
        )


def end_descendants(attention: EventLoop, grace: float, child: int) -> tuple[int | None, list[str]]:
    """End all descendants: SIGTERM, `grace` seconds, then SIGKILL until none is left.

    Returns the exit code of `child` if it ended meanwhile, and what is still alive, as `NAME
    (PID)`.
    """
    kill_time = time.monotonic() + grace
    terminated: set[tuple[int, int]] = set()
    code = None
    while has_children():
        now = time.monotonic()
        if now >= kill_time + KILL_SECONDS:
            return code, [
                f"{name} ({pid})" for pid, (_, name, _) in list_descendants(os.getpid()).items()
            ]
        _signal_all(terminated, child, kill=now >= kill_time)
        status = reap(child)
        if status is not None:
            code = status
        if has_children():
            attention.pause(0.01 if now >= kill_time else min(0.05, kill_time - now))
    return code, []


def _signal_all(terminated: set[tuple[int, int]], child: int, *, kill: bool) -> None:
    """Signal every descendant. `terminated` remembers which ones already had their SIGTERM."""
    if PORTABLE and (kill or (child, 0) not in terminated):
        # What lost its parent is still in the group of the command, which leads it.
        terminated.add((child, 0))
        with suppress(OSError):  # the group is empty
            os.killpg(child, signal.SIGKILL if kill else signal.SIGTERM)
    for pid, (start, _, _) in list_descendants(os.getpid()).items():
        if kill or (pid, start) not in terminated:
            terminated.add((pid, start))
            signal_process(pid, start, signal.SIGKILL if kill else signal.SIGTERM)


def list_descendants(top: int, excluding: Iterable[int] = ()) -> dict[int, tuple[int, str, str]]:
    """Return living processes below `top`: pid -> (start time in ticks, name, state).

    `excluding` are processes that are left out with everything below them. Format: proc(5).
    """
    excluded = set(excluding)
    parents: dict[int, int] = {}
    details: dict[int, tuple[int, str, str]] = {}
    for pid, (parent, detail) in _list_processes():
        if pid not in excluded:
            parents[pid], details[pid] = parent, detail
    below = {top}
    found: dict[int, tuple[int, str, str]] = {}
    while True:
        children = [pid for pid, parent in parents.items() if parent in below and pid not in below]
        if not children:
            return {pid: detail for pid, detail in found.items() if detail[2] not in "ZX"}
        below.update(children)
        found.update((pid, details[pid]) for pid in children)


def _list_processes() -> Iterator[tuple[int, tuple[int, tuple[int, str, str]]]]:
    """Yield all processes: pid -> (parent, (start time in ticks or 0, name, state))."""
    if PORTABLE:
        yield from _list_by_ps()
        return
    for entry in os.listdir("/proc"):  # noqa: PTH208  no pathlib in here
        stat = _read_stat(int(entry)) if entry.isdigit() else None
        if stat is not None:
            yield int(entry), stat


def _list_by_ps() -> Iterator[tuple[int, tuple[int, tuple[int, str, str]]]]:
    import subprocess  # not loaded by servers that never need it

    listed = subprocess.run(_PS, capture_output=True, check=False, env={}).stdout
    for line in listed.decode("utf-8", "replace").splitlines():
        pid, parent, state, name = [*line.split(None, 3), "", "", "", ""][:4]
        if pid.isdigit() and parent.isdigit():
            shown = "".join(c if c.isprintable() else "?" for c in name.rpartition("/")[2])
            yield int(pid), (int(parent), (0, shown, state[:1]))


def _read_stat(pid: int) -> tuple[int, tuple[int, str, str]] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  no pathlib in here
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None  # it ended while we looked
    fields = tail.split()
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    printable = "".join(c if c.isprintable() else "?" for c in name)
    return int(fields[1]), (int(fields[19]), printable, chr(fields[0][0]))


def signal_process(pid: int, start: int, number: int) -> None:
    """Signal a process unless its id belongs to another one by now (pidfd_open(2))."""
    if PORTABLE:
        try:
            os.kill(pid, number)
        except OSError:
            return  # gone, or not ours to end
        return
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return  # gone
    try:
        stat = _read_stat(pid)
        if stat and stat[1][0] == start:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return  # gone, or not ours to end: it is reported as alive
    finally:
        os.close(handle)
