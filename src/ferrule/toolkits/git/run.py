"""Runs git for typed operations: one program, repository and time limit, and whole outputs.

Decisions about files and commits are made by what git prints, so an output that does not fit is an
error here, never a shorter result.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.provenance import TrustedProgram
from ferrule.sandbox.command import Capture, LandlockAccess, TrustedCommand
from ferrule.toolkits.commands.start import find_command_writable
from ferrule.toolkits.process import find_installed, run_process
from ferrule.tools.context import Context

from .refs import check_revision

MAX_SECONDS = 120.0
"""Time for one operation, in seconds."""
_WRITE_FILES = ("switch", "merge", "rebase")
MAX_OUTPUT = 32 * 1024 * 1024
"""Bytes that one git may print."""


@frozen
class GitResult:
    """The result of one git: status, output, and complaints without our own folders in them."""

    argv: tuple[str, ...]
    code: int
    output: bytes
    complaint: str

    @property
    def text(self) -> str:
        """The output as text; bytes that are not UTF-8 are replaced."""
        return self.output.decode("utf-8", "replace")

    def names(self) -> list[str]:
        """Return the output of `-z` as names of files."""
        return [os.fsdecode(name) for name in self.output.split(b"\0") if name]


@dataclass(slots=True)
class GitRunner:
    """Git in one repository.

    `environment` is all that git gets, `wall` the files that it may use; `deadline` is the loop's
    time at which it is ended.
    """

    program: TrustedProgram
    directory: int
    environment: dict[str, str]
    wall: LandlockAccess | None
    workspace: Workspace
    deadline: float
    config: bytes = b""
    """The real configuration, as data; empty where git works on a workbench."""
    results: list[GitResult] = field(default_factory=list[GitResult])
    """The runs so far, for receipts."""

    async def run(self, *arguments: str, stdin: bytes = b"") -> GitResult:
        """Run git. Raises ToolFailed if it takes too long or prints more than `MOST` bytes."""
        output = bytearray()
        errors = Capture(8192, 0)

        def keep(data: bytes) -> bool:
            output.extend(data)
            return len(output) <= MAX_OUTPUT

        argv = ("git", "--no-pager", "--no-optional-locks", "--literal-pathspecs", *arguments)
        command = TrustedCommand(
            argv,
            program=self.program,
            directory=self.directory,
            environment=self.environment,
            output=keep,
            errors=errors,
            stdin=stdin,
            timeout=max(0.1, self.deadline - asyncio.get_running_loop().time()),
            landlock=self.wall,
        )
        ended = await run_process(command)
        if ended.timed_out:
            message = f"`git {arguments[0]}` was ended: the time for it was over"
            if arguments[0] in _WRITE_FILES:
                message += "; files that it had changed by then stay changed: look at `git_status`"
            raise ToolFailed(ErrorType.TIMEOUT, message)
        if ended.stopped_by_sink:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"`git {arguments[0]}` printed more than {MAX_OUTPUT} bytes; ask for less, or name "
                f"paths",
            )
        complaint = errors.text().replace(self.environment["GIT_DIR"], ".git").strip()
        code = 128 if ended.exit_code is None else ended.exit_code
        ran = GitResult(argv, code, bytes(output), complaint)
        self.results.append(ran)
        return ran

    async def run_checked(self, *arguments: str, stdin: bytes = b"") -> GitResult:
        """Run git, which has to succeed. Raises ToolFailed(io_error) with its complaint."""
        ran = await self.run(*arguments, stdin=stdin)
        if ran.code:
            raise ToolFailed(
                ErrorType.IO_ERROR,
                f"`git {arguments[0]}` failed: {ran.complaint or f'exit status {ran.code}'}",
            )
        return ran

    async def find_commit(self, name: str) -> str | None:
        """Return the id of the commit that a name stands for, or None.

        The name reaches git only on its standard input.
        """
        ran = await self.run(
            "cat-file",
            "--batch-check=%(objectname) %(objecttype)",
            stdin=f"{name}^{{commit}}\n".encode(),
        )
        found = re.fullmatch(r"([0-9a-f]{40,64}) commit\n", ran.text)
        return found[1] if found else None

    async def resolve_commit(self, name: str, parameter: str = "rev") -> str:
        """Return the id of a commit as a model names it.

        Raises:
            ToolFailed: It is not a name, or there is no such commit.
        """
        check_revision(name, parameter)
        found = await self.find_commit(name)
        if found is None:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"`{parameter}` = `{name}` is not a commit of this repository; "
                "`git_log` lists them",
            )
        return found

    async def find_head_tree(self) -> str:
        """Return `HEAD`, or the id of the empty tree if there is no commit yet: for comparisons."""
        if await self.find_commit("HEAD"):
            return "HEAD"
        empty_tree = await self.run_checked("hash-object", "-t", "tree", "--stdin")
        return empty_tree.text.strip()


def find_git(context: Context) -> TrustedProgram:
    """Return git. Raises ToolFailed if there is none where commands cannot write."""
    return find_installed(["git"], find_command_writable(context), "`apt install git`")


def compute_deadline(context: Context) -> float:
    """Return the loop's time at which an operation must end: a little before its call."""
    return asyncio.get_running_loop().time() + min(
        MAX_SECONDS, 0.9 * (context.deadline or MAX_SECONDS)
    )
