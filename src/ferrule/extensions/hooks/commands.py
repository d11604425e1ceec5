"""Command hooks: programs that read an event as JSON and answer with exit code and standard output.

    exit 0     standard output is parsed as the contract says (`claude_contract`)
    exit 2     blocked; standard error is the reason
    others     broken: not found (127), not executable (126), a crash, a signal, a timeout

Commands run in a sandbox of their own (`sandbox`), with a home of the session's own, where what
they keep lasts as long as the session. Which rights they have is decided at each start
(`sandbox.deputies`):

* A command that loads nothing which commands of a model can write (`permissions.loaded_code`) has
  rights of its own: the person's variables, those apart that look like secrets and are not let
  through, the variables of its settings file, and `$FERRULE_HOOKS`, a folder with a copy of the
  files in the trusted `.ferrule/hooks` and `.harness/hooks`: as they were trusted, whatever has
  happened to the originals since. The originals are hidden, as no tool may touch them. Of the
  folder `readable` it sees what its command line names, with what lies beside it.
* Any other has the rights of commands: the same folders and variables.

Not protected: what a trusted script starts by itself, such as the tests of the project, has the
script's rights; a secret in a variable with an ordinary name is seen by it.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import Action, NotJson, Occasion
from ferrule.permissions.child_environment import (
    DEFAULT_PATH,
    filter_environment,
    is_secret_variable,
)
from ferrule.permissions.loaded_code import (
    trust_command_line,
    trust_environment,
    trust_shell_text,
)
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.provenance import (
    CommandWritable,
    Origin,
    ProgramNotFound,
    TrustedPath,
    TrustedProgram,
    UntrustedPath,
    find_any_program,
    find_program,
    trust_path,
    trust_search_path,
)
from ferrule.sandbox.backends.selection import SandboxBackend
from ferrule.sandbox.command import Capture, Command, CommandResult, OutputSink
from ferrule.sandbox.deputies import DeputyRights
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.sandbox.running_command import Execution
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.temporary_folder import TemporaryFolder
from ferrule.storage.trust import find_named_programs

from .claude_contract import HookQuestion

MAX_OUTPUT = 64 * 1024
"""Bytes of standard output and of standard error.

