"""Command hooks: programs that read an event as JSON and answer with exit code and standard output.

    exit 0     standard output is parsed as the contract says (`claude_contract`)
    exit 2     blocked; standard error is the reason
    others     broken: not found (127), not executable (126), a crash, a signal, a timeout

Commands run in a sandbox of their own (`sandbox`): they see the workspace, the system and the
programs that the person's commands need, and reach no network. They get the person's variables,
those apart that look like secrets and are not let through, and a home of the session's own, where
what they keep lasts as long as the session. `$FERRULE_HOOKS` is a folder with a copy of the files
in the trusted `.ferrule/hooks` and `.harness/hooks`: as they were trusted, whatever has happened to
the originals since. The originals are hidden from the sandbox, as no tool may touch them.

Not protected: a hook whose program is an ordinary file of the workspace can be rewritten by whoever
may write there, and a secret in a variable with an ordinary name is seen by hooks.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.engine.hooks.events import Action, NotJson, Occasion
from ferrule.permissions.child_environment import (
    DEFAULT_PATH,
    filter_environment,
    is_secret_variable,
)
from ferrule.sandbox.backends.selection import SandboxBackend
from ferrule.sandbox.command import Capture, Command, CommandResult, OutputSink
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.running_command import Execution
from ferrule.sandbox.sandbox import Sandbox

from .claude_contract import HookQuestion

MAX_OUTPUT = 64 * 1024
"""Bytes of standard output and of standard error.

