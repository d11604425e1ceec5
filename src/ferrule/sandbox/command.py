"""A command on its way: what is to be started, what runs, how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ferrule.core.frozen import frozen
from ferrule.core.identity import Identity

from .inside.kernel.landlock import Granted
from .policy import Applied

Sink = Callable[[bytes], bool]
"""Takes output as it comes; False means: enough, end the program."""


@frozen
class Wall:
    """The files that a program of ours may use, held by Landlock: for it and all it starts, links
    and races included.

    A granted path that is relative begins at the command's `directory`. `tcp`: it may use TCP.
    """

    granted: tuple[Granted, ...]
    tcp: bool = False


@frozen
class Command:
    """What to start. `program` is the file to execute, `argv` its words (the first is its name).

    `directory` is a descriptor of the folder to start in; it stays the caller's and may be closed
    once `start` has returned. `output` gets standard output, and standard error too unless `errors`
    is given: only with one pipe is the order of arrival true. `stdin`: bytes, then the end; or a
    descriptor to read from. `timeout` and `grace` are seconds: SIGTERM, `grace`, SIGKILL. `timeout`
    None: until someone ends it.
    """

    argv: tuple[str, ...]
    program: str
    directory: int
    environment: Mapping[str, str]
    output: Sink
    errors: Sink | None = None
    stdin: bytes | int = b""
    timeout: float | None = None
    grace: float = 0.5
    identity: Identity | None = None
    """Who it runs for: said in the records of what it reaches."""
    wall: Wall | None = None
    """For a sandbox that holds nothing else. Where the kernel cannot hold it, the command does not
    run.
    """


@frozen
class Ended:
    """How a program ended.

    `exit_code` is None if a signal ended it (`signal` has its name) or if nobody knows. `stopped`:
    a sink had enough. `killed`: `Running.end` ended it. `left`: processes it left behind, ended by
    us; `alive`: what may still be running.
    `refused`: names that it tried to create and was not allowed to, relative to the workspace.
    `changes`: with a preview, what would change.
    """

    exit_code: int | None
    signal: str = ""
    timed_out: bool = False
    stopped: bool = False
    killed: bool = False
    duration_ms: int = 0
    left: tuple[str, ...] = ()
    alive: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    changes_cut: bool = False
    """There are more changes than are listed."""


@frozen
class Change:
    """A file that a previewed command would have `created`, `changed` or `deleted`. `name` is
    relative to the root.
    """

    name: str
    kind: str
    size: int = 0


class Running(Protocol):
    """A started command.

    Contract: the tree of processes is gone when `wait` returns, whatever held its pipes. `wait` may
    be called often and by many; cancelling one wait ends nothing. `end` is idempotent and returns
    when all is gone. If our process dies, the kernel or the launcher ends the tree.
    """

    @property
    def pid(self) -> int:
        """As seen from this process."""
        ...

    @property
    def process_group(self) -> int: ...

    @property
    def applied(self) -> Applied: ...

    async def wait(self) -> Ended: ...

    async def end(self) -> Ended: ...


@dataclass(slots=True)
class Capture:
    """A sink that keeps the first `head` and the last `tail` bytes and counts the rest."""

    head: int
    tail: int
    size: int = 0
    _first: bytearray = field(default_factory=bytearray)
    _last: bytearray = field(default_factory=bytearray)

    def __call__(self, data: bytes) -> bool:
        self.size += len(data)
        room = self.head - len(self._first)
        if room > 0:
            self._first += data[:room]
            data = data[room:]
        self._last += data
        if len(self._last) > 2 * self.tail:
            del self._last[: -self.tail]
        return True

    def text(self) -> str:
        """What was kept, as text: bytes that are not UTF-8 are replaced, a gap is said."""
        tail = bytes(self._last[-self.tail :]) if self.tail else b""
        missing = self.size - len(self._first) - len(tail)
        if not missing:
            return (bytes(self._first) + tail).decode("utf-8", "replace")
        head = whole_characters(bytes(self._first))
        while tail and tail[0] & 0xC0 == 0x80:
            tail = tail[1:]
        missing = self.size - len(head) - len(tail)
        gap = f"\n[... {missing} bytes left out ...]\n"
        return head.decode("utf-8", "replace") + gap + tail.decode("utf-8", "replace")


def whole_characters(data: bytes) -> bytes:
    """Without a UTF-8 sequence that was cut at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return data[:-back] if needed > back else data
    return data
