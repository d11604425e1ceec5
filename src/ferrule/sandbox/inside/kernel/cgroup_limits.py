"""A control group for all commands of a server: limits for their use together. Versions 1 and 2.

The server enters it once, and what it forks is born there. One for each command would be better,
but entering a group makes every fork of the machine wait for some ten milliseconds
(cgroup_threadgroup_rwsem of the kernel).

`cgroup.py` chooses where it is made, what is written there, and where the server goes back to at
its end: a group can be removed only when it is empty.
"""

from __future__ import annotations

import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    Group = tuple[str, dict[str, str], str]
    """The folder itself, what to write to which file, the folder to go back to."""


def enter(groups: list[Group]) -> None:
    """Make the groups, unless an earlier server of the session did, and enter them.

    Raises OSError if that is refused.
    """
    for folder, values, _ in groups:
        if not os.path.isdir(folder):  # noqa: PTH112  no pathlib in here
            os.mkdir(folder)  # noqa: PTH102  no pathlib in here
        for file, value in values.items():
            _write(f"{folder}/{file}", value)
        _write(f"{folder}/cgroup.procs", str(os.getpid()))


def leave(groups: list[Group]) -> None:
    """Go back and remove the groups. One that is still in use stays."""
    for folder, _, back in groups:
        try:
            _write(f"{back}/cgroup.procs", str(os.getpid()))
        except OSError:
            continue
        remove(folder)


def remove(folder: str) -> None:
    """Remove a group. A process that ended just now can keep it busy for a moment."""
    for _ in range(20):
        try:
            os.rmdir(folder)  # noqa: PTH106  no pathlib in here
        except OSError as error:
            if error.errno != errno.EBUSY:
                return
            time.sleep(0.05)
        else:
            return


def _write(path: str, value: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, value.encode())
    finally:
        os.close(descriptor)
