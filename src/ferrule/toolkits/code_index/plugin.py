"""The plugin `index`: kept in the plugin's state folder, begun when a session begins."""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import ClassVar

from ferrule.core.value_class import frozen
from ferrule.engine.hooks.events import EventHook, Occasion, SessionStart, allow
from ferrule.engine.plugins.protocol import Parts, Setup
from ferrule.engine.threads import run_blocking
from ferrule.permissions.filesystem.workspace import Workspace

from .index import CodeIndex
from .outline import make_outline
from .tools import TOOLS

OUTLINE_SECONDS = 4.0
"""How long the beginning of a session waits for the outline."""
_UNUSED_DAYS = 30


@frozen
class CodeIndexing:
    """Tools that find where source files define and use names. Needs a workspace.

    Attributes:
        outline: Tokens of the outline of the source files that a session begins with; 0: none.
    """

    name: ClassVar[str] = "index"
    outline: int = 0

    def setup(self, setup: Setup) -> Parts:
        """Return the tools, the index and the hook that begins it."""
        workspace = setup.workspace
        if workspace is None:
            return Parts(tools=TOOLS)
        index = CodeIndex(_find_place(setup.state(), workspace.root))
        hook = EventHook(
            name="code_index",
            events=("session.start",),
            run=partial(self._begin, index, workspace),
            timeout=30,
            on_error="allow",
            source="shipped",
        )

        @asynccontextmanager
        async def live() -> AsyncGenerator[None]:
            yield
            await run_blocking(index.close)

        return Parts(tools=TOOLS, hooks=(hook,), resources=(index,), lifetime=live)

    async def _begin(self, index: CodeIndex, workspace: Workspace, occasion: Occasion) -> object:
        started = isinstance(occasion.payload, SessionStart) and occasion.payload.source
        number = await run_blocking(lambda: index.start(workspace))
        if not self.outline or started != "startup":
            return None
        progress = await run_blocking(lambda: index.wait(number, OUTLINE_SECONDS))
        if not progress.files:
            return None

        def allows(path: str) -> bool:
            return workspace.names.check(path, write=False) is None

        text = await run_blocking(lambda: make_outline(index, allows, self.outline))
        return allow(context=text)


def _find_place(folder: Path, root: Path) -> Path:
    """Return the file of a workspace's index. Files of indexes that nobody uses are removed."""
    oldest = time.time() - _UNUSED_DAYS * 86400
    for file in folder.glob("*.db*"):
        try:
            if file.stat().st_mtime < oldest:
                file.unlink()
        except OSError:
            continue  # Another process was faster.
    return folder / f"{hashlib.sha256(str(root).encode()).hexdigest()[:32]}.db"
