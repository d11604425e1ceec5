"""One sandbox for all gits of an operation: it takes longer to start than git to read something.

A shell in the sandbox reads the gits from its standard input and runs them one after the other.
After each it prints a word that nobody can guess, so each has its own output. What a git is told to
do next can depend on what it printed before.

Programs of the repository that git starts could write into the output of the gits that follow. So
a git that may run hooks, filters and the like is not for this shell: `run` starts it in a sandbox
of its own.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.permissions.provenance import TrustedProgram
from ferrule.sandbox.command import Command, CommandResult
from ferrule.sandbox.sandbox import Sandbox

MAX_INPUT = 65_536
"""A git with more input than this, in bytes, is not for the shell."""
_SHELL = "/bin/sh"
_MAX_ERRORS = 8192
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_")


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


@dataclass(slots=True)
class _Waiting:
    """A git whose end is awaited. `limit` is in bytes of output."""

    mark: bytes
    limit: int
    ended: asyncio.Future[EndedGit]


class GitShell:
    """Runs gits in one sandbox. `close` ends it, and whatever of them still runs."""

    def __init__(
        self,
        sandbox: Sandbox,
        program: TrustedProgram,
        directory: int,
        environment: Mapping[str, str],
        identity: Identity,
    ) -> None:
        """Make a shell, which is started with the first git.

        Args:
            sandbox: What confines it.
            program: Git.
            directory: A descriptor of the folder that the gits run in.
            environment: The variables of the shell.
            identity: Who the gits run for.
        """
        self.is_over = False
        """Whether it has ended, so that another shell is needed."""
        self._sandbox = sandbox
        self._program = program
        self._directory = directory
        self._environment = environment
        self._identity = identity
        self._waiting: deque[_Waiting] = deque()
        self._unsent = b""
        self._output = bytearray()
        self._errors = bytearray()
        self._searched = 0
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._task: asyncio.Task[None] | None = None

    async def run(
        self,
        argv: tuple[str, ...],
        environment: Mapping[str, str],
        stdin: bytes,
        *,
        limit: int,
        seconds: float,
    ) -> EndedGit:
        """Run a git after those that were asked for before. If cancelled, all of them are ended.

        Args:
            argv: `git` and its arguments.
            environment: All of its variables.
            stdin: Its input.
            limit: Bytes of output after which it is ended, and the shell with it.
            seconds: Time for the shell, counted from the first git.

        Raises:
            ToolFailed: No sandbox can be started.
        """
        mark = secrets.token_hex(16)
        ended: asyncio.Future[EndedGit] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(mark.encode(), limit, ended))
        self._unsent += self._make_script(argv, environment, stdin, mark)
        self._send()
        if self._task is None:
            self._task = asyncio.create_task(self._serve(seconds))
        try:
            return await ended
        except asyncio.CancelledError:
            await self._end()
            raise

    async def close(self) -> None:
        """Let the shell end, which takes a moment."""
        self._close_writer()
        if self._task is None:
            os.close(self._reader)
            return
        try:
            await asyncio.wait([self._task])
        except asyncio.CancelledError:
            await self._end()
            raise

    async def _end(self) -> None:
        """End the shell and everything in it now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _serve(self, seconds: float) -> None:
        """Start the shell and see that every git that waits has an end."""
        try:
            ended = await self._sandbox.run(
                Command(
                    ("sh",),
                    _SHELL,
                    self._directory,
                    self._environment,
                    self._take_output,
                    self._take_errors,
                    self._reader,
                    seconds,
                    identity=self._identity,
                )
            )
        except asyncio.CancelledError:
            for one in self._waiting:
                one.ended.cancel()
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, it belongs to all that wait
            for one in self._waiting:
                if not one.ended.done():
                    one.ended.set_exception(error)
        else:
            self._settle_rest(ended)
        finally:
            self.is_over = True
            self._close_writer()
            os.close(self._reader)

    def _settle_rest(self, ended: CommandResult) -> None:
        """Say of the gits that have not ended that they ended as the shell did."""
        output = bytes(self._output)
        errors = self._errors[:_MAX_ERRORS].decode("utf-8", "replace")
        for one in self._waiting:
            if not one.ended.done():
                one.ended.set_result(EndedGit.of(ended, output, errors))
            output = b""

    def _close_writer(self) -> None:
        """Tell the shell that no git follows."""
        if self._writer >= 0:
            asyncio.get_running_loop().remove_writer(self._writer)
            os.close(self._writer)
            self._writer = -1

    def _send(self) -> None:
        """Write what the shell has not been told yet, as far as the pipe takes it."""
        loop = asyncio.get_running_loop()
        try:
            while self._unsent and self._writer >= 0:
                count = os.write(self._writer, self._unsent)
                self._unsent = self._unsent[count:]
        except BlockingIOError:
            loop.add_writer(self._writer, self._send)
            return
        except BrokenPipeError:
            self._unsent = b""  # It has ended, which is noticed elsewhere.
        if self._writer >= 0:
            loop.remove_writer(self._writer)

    def _make_script(
        self, argv: tuple[str, ...], environment: Mapping[str, str], stdin: bytes, mark: str
    ) -> bytes:
        """Return what the shell runs for a git."""
        known = self._environment
        differing = (f"{name}=" for name, value in environment.items() if known.get(name) != value)
        assignments = [f"{name}{shlex.quote(environment[name[:-1]])}" for name in differing]
        command = " ".join([*assignments, shlex.join((str(self._program), *argv[1:]))])
        superfluous = [name for name in known if name not in environment]
        if superfluous:
            command = f"(unset {' '.join(superfluous)}; {command})"
        given = f"printf '{_quote_format(stdin)}' |" if stdin else ""
        nothing = "" if stdin else "</dev/null"
        ended = f"printf '\\n{mark} %s\\n' $?; printf '\\n{mark}\\n' >&2"
        return os.fsencode(f"{given} {command} {nothing}; {ended}\n")

    def _take_output(self, data: bytes) -> bool:
        self._output += data
        self._settle()
        return not self._waiting or len(self._output) <= self._waiting[0].limit

    def _take_errors(self, data: bytes) -> bool:
        self._errors += data
        self._settle()
        surplus = len(self._errors) - 2 * _MAX_ERRORS
        if surplus > 0:
            # The end stays: the word that is waited for may have come in part.
            del self._errors[_MAX_ERRORS : _MAX_ERRORS + surplus]
        return True

    def _settle(self) -> None:
        """Give their results to the gits whose output and complaints are complete."""
        while self._waiting:
            one = self._waiting[0]
            first = b"\n%s " % one.mark
            found = self._output.find(first, self._searched)
            if found < 0:
                self._searched = max(0, len(self._output) - len(first))
                return
            self._searched = found
            end = self._output.find(b"\n", found + len(first))
            last = b"\n%s\n" % one.mark
            complained = self._errors.find(last)
            if end < 0 or complained < 0:
                return
            code = int(self._output[found + len(first) : end])
            complaint = self._errors[: min(complained, _MAX_ERRORS)].decode("utf-8", "replace")
            result = EndedGit(code, bytes(self._output[:found]), complaint.strip())
            del self._output[: end + 1]
            del self._errors[: complained + len(last)]
            self._searched = 0
            self._waiting.popleft()
            if not one.ended.done():
                one.ended.set_result(result)


def _quote_format(data: bytes) -> str:
    """Return bytes as a format of printf(1) that prints them, without a quote in it."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in data)
