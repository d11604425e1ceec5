"""A hook that checks files after a tool changed them, and adds what is new to the result.

    after an edit of a.py  ->  the project's checkers and language servers on it  ->  what they did
                               not say before

Which checkers a project has is found in its configuration (`checkers.CHECKERS`); language servers
are those that the person's settings describe (`language_server`), one of each for a session,
started with the first edit that is theirs and ended with the session. A source that is missing,
fails or takes too long says so once and is left out for the rest of the session.

Off unless a person's settings name checkers or servers: a checker may run code of the repository
(plug-ins, build scripts), which the sandbox confines and nobody approves call by call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.engine.hooks.events import (
    Action,
    EventHook,
    Occasion,
    SessionEnd,
    ToolPost,
    ToolPre,
    allow,
)
from ferrule.extensions.hooks.commands import HookCommandRunner
from ferrule.permissions.filesystem.workspace import Workspace

from .checkers import CHECKERS, COLD, NAMES, ProjectChecker
from .findings import CheckFailed, Findings, Source, format_new, list_new
from .language_server import LanguageServer
from .server_settings import ServerEntry

_MAX_CALLS = 100
_PRIORITY = 200
"""After other hooks: they may still block the call."""


def diagnose_changes(
    checkers: Iterable[str],
    *,
    workspace: Workspace,
    commands: HookCommandRunner,
    servers: Iterable[ServerEntry] = (),
    seconds: float = 20.0,
) -> EventHook:
    """Return the hook.

    Args:
        checkers: Names of `CHECKERS`, or `auto` for all that the project has configured.
        workspace: Where changed files and configurations are read.
        commands: What runs the checkers and the servers.
        servers: Language servers that are asked as well.
        seconds: Time for one run of one checker, and for one answer of a server; the first in a
            session may take three times that.

    Raises:
        ConfigError: There is no such checker.
    """
    chosen = tuple(checkers)
    for name in chosen:
        if name not in (*NAMES, "auto"):
            raise ConfigError(
                f"there is no checker `{name}`", hint=f"choose from: auto, {', '.join(NAMES)}"
            )
    run = _Diagnostics(
        tuple(
            ProjectChecker(checker, workspace, commands, seconds)
            for checker in CHECKERS
            if "auto" in chosen or checker.name in chosen
        ),
        tuple(servers),
        workspace,
        commands,
        seconds,
    )
    return EventHook(
        name="diagnostics",
        events=("tool.pre", "tool.post", "session.end"),
        run=run.handle,
        priority=_PRIORITY,
        timeout=min(3600.0, COLD * (len(CHECKERS) + len(run.entries)) * seconds + 10),
        on_error="allow",
        source="shipped",
    )


@dataclass(slots=True)
class _Diagnostics:
    checkers: tuple[ProjectChecker, ...]
    entries: tuple[ServerEntry, ...]
    workspace: Workspace
    commands: HookCommandRunner
    seconds: float
    servers: dict[str, tuple[LanguageServer, ...]] = field(
        default_factory=dict[str, "tuple[LanguageServer, ...]"]
    )
    """The language servers of each session."""
    changing: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    """Files that running calls change, by call."""

    async def handle(self, occasion: Occasion) -> Action | None:
        """Check before and after a call that writes files it names."""
        payload = occasion.payload
        if isinstance(payload, ToolPre):
            return await self._before(payload, occasion)
        if isinstance(payload, ToolPost):
            return await self._after(payload, occasion)
        if isinstance(payload, SessionEnd):
            for server in self.servers.pop(occasion.identity.session, ()):
                await server.close()
        return None

    async def _before(self, call: ToolPre, occasion: Occasion) -> Action | None:
        names = self._find_names(call.writes)
        if not names or call.side_effect != "write":
            return None
        while len(self.changing) >= _MAX_CALLS:
            del self.changing[next(iter(self.changing))]
        self.changing[call.id] = names
        notes: list[str] = []
        for source in self._find_sources(occasion):
            for target in await source.find_targets(names):
                if source.sees_changes or target not in source.known:
                    await _check(source, target, occasion, notes)
        return allow(message="; ".join(notes)) if notes else None

    async def _after(self, result: ToolPost, occasion: Occasion) -> Action | None:
        names = self.changing.pop(result.id, ())
        if not names or not result.success:
            return None
        notes: list[str] = []
        new: list[str] = []
        for source in self._find_sources(occasion):
            for target in await source.find_targets(names):
                before = source.known.get(target, ())
                found = await _check(source, target, occasion, notes)
                new += list_new(source.name, before, found)
        if not new and not notes:
            return None
        return allow(context=format_new(new), message="; ".join(notes))

    def _find_names(self, paths: Sequence[str]) -> tuple[str, ...]:
        names: list[str] = []
        for path in paths:
            try:
                names.append(self.workspace.check_name(path, write=False))
            except ToolFailed:
                continue  # The call itself is refused for it.
        return tuple(dict.fromkeys(names))

    def _find_sources(self, occasion: Occasion) -> list[Source]:
        session = occasion.identity.session
        if self.entries and session not in self.servers:
            self.servers[session] = tuple(
                LanguageServer(entry, self.workspace, self.commands, self.seconds)
                for entry in self.entries
            )
        sources: list[Source] = [*self.checkers, *self.servers.get(session, ())]
        return [source for source in sources if not source.left_out]


async def _check(source: Source, target: str, occasion: Occasion, notes: list[str]) -> Findings:
    """Check a target. A source that fails is left out from then on, with a note."""
    if source.left_out:
        return ()
    try:
        return await source.check(target, occasion)
    except CheckFailed as failed:
        source.left_out = True
        notes.append(f"`{source.name}` is left out of diagnostics from now on: {failed}")
        await source.close()
        return ()
