"""Waits for a command, ends everything it started, reports. For supervisors and pid 1 of a sandbox.

What the command leaves behind when it ends is given a moment, named, and ended.

Not protected where there is no sandbox: the command runs as the same user and may kill its
supervisor. The other end then misses `done` and says that something may still run, and the server
ends what is handed to it.
"""

from __future__ import annotations

import os
import signal
import time

from . import process_tree
from .kernel import landlock
from .protocol import Launch, Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SETTLE_SECONDS = 0.2
"""Seconds that what the command leaves behind has to end by itself."""


def start_unconfined(launch: Launch, descriptors: list[int], report: Report) -> int | None:
    """Start a command that nothing confines.

    Returns its process id, or None if it could not be started, which is reported. Our copies of its
    pipes are closed: they would keep their readers waiting.
    """
    directory, stdin, stdout, stderr = descriptors[2:6]
    try:
        # By descriptor: the folder that was checked, whatever has its name by now.
        os.fchdir(directory)
        if launch.landlock is not None:
            # Irrevocable, also for this supervisor: it only waits for the command and ends it.
            granted, tcp = launch.landlock
            landlock.restrict(landlock.Ruleset(granted, tcp=tcp, quiet=True))
        child = os.posix_spawn(
            launch.program,
            launch.argv,
            launch.environment,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, source, to)
                for to, source in enumerate((stdin, stdout, stderr))
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=process_tree.RESET_SIGNALS,
        )
    except OSError as error:
        report.send(f"failed {error.errno}")
        return None
    finally:
        os.chdir("/")
        for descriptor in descriptors[2:]:
            os.close(descriptor)
    report.send(f"started {child}")
    return child


def supervise(
    child: int,
    grace: float,
    report: Report,
    attention: process_tree.EventLoop,
    own_children: Callable[[], set[int]] = set,
) -> None:
    """Wait until the command and everything it started are gone.

    `own_children` returns children that are not the command's.
    """
    code = _wait(child, attention)
    if code is not None:
        report.send(f"exited {code}")
        _report_left(report, attention, own_children)
    late_code, alive = process_tree.end_descendants(attention, grace, child)
    if late_code is not None:
        report.send(f"exited {late_code}")
    for name in alive:
        report.send(f"alive {name}")


def _wait(child: int, attention: process_tree.EventLoop) -> int | None:
    """Return the exit code when the command has ended, None if we are asked to end it."""
    while True:
        code = process_tree.reap(child)
        if code is not None:
            return code
        if attention.wait(None):
            return None


def _report_left(
    report: Report, attention: process_tree.EventLoop, ours: Callable[[], set[int]]
) -> None:
    """Name what outlives the command, after a moment in which it may end by itself."""
    deadline = time.monotonic() + SETTLE_SECONDS
    while process_tree.has_children():
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0 or attention.wait(seconds_left):
            break
        process_tree.reap(-1)
    if not process_tree.has_children():
        return  # the usual end: no need to look through every process of the machine
    for pid, (_, name, _) in process_tree.list_descendants(os.getpid(), ours()).items():
        report.send(f"left {name} ({pid})")


def end_child(pid: int, attention: process_tree.EventLoop, seconds: float) -> int:
    """Wait for one child, which is asked to end when we are. Returns its exit code.

    It is killed `seconds` after that.
    """
    deadline: float | None = None
    while True:
        code = process_tree.reap(pid)
        if code is not None:
            return code
        if deadline is None:
            if attention.wait(None):
                deadline = time.monotonic() + seconds
            continue
        seconds_left = deadline - time.monotonic()
        if seconds_left <= 0:
            os.kill(pid, signal.SIGKILL)
        attention.pause(max(seconds_left, 0.5) if seconds_left <= 0 else seconds_left)