A hook with more is broken, since its answer would be cut.
"""
SHELL = "/bin/sh"
_BASH = "/bin/bash"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class HookCommandRunner:
    """Runs the commands of hooks in one workspace.

    Nothing is created before the first command. `close` releases everything; a process that forgets
    it does so when it exits.

    Args:
        root: The workspace.
        files: The trusted files for `$FERRULE_HOOKS`, by path below it.
        policy: The sandbox policy. Default: the workspace, and no network.
        backend: The sandbox backend. Default: the best one available.
        readable: A further folder that the hooks read, `~/.claude` for those that live there.
        variables: Variables for the hooks, which their settings file sets.
        passed_on: Names of variables that hooks get although they look like secrets.
    """

    def __init__(
        self,
        root: str | Path,
        files: Mapping[str, bytes] | None = None,
        *,
        policy: SandboxPolicy | None = None,
        backend: SandboxBackend | None = None,
        readable: Path | None = None,
        variables: Mapping[str, str] | None = None,
        passed_on: Sequence[str] = (),
    ) -> None:
        self._root = Path(root).resolve()
        self._files = dict(files or {})
        self._policy = policy
        self._backend = backend
        self._readable = readable
        self._variables = dict(variables or {})
        self._passed_on = tuple(passed_on)
        # People write hooks for bash; where there is none, the plain shell has to do.
        self._shell = _BASH if Path(_BASH).exists() else SHELL
        self._background: set[asyncio.Task[Action]] = set()
        self._folder: Path | None = None
        self._sandbox: Sandbox | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start_lock = asyncio.Lock()

    async def ask(
        self, command: str | Sequence[str], question: HookQuestion, timeout: float
    ) -> Action:
        """Let a command judge an event.

        Raises FerruleError, ToolFailed or NotJson if the command is broken.
        """
        out = Capture(MAX_OUTPUT, 0)
        errors = Capture(MAX_OUTPUT, 0)
        stdin = json.dumps(question.build_input(), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        ended = await self.run(command, question.occasion, stdin, out, errors, timeout)
        if out.size > MAX_OUTPUT:
            raise NotJson(f"it wrote {out.size} bytes, the bound is {MAX_OUTPUT}")
        if ended.timed_out:
            raise NotJson(f"no answer within {timeout:g} s")
        if ended.exit_code == 0:
            return question.parse_output(out.text())
        if ended.exit_code == 2:
            return question.block_with_reason(errors.text() or out.text())
        raise NotJson(_failure(ended, errors.text()))

    def start(self, command: str | Sequence[str], question: HookQuestion, timeout: float) -> None:
        """Tell a command of an event without waiting for it. What it answers has no effect."""
        task = asyncio.ensure_future(self.ask(command, question, timeout))
        self._background.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Action]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # Nobody waits for it: it is not to be reported as lost.

    async def run(
        self,
        command: str | Sequence[str],
        occasion: Occasion,
        stdin: bytes,
        out: Capture,
        errors: Capture,
        timeout: float,
        variables: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a command in the sandbox of hooks, in the workspace, with further `variables`.

        Raises:
            ToolFailed: It cannot be started.
            FerruleError: There is no sandbox for it.
        """
        execution = await self.launch(command, occasion, stdin, out, errors, timeout, variables)
        try:
            return await execution.wait()
        finally:
            # Shielded: a second cancellation must not leave the first one's work half done.
            await asyncio.shield(execution.end())

    async def launch(
        self,
        command: str | Sequence[str],
        occasion: Occasion,
        stdin: bytes | int,
        out: OutputSink,
        errors: OutputSink,
        timeout: float | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Execution:
        """Start a command as `run` does and return while it runs. `close` ends it at the latest.

        Raises:
            ToolFailed: It cannot be started.
            FerruleError: There is no sandbox for it.
        """
        sandbox = await self._start_sandbox()
        argv = (self._shell, "-c", command) if isinstance(command, str) else tuple(command)
        program = self._shell if isinstance(command, str) else self._program(argv[0])
        directory = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await sandbox.start(
                Command(
                    argv,
                    program=program,
                    directory=directory,
                    environment={**self._environment(occasion), **(variables or {})},
                    output=out,
                    errors=errors,
                    stdin=stdin,
                    timeout=timeout,
                    identity=occasion.identity,
                )
            )
        finally:
            os.close(directory)

    def _program(self, name: str) -> str:
        if "/" in name:
            return name
        path = shutil.which(name, path=os.environ.get("PATH", DEFAULT_PATH))
        if path is None:
            raise ToolFailed(ErrorType.NOT_FOUND, f"there is no program `{name}`")
        return path

    def _environment(self, occasion: Occasion) -> Mapping[str, str]:
        ordinary = (
            name
            for name in os.environ
            if _VARIABLE.fullmatch(name) and not is_secret_variable(name)
        )
        variables = {
            **self._variables,
            "FERRULE_HOOKS": str(self._folder or ""),
            "FERRULE_PROJECT_DIR": str(self._root),
            "CLAUDE_PROJECT_DIR": str(self._root),
            "CLAUDE_SESSION_ID": occasion.identity.session,
            "FERRULE_EVENT": occasion.event,
        }
        return filter_environment(
            os.environ, add=(*ordinary, *self._passed_on), overrides=variables
        ).values

    def _make_policy(self, folder: Path) -> SandboxPolicy:
        policy = self._policy or SandboxPolicy(self._root)
        readable = [*policy.readable, str(folder)]
        names = policy.names
        if self._readable is not None and self._readable.is_dir():
            readable.append(str(self._readable))
            names = names.extend(secret=(".credentials.json",))
        return replace(policy, readable=tuple(readable), names=names)

    async def _start_sandbox(self) -> Sandbox:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The old loop is gone, and with it what watched the sandbox's commands.
            self._close_sandbox()
            self._loop = loop
            self._start_lock = asyncio.Lock()
        async with self._start_lock:
            if self._sandbox is None:
                folder = self._folder = self._folder or self._copy_files()
                self._sandbox = Sandbox(self._make_policy(folder), backend=self._backend)
                atexit.register(self.close_now)
            return self._sandbox

    def _copy_files(self) -> Path:
        # mkdtemp: a fresh name, mode 0700.
        folder = Path(tempfile.mkdtemp(prefix="ferrule-hooks-"))
        for name, data in self._files.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o500)
        return folder

    async def close(self) -> None:
        """Stop the running commands and remove the copies."""
        for task in self._background:
            task.cancel()
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            if self._loop is asyncio.get_running_loop():
                await sandbox.close()
            else:
                await asyncio.to_thread(sandbox.close_now)
        self.close_now()

    def close_now(self) -> None:
        """Close synchronously, after the event loop has stopped."""
        self._close_sandbox()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        atexit.unregister(self.close_now)

    def _close_sandbox(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close_now()


def _failure(ended: CommandResult, error_output: str) -> str:
    status = ended.exit_code
    if status is None:
        status = ended.signal or "no exit code"
    known = {127: " (the program was not found)", 126: " (the program cannot be executed)"}
    message = f"it ended with {status}{known.get(ended.exit_code or 0, '')}"
    text = error_output.strip()[:300]
    return f"{message}: {text}" if text else message
