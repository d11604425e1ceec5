"""A server that is started here: sandboxed, with a command's environment, spoken to over stdio.

What it writes on standard output is messages, one a line (the protocol's stdio transport); part of
standard error is kept, to say why it failed. Bounds: a line of more than `MAX_LINE` bytes is
dropped and the request that it answers fails; at most `MAX_WAITING` bytes may wait to be read, then
the server is ended. A line that is no message is dropped: many servers print there by mistake.

A server that gets more than commands have (`McpServer.choose_rights`) must be, and load, what they
cannot write; it is refused otherwise. One with the rights of commands may lie in the workspace.

When the streams are closed the server gets the end of its input, then SIGTERM, then SIGKILL, with
all it started.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.permissions.approvals import Approver
from ferrule.permissions.child_environment import ChildEnvironment, filter_environment
from ferrule.permissions.loaded_code import (
    check_variables,
    trust_command_line,
    trust_environment,
)
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.permissions.provenance import (
    ProgramNotFound,
    TrustedProgram,
    UntrustedPath,
    find_any_program,
)
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.reduced_protection import (
    MissingProtections,
    ReducedProtectionApproval,
    SandboxBackend,
    SandboxMode,
    accept_or_raise,
)
from ferrule.sandbox.backends.selection import available_backends, choose_backend
from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.deputies import DeputyRights
from ferrule.sandbox.network.proxy import ConnectionAttempt
from ferrule.sandbox.policy import ResourceLimits, SandboxPolicy
from ferrule.sandbox.running_command import Execution
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.temporary_folder import TemporaryFolder
from ferrule.storage import paths

from .spec import FilledServer, McpServer
from .streams import (
    ID_PATTERN,
    ID_SEARCH_BYTES,
    Incoming,
    Outgoing,
    PendingRequests,
    TransportStreams,
    accept_line,
    fail_oversized,
)

MAX_LINE = 8 * 1024 * 1024
MAX_WAITING = 32 * 1024 * 1024
SHUTDOWN_SECONDS = 2.0
"""Seconds that a server has to end by itself after its input has ended."""
_MAX_ERROR_BYTES = 4096


@frozen
class LaunchSettings:
    """How servers are started.

    Args:
        root: The workspace.
        protected_names: Names in the workspace that no server may touch.
        on_missing_protection: What to do where the machine cannot give the required protection.
        bounds: Limits on time, memory and output.
        allow_env: Variables that a repository's servers may refer to.
        commands: What commands may do. Default: what they may in a workspace.
    """

    root: Path = field(default_factory=Path.cwd)
    protected_names: ProtectedNames = DEFAULT_NAMES
    on_missing_protection: SandboxMode = "ask"
    bounds: ResourceLimits = field(default_factory=ResourceLimits)
    allow_env: tuple[str, ...] = ()
    commands: SandboxPolicy | None = None
    listener: Callable[[str, str], None] | None = None
    """Hears each line that a server writes on standard error, with the server's name."""

    @staticmethod
    def for_policy(
        commands: SandboxPolicy, mode: SandboxMode, allow_env: tuple[str, ...] = ()
    ) -> LaunchSettings:
        """Return the settings of servers that get the limits of commands.

        Args:
            commands: What commands may do.
            mode: What to do where the machine cannot give the required protection.
            allow_env: Variables that a repository's servers may refer to.
        """
        return LaunchSettings(
            commands.root,
            protected_names=commands.names,
            on_missing_protection=mode,
            bounds=commands.limits,
            allow_env=allow_env,
            commands=commands,
        )

    @property
    def command_policy(self) -> SandboxPolicy:
        """What commands may do."""
        return self.commands or SandboxPolicy(self.root)

    def policy(self, server: McpServer, root: Path) -> SandboxPolicy:
        """Return what a server may do. The folder of its cache is made."""
        needs = server.needs
        if needs.cache:
            paths.make_private_folder(Path(needs.cache))
        folder = working_folder(server, root)
        # As it was named: the sandbox shows no folder that a link of the workspace leads to.
        named = str(root / Path(server.cwd).expanduser())
        elsewhere = () if folder.is_relative_to(root) else (named,)
        return SandboxPolicy(
            root,
            names=self.protected_names,
            readable=(*_absolute(server.readable), *elsewhere),
            writable=_absolute(server.writable),
            scratch=(needs.cache,) if needs.cache else (),
            network=(*server.network, *needs.hosts),
            limits=self.bounds,
        )


def working_folder(server: McpServer, root: Path) -> Path:
    """Return the folder that a server works in."""
    return Path(os.path.realpath(root / Path(server.cwd).expanduser())) if server.cwd else root


def _absolute(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(Path(folder).expanduser().absolute()) for folder in folders)


