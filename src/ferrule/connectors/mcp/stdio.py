"""A server that is started here: held by the sandbox, with the environment of a command, spoken to
over its standard streams.

What it writes on standard output is messages, one a line (the protocol's stdio transport); standard
error is kept in part, to say why it failed. Bounds: a line of more than `MAX_LINE` bytes is thrown
away and the request that it answers fails; what nobody has read yet may be `MAX_WAITING` bytes,
then the server is ended. A line that is no message is dropped: many servers print there by mistake.

When the streams are closed the server gets the end of its input, then SIGTERM, then SIGKILL, with
all it started.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.approvals import Approver
from ferrule.permissions.child_environment import ChildEnvironment, child_environment
from ferrule.permissions.protected_names import DEFAULT, Names
from ferrule.sandbox.backends.missing_protection import Consent, Mode, Rung, SandboxGap, settle
from ferrule.sandbox.backends.probes import probe
from ferrule.sandbox.backends.selection import choose, ladder
from ferrule.sandbox.command import Capture, Command
from ferrule.sandbox.policy import Bounds, Policy
from ferrule.sandbox.running_command import Execution
from ferrule.sandbox.sandbox import Sandbox

from .spec import Filled, McpServer
from .streams import ID, ID_WITHIN, Ends, Incoming, Outgoing, Pending, oversized, take_line

MAX_LINE = 8 * 1024 * 1024
MAX_WAITING = 32 * 1024 * 1024
GOODBYE = 2.0
"""Seconds that a server has to end by itself once its input has ended."""
_ERRORS = 4096


@dataclass(frozen=True, slots=True)
class Ground:
    """Where servers are started: the workspace, names that are off limits in it, and what is done
    where the machine holds less than required.
    """

    root: Path = field(default_factory=Path.cwd)
    names: Names = DEFAULT
    on_gap: Mode = "ask"
    bounds: Bounds = field(default_factory=Bounds)
    allow_env: tuple[str, ...] = ()

    def policy(self, server: McpServer, root: Path) -> Policy:
        """What a server may do."""
        return Policy(
            root,
            names=self.names,
            readable=tuple(str(Path(one).expanduser().absolute()) for one in server.readable),
            writable=tuple(str(Path(one).expanduser().absolute()) for one in server.writable),
            network=server.network,
            bounds=self.bounds,
        )


class Lines:
    """Splits what a server writes into lines and hands each on. Falsy from the call: enough, end
    it.
    """

    def __init__(
        self, take: Callable[[bytes], bool], oversized: Callable[[int | None], bool]
    ) -> None:
        self._take = take
        self._oversized = oversized
        self._half = bytearray()
        self._skipping = False
        self._going = True

    def __call__(self, data: bytes) -> bool:
        *lines, rest = data.split(b"\n")
        going = True
        for line in lines:
            going = going and self._end(line)
        self._more(rest)
        return going and self._going

    def _more(self, data: bytes) -> None:
        if self._skipping:
            return
        self._half += data
        if len(self._half) > MAX_LINE:
            # Said now: the end of such a line may be long in coming.
            self._skipping = True
            # Whose answer it was stands near the beginning, as a rule.
            found = ID.search(self._half[:ID_WITHIN])
            self._going = self._oversized(int(found[1]) if found else None)
            self._half = bytearray()

    def _end(self, line: bytes) -> bool:
        self._more(line)
        whole = bytes(self._half)
        skipped = self._skipping
        self._half = bytearray()
        self._skipping = False
        if skipped or not whole.strip():
            return self._going
        return self._take(whole)


@asynccontextmanager
async def open_stdio(
    server: McpServer,
    filled: Filled,
    ground: Ground,
    *,
    approver: Approver | None = None,
    identity: Identity | None = None,
    note: Callable[[str], None] = lambda said: None,
) -> AsyncGenerator[Ends]:
    """Start a server and hand out its streams; `note` hears what holds it. Raises ToolFailed or
    SandboxGap where it cannot be started or held as it must.
    """
    environment = child_environment(os.environ, overrides=filled.env)
    scratch = None if server.workspace else tempfile.mkdtemp(prefix="ferrule-mcp-")
    policy = ground.policy(server, ground.root if scratch is None else Path(scratch))
    sandbox = Sandbox(
        policy, rung=await _rung(policy, ground.on_gap, approver, identity), identity=identity
    )
    note(f"server `{server.name}`: {sandbox.applied().in_words()}")
    try:
        async with _running(server, filled, sandbox, environment, policy.root) as ends:
            yield ends
    finally:
        await asyncio.shield(sandbox.close())
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)


async def _rung(
    policy: Policy, mode: Mode, approver: Approver | None, identity: Identity | None
) -> Rung:
    if mode == "off":
        return ladder(policy, probe())[-1]
    try:
        return choose(policy, probe())
    except SandboxGap as gap:
        consent = (
            Consent(approver, identity) if approver is not None and identity is not None else None
        )
        return await settle(policy, gap, mode, consent)


@asynccontextmanager
async def _running(
    server: McpServer, filled: Filled, sandbox: Sandbox, environment: ChildEnvironment, root: Path
) -> AsyncGenerator[Ends]:
    pending = Pending()
    incoming = Incoming(MAX_WAITING)
    outgoing = Outgoing(pending)
    errors = Capture(_ERRORS // 2, _ERRORS // 2)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        command = Command(
            filled.command,
            program=_program(filled.command[0], environment.values.get("PATH", "")),
            directory=directory,
            environment={**environment.values, "PWD": str(root)},
            output=Lines(
                partial(take_line, incoming, pending), partial(oversized, incoming, pending)
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
    execution.when_over(lambda _: (incoming.over(), over.set()))
    pump = asyncio.create_task(_pump(outgoing, writer), name=f"mcp {server.name} input")
    try:
        yield Ends(incoming, outgoing, over, lambda: _why(server, execution, errors, environment))
    finally:
        await asyncio.shield(_part(execution, pump, outgoing))


async def _part(execution: Execution, pump: asyncio.Task[None], outgoing: Outgoing) -> None:
    """End its input once what was queued is sent, give it a moment, end it and all it started."""
    outgoing.close()
    waiting = asyncio.ensure_future(execution.wait())
    await asyncio.wait([waiting], timeout=GOODBYE)
    pump.cancel()
    await asyncio.wait([pump])
    await execution.end()
    await waiting


async def _pump(outgoing: Outgoing, writer: int) -> None:
    """Writes what is to be sent to the server's input, which ends with it."""
    try:
        while (line := await outgoing.next_line()) is not None:
            await _write(writer, line)
    except ConnectionError:
        return  # it reads no more: its end is noticed elsewhere
    finally:
        os.close(writer)


