"""What is to be started, the started command, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.permissions.provenance import TrustedProgram

from .inside.kernel.landlock import PathRule
from .policy import AppliedProtections

OutputSink = Callable[[bytes], bool]
"""Takes output as it arrives. Returning False means that it has enough: the program is ended."""


@frozen
class LandlockAccess:
    """The files that a program of ours may use, enforced by Landlock.

    It holds for the program and everything that it starts, links and races included.

    A relative path in `rules` starts at the command's `directory`. `tcp`: it may use TCP.
    """

    rules: tuple[PathRule, ...]
    tcp: bool = False


@frozen
class Command:
    """What to start: `program` is the file to execute, `argv` its arguments, its name first.

    `directory` is a descriptor of the folder to start in; it stays the caller's and may be closed
    once `start` has returned. `output` receives standard output, and standard error too unless
    `errors` is given: only with a single pipe is the order of arrival right. `stdin` is bytes
    followed by the end of input, or a descriptor to read from. `timeout` and `grace` are in
    seconds: on a timeout comes SIGTERM, then `grace`, then SIGKILL. With `timeout` None it runs
    until somebody ends it.
    """

    argv: tuple[str, ...]
    program: str
    directory: int
    environment: Mapping[str, str]
    output: OutputSink
    errors: OutputSink | None = None
    stdin: bytes | int = b""
    timeout: float | None = None
    grace: float = 0.5
    identity: Identity | None = None
    """Who it runs for. Appears in the records of what it reaches."""


@frozen
class TrustedCommand:
    """What to start without a sandbox: a program that commands cannot write. See `Command`.

    `landlock` limits the files that it may use. Where the kernel cannot enforce that, the command
    does not run.
    """

    argv: tuple[str, ...]
    program: TrustedProgram
    directory: int
    environment: Mapping[str, str]
    output: OutputSink
    errors: OutputSink | None = None
    stdin: bytes | int = b""
    timeout: float | None = None
    grace: float = 0.5
    landlock: LandlockAccess | None = None


@frozen
class Refusal:
    """An access that the sandbox saw and refused. Nothing that a command prints makes one.

    `access` is `write` of an absolute path, `network` to a `host:port`, or `read` of the file of a
    program; `why` says what refused it. `is_final`: naming the target in the settings would not
    open it.
    """

    access: Literal["read", "write", "network"]
    target: str
    why: str
    is_final: bool = False


@frozen
class CommandResult:
    """How a command ended.

    `exit_code` is None if a signal ended it (`signal` is its name) or if nobody knows.
    `stopped_by_sink`: the output sink had enough. `killed`: it was ended by `end`.
    `leftover_processes`: those that it left behind and that were ended for it;
    `surviving_processes`: those that may still be running. `refused_names`: those that it tried to
    create and was not allowed to, relative to the workspace. `refusals`: what else the sandbox
    refused it. `changes`: with a preview, what would change. `git_hooks`: hooks of the repository
    that ran in it, as git says.
    """

    exit_code: int | None
    signal: str = ""
    timed_out: bool = False
    stopped_by_sink: bool = False
    killed: bool = False
    duration_ms: int = 0
    leftover_processes: tuple[str, ...] = ()
    surviving_processes: tuple[str, ...] = ()
    refused_names: tuple[str, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    changes: tuple[Change, ...] = ()
    changes_truncated: bool = False
    """Whether there are more changes than are listed."""
    git_hooks: tuple[str, ...] = ()


@frozen
class Change:
    """A file that a previewed command would have `created`, `changed` or `deleted`.

    `name` is relative to the workspace.
    """

    name: str
    kind: str
    size: int = 0


class RunningCommand(Protocol):
    """A started command.

    Contract: its process tree is gone when `wait` returns, whatever still held its pipes. `wait`
    may be called any number of times and concurrently; cancelling one wait ends nothing. `end` is
    idempotent and returns when everything is gone. If our process dies, the kernel or the launcher
    ends the tree.
    """

    @property
    def pid(self) -> int:
        """Process id, as seen from this process."""
        ...

    @property
    def process_group(self) -> int: ...

    @property
    def protections(self) -> AppliedProtections: ...

    async def wait(self) -> CommandResult: ...

    async def end(self) -> CommandResult: ...


@dataclass(slots=True)
class Capture:
    """An output sink that keeps the first `head` and the last `tail` bytes and counts the rest."""

    head: int
    tail: int
    size: int = 0
    _first_bytes: bytearray = field(default_factory=bytearray)
    _last_bytes: bytearray = field(default_factory=bytearray)

    def __call__(self, data: bytes) -> bool:
        self.size += len(data)
        free = self.head - len(self._first_bytes)
        if free > 0:
            self._first_bytes += data[:free]
            data = data[free:]
        self._last_bytes += data
        if len(self._last_bytes) > 2 * self.tail:
            del self._last_bytes[: -self.tail]
        return True

    def text(self) -> str:
        """Return what was kept as text.

        Bytes that are not UTF-8 are replaced; a note stands where bytes were left out.
        """
        tail = bytes(self._last_bytes[-self.tail :]) if self.tail else b""
        missing = self.size - len(self._first_bytes) - len(tail)
        if not missing:
            return (bytes(self._first_bytes) + tail).decode("utf-8", "replace")
        head = trim_partial_character(bytes(self._first_bytes))
        while tail and tail[0] & 0xC0 == 0x80:
            tail = tail[1:]
        missing = self.size - len(head) - len(tail)
        note = f"\n[... {missing} bytes left out ...]\n"
        return head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")


def trim_partial_character(data: bytes) -> bytes:
    """Return the data without a UTF-8 sequence that is cut off at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        is_continuation = byte & 0xC0 == 0x80
        if not is_continuation:
            return data[:-back] if _sequence_length(byte) > back else data
    return data


def _sequence_length(first_byte: int) -> int:
    if first_byte >= 0xF0:
        return 4
    if first_byte >= 0xE0:
        return 3
    return 2 if first_byte >= 0xC0 else 1
