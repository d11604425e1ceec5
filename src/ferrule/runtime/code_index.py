"""The code index of a run: kept in Ferrule's state folder, begun when a session begins."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from ferrule.engine.hooks.events import EventHook, Occasion, SessionStart, allow
from ferrule.engine.threads import run_blocking
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.storage import paths
from ferrule.toolkits.code_index.index import CodeIndex
from ferrule.toolkits.code_index.outline import make_outline

_OUTLINE_SECONDS = 4.0
_UNUSED_DAYS = 30


class RunIndex:
    """The index of a workspace, for the sessions of one assembly.

    Args:
        workspace: The workspace, with the deny rules that apply when a session begins.
        outline: Tokens of the outline that a session begins with; 0 for none.
    """

    def __init__(self, workspace: Workspace, outline: int) -> None:
        self.index = CodeIndex(_find_place(workspace.root))
        self._workspace = workspace
        self._outline = outline
        self.hook = EventHook(
            name="code_index",
            events=("session.start",),
            run=self._begin,
            timeout=30,
            on_error="allow",
            source="shipped",
        )

    async def _begin(self, occasion: Occasion) -> object:
        started = isinstance(occasion.payload, SessionStart) and occasion.payload.source
        number = await run_blocking(lambda: self.index.start(self._workspace))
        if not self._outline or started != "startup":
            return None
        progress = await run_blocking(lambda: self.index.wait(number, _OUTLINE_SECONDS))
        if not progress.files:
            return None
        names = self._workspace.names

        def allows(path: str) -> bool:
            return names.check(path, write=False) is None

        text = await run_blocking(lambda: make_outline(self.index, allows, self._outline))
        return allow(context=text)

    async def close(self) -> None:
        """End what is under way, and close the file."""
        await run_blocking(self.index.close)
        self._workspace.close()


def _find_place(root: Path) -> Path:
    """Return the file of a workspace's index. Files of indexes that nobody uses are removed."""
    folder = paths.state() / "code_index"
    oldest = time.time() - _UNUSED_DAYS * 86400
    for file in folder.glob("*.db*"):
        try:
            if file.stat().st_mtime < oldest:
                file.unlink()
        except OSError:
            continue  # Another process was faster.
    return folder / f"{hashlib.sha256(str(root).encode()).hexdigest()[:32]}.db"