class LineSplitter:
    """Splits what a server writes into lines and passes each on.

    Calling it returns whether to go on reading; if not, the server is to be ended.
    """

    def __init__(
        self, accept_line: Callable[[bytes], bool], fail_oversized: Callable[[int | None], bool]
    ) -> None:
        self._take = accept_line
        self._oversized = fail_oversized
        self._unfinished = bytearray()
        self._skipping = False
        self._is_open = True

    def __call__(self, data: bytes) -> bool:
        *lines, rest = data.split(b"\n")
        is_open = True
        for line in lines:
            is_open = is_open and self._end_line(line)
        self._append(rest)
        return is_open and self._is_open

    def _append(self, data: bytes) -> None:
        if self._skipping:
            return
        self._unfinished += data
        if len(self._unfinished) > MAX_LINE:
            # Reported now: the end of such a line may be long in coming.
            self._skipping = True
            # The id is usually near the beginning.
            found = ID_PATTERN.search(self._unfinished[:ID_SEARCH_BYTES])
            self._is_open = self._oversized(int(found[1]) if found else None)
            self._unfinished = bytearray()

    def _end_line(self, line: bytes) -> bool:
        self._append(line)
        whole = bytes(self._unfinished)
        skipped = self._skipping
        self._unfinished = bytearray()
        self._skipping = False
        if skipped or not whole.strip():
            return self._is_open
        return self._take(whole)


@asynccontextmanager
async def open_stdio(
    server: McpServer,
    filled: FilledServer,
    launch: LaunchSettings,
    *,
    approver: Approver | None = None,
    identity: Identity | None = None,
    note: Callable[[str], None] = lambda sentence: None,
    words: Callable[[bytes], None] = lambda data: None,
    contact: Callable[[ConnectionAttempt], None] = lambda attempt: None,
) -> AsyncGenerator[TransportStreams]:
    """Start a server and provide its streams.

    Args:
        server: The server's description.
        filled: The same with its variables filled in.
        launch: How servers are started.
        approver: Is asked if the machine cannot give the required protection; None: nobody is.
        identity: Whose server it is; nobody is asked without it.
        note: Called with a sentence that says which sandbox holds the server.
        words: Called with what the server writes on standard error.
        contact: Called for each connection that the server asked for.

    Raises:
        ToolFailed: The server's program cannot be started.
        MissingProtections: The sandbox cannot give the required protection.
    """
    needs = server.needs
    environment = filter_environment(os.environ, overrides={**needs.variables, **filled.env})
    scratch = None if server.workspace else TemporaryFolder("mcp")
    policy = launch.policy(server, launch.root if scratch is None else scratch.path)
    sandbox = Sandbox(
        policy,
        backend=await _choose_backend(
            policy,
            "off" if needs.is_container else launch.on_missing_protection,
            approver,
            identity,
        ),
        on_contact=contact,
        identity=identity,
    )
    note(f"server `{server.name}`: {sandbox.protections().describe()}")
    try:
        folder = working_folder(server, policy.root)
        errors = _Words(words)
        program, environment = _prepare(server, filled, launch, environment, folder)
        async with _run(server, filled, sandbox, program, environment, folder, errors) as streams:
            yield streams
    finally:
        await asyncio.shield(sandbox.close())
        if scratch is not None:
            scratch.remove()


async def _choose_backend(
    policy: SandboxPolicy, mode: SandboxMode, approver: Approver | None, identity: Identity | None
) -> SandboxBackend:
    if mode == "off":
        return available_backends(policy, probe())[-1]
    try:
        return choose_backend(policy, probe())
    except MissingProtections as gap:
        consent = None
        if approver is not None and identity is not None:
            consent = ReducedProtectionApproval(approver, identity)
        return await accept_or_raise(policy, gap, mode, consent)


