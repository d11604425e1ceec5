"""Several gits in one sandbox: it takes longer to start than git to read something.

A shell runs gits that read and were asked for at the same moment, one after the other. Between
their outputs it prints a word that nobody can guess, so each has its own.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
from collections.abc import Mapping
from typing import Protocol

from ferrule.core.value_class import frozen
from ferrule.sandbox.command import Capture, CommandResult, OutputSink

MAX_INPUT = 4096
"""A git with more input than this runs alone."""
_SHELL = "/bin/sh"
_MAX_ERRORS = 8192


class StartGit(Protocol):
    """Starts a program as git is started, and returns how it ended."""

    async def __call__(
        self,
        argv: tuple[str, ...],
        program: str,
        environment: Mapping[str, str],
        output: OutputSink,
        errors: OutputSink,
        stdin: bytes,
    ) -> CommandResult:
        """Run the program to its end."""
        ...


@frozen
class EndedGit:
    """How one git ended."""

    code: int
    output: bytes
    complaint: str
    hooks: tuple[str, ...] = ()
    timed_out: bool = False
    stopped_by_sink: bool = False

    @staticmethod
    def of(ended: CommandResult, output: bytes, complaint: str) -> EndedGit:
        return EndedGit(
            128 if ended.exit_code is None else ended.exit_code,
            output,
            complaint.strip(),
            ended.git_hooks,
            ended.timed_out,
            ended.stopped_by_sink,
        )


class GitBatch:
    """Gits that are asked for at the same moment and share a sandbox."""

    def __init__(
        self, start: StartGit, program: str, environment: Mapping[str, str], limit: int
    ) -> None:
        """Make an empty batch.

        Args:
            start: Starts a program in the sandbox.
            program: Git.
            environment: The variables of all of them.
            limit: Bytes that all of them may print.
        """
        self.environment = environment
        self.is_open = True
        self._start_program = start
        self._program = program
        self._limit = limit
        self._runs: list[tuple[tuple[str, ...], bytes, asyncio.Future[EndedGit]]] = []
        self._task: asyncio.Task[None] | None = None

    async def run(self, argv: tuple[str, ...], stdin: bytes) -> EndedGit:
        """Run a git with those that are asked for before the loop is idle again.

        If the caller is cancelled, all of them are ended.
        """
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[EndedGit] = loop.create_future()
        self._runs.append((argv, stdin, waiting))
        if self._task is None:
            self._task = loop.create_task(self._run())
        try:
            return await waiting
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait([self._task])
            raise

    async def _run(self) -> None:
        # Whoever waits for several at once may begin one of them a round later.
        await asyncio.sleep(0)
        self.is_open = False
        try:
            ended = await self._start()
        except asyncio.CancelledError:
            for _, _, waiting in self._runs:
                waiting.cancel()
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to all that wait
            for _, _, waiting in self._runs:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        for (_, _, waiting), one in zip(self._runs, ended, strict=True):
            if not waiting.done():
                waiting.set_result(one)

    async def _start(self) -> list[EndedGit]:
        output = bytearray()
        errors = Capture(_MAX_ERRORS * len(self._runs), 0)

        def take(data: bytes) -> bool:
            output.extend(data)
            return len(output) <= self._limit

        if len(self._runs) == 1:
            argv, stdin, _ = self._runs[0]
            program = self._program
            mark = ""
        else:
            mark = secrets.token_hex(16)
            argv = ("sh", "-c", self._make_script(mark))
            stdin = b""
            program = _SHELL
        ran = await self._start_program(argv, program, self.environment, take, errors, stdin)
        if not mark:
            return [EndedGit.of(ran, bytes(output), errors.text())]
        return self._split(ran, bytes(output), errors.text(), mark)

    def _make_script(self, mark: str) -> str:
        lines: list[str] = []
        for argv, stdin, _ in self._runs:
            command = shlex.join((str(self._program), *argv[1:]))
            text = shlex.quote(os.fsdecode(stdin))
            lines.append(f"printf %s {text} | {command}; printf '\\n{mark} %s\\n' $?")
            lines.append(f"printf '\\n{mark}\\n' >&2")
        return "\n".join(lines)

    def _split(
        self, ran: CommandResult, output: bytes, complaints: str, mark: str
    ) -> list[EndedGit]:
        """Return how each git ended. Those that were not reached ended as the batch did."""
        parts = output.split(f"\n{mark} ".encode())
        texts = complaints.split(f"\n{mark}\n")
        ended: list[EndedGit] = []
        rest = parts[0]
        for number in range(len(self._runs)):
            text = texts[number] if number < len(texts) else ""
            if number + 1 >= len(parts):
                ended.append(EndedGit.of(ran, rest, text))
                rest = b""
                continue
            code, _, following = parts[number + 1].partition(b"\n")
            ended.append(EndedGit(int(code), rest, text.strip()))
            rest = following
        return ended
