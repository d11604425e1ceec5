"""Clears the way for mounts in the folders of a session that commands can write.

The home and `/tmp` of a session's commands are folders of its own, and parts of the machine's are
mounted below them. A command may have left a link, a file or a folder there that no mount fits on,
or that would lead it elsewhere. That is moved aside, under a name that says so.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from itertools import count

from .layout import SessionPaths, Step

_ASIDE = "moved-aside"


def clear_mount_points(steps: Iterable[Step], home: str, places: SessionPaths) -> None:
    """Move aside what is in the way of steps that mount something in the session's own folders.

    Args:
        steps: The steps of the session.
        home: The person's home folder, which commands see the session's in place of.
        places: The folders of the session.
    """
    own = ((home, places.home), ("/tmp", places.tmp), ("/var/tmp", places.tmp))
    for action, place, source in steps:
        if action not in ("read", "write"):
            continue
        for seen, folder in own:
            if place.startswith(f"{seen}/"):
                _clear(folder, place[len(seen) + 1 :].split("/"), is_folder=os.path.isdir(source))  # noqa: PTH112  text, as all of them


def clear_folders_above(folder: str, name: str) -> None:
    """Move aside what is no folder and is in the way to a name in a folder."""
    _clear(folder, name.split("/")[:-1], is_folder=True)


def _clear(folder: str, parts: list[str], *, is_folder: bool) -> None:
    for place, is_last in _list_steps(folder, parts):
        try:
            mode = os.lstat(place).st_mode
        except OSError:
            return  # nothing is in the way
        fits = stat.S_ISDIR(mode) if is_folder or not is_last else stat.S_ISREG(mode)
        if not fits:
            _move_aside(place)
            return


def _list_steps(folder: str, parts: list[str]) -> Iterator[tuple[str, bool]]:
    for depth in range(1, len(parts) + 1):
        yield "/".join([folder, *parts[:depth]]), depth == len(parts)


def _move_aside(place: str) -> None:
    for number in count(1):
        aside = f"{place}.{_ASIDE}-{number}"
        if not os.path.lexists(aside):
            os.rename(place, aside)  # noqa: PTH104  text, as all of them
            return
