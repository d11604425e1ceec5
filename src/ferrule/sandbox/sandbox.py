"""`Sandbox`: starts commands for one session, confined by the best backend of this machine.

    sandbox = Sandbox(policy)
    ended = await sandbox.run(command)
    await sandbox.close()

With the backend `none` nothing is confined, which a person or program has to choose: a program is
started, and it and everything that it started are gone when it is over. Our own tools have that for
programs that they choose themselves (`unconfined_sandbox`): it takes `TrustedCommand` alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.identity import Identity
from ferrule.permissions.provenance import UntrustedPath
from ferrule.tools.forking import make_lock
from ferrule.tools.process_resources import close_at_exit

from .backends.probes import probe
from .backends.selection import MissingProtections, SandboxBackend, choose_backend
from .command import Command, CommandResult, TrustedCommand
from .inside.protocol import Launch
from .launcher import Launcher
from .network.allowed_hosts import HostRules
from .network.proxy import ConnectionAttempt
from .policy import UNCONFINED, AppliedProtections, SandboxPolicy
from .running_command import Execution, SandboxSetupFailed

if TYPE_CHECKING:
    from .backends.namespaces import NamespaceBackend

_ATTEMPTS = 3
"""How often a sandbox is set up for a command.

The workspace can change between the scan of it and the mount.
"""


def _load_backend(name: str) -> type[NamespaceBackend] | None:
    """Return a backend by its name, None if there is none of this name.

    `backends.selection` lists the same, and `none`. Most processes start no command: the backends
    and all that they need are loaded with the first sandbox.
    """
    from .backends.bubblewrap import BubblewrapBackend
    from .backends.container import ContainerBackend
    from .backends.landlock import LandlockBackend
    from .backends.namespaces import NamespaceBackend

    backends: dict[str, type[NamespaceBackend]] = {
        "namespaces": NamespaceBackend,
        "bubblewrap": BubblewrapBackend,
        "container": ContainerBackend,
        "landlock": LandlockBackend,
    }
    return backends.get(name)


class Sandbox:
    """The commands of one session, on one event loop.

    `close` ends what still runs and removes what it needed.

    Args:
        policy: What commands may do.
        backend: The backend to use, if a person agreed to less than the policy requires. By default
            the first that enforces all that is required.
        on_contact: Called for every connection that a command asked for.
        identity: Who the commands run for.
        hosts: Decides about each host in place of the policy's `network`, which must name one.

    Raises:
        MissingProtections: This machine cannot enforce the policy.
    """

    def __init__(
        self,
        policy: SandboxPolicy,
        *,
        backend: SandboxBackend | None = None,
        on_contact: Callable[[ConnectionAttempt], None] = lambda contact: None,
        identity: Identity | None = None,
        hosts: HostRules | None = None,
    ) -> None:
        self.policy = policy
        self._confinement: NamespaceBackend | None = None
        chosen = backend or choose_backend(policy, probe())
        self._applied = chosen.protections
        backend_type = _load_backend(chosen.name)
        if backend_type is not None:
            self._confinement = backend_type(policy, on_contact, identity, hosts)
        elif chosen.name != "none":
            raise MissingProtections(
                (),
                chosen,
                detail=f"commands cannot be started with the backend `{chosen.name}` yet",
            )
        self._launcher = Launcher(self._confinement.encode_session if self._confinement else None)
        self._running: set[Execution] = set()
        self._starting = 0
        self._closed = False

    @property
    def server_pid(self) -> int | None:
        """Process id of the fork server; None if none was started."""
        return self._launcher.pid

    @property
    def scratch_folder(self) -> tuple[Path, str] | None:
        """A folder that commands can write, as we see it and as they do.

        None where they have no such folder of their own.
        """
        if self._confinement is None:
            return None
        return self._confinement.scratch_folder()

    def protections(self) -> AppliedProtections:
        """Return what is enforced for the commands that this sandbox starts."""
        return self._applied

    @property
    def is_busy(self) -> bool:
        """Whether a command runs or is being started."""
        return bool(self._running) or self._starting > 0

    def sees(self, path: str) -> bool:
        """Return whether commands see this file of the machine at its own path.

        True where nobody knows: before the first command, and where nothing confines them.
        """
        return self._confinement is None or self._confinement.sees(path)

    def take_view(self) -> tuple[str, ...]:
        """Return what commands see of the machine, a line each with the reason, for a record.

        Returned once, and again when it changed. Nothing where commands are not confined.
        """
        return self._confinement.take_view() if self._confinement is not None else ()

    async def change_policy(self, policy: SandboxPolicy) -> None:
        """Confine the commands that follow by another policy, which this backend must enforce.

        The session's own folders stay as they are.

        Raises:
            RuntimeError: A command is running: its view cannot be changed.
        """
        if self.is_busy or self._confinement is None:
            raise RuntimeError("the policy of a sandbox changes only while nothing runs in it")
        await self._launcher.close()
        await self._confinement.change_policy(policy)
        self.policy = policy

    async def start(self, command: Command) -> Execution:
        """Start a command and return while it runs. If cancelled, nothing is left running.

        Raises:
            ToolFailed: The program cannot be started.
            RuntimeError: The sandbox was closed.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            if self._closed:
                raise RuntimeError("this sandbox was closed")
            self._starting += 1
            try:
                execution = await self._start_once(command)
            except SandboxSetupFailed:
                if not attempts_left or self._confinement is None:
                    raise
                if not self._running and self._starting == 1:
                    # The server may have looked at something that is gone by now.
                    await self._launcher.close()
                continue
            finally:
                self._starting -= 1
            self._running.add(execution)
            # This also keeps a reference to this sandbox: dropped while a command runs, it would
            # end the command.
            execution.add_done_callback(self._discard)
            return execution
        raise AssertionError("unreachable")

    async def _start_once(self, command: Command) -> Execution:
        if self._confinement is not None:
            return await self._confinement.start(self._launcher, command, self._applied)
        return await _start_unconfined(self._launcher, command, self._applied)

    def _discard(self, execution: Execution) -> None:
        self._running.discard(execution)

    async def run(self, command: Command) -> CommandResult:
        """Start a command and wait for it.

        When cancelled, everything that it started is gone before the cancellation goes on.

        Raises:
            ToolFailed: The program cannot be started.
        """
        return await _finish(await self.start(command))

    async def close(self) -> None:
        """End everything that runs and remove the session's temporary folder.

        Later starts are refused.
        """
        self._closed = True
        await asyncio.gather(*(execution.end() for execution in list(self._running)))
        await self._launcher.close()
        if self._confinement is not None:
            await self._confinement.close()

    def close_now(self) -> None:
        """Close synchronously, after the event loop has stopped."""
        self._closed = True
        self._launcher.close_now()
        if self._confinement is not None:
            self._confinement.remove()