async def _write(descriptor: int, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            ready: asyncio.Future[None] = loop.create_future()
            loop.add_writer(descriptor, _set, ready)
            try:
                await ready
            finally:
                loop.remove_writer(descriptor)


def _set(ready: asyncio.Future[Any]) -> None:
    if not ready.done():
        ready.set_result(None)


def _program(word: str, path: str) -> str:
    """The file of a program, by the absolute folders of PATH. Raises ToolFailed(not_found)."""
    if "/" in word:
        return word
    folders = os.pathsep.join(one for one in path.split(os.pathsep) if one.startswith("/"))
    found = shutil.which(word, path=folders)
    if found is None:
        said = f"{shlex.quote(word)} was not started: there is no such program on the PATH"
        raise ToolFailed(ErrorType.NOT_FOUND, said)
    return found


async def _why(
    server: McpServer, execution: Execution, errors: Capture, environment: ChildEnvironment
) -> str:
    """Why a server is no longer there: how it ended and what it said last. For people and the
    model; bounded.
    """
    ended = await execution.wait()
    how = f"it was ended by {ended.signal}" if ended.signal else f"it ended with {ended.exit_code}"
    said = errors.text().strip()[-600:]
    words = [f"server `{server.name}`: {how}"]
    if said:
        words.append(f"it said: {said}")
    if missing := environment.missing(errors.text()):
        words.append(f"it was not given {', '.join(missing)}; name it in the server's `env`")
    if ended.refused:
        words.append(f"it was refused {', '.join(ended.refused[:5])}")
    return "; ".join(words)
