"""Commands for the tests of this folder, and ways to watch what became of them by the kernel's own
means.
"""

from __future__ import annotations

import gc
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ferrule.sandbox.command import Command, CommandResult, OutputSink
from ferrule.sandbox.sandbox import Sandbox


@dataclass
class Text:
    """A sink that keeps everything."""

    data: bytearray = field(default_factory=bytearray)

    def __call__(self, data: bytes) -> bool:
        self.data += data
        return True

    def __str__(self) -> str:
        return self.data.decode("utf-8", "replace")


@contextmanager
def opened(folder: str | os.PathLike[str]) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def shell(
    script: str,
    directory: int,
    *,
    output: OutputSink | None = None,
    timeout: float | None = 60,
    stdin: bytes | int = b"",
    environment: dict[str, str] | None = None,
    grace: float = 0.1,
) -> Command:
    """A command line for a real shell."""
    return Command(
        ("sh", "-c", script),
        program="/bin/sh",
        directory=directory,
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin", **(environment or {})},
        output=output or (lambda data: True),
        stdin=stdin,
        timeout=timeout,
        grace=grace,
    )


async def says(
    sandbox: Sandbox, script: str, folder: str | os.PathLike[str] = "/", **how: object
) -> tuple[CommandResult, str]:
    """Run a command line: how it ended, and what it said."""
    text = Text()
    with opened(folder) as directory:
        ended = await sandbox.run(shell(script, directory, output=text, **how))  # pyright: ignore[reportArgumentType]
    return ended, str(text)


class Watch:
    """A sink that takes hold of the process whose id comes first, and then does as told."""

    def __init__(self, then: Callable[[], object] = lambda: True) -> None:
        self.handle = -1
        self._then = then
        self._text = b""

    def __call__(self, data: bytes) -> bool:
        self._text += data
        if self.handle < 0 and b"\n" in self._text:
            self.handle = os.pidfd_open(int(self._text.split()[0]))
            self._then()
        return True

    def __del__(self) -> None:
        if self.handle >= 0:
            os.close(self.handle)

    def then(self, call: Callable[[], object]) -> None:
        self._then = call

    def said(self) -> str:
        return self._text.decode()

    def ended(self, milliseconds: int = 10_000) -> bool:
        """A pidfd becomes readable when its process has ended. Bounded."""
        assert self.handle >= 0, "the process never said its id"
        poll = select.poll()
        poll.register(self.handle, select.POLLIN)
        over = bool(poll.poll(milliseconds))
        os.close(self.handle)
        self.handle = -1
        return over


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or goes within ten seconds."""
    watch = Watch()
    try:
        watch.handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    return watch.ended()


def below(pid: int, most: int = 1) -> list[str]:
    """Children of a process, zombies among them; looked at again, for ten seconds at most, until
    there are so few.

    One is usual: the supervisor that waits for the next command.
    """
    children = Path(f"/proc/{pid}/task/{pid}/children")
    found: list[str] = []
    for _ in range(1000):
        found = children.read_text().split()
        if len(found) <= most:
            break
        select.select([], [], [], 0.01)
    return found


def descriptors() -> list[str]:
    """What this process has open, without what earlier tests left for the collector: it would
    vanish between two counts.
    """
    gc.collect()
    return sorted(os.listdir("/proc/self/fd"))
