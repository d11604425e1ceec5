"""`Sandbox`: starts commands for one session, each held by the best rung this machine offers.

    sandbox = Sandbox(policy, rung)          # rungs.choose(policy, probe())
    ended = await sandbox.run(command)
    await sandbox.close()

Without a policy nothing is held (the rung `none`): a program is started, and it and all that it
started are gone when it is over. That is what our own tools use for programs they choose
themselves, and it is all shared: `plain`.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
from collections.abc import Callable
from pathlib import Path

from ferrule.core.identity import Identity

from .backends.bubblewrap import Bubblewrapped
from .backends.landlock import Landlocked
from .backends.namespaces import Confinement
from .backends.probes import probe
from .backends.selection import Rung, SandboxGap, choose
from .command import Command, Ended
from .inside.protocol import Launch
from .launcher import Launcher
from .network.proxy import Contact
from .policy import UNCONFINED, Applied, Policy
from .running_command import Execution, NotSetUp

_TRIES = 3
"""How often a sandbox is made for a command: the workspace can change between the look at it and
the mount.
"""


_HELD_BY: dict[str, type[Confinement]] = {
    "namespaces": Confinement,
    "bubblewrap": Bubblewrapped,
    "landlock": Landlocked,
}
"""By the names of rungs. `rungs.STARTS` names the same, and `none`."""


class Sandbox:
    """Commands of one session, on one event loop. `close` ends what still runs and removes what it
    needed.

    `rung` is the one to use, if a person agreed to less than the policy requires; otherwise the
    first that holds all that is required. `contact` hears of every connection that a command asked
    for. The constructor raises `SandboxGap` where this machine cannot hold the policy; `start` and
    `run` raise ToolFailed where a program cannot be started.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        rung: Rung | None = None,
        contact: Callable[[Contact], None] = lambda contact: None,
        identity: Identity | None = None,
    ) -> None:
        self.policy = policy
        self._applied = UNCONFINED
        self._confinement: Confinement | None = None
        if policy is not None:
            chosen = rung or choose(policy, probe())
            self._applied = chosen.applied
            if chosen.name in _HELD_BY:
                self._confinement = _HELD_BY[chosen.name](policy, contact, identity)
            elif chosen.name != "none":
                raise SandboxGap(
                    (), chosen, detail=f"commands cannot be started on the rung `{chosen.name}` yet"
                )
        self._launcher = Launcher(self._confinement.record if self._confinement else None)
        self._running: set[Execution] = set()
        self._closed = False

    @property
    def server(self) -> int | None:
        """The process id of the fork server, if one was started."""
        return self._launcher.pid

    @property
    def scratch(self) -> tuple[Path, str] | None:
        """A folder that commands can write, as we see it and as they do. None where there is no
        such place of their own.
        """
        if self._confinement is None:
            return None
        return self._confinement.scratch()

    def applied(self) -> Applied:
        """What holds the commands that this sandbox starts."""
        return self._applied

    async def start(self, command: Command) -> Execution:
        """Start a command and return while it runs. If cancelled, nothing is left running."""
        for left in reversed(range(_TRIES)):
            if self._closed:
                raise RuntimeError("this sandbox was closed")
            try:
                execution = await self._begin(command)
            except NotSetUp:
                if not left or self._confinement is None:
                    raise
                continue
            self._running.add(execution)
            # Holds on to this sandbox too: dropped while a command runs, it would end it.
            execution.when_over(self._forget)
            return execution
        raise AssertionError("unreachable")

    async def _begin(self, command: Command) -> Execution:
        if self._confinement is not None:
            return await self._confinement.begin(self._launcher, command, self._applied)
        launch = Launch(
            list(command.argv), command.program, dict(command.environment), command.grace
        )
        if command.wall is not None:
            launch.wall = (command.wall.granted, command.wall.tcp)
        execution = Execution(command, self._applied)
        await execution.begin(self._launcher, launch)
        return execution

    def _forget(self, execution: Execution) -> None:
        self._running.discard(execution)

    async def run(self, command: Command) -> Ended:
        """Start a command and wait for it. When cancelled, all it started is gone before the
        cancellation goes on.
        """
        execution = await self.start(command)
        try:
            return await execution.wait()
        finally:
            # Shielded: a second cancellation must not leave the first one's work half done.
            await asyncio.shield(execution.end())

    async def close(self) -> None:
        """End all that runs, and remove the session's temporary folder. Later starts are
        refused.
        """
        self._closed = True
        await asyncio.gather(*(execution.end() for execution in list(self._running)))
        await self._launcher.close()
        if self._confinement is not None:
            await self._confinement.close()

    def close_now(self) -> None:
        """The same where no event loop runs any more."""
        self._closed = True
        self._launcher.close_now()
        if self._confinement is not None:
            self._confinement.remove()


_shared: list[Sandbox] = []
_lock = threading.Lock()


def plain() -> Sandbox:
    """The sandbox that holds nothing, shared by this process. It ends with the process; nobody
    closes it.
    """
    with _lock:
        if not _shared:
            _shared.append(Sandbox())
            atexit.register(_shared[0].close_now)
        return _shared[0]
