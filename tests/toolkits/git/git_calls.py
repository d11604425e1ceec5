"""Calls of git tools as one session makes them: on one event loop, with one sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ferrule.core.identity import Identity
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.toolkits.commands.policy import CommandPolicy
from ferrule.tools.context import Context
from ferrule.tools.process_resources import close_at_exit

UNCONFINED: dict[type, object] = {CommandPolicy: CommandPolicy(on_missing_protection="off")}
"""Resources of a run whose commands no sandbox confines."""

T = TypeVar("T")
_loops: list[asyncio.Runner] = []
_sessions: dict[str, dict[str, Any]] = {}
_closers: list[Callable[[], Awaitable[None]]] = []


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run work on the loop that all calls share."""
    if not _loops:
        _loops.append(asyncio.Runner())
    return _loops[0].run(work)


def make_context(
    workspace: Workspace,
    call_id: str = "c1",
    resources: dict[type, object] | None = None,
    session: str = "",
) -> Context:
    """Return the context of a call in a session of a workspace."""
    return Context(
        Identity("t", "u", "s", "run_1"),
        call_id,
        resources={Workspace: workspace, **(resources or {})},
        memory=_sessions.setdefault(f"{session}{workspace.root}", {}),
        on_close=_closers.append,
    )


def close_sessions() -> None:
    """End all sessions, and what they started."""
    closers = list(_closers)
    _closers.clear()
    _sessions.clear()

    async def close() -> None:
        for closer in closers:
            await closer()

    run(close())


def _end() -> None:
    if _closers:
        close_sessions()
    while _loops:
        _loops.pop().close()


close_at_exit(_end)
