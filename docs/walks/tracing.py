"""Records which functions of `ferrule` are entered while something is executed."""

from __future__ import annotations

import dis
import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
PACKAGE = FOLDER.parents[1] / "src" / "ferrule"


class Entry(NamedTuple):
    """A function that was entered, or a coroutine that went on after it had waited."""

    file: str
    """Relative to the package; relative to `docs` for a function of the walk itself."""
    function: str
    goes_on: bool = False

    @property
    def path(self) -> Path:
        return (FOLDER.parent if self.is_of_walk else PACKAGE) / self.file

    @property
    def is_of_walk(self) -> bool:
        """Whether it is a function of the walk, such as its tool, and not of the package."""
        return self.file.startswith(f"{FOLDER.name}/")


class Tracer:
    """Records which functions of the package are entered, in every thread of this process."""

    def __init__(self) -> None:
        self.records: dict[str, list[Entry]] = {}
        self._current: list[Entry] | None = None

    def install(self) -> None:
        """See every call from now on. Threads that run already are not seen."""
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    @contextmanager
    def record(self, name: str) -> Iterator[None]:
        """Keep a record of what is entered in this context."""
        self.records[name] = []
        self._current = self.records[name]
        try:
            yield
        finally:
            self._current = None

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and self._current is not None:
            entry = describe(frame)
            if entry is not None:
                self._current.append(entry)


def describe(frame: FrameType) -> Entry | None:
    """Return what a frame that runs from here is; None for what is not a function of ours."""
    code = frame.f_code
    file = _file(code.co_filename)
    function = code.co_qualname
    is_function = code.co_flags & inspect.CO_OPTIMIZED
    if not file or not is_function or function.rpartition(".")[2].startswith("<"):
        return None
    return Entry(file, function, frame.f_lasti > _beginning(code))


@cache
def _file(name: str) -> str:
    """Return a file as in `Entry.file`; "" if it is neither of the package nor of a walk."""
    path = Path(name)
    if path.is_relative_to(PACKAGE):
        return path.relative_to(PACKAGE).as_posix()
    return path.relative_to(FOLDER.parent).as_posix() if path.is_relative_to(FOLDER) else ""


@cache
def _beginning(code: CodeType) -> int:
    """Return the offset at which a function begins; behind it, a coroutine goes on."""
    found = (one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")
    return next(found, 0)