A hook with more is broken, since its answer would be cut.
"""
SHELL = "/bin/sh"
_BASH = "/bin/bash"
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@frozen
class CacheFolder:
    """A folder that a program keeps things in, which is made and removed with the runner."""

    name: str


class HookCommandRunner:
    """Runs the commands of hooks in one workspace.

    Nothing is created before the first command. `close` releases everything; a process that forgets
    it does so when it exits.

    Args:
        root: The workspace.
        files: The trusted files for `$FERRULE_HOOKS`, by path below it.
        policy: The sandbox policy of commands. Default: the workspace, and no network.
        backend: The sandbox backend. Default: the best one available.
        readable: A further folder that trusted hooks read, `~/.claude` for those that live there.
        variables: Variables for trusted hooks, which their settings file sets.
        passed_on: Names of variables that commands get although they look like secrets.
        other_programs: Programs of the workspace that are not those that were trusted; a command
            that names one is not started.
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
        other_programs: Sequence[str] = (),
    ) -> None:
        self._root = Path(os.path.realpath(root))
        self._files = dict(files or {})
        self._policy = policy or SandboxPolicy(self._root)
        self._backend = backend
        self._readable = readable
        self._variables = dict(variables or {})
        self._passed_on = tuple(passed_on)
        self._other_programs = frozenset(other_programs)
        # People write hooks for bash; where there is none, the plain shell has to do.
        self._shell = _BASH if Path(_BASH).exists() else SHELL
        self._background: set[asyncio.Task[Action]] = set()
        self._copies: TemporaryFolder | None = None
        self._sandboxes: list[Sandbox] = []
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
        *,
        variables: Mapping[str, str | CacheFolder] | None = None,
        rights: DeputyRights = DeputyRights.EITHER,
    ) -> CommandResult:
        """Run a command as `launch` does, and wait for it.

        Raises:
            ToolFailed: It cannot be started.
            FerruleError: There is no sandbox for it.
        """
        execution = await self.launch(
            command, occasion, stdin, out, errors, timeout, variables=variables, rights=rights
        )
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
        *,
        variables: Mapping[str, str | CacheFolder] | None = None,
        rights: DeputyRights = DeputyRights.EITHER,
    ) -> Execution:
        """Start a command in the workspace, and return while it runs.

        `close` ends it at the latest.

        Args:
            command: A text for the shell, or a program with its arguments.
            occasion: What it is started for.
            stdin: What it reads, or a descriptor to read from.
            out: Receives its output.
            errors: Receives what it writes on standard error.
            timeout: Seconds after which it is ended.
            variables: Variables that it gets besides; some name a folder of their own.
            rights: Its rights. `EITHER`: its own if all that it loads is trusted.

        Raises:
            ToolFailed: It cannot be started, or may not have its own rights, which it needs.
            FerruleError: There is no sandbox for it.
        """
        if self._other_programs:
            self._check_programs(command)
        start = self._choose_start(command, rights)
        sandbox = await self._start_sandbox(start.policy)
        argv = (self._shell, "-c", command) if isinstance(command, str) else tuple(command)
        environment = dict(self._environment(occasion, start))
        for name, value in (variables or {}).items():
            given = self._place(value, sandbox) if isinstance(value, CacheFolder) else value
            environment[name] = given
        if isinstance(start.program, TrustedProgram):
            try:
                start.program.check()
            except UntrustedPath as error:
                raise ToolFailed(ErrorType.PERMISSION_DENIED, error.detail) from error
        directory = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return await sandbox.start(
                Command(
                    argv,
                    program=start.program,
                    directory=directory,
                    environment=environment,
                    output=out,
                    errors=errors,
                    stdin=stdin,
                    timeout=timeout,
                    identity=occasion.identity,
                )
            )
        finally:
            os.close(directory)

    def _check_programs(self, command: str | Sequence[str]) -> None:
        line = command if isinstance(command, str) else shlex.join(command)
        for name in find_named_programs(line):
            if name in self._other_programs:
                raise ToolFailed(
                    ErrorType.PERMISSION_DENIED,
                    f"`{name}` is not the program that was trusted; `ferrule trust` shows the "
                    "difference",
                )

    def _choose_start(self, command: str | Sequence[str], rights: DeputyRights) -> _Start:
        """Decide which rights a command has."""
        if rights is DeputyRights.COMMANDS:
            return self._make_plain_start(command)
        try:
            return self._make_trusted_start(command)
        except (UntrustedPath, ProgramNotFound) as error:
            if rights is DeputyRights.OWN:
                message = f"{error.detail}; {error.hint}" if error.hint else error.detail
                raise ToolFailed(ErrorType.PERMISSION_DENIED, message) from error
            return self._make_plain_start(command)

    def _make_plain_start(self, command: str | Sequence[str]) -> _Start:
        if isinstance(command, str):
            return _Start(self._shell, self._policy)
        name = command[0]
        found = name if "/" in name else find_any_program(name, _search_path())
        if found is None:
            raise ToolFailed(ErrorType.NOT_FOUND, f"there is no program `{name}`")
        return _Start(found, self._policy)

    def explain_reduced_rights(self, command: str | Sequence[str]) -> str:
        """Return why a command does not get what its settings file gives it.

        Empty if it does, or if the file gives nothing. Nothing is created.
        """
        if self._readable is None and not self._variables:
            return ""
        try:
            self._find_trusted(command, self._copies.path if self._copies else Path("/nonexistent"))
        except (UntrustedPath, ProgramNotFound) as error:
            return error.detail
        return ""

    def _find_trusted(self, command: str | Sequence[str], copies: Path) -> TrustedProgram:
        writable = self._policy.command_writable
        search_path = trust_search_path(_search_path(), writable)
        folder = str(self._root)
        if not isinstance(command, str):
            return trust_command_line(command, search_path, folder, writable)
        known = {**self._list_places(copies), "HOME": str(Path.home())}
        trust_shell_text(command, search_path, folder, writable, known)
        return find_program(self._shell, "", writable)

    def _make_trusted_start(self, command: str | Sequence[str]) -> _Start:
        program = self._find_trusted(command, self._make_folder())
        writable = self._policy.command_writable
        policy = self._policy
        names = policy.names
        if self._readable is not None:
            names = names.extend(secret=(".credentials.json",))
        shown = [str(self._make_folder()), *self._find_shown(command, writable, names)]
        policy = replace(policy, readable=(*policy.readable, *shown), names=names)
        return _Start(program, policy, is_trusted=True)

    def _list_places(self, copies: Path) -> dict[str, str]:
        """Return the variables that say where the workspace and the trusted files are."""
        return {
            "FERRULE_HOOKS": str(copies),
            "FERRULE_PROJECT_DIR": str(self._root),
            "CLAUDE_PROJECT_DIR": str(self._root),
        }

    def _find_shown(
        self, command: str | Sequence[str], writable: CommandWritable, names: ProtectedNames
    ) -> Sequence[TrustedPath]:
        """Return the folders of the files in `readable` that a command names."""
        if self._readable is None:
            return ()
        text = command if isinstance(command, str) else shlex.join(command)
        home = str(Path.home())
        for written in ("~/", "$HOME/", "${HOME}/"):
            text = text.replace(written, f"{home}/")
        shown: list[TrustedPath] = []
        own = re.escape(str(self._readable))
        for named in re.findall(rf"{own}/[^\s'\"|;&<>()]+", text):
            folder = os.path.dirname(named)  # noqa: PTH120  text, as it was written
            # Of the folder itself only the file: all else that is kept there is not the hook's.
            place = named if folder == str(self._readable) else folder
            below = os.path.relpath(named, self._readable)
            if names.check(below, write=False) is None and os.path.exists(place):  # noqa: PTH110  as above
                shown.append(trust_path(place, Origin.PERSON, writable, reason="named by a hook"))
        return shown

    def _environment(self, occasion: Occasion, start: _Start) -> Mapping[str, str]:
        about = {
            "FERRULE_PROJECT_DIR": str(self._root),
            "CLAUDE_PROJECT_DIR": str(self._root),
            "CLAUDE_SESSION_ID": occasion.identity.session,
            "FERRULE_EVENT": occasion.event,
        }
        if not start.is_trusted:
            return filter_environment(os.environ, add=self._passed_on, overrides=about).values
        ordinary = (
            name
            for name in os.environ
            if _VARIABLE.fullmatch(name) and not is_secret_variable(name)
        )
        passed = filter_environment(os.environ, add=(*ordinary, *self._passed_on)).values
        trusted = trust_environment(passed, self._policy.command_writable)
        return {**trusted, **self._variables, **about, **self._list_places(self._make_folder())}

    async def _start_sandbox(self, policy: SandboxPolicy) -> Sandbox:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The old loop is gone, and with it what watched the sandboxes' commands.
            self._close_sandboxes()
            self._loop = loop
            self._start_lock = asyncio.Lock()
        async with self._start_lock:
            for sandbox in self._sandboxes:
                if sandbox.policy == policy:
                    return sandbox
            self._sandboxes.append(Sandbox(policy, backend=self._backend))
            atexit.register(self.close_now)
            return self._sandboxes[-1]

    def _make_folder(self) -> Path:
        """Return the folder with the copies of the trusted files, made when it is first needed."""
        if self._copies is None:
            self._copies = self._copy_files()
        return self._copies.path

    def _place(self, cache: CacheFolder, sandbox: Sandbox) -> str:
        """Return a folder that nobody else on this machine can write."""
        scratch = sandbox.scratch_folder
        return (
            f"{self._make_folder()}/caches/{cache.name}"
            if scratch is None
            else (f"{scratch[1]}/{cache.name}")
        )

    def _copy_files(self) -> TemporaryFolder:
        copies = TemporaryFolder("hooks")
        for name, data in self._files.items():
            file = copies.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(0o500)
        return copies

    async def close(self) -> None:
        """Stop the running commands and remove the copies."""
        for task in self._background:
            task.cancel()
        sandboxes = list(self._sandboxes)
        self._sandboxes.clear()
        for sandbox in sandboxes:
            if self._loop is asyncio.get_running_loop():
                await sandbox.close()
            else:
                await asyncio.to_thread(sandbox.close_now)
        self.close_now()

    def close_now(self) -> None:
        """Close synchronously, after the event loop has stopped."""
        self._close_sandboxes()
        copies, self._copies = self._copies, None
        if copies is not None:
            copies.remove()
        atexit.unregister(self.close_now)

    def _close_sandboxes(self) -> None:
        for sandbox in self._sandboxes:
            sandbox.close_now()
        self._sandboxes.clear()


@frozen
class _Start:
    """What is started, in which sandbox, and whether all that it loads is trusted."""

    program: str | TrustedProgram
    policy: SandboxPolicy
    is_trusted: bool = False


def _search_path() -> str:
    return os.environ.get("PATH", DEFAULT_PATH)


def _failure(ended: CommandResult, error_output: str) -> str:
    status = ended.exit_code
    if status is None:
        status = ended.signal or "no exit code"
    known = {127: " (the program was not found)", 126: " (the program cannot be executed)"}
    message = f"it ended with {status}{known.get(ended.exit_code or 0, '')}"
    text = error_output.strip()[:300]
    return f"{message}: {text}" if text else message