async def _finish(execution: Execution) -> CommandResult:
    try:
        return await execution.wait()
    finally:
        # Shielded: a second cancellation must not leave the first one's work half done.
        await asyncio.shield(execution.end())


async def _start_unconfined(
    launcher: Launcher, command: Command | TrustedCommand, applied: AppliedProtections
) -> Execution:
    launch = Launch(list(command.argv), command.program, dict(command.environment), command.grace)
    if isinstance(command, TrustedCommand) and command.landlock is not None:
        launch.landlock = (command.landlock.rules, command.landlock.tcp)
    execution = Execution(command, applied)
    await execution.start(launcher, launch)
    return execution


class UnconfinedSandbox:
    """Starts programs that nothing confines, and ends them with all that they started."""

    def __init__(self) -> None:
        self._launcher = Launcher()

    @property
    def server_pid(self) -> int | None:
        """Process id of the fork server; None if none was started."""
        return self._launcher.pid

    async def start(self, command: TrustedCommand) -> Execution:
        """Start a program and return while it runs. If cancelled, nothing is left running.

        Raises:
            ToolFailed: The program cannot be started, or was changed since it was found.
        """
        try:
            command.program.check()
        except UntrustedPath as error:
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED, error.detail, refused_by="sandbox"
            ) from error
        return await _start_unconfined(self._launcher, command, UNCONFINED)

    async def run(self, command: TrustedCommand) -> CommandResult:
        """Start a program and wait for it.

        When cancelled, everything that it started is gone before the cancellation goes on.

        Raises:
            ToolFailed: The program cannot be started, or was changed since it was found.
        """
        return await _finish(await self.start(command))

    def close_now(self) -> None:
        """End everything that runs."""
        self._launcher.close_now()


_unconfined: list[UnconfinedSandbox] = []
_lock = make_lock()


def unconfined_sandbox() -> UnconfinedSandbox:
    """Return the sandbox that confines nothing, shared by this process.

    It ends with the process (`tools.process_resources`).
    """
    with _lock:
        if not _unconfined:
            _unconfined.append(UnconfinedSandbox())
            close_at_exit(_unconfined[0].close_now)
        return _unconfined[0]
