"""Runs one command and ends all it started. A script of its own: `python -I -S warden.py CONTROL`.

Why a process between us and the command: only a parent can be the *subreaper* of its descendants
(prctl(2), PR_SET_CHILD_SUBREAPER). A grandchild that starts a new session and loses its parent is then
handed to the warden instead of to init, so that it can be found, ended and waited for, and "nothing
is left" is a fact and not a guess. Making the process that uses Ferrule a subreaper would hand it orphans
that it never asked for.

CONTROL is a socket. In: the length of the specification (8 bytes, big-endian) and its fields separated by
NUL (seconds of grace, number of words, program, words, then names and values of the environment); later one
byte `k` (end everything). Its end (the one who started us died) means the same. Out: lines
`started PID`, `failed ERRNO`, `exited STATUS` (as of `os.waitstatus_to_exitcode`), `left NAME (PID)`,
`alive NAME (PID)`, `done`.

Not protected: the command runs as the same user and may kill the warden; the other end notices the
missing `done` and says that something may still run. What gained other rights (setuid) cannot be ended.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
SETTLE = 0.2
"""Seconds that what the command leaves behind has to end by itself."""
STUBBORN = 3.0
"""Seconds of killing after which what is alive is reported as such."""

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEFAULT_SIGNALS = (*_IGNORED, signal.SIGPIPE, signal.SIGCHLD, signal.SIGXFSZ)
"""What an interpreter ignores or handles, and a command must not inherit."""


def main(control: int) -> int:
    """Start, wait, end, report. Returns the exit status of the warden itself."""
    os.set_inheritable(control, False)
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        _say(control, f"failed {ctypes.get_errno()}")
        return 1
    wake = _wake_pipe()
    grace, argv, environment = _specification(control)
    try:
        child = os.posix_spawn(
            argv[0],
            argv[1:],
            environment,
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )
    except OSError as error:
        _say(control, f"failed {error.errno}")
        return 1
    _say(control, f"started {child}")
    # Our copies of the command's pipes would keep their readers waiting.
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    exited = _wait(child, control, wake)
    if exited:
        _report_left(control, wake)
    _end_all(child, control, wake, grace, exited=exited)
    return 0


def _specification(control: int) -> tuple[float, list[str], dict[str, str]]:
    size = int.from_bytes(_read(control, 8), "big")
    fields = [os.fsdecode(field) for field in _read(control, size).split(b"\0")]
    count = int(fields[1])
    pairs = fields[2 + count :]
    return float(fields[0]), fields[2 : 2 + count], dict(zip(pairs[::2], pairs[1::2], strict=True))


def _read(control: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = os.read(control, min(65536, size - len(data)))
        if not piece:
            os._exit(1)
        data += piece
    return data


def _wake_pipe() -> int:
    """A descriptor that becomes readable when a child ends."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _woken)
    for ignored in _IGNORED:
        signal.signal(ignored, signal.SIG_IGN)
    return reader


def _woken(number: int, frame: object) -> None:
    """Nothing to do: a handler must be set for the wake-up descriptor to be written."""


def _wait(child: int, control: int, wake: int) -> bool:
    """True when the command has ended, False if we are asked to end it."""
    while True:
        status = _reap(child)
        if status is not None:
            _say(control, f"exited {status}")
            return True
        ready, _, _ = select.select([wake, control], [], [])
        if wake in ready:
            _drain(wake)
        if control in ready:
            return False


def _reap(child: int) -> int | None:
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


def _report_left(control: int, wake: int) -> None:
    """Name what outlives the command, after a moment in which it may end by itself."""
    deadline = time.monotonic() + SETTLE
    while _has_children() and (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([wake, control], [], [], left)
        _drain(wake)
        _reap(-1)
        if control in ready:
            break
    for pid, (_, name, _) in _descendants().items():
        _say(control, f"left {name} ({pid})")


def _end_all(child: int, control: int, wake: int, grace: float, *, exited: bool) -> None:
    """SIGTERM, a moment, then SIGKILL until there is nobody left to wait for."""
    gentle = time.monotonic() + grace
    asked: set[tuple[int, int]] = set()
    while _has_children():
        now = time.monotonic()
        if now >= gentle + STUBBORN:
            for pid, (_, name, _) in _descendants().items():
                _say(control, f"alive {name} ({pid})")
            break
        _signal_all(asked, kill=now >= gentle)
        status = _reap(child)
        if status is not None and not exited:
            exited = True
            _say(control, f"exited {status}")
        if _has_children():
            select.select([wake], [], [], 0.01 if now >= gentle else min(0.05, gentle - now))
        _drain(wake)
    _say(control, "done")


def _signal_all(asked: set[tuple[int, int]], *, kill: bool) -> None:
    """One signal to every descendant; `asked` remembers who had its SIGTERM."""
    for pid, (start, _, _) in _descendants().items():
        if kill or (pid, start) not in asked:
            asked.add((pid, start))
            _signal(pid, start, signal.SIGKILL if kill else signal.SIGTERM)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants() -> dict[int, tuple[int, str, str]]:
    """Living processes below this one: pid -> (start time in ticks, name, state). Format: proc(5)."""
    parents: dict[int, int] = {}
    facts: dict[int, tuple[int, str, str]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208  this script starts in milliseconds; pathlib would double that
        if entry.isdigit() and (stat := _stat(int(entry))):
            parent, facts[int(entry)] = stat
            parents[int(entry)] = parent
    mine = {os.getpid()}
    found: dict[int, tuple[int, str, str]] = {}
    while True:
        new = [pid for pid, parent in parents.items() if parent in mine and pid not in mine]
        if not new:
            return {pid: fact for pid, fact in found.items() if fact[2] not in "ZX"}
        mine.update(new)
        found.update((pid, facts[pid]) for pid in new)


def _stat(pid: int) -> tuple[int, tuple[int, str, str]] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  see above
            head, _, tail = file.read().rpartition(b")")
    except OSError:
        return None  # it ended while we looked
    fields = tail.split()
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    printable = "".join(c if c.isprintable() else "?" for c in name)
    return int(fields[1]), (int(fields[19]), printable, chr(fields[0][0]))


def _signal(pid: int, start: int, number: int) -> None:
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


def _drain(wake: int) -> None:
    try:
        while os.read(wake, 4096):
            continue
    except BlockingIOError:
        return


def _say(control: int, line: str) -> None:
    try:
        os.write(control, line.encode() + b"\n")
    except OSError:
        return  # nobody listens any more: what is left to do is to end everything


if __name__ == "__main__":
    # Without the interpreter's own farewell: who waits for the end of the socket then waits for us briefly.
    os._exit(main(int(sys.argv[1])))
