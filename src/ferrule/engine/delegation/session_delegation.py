"""A session that can delegate to sub-agents, or is a sub-agent's.

Tokens, money and calls are counted for the whole tree of sessions (`session_tree`); no model is
asked when none are left, one question at a time is put to a person for all of the tree, and what
agents still do when the run ends is ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from ferrule.core import events
from ferrule.core.commands import Command, FinishRun
from ferrule.engine.background import find_background
from ferrule.engine.budgets import count_calls
from ferrule.engine.dispatcher import Dispatcher
from ferrule.engine.driver import Driver, DriverExtension
from ferrule.engine.hooks.chain import Hooks
from ferrule.engine.session_log import SessionLog
from ferrule.permissions.approvals import Approver

from .delegated_task import DelegatingAgent
from .delegation import Delegation, unwrap_result
from .interrupted_task import read_past_work
from .registry import SubAgentRegistry
from .session_tree import Lineage
from .sub_agent import DELEGATE


class SessionDelegation(DriverExtension):
    """Delegates for a session of `home`. Fulfils `work.DelegatingSession`.

    Args:
        driver: Its driver.
        home: The agent whose session it is.
        roster: The sub-agents it may delegate to.
        lineage: Where the session stands in its tree; None if nobody delegated to it.
        hooks: The session's hooks.
    """

    def __init__(
        self,
        driver: Driver,
        home: DelegatingAgent,
        roster: SubAgentRegistry,
        lineage: Lineage | None,
        hooks: Hooks,
    ) -> None:
        super().__init__(driver)
        self.hooks = hooks
        self.lineage = lineage or Lineage.root(home.limits)
        self.delegation = Delegation(home, self, roster)
        self._ended: list[str] = []
        """Sessions of sub-agents that had ended when the run was left open."""

    def resources(self) -> Mapping[type, object]:
        return {Delegation: self.delegation}

    @property
    def dispatcher(self) -> Dispatcher:
        """The session's dispatcher."""
        return self.driver.dispatcher

    @property
    def log(self) -> SessionLog:
        """The session's log."""
        return self.driver.log

    @property
    def approver(self) -> Approver:
        """Who is asked at this moment."""
        return self.driver.approver

    def record(self, event: events.DelegationStarted | events.DelegationFinished) -> None:
        """Journal the start or the end of a delegation.

        The start is written before the sub-agent does anything, the end with the next write.
        """
        self.driver.feed(event)
        if isinstance(event, events.DelegationStarted):
            self.driver.log.flush()

    def before_open(self, opened: events.SessionOpened | None) -> events.SessionOpened | None:
        mine = self.lineage
        if opened is None or not mine.agent:
            return opened
        return replace(opened, parent=mine.parent, parent_call=mine.call, agent=mine.agent)

    def rebuild(self, journal: Sequence[events.Event]) -> None:
        machine = self.driver.machine
        calls = [slot.call.id for slot in machine.open_calls() if not slot.direct]
        self.delegation.interrupted.rebuild(calls, journal)
        for event in journal:
            if isinstance(event, events.RunStarted):
                self._ended = []
            elif isinstance(event, events.DelegationFinished):
                self._ended.append(event.session)

    def before_run(self, started: events.RunStarted) -> None:
        self.lineage.begin_run(started.limits)

    def before_resume(self) -> None:
        machine = self.driver.machine
        self.lineage.begin_run(machine.limits, self.driver.elapsed)
        shared = self.lineage.shared
        calls = count_calls(machine)
        if shared.compute_remaining("max_calls") is not None:
            journal = self.log.journal
            calls += sum(read_past_work(journal, session).calls for session in self._ended)
        shared.spend(machine.usage, calls)

    async def after_run(self) -> None:
        await self._end_agents()
        self.lineage.end_run()

    async def before_request(self, turn: int) -> list[Command] | None:
        name = self.lineage.shared.find_exhausted()
        if name is None:
            return None
        # Agents that work beside this one have used it up, or those that it waited for.
        limit = getattr(self.driver.machine.limits, name) or 0
        return self.driver.feed(events.LimitHit(name, limit))

    async def after_request(self, commands: list[Command]) -> list[Command]:
        if not any(isinstance(one, FinishRun) for one in commands):
            return commands
        await self._end_agents()
        # What they used until now is part of what this run used.
        usage = self.driver.machine.usage
        return [
            replace(one, usage=usage) if isinstance(one, FinishRun) else one for one in commands
        ]

    def hold_approval_lock(self) -> AbstractAsyncContextManager[object]:
        return self.lineage.tree.question_lock()

    def before_event(self, event: events.Event) -> None:
        if isinstance(event, events.ModelAnswered):
            self.lineage.shared.spend(event.usage, len(event.calls))
        elif isinstance(event, events.ContextCompacted):
            self.lineage.shared.spend(event.usage, 0)

    async def _end_agents(self) -> None:
        tasks = find_background(self.driver.memory)
        if tasks is not None:
            await tasks.cancel_run_tasks()
            self.driver.log.flush()


async def delegate_for_hook(driver: Driver, request: Mapping[str, Any]) -> Any:
    """Have an agent do a call's work for a hook: a delegation like any other."""
    return unwrap_result(await driver.call(DELEGATE, dict(request), by="hook"))
