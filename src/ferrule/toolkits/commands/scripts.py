"""`CommandRunner`: the tools' own way to a child process, for programs instead of models.

The commands of a script and those of a model use the same checks, sandbox and files: give both the
same `memory` (`Context.memory`) and `identity`, and they share ids, paths and readers. Only the
defaults differ, since here the author of the program decides what runs: shells are allowed, and
results are long.

Without a `sandbox`, and without `confine` in the policy, nothing restricts a command except its
timeout, as with `subprocess`.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol
from uuid import uuid4

from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.engine.closed_by_with import ClosedByAsyncWith
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.sandbox.command import Command
from ferrule.sandbox.running_command import Execution
from ferrule.sandbox.sandbox import Sandbox
from ferrule.tools.context import Context

from .full_command_tools import make_run_command_tool
from .policy import CommandOptions, CommandPolicy
from .record import make_record
from .request import CommandRequest
from .runner import ReadyCommand, launch, make_display_limits, prepare, wait_for_command
from .session_commands import CommandHandle, SessionCommands
from .start import get_sandbox

Record = dict[str, Any]
"""The result of a command, as `record.py` describes it; JSON values only."""

DEFAULT_INLINE_BYTES = 1024 * 1024
"""Bytes of each output that a record shows unless the request says otherwise."""
_MAX_INLINE = 64 * 1024 * 1024
_MAX_PENDING = 1024 * 1024
"""Bytes that a slow reader of a stream may lag behind before it misses some; the files have all."""


class Runner(Protocol):
    """Runs one request to its end.

    `request` has the arguments of the full `run_command` and may have `tail_bytes`: how many bytes
    of the end of the output the record has as `tail`.

    Contract: a command that fails, times out, is refused or cannot be started is a record
    (`success` False), not an exception; when cancelled, the command is ended first.
    """

    async def __call__(self, request: Mapping[str, Any]) -> Record: ...


class CommandRunner(ClosedByAsyncWith):
    """Runs commands in `root` and below.

    Use it with `async with`, or close it: that ends running commands and removes the files. It
    belongs to one event loop at a time.
    """

    def __init__(
        self,
        root: str | Path | Workspace = ".",
        *,
        policy: CommandPolicy | None = None,
        options: CommandOptions | None = None,
        sandbox: Sandbox | None = None,
        identity: Identity | None = None,
        memory: dict[str, Any] | None = None,
    ) -> None:
        self._workspace = root if isinstance(root, Workspace) else Workspace(Path(root))
        # The author of a script wrote what it runs, so commands have the author's rights unless a
        # policy says otherwise.
        self._policy = policy or CommandPolicy(
            shell_allowed=True, result_bytes=2 * _MAX_INLINE, on_missing_protection="off"
        )
        self._options = options or CommandOptions(
            max_inline_bytes=_MAX_INLINE, output_format="value"
        )
        self._sandbox = sandbox
        self._identity = identity or Identity(
            "local", "script", f"script_{uuid4().hex[:12]}", "script"
        )
        self._memory: dict[str, Any] = {} if memory is None else memory
        self._tool = make_run_command_tool(self._options)

    async def __call__(self, request: Mapping[str, Any]) -> Record:
        """Run a request; see `Runner`."""
        return await self._run(request)

    async def stream(self, request: Mapping[str, Any]) -> AsyncIterator[Record]:
        """Run a request and yield its output as it comes.

        First `{"type": "output", "stream": "stdout" | "stderr", "text": ...}` for each piece
        (`skipped`: bytes that a slow reader missed before it), then `{"type": "result",
        "record": ...}`. Leaving early ends the command.
        """
        pieces = _Pieces()
        task = asyncio.ensure_future(self._run(request, pieces))
        task.add_done_callback(pieces.finish)
        try:
            async for piece in pieces:
                yield piece
            yield {"type": "result", "record": await task}
        finally:
            if not task.done():
                task.cancel()
            await asyncio.wait([task])

    async def wait(self, command_id: str, timeout_ms: int = 60_000) -> Record:
        """Return the record of a command in the background when it ends, or after this time.

        Raises:
            ToolFailed: `not_found` if there is no such command.
        """
        handle = self._commands.find(command_id, self._identity)
        await handle.wait(timeout_ms / 1000)
        return self._record(handle, DEFAULT_INLINE_BYTES, 0)

    async def cancel(self, command_id: str) -> bool:
        """End a command. Return False if it is unknown or has already ended."""
        try:
            handle = self._commands.find(command_id, self._identity)
        except ToolFailed:
            return False
        return await self._commands.kill(handle)

    async def close(self) -> None:
        """End running commands and remove what was kept. The runner can be used again."""
        await self._commands.close()

    @property
    def _commands(self) -> SessionCommands:
        return SessionCommands.from_context(self._context())

    def _context(self, sandbox: Sandbox | None = None) -> Context:
        chosen = sandbox or self._sandbox
        resources: dict[type, object] = {Workspace: self._workspace, CommandPolicy: self._policy}
        if chosen is not None:
            resources[Sandbox] = chosen
        return Context(
            self._identity, f"script_{uuid4().hex[:12]}", memory=self._memory, resources=resources
        )

    async def _run(self, request: Mapping[str, Any], pieces: _Pieces | None = None) -> Record:
        context = self._context()
        given = dict(request)
        if pieces is not None:
            sandbox = await get_sandbox(context, self._commands)
            context = self._context(_WatchedSandbox(sandbox, pieces))
        tail = int(given.pop("tail_bytes", 0))
        capture = dict(given.pop("capture", None) or {})
        given["capture"] = {"max_inline_bytes": DEFAULT_INLINE_BYTES, **capture}
        try:
            ready = await prepare(given, context, self._options, self._tool)
            if not isinstance(ready, ReadyCommand):
                return ready.value
            inline = ready.request.max_inline_bytes
            copy = self._options.preserve_filtered_output
            handle = await launch(ready, context, keep=max(inline, tail), copy=copy)
            await wait_for_command(handle, ready.request, context)
        except ToolFailed as failure:
            return make_not_started_record(given, failure)
        return {**self._record(handle, inline, tail), **_command_fields(ready.request)}

    def _record(self, handle: CommandHandle, inline: int, tail: int) -> Record:
        record = make_record(handle, make_display_limits(self._context(), self._options, inline))
        record["stdout_bytes"] = handle.outputs.stdout.size
        record["tail"] = handle.outputs.combined.tail(tail) if tail else ""
        return record


def _command_fields(request: CommandRequest) -> Record:
    words = {"command": request.text} if request.text else {"argv": list(request.argv)}
    return {**words, "cwd": request.cwd}


def make_not_started_record(request: Mapping[str, Any], failed: ToolFailed) -> Record:
    """Return the record of a request that never became a process.

    It was not allowed, not understood, or there is no such program.
    """
    return {
        "status": "not_started",
        "success": False,
        "exit_code": None,
        "timed_out": False,
        "stdout": "",
        "stderr": "",
        "error_type": str(failed.error_type),
        "error": failed.message,
        **{key: request[key] for key in ("command", "argv", "cwd") if key in request},
    }


class _WatchedSandbox(Sandbox):
    """A sandbox that starts commands by another one and copies their output."""

    def __init__(self, inner: Sandbox, pieces: _Pieces) -> None:
        # The base class is not initialised: everything but `start` is the other sandbox's.
        self._inner = inner
        self._pieces = pieces

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def start(self, command: Command) -> Execution:
        errors = command.errors
        watched = replace(
            command,
            output=self._tee("stdout", command.output),
            errors=None if errors is None else self._tee("stderr", errors),
        )
        return await self._inner.start(watched)

    def _tee(
        self, stream: Literal["stdout", "stderr"], sink: Callable[[bytes], bool]
    ) -> Callable[[bytes], bool]:
        def take(data: bytes) -> bool:
            self._pieces.add(stream, data)
            return sink(data)

        return take


class _Pieces:
    """Output on its way from a sink, which cannot wait, to a reader, which may be slow."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, bytes]] = []
        self._size = 0
        self._skipped = 0
        self._news = asyncio.Event()
        self._over = False
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {name: decoder("replace") for name in ("stdout", "stderr")}

    def add(self, stream: str, data: bytes) -> None:
        self._waiting.append((stream, data))
        self._size += len(data)
        while self._size > _MAX_PENDING and len(self._waiting) > 1:
            lost = len(self._waiting.pop(0)[1])
            self._size -= lost
            self._skipped += lost
        self._news.set()

    def finish(self, task: asyncio.Future[Record]) -> None:
        self._over = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            await self._news.wait()
            self._news.clear()
            over = self._over
            waiting = self._waiting
            self._waiting = []
            self._size = 0
            for stream, data in waiting:
                text = self._decoders[stream].decode(data)
                skipped = self._skipped
                self._skipped = 0
                if not text and not skipped:
                    continue
                piece: Record = {"type": "output", "stream": stream, "text": text}
                if skipped:
                    piece["skipped"] = skipped
                yield piece
            if over:
                return
