"""Ends a tree of processes: all that descends from this process, wherever it hid.

Only a parent can be the *subreaper* of its descendants (prctl(2), PR_SET_CHILD_SUBREAPER). A
grandchild that starts a new session and loses its parent is then handed to us instead of to init,
so that it can be found, ended and waited for, and "nothing is left" is a fact and not a guess.

Not protected: what gained other rights (setuid) cannot be ended; it is reported as alive.
"""

from __future__ import annotations

import os
import select
import signal
import time

from .kernel.libc import call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

STUBBORN = 10.0
"""Seconds of killing after which what is alive is reported as such."""

IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEFAULTS = tuple(
    number for number in signal.Signals if number not in (signal.SIGKILL, signal.SIGSTOP)
)
"""What a command must not inherit: what the server ignores or handles, and what was ignored when it
was started.
"""

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> int:
    """Orphans of our descendants become our children. 0, or an error number. Linux only: elsewhere
    ENOSYS.
    """
    try:
        call("prctl", _PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except OSError as error:
        return error.errno or 0
    return 0


class Wake:
    """A descriptor that becomes readable when a signal comes. One for each process: made again
    after a fork.
    """

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, _woken)
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def fileno(self) -> int:
        return self.reader

    def drain(self) -> bytes:
        """The numbers of the signals that came since the last time."""
        came = b""
        try:
            while piece := os.read(self.reader, 4096):
                came += piece
        except BlockingIOError:
            pass
        return came

    def close(self) -> None:
        """Before a new one is made in a forked child."""
        signal.set_wakeup_fd(-1)
        os.close(self.reader)
        os.close(self._writer)


def _woken(number: int, frame: object) -> None:
    """Nothing to do: a handler must be set for the wake-up descriptor to be written."""


def reap(child: int) -> int | None:
    """Wait for all that ended; the exit code of `child` if it is among them."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == child:
            code = os.waitstatus_to_exitcode(status)


def has_children() -> bool:
    """Alive, or ended and not yet waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


class Attention:
    """What a process that waits for others has an eye on.

    `ends`: descriptors that become readable when all is to be ended. `answers`: what to call when a
    descriptor has something to read.
    """

    def __init__(self, wake: Wake, ends: list[int]) -> None:
        self.wake = wake
        self.ends = ends
        self.answers: dict[int, Callable[[], object]] = {}

    def wait(self, seconds: float | None) -> bool:
        """Until a signal or a word comes, at most `seconds`. True if all is to be ended."""
        return self._look([self.wake.reader, *self.ends, *self.answers], seconds)

    def pause(self, seconds: float) -> None:
        """The same while all is being ended."""
        self._look([self.wake.reader, *self.answers], seconds)

    def _look(self, watched: list[int], seconds: float | None) -> bool:
        ready, _, _ = select.select(watched, [], [], seconds)
        for descriptor in ready:
            if descriptor in self.answers:
                self.answers[descriptor]()
        return signal.SIGUSR1 in self.wake.drain() or any(one in ready for one in self.ends)


def end_descendants(attention: Attention, grace: float, child: int) -> tuple[int | None, list[str]]:
    """SIGTERM, `grace` seconds, then SIGKILL until there is nobody left to wait for.

    The exit code of `child` if it ended meanwhile, and what is still alive, as `NAME (PID)`.
    """
    gentle = time.monotonic() + grace
    asked: set[tuple[int, int]] = set()
    code = None
    while has_children():
        now = time.monotonic()
        if now >= gentle + STUBBORN:
            return code, [
                f"{name} ({pid})" for pid, (_, name, _) in descendants(os.getpid()).items()
            ]
        _signal_all(asked, kill=now >= gentle)
        status = reap(child)
        code = status if status is not None else code
        if has_children():
            attention.pause(0.01 if now >= gentle else min(0.05, gentle - now))
    return code, []


def _signal_all(asked: set[tuple[int, int]], *, kill: bool) -> None:
    """One signal to every descendant; `asked` remembers who had its SIGTERM."""
    for pid, (start, _, _) in descendants(os.getpid()).items():
        if kill or (pid, start) not in asked:
            asked.add((pid, start))
            send(pid, start, signal.SIGKILL if kill else signal.SIGTERM)


def descendants(top: int, without: Iterable[int] = ()) -> dict[int, tuple[int, str, str]]:
    """Living processes below `top`: pid -> (start time in ticks, name, state). Format: proc(5).

    `without`: processes that are left out, and what is below them.
    """
    skipped = set(without)
    parents: dict[int, int] = {}
    facts: dict[int, tuple[int, str, str]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208  no pathlib in here
        if entry.isdigit() and int(entry) not in skipped and (stat := _stat(int(entry))):
            parents[int(entry)], facts[int(entry)] = stat
    mine = {top}
    found: dict[int, tuple[int, str, str]] = {}
    while True:
        new = [pid for pid, parent in parents.items() if parent in mine and pid not in mine]
        if not new:
            return {pid: fact for pid, fact in found.items() if fact[2] not in "ZX"}
        mine.update(new)
        found.update((pid, facts[pid]) for pid in new)


def _stat(pid: int) -> tuple[int, tuple[int, str, str]] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  no pathlib in here
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None  # it ended while we looked
    fields = tail.split()
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    printable = "".join(c if c.isprintable() else "?" for c in name)
    return int(fields[1]), (int(fields[19]), printable, chr(fields[0][0]))


def send(pid: int, start: int, number: int) -> None:
    """Signal a process unless its id belongs to another one by now (pidfd_open(2))."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return  # gone
    try:
        stat = _stat(pid)
        if stat and stat[1][0] == start:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        return  # gone, or not ours to end: it is reported as alive
    finally:
        os.close(handle)
