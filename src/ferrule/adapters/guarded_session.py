"""A session whose tools another framework calls.

Each call of the framework is a direct call of the session: the one dispatcher evaluates, runs and
journals it. Calls that conflict run in the order in which they come.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.errors import ConfigError
from ferrule.core.events import Access, DirectCall, JournalRecord, PersonAnswered, ToolAnswered
from ferrule.core.media import MediaReference
from ferrule.engine.live_events import Live
from ferrule.engine.served_tools import find_served_tool, list_served_tools
from ferrule.engine.session import Session
from ferrule.engine.threads import run_blocking
from ferrule.permissions.approvals import Approver
from ferrule.tools.definition import Tool

from .framework_approvals import WAITING, Attempt, FrameworkApprover, PendingApproval

MAX_KEPT = 256
"""Results that are kept for calls that their framework may make again."""
_CURRENT: ContextVar[Attempt | None] = ContextVar("ferrule_adapter_call", default=None)


class GuardedSession:
    """Makes the calls of one framework in one session. Made by `guard.open_guarded_session`."""

    def __init__(self, session: Session[Any], framework: str, approver: Approver | None) -> None:
        self.session = session
        self.framework = framework
        self._asked_in: defaultdict[str, set[str]] = defaultdict(set)
        self.pending: dict[str, PendingApproval] = {}
        """Approvals that the framework's person is asked for, by the keys of their calls."""
        self.running: dict[str, asyncio.Future[ToolResult]] = {}
        """Calls that may outlast the task which made them, by their keys."""
        self._approver = FrameworkApprover(framework, session.catalog, approver)
        self._kept: dict[str, ToolResult] = {}
        self._running: list[tuple[Access, asyncio.Event]] = []
        self._loop = asyncio.get_running_loop()
        session.approvals.set_approver(self._approver)
        session.observe(self._observe)

    @property
    def tools(self) -> dict[str, Tool]:
        """The tools that the framework may call, by the names that its model knows."""
        return list_served_tools(self.session)

    @property
    def asks_framework(self) -> bool:
        """Whether approvals wait for the framework: the agent has no approver of its own."""
        return self._approver.own is None

    def key(self, call_id: str, scope: str = "") -> str:
        """Return who makes a call, for the journal: what an answer and a kept result belong to."""
        return " ".join(part for part in (self.framework, call_id, scope) if part)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | str,
        call_id: str = "",
        *,
        scope: str = "",
        approved: bool | None = None,
    ) -> ToolResult | PendingApproval:
        """Make a call. Never raises for what the tool does.

        Args:
            name: The tool, as the model named it.
            arguments: Its arguments, or the JSON text that the model wrote.
            call_id: The framework's id of the call.
            scope: What of the framework the id is unique in, if it is not the session.
            approved: What the framework's person said of what was asked before; None if nothing.

        Returns:
            The result, or the approval that the call waits for.

        Raises:
            ConfigError: It is called from another event loop than the one it was opened in.
        """
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError(
                f"`{name}` is called from another event loop than the guard was opened in",
                hint="run the framework with `await` inside `async with guard(agent)`",
            )
        if name in self.session.catalog and find_served_tool(self.session, name) is None:
            # The same answer as for a tool that does not exist.
            self.session.add_notice(self.framework, f"asked for a tool that is not served: {name}")
            message = f"there is no tool `{name}`"
            return ToolResult.error(ToolCall(call_id, name), ErrorType.NOT_FOUND, message)
        attempt = Attempt(call_id, self.key(call_id, scope), name, approved)
        token = _CURRENT.set(attempt)
        try:
            async with self._turn(self.session.approvals.evaluate(name, arguments).access):
                result = await self.session.call_tool(name, arguments, by=attempt.key)
        finally:
            _CURRENT.reset(token)
            self._approver.attempts.pop(attempt.direct_id, None)
            self.session.history.forget_call(attempt.direct_id)
        if attempt.pending is not None:
            return attempt.pending
        self._approver.asked.pop(attempt.key, None)
        self.pending.pop(attempt.key, None)
        return result

    def remember_asked(self, pending: PendingApproval, scope: str = "") -> None:
        """Let an answer count for this approval: the framework's person is being asked."""
        key = self.key(pending.call_id, scope)
        self._approver.asked[key].add(pending.digest)
        self._asked_in[scope].add(key)
        self.pending[key] = pending

    def asked_in(self, scope: str) -> set[str]:
        """Return the keys of the calls of a scope that were asked about, answered or not."""
        return self._asked_in[scope]

    def keep_result(self, key: str, result: ToolResult) -> None:
        """Keep a result: its framework may make the same call again, which then does not run."""
        self._kept[key] = result
        if len(self._kept) > MAX_KEPT:
            del self._kept[next(iter(self._kept))]

    def find_kept(self, key: str) -> ToolResult | None:
        """Return the kept result of a call; None if there is none."""
        return self._kept.get(key)

    async def load_media(self, result: ToolResult) -> list[tuple[MediaReference, bytes]]:
        """Return what a tool returned beside text, with its bytes. Raises ProviderError."""
        read = self.session.history.read_media
        return [(one, await run_blocking(lambda one=one: read(one))) for one in result.media]

    def restore(self, records: Iterable[JournalRecord]) -> None:
        """Learn from the journal what was asked and answered before, in another process."""
        keys: dict[str, str] = {}
        for record in records:
            match record.event:
                case DirectCall(call=call, by=by) if by.startswith(f"{self.framework} "):
                    keys[call.id] = by
                case PersonAnswered(call_id=call_id, note=note) as answer if note == WAITING:
                    key = keys.pop(call_id, "")
                    self._approver.asked[key].add(answer.digest)
                    self._asked_in[key.rpartition(" ")[2]].add(key)
                case ToolAnswered(result=result) if result.call_id in keys:
                    key = keys.pop(result.call_id)
                    self._approver.asked.pop(key, None)
                    self.keep_result(key, result)
                case _:
                    pass

    async def close(self) -> None:
        """End the calls that their framework has left, and close the session."""
        left = list(self.running.values())
        for one in left:
            one.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.session.close()

    @asynccontextmanager
    async def _turn(self, access: Access) -> AsyncGenerator[None]:
        """Wait for the calls that came before and conflict with this one."""
        before = [over for other, over in self._running if other.conflicts_with(access)]
        place = (access, asyncio.Event())
        self._running.append(place)
        try:
            for over in before:
                await over.wait()
            yield
        finally:
            self._running.remove(place)
            place[1].set()

    def _observe(self, item: Live) -> None:
        """Note which direct call of the session is which call of the framework."""
        attempt = _CURRENT.get()
        if isinstance(item, DirectCall) and attempt is not None and item.by == attempt.key:
            attempt.direct_id = item.call.id
            self._approver.attempts[item.call.id] = attempt
