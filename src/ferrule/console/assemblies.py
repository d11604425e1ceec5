"""The assemblies that sessions run with: one per model, mode and folder, built on first use.

They share the server's journal and bus. The server's own assembly is always there; of the others,
the `KEPT` most recently used are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.core.errors import ConfigError

if TYPE_CHECKING:
    from ferrule.runtime.assemble import Assembly

KEPT = 12


@dataclass(frozen=True, slots=True)
class Setup:
    """What a session runs with. Empty fields take the value from the server's settings."""

    model: str = ""
    mode: str = ""
    workspace: str = ""


class Benches:
    """The assemblies of a server.

    `make` builds the assembly for a setup. `server` is the one for the settings as they are; its
    owner closes it.
    """

    def __init__(self, make: Callable[[Setup], Assembly], server: Assembly) -> None:
        self.server = server
        self._make = make
        self._kept: dict[Setup, Assembly] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, setup: Setup, used: Collection[int] = ()) -> Assembly:
        """Return the assembly for a setup.

        `used` holds the `id()`s of the assemblies that sessions work with; those are not closed.

        Raises:
            ConfigError: the setup cannot be used.
        """
        server = self.server.agent
        model = "" if setup.model == server.model else setup.model
        mode = "" if setup.mode == str(server.gate.mode) else setup.mode
        setup = Setup(model, mode, setup.workspace)
        if setup == Setup():
            return self.server
        made = self._kept.pop(setup, None)
        if made is None:
            if setup.workspace and not Path(setup.workspace).is_dir():
                raise ConfigError(f"the folder of this session does not exist: `{setup.workspace}`")
            self._spare(used)
            made = self._make(setup)
        self._kept[setup] = made
        return made

    def _spare(self, used: Collection[int]) -> None:
        free = [setup for setup, made in self._kept.items() if id(made) not in used]
        for setup in free[: max(0, len(self._kept) - KEPT + 1)]:
            task = asyncio.ensure_future(self._kept.pop(setup).close(strict=False))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close every assembly but the server's own."""
        if self._closing:
            await asyncio.wait(self._closing)
        for made in self._kept.values():
            await made.close(strict=False)
        self._kept.clear()