class _Words(Capture):
    """Keeps the first and the last of what a server writes, and passes all of it on."""

    def __init__(self, words: Callable[[bytes], None]) -> None:
        super().__init__(_MAX_ERROR_BYTES // 2, _MAX_ERROR_BYTES // 2)
        self._words = words

    def __call__(self, data: bytes) -> bool:
        self._words(data)
        return super().__call__(data)


@asynccontextmanager
async def _run(
    server: McpServer,
    filled: FilledServer,
    sandbox: Sandbox,
    program: str | TrustedProgram,
    environment: ChildEnvironment,
    root: Path,
    errors: Capture,
) -> AsyncGenerator[TransportStreams]:
    pending = PendingRequests()
    incoming = Incoming(MAX_WAITING)
    outgoing = Outgoing(pending)
    directory = _open_folder(server, root)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        if isinstance(program, TrustedProgram):
            _check_program(server, program)
        command = Command(
            (filled.command[0], *server.needs.options, *filled.command[1:]),
            program=program,
            directory=directory,
            environment={**environment.values, "PWD": str(root)},
            output=LineSplitter(
                partial(accept_line, incoming, pending), partial(fail_oversized, incoming, pending)
            ),
            errors=errors,
            stdin=reader,
            grace=1.0,
        )
        execution = await sandbox.start(command)
    except BaseException:
        os.close(writer)
        raise
    finally:
        os.close(reader)
        os.close(directory)
    over = asyncio.Event()
    execution.add_done_callback(lambda _: (incoming.end(), over.set()))
    pump = asyncio.create_task(_write_lines(outgoing, writer), name=f"mcp {server.name} input")
    try:
        yield TransportStreams(
            incoming,
            outgoing,
            over,
            lambda: _describe_end(server, execution, errors, environment, incoming.is_flooded),
        )
    finally:
        await asyncio.shield(_shut_down(execution, pump, outgoing))


def _open_folder(server: McpServer, folder: Path) -> int:
    try:
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        message = f"server `{server.name}`: it cannot work in `{folder}`: {error.strerror}"
        raise ToolFailed(ErrorType.NOT_FOUND, message) from error


async def _shut_down(execution: Execution, pump: asyncio.Task[None], outgoing: Outgoing) -> None:
    """End its input after what was queued is sent, wait a moment, end it and all it started."""
    outgoing.close()
    waiting = asyncio.ensure_future(execution.wait())
    await asyncio.wait([waiting], timeout=SHUTDOWN_SECONDS)
    pump.cancel()
    await asyncio.wait([pump])
    await execution.end()
    await waiting


async def _write_lines(outgoing: Outgoing, descriptor: int) -> None:
    """Write what is queued to the server's input, which ends with it."""
    try:
        while (line := await outgoing.next_line()) is not None:
            await _write(descriptor, line)
    except ConnectionError:
        return  # the server reads no more; its end is noticed elsewhere
    finally:
        os.close(descriptor)


async def _write(descriptor: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_writer(descriptor, _set_ready, ready)
            try:
                await ready
            finally:
                loop.remove_writer(descriptor)


def _set_ready(ready: asyncio.Future[Any]) -> None:
    if not ready.done():
        ready.set_result(None)


def _prepare(
    server: McpServer,
    filled: FilledServer,
    launch: LaunchSettings,
    environment: ChildEnvironment,
    folder: Path,
) -> tuple[str | TrustedProgram, ChildEnvironment]:
    """Return the program of a server and its variables, as its rights allow.

    Raises:
        ToolFailed: There is no such program (`not_found`), or commands can write what it would load
            and it would get more than they have (`permission_denied`).
    """
    commands = launch.command_policy
    if server.choose_rights(commands) is DeputyRights.COMMANDS:
        return _find_program(filled.command[0], environment.values.get("PATH", "")), environment
    writable = commands.command_writable
    variables = {**trust_environment(environment.values, writable), **filled.env}
    words = (filled.command[0], *server.needs.options, *filled.command[1:])
    try:
        check_variables(filled.env, str(folder), writable)
        program = trust_command_line(words, variables.get("PATH", ""), str(folder), writable)
    except ProgramNotFound as error:
        if not error.skipped:
            raise _describe_not_found(filled.command[0]) from error
        raise _describe_untrusted(server, error) from error
    except UntrustedPath as error:
        raise _describe_untrusted(server, error) from error
    return program, ChildEnvironment(variables, environment.withheld)


def _check_program(server: McpServer, program: TrustedProgram) -> None:
    try:
        program.check()
    except UntrustedPath as error:
        raise _describe_untrusted(server, error) from error


def _describe_untrusted(server: McpServer, error: FerruleError) -> ToolFailed:
    return ToolFailed(
        ErrorType.PERMISSION_DENIED,
        f"server `{server.name}` was not started: {error.detail}, and the server gets more than "
        f"commands have (variables, folders, hosts or no sandbox); {error.hint}, or take from its "
        "entry what commands do not have",
    )


def _find_program(name: str, path: str) -> str:
    """Return the file of a program that has the rights of commands.

    Raises:
        ToolFailed: There is no such program (`not_found`).
    """
    if "/" in name:
        return name
    found = find_any_program(name, path)
    if found is None:
        raise _describe_not_found(name)
    return found


def _describe_not_found(name: str) -> ToolFailed:
    return ToolFailed(
        ErrorType.NOT_FOUND,
        f"{shlex.quote(name)} was not started: there is no such program on the PATH; correct "
        "`command`, or install it",
    )


async def _describe_end(
    server: McpServer,
    execution: Execution,
    errors: Capture,
    environment: ChildEnvironment,
    is_flooded: bool,
) -> str:
    """Say why a server has ended and what it wrote last, bounded, for people and the model."""
    ended = await execution.wait()
    if is_flooded:
        description = "it was ended: it sent more messages than could be read"
    elif ended.signal:
        description = f"it was ended by {ended.signal}"
    else:
        description = f"it ended with {ended.exit_code}"
    last_words = errors.text().strip()[-600:]
    parts = [f"server `{server.name}`: {description}"]
    if last_words:
        parts.append(f"it said: {last_words}")
    missing = environment.find_mentioned(errors.text())
    if missing:
        parts.append(f"it was not given {', '.join(missing)}; name it in the server's `env`")
    if ended.refused_names:
        parts.append(f"it was refused {', '.join(ended.refused_names[:5])}")
    return "; ".join(parts)
