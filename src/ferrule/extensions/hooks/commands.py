"""Command hooks: programs that read an event as JSON and answer with exit code and standard output.

    exit 0     standard output is parsed as the contract says (`contract.read_output`)
    exit 2     blocked; standard error is the reason
    others     broken: not found (127), not executable (126), a crash, a signal, a timeout

Commands run in a sandbox of their own (`sandbox`): they see the workspace and the system, reach no
network, and get a small environment. `$FERRULE_HOOKS` is a folder with a copy of the files in the
trusted `.ferrule/hooks` and `.harness/hooks`: as they were trusted, whatever has happened to the
originals since. The originals are hidden from the sandbox, as no tool may touch them.

Not protected: a hook whose program is an ordinary file of the workspace can be rewritten by whoever
may write there.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.engine.hooks.events import Action, NotJson, Occasion
from ferrule.permissions.child_environment import DEFAULT_PATH, filter_environment
from ferrule.sandbox.backends.selection import SandboxBackend
from ferrule.sandbox.command import Capture, Command, CommandResult
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.sandbox import Sandbox

from .json_contract import block_with_reason, build_input, parse_output

MAX_OUTPUT = 64 * 1024
"""Bytes of standard output and of standard error.

A hook with more is broken, since its answer would be cut.
"""
SHELL = "/bin/sh"


class HookCommandRunner:
    """Runs the commands of hooks in one workspace.

    Nothing is created before the first command. `close` releases everything; a process that forgets
    it does so when it exits.

    Args:
        root: The workspace.
        files: The trusted files for `$FERRULE_HOOKS`, by path below it.
        policy: The sandbox policy. Default: the workspace, and no network.
        backend: The sandbox backend. Default: the best one available.
    """

    def __init__(
        self,
        root: str | Path,
        files: Mapping[str, bytes] | None = None,
        *,
        policy: SandboxPolicy | None = None,
        backend: SandboxBackend | None = None,
    ) -> None:
        self._root = Path(root).resolve()
        self._files = dict(files or {})
        self._policy = policy
        self._backend = backend
        self._folder: Path | None = None
        self._sandbox: Sandbox | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start_lock = asyncio.Lock()

    async def ask(self, command: str | Sequence[str], occasion: Occasion, timeout: float) -> Action:
        """Let a command judge an event.

        Raises FerruleError, ToolFailed or NotJson if the command is broken.
        """
        out = Capture(MAX_OUTPUT, 0)
        errors = Capture(MAX_OUTPUT, 0)
        stdin = json.dumps(build_input(occasion), ensure_ascii=False).encode(
            "utf-8", "surrogatepass"
        )
        ended = await self._run(command, occasion, stdin, out, errors, timeout)
        if out.size > MAX_OUTPUT:
            raise NotJson(f"it wrote {out.size} bytes, the bound is {MAX_OUTPUT}")
        if ended.timed_out:
            raise NotJson(f"no answer within {timeout:g} s")
        if ended.exit_code == 0:
            return parse_output(out.text(), occasion)
        if ended.exit_code == 2:
            return block_with_reason(errors.text() or out.text(), occasion)
        raise NotJson(_failure(ended, errors.text()))

    async def _run(
        self,
        command: str | Sequence[str],
        occasion: Occasion,
        stdin: bytes,
        out: Capture,
        errors: Capture,
        timeout: float,
    ) -> CommandResult:
        sandbox = await self._start_sandbox()
        argv = (SHELL, "-c", command) if isinstance(command, str) else tuple(command)
        program = SHELL if isinstance(command, str) else self._program(argv[0])
        directory = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await sandbox.run(
                Command(
                    argv,
                    program=program,
                    directory=directory,
                    environment=self._environment(occasion),
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
        variables = {
            "FERRULE_HOOKS": str(self._folder or ""),
            "FERRULE_PROJECT_DIR": str(self._root),
            "CLAUDE_PROJECT_DIR": str(self._root),
            "FERRULE_EVENT": occasion.event,
        }
        return filter_environment(os.environ, overrides=variables).values

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
                policy = self._policy or SandboxPolicy(self._root, readable=(str(folder),))
                self._sandbox = Sandbox(policy, backend=self._backend)
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
