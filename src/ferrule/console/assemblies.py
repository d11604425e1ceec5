"""The assemblies that sessions run with: one per model, mode and folder, built on first use.

They share the server's journal and bus. The server's own assembly is always there; of the others,
the `MAX_ASSEMBLIES` most recently used are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.runtime.assemble import Assembly

MAX_ASSEMBLIES = 12


@frozen
class SessionSetup:
    """What a session runs with. Empty fields take the value from the server's settings."""

    model: str = ""
    mode: str = ""
    workspace: str = ""


class Assemblies:
    """The assemblies of a server.

    `make` builds the assembly for a setup. `server` is the one for the settings as they are; its
    owner closes it.
    """

    def __init__(self, make: Callable[[SessionSetup], Assembly], server: Assembly) -> None:
        self.server = server
        self._make = make
        self._assemblies: dict[SessionSetup, Assembly] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def assembly_for(self, setup: SessionSetup, in_use: Collection[int] = ()) -> Assembly:
        """Return the assembly for a setup.

        `in_use` holds the `id()`s of the assemblies that sessions work with; those are not closed.

        Raises:
            ConfigError: the setup cannot be used.
        """
        server = self.server.agent
        model = "" if setup.model == server.model else setup.model
        mode = "" if setup.mode == str(server.gate.mode) else setup.mode
        setup = SessionSetup(model, mode, setup.workspace)
        if setup == SessionSetup():
            return self.server
        made = self._assemblies.pop(setup, None)
        if made is None:
            if setup.workspace and not Path(setup.workspace).is_dir():
                raise ConfigError(f"the folder of this session does not exist: `{setup.workspace}`")
            self._close_unused(in_use)
            made = self._make(setup)
        self._assemblies[setup] = made
        return made

    def _close_unused(self, used: Collection[int]) -> None:
        free = [setup for setup, made in self._assemblies.items() if id(made) not in used]
        for setup in free[: max(0, len(self._assemblies) - MAX_ASSEMBLIES + 1)]:
            task = asyncio.ensure_future(self._assemblies.pop(setup).close(strict=False))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every assembly but the server's own."""
        if self._closing:
            await asyncio.wait(self._closing)
        for made in self._assemblies.values():
            await made.close(strict=False)
        self._assemblies.clear()
