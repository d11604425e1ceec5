"""Journal files that are open although no session is written: only the last few stay open.

A journal keeps its file open after its last session was released, because opening it again costs
more than a run does. A program that makes a journal for each request, and leaves closing it to the
garbage collector, would run out of descriptors long before that comes.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from ferrule.tools.forking import make_lock

MAX_IDLE_FILES = 8
"""Maximum number of idle files that stay open, each with three descriptors."""


class IdleFile(Protocol):
    """A file that can be closed while nobody needs it; its owner opens it again."""

    def close_idle(self) -> bool:
        """Close the file. Return whether it is closed: not if it is needed just now."""
        ...


class IdleFiles:
    """The idle files of a process, the one that was used last at the end. Thread-safe."""

    def __init__(self, most: int = MAX_IDLE_FILES) -> None:
        self._most = most
        self._lock = make_lock()
        self._files: weakref.WeakKeyDictionary[IdleFile, None] = weakref.WeakKeyDictionary()

    def add(self, file: IdleFile) -> None:
        """Take note that a file is idle, and close the one that has been for the longest time."""
        with self._lock:
            self._files.pop(file, None)
            self._files[file] = None
            oldest = None
            if len(self._files) > self._most:
                oldest = next(iter(self._files.keys()))
                self._files.pop(oldest)
        if oldest is not None and not oldest.close_idle():
            with self._lock:
                self._files[oldest] = None

    def discard(self, file: IdleFile) -> None:
        """Take note that a file is in use, or closed."""
        with self._lock:
            self._files.pop(file, None)


IDLE_FILES = IdleFiles()
"""Those of the journals of this process."""
