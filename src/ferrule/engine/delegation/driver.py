"""A driver that can delegate, or was delegated to. Sessions without agents use another one and pay
nothing.

Beside what `HookedDriver` does it counts tokens, money and calls for the whole tree (`lineage`),
asks no model when none are left, puts one question at a time to a person for all of the tree, and
ends what agents still do when its run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ferrule.core import events
from ferrule.core.commands import AskModel, AskPerson, Command, Finish
from ferrule.engine.background import background_of
from ferrule.engine.budgets import calls_of
from ferrule.engine.hooks.chain import Hooks
from ferrule.engine.hooks.driver import HookedDriver

from .delegation import Delegation, value_of
from .lineage import Lineage
from .roster import Roster
from .sub_agent import DELEGATE
from .work import Home


class DelegatingDriver(HookedDriver):
    """Drives a session of `home`; `lineage` None: nobody delegated to it."""

    def __init__(
        self,
        *given: Any,
        home: Home,
        roster: Roster,
        lineage: Lineage | None,
        hooks: Hooks,
        resources: dict[type, object],
        **more: Any,
    ) -> None:
        self.lineage = lineage or Lineage.root(home.limits)
        self.delegation = Delegation(home, self, roster)
        super().__init__(
            *given, hooks=hooks, resources={**resources, Delegation: self.delegation}, **more
        )
        hooks.through = self._through
        if lineage is not None:
            hooks.agent_type, hooks.agent_id = lineage.agent, self.log.identity.session

    def open(self, opened: events.SessionOpened | None) -> None:
        if opened is not None and self.lineage.agent:
            mine = self.lineage
            opened = replace(opened, parent=mine.parent, parent_call=mine.call, agent=mine.agent)
        super().open(opened)

    async def run(self, started: events.RunStarted, run: str = "") -> Finish:
        self.lineage.begin(started.limits)
        return await super().run(started, run)

    async def resume(self, reason: str) -> Finish | None:
        self.lineage.begin(self.machine.limits, self.elapsed)
        self.lineage.shared.spend(self.machine.usage, calls_of(self.machine))
        return await super().resume(reason)

    def record(self, event: events.DelegationStarted | events.DelegationFinished) -> None:
        """Put it into the journal: the beginning before the agent does anything, the end with what
        is written next.
        """
        self._feed(event)
        if isinstance(event, events.DelegationStarted):
            self.log.flush()

    async def _to_the_end(self, commands: list[Command]) -> Finish:
        try:
            return await super()._to_the_end(commands)
        finally:
            await self._end_agents()
            self.lineage.end()

    async def _end_agents(self) -> None:
        tasks = background_of(self.memory)
        if tasks is not None:
            await tasks.end_run()
            self.log.flush()

    async def _ask_model(self, command: AskModel) -> list[Command]:
        if name := self.lineage.shared.used_up():
            # Agents that work beside this one have used it up, or those that it waited for.
            return self._feed(events.LimitHit(name, getattr(self.machine.limits, name) or 0))
        commands = await super()._ask_model(command)
        if any(isinstance(one, Finish) for one in commands):
            await self._end_agents()
            # What they used until now is part of what this run used.
            usage = self.machine.usage
            commands = [
                replace(one, usage=usage) if isinstance(one, Finish) else one for one in commands
            ]
        return commands

    async def _ask_person(self, command: AskPerson) -> list[Command]:
        async with self.lineage.tree.asking():
            return await super()._ask_person(command)

    def _feed(self, event: events.Event) -> list[Command]:
        if isinstance(event, events.ModelAnswered):
            self.lineage.shared.spend(event.usage, len(event.calls))
        elif isinstance(event, events.ContextCompacted):
            self.lineage.shared.spend(event.usage, 0)
        return super()._feed(event)

    async def _through(self, request: Mapping[str, Any]) -> Any:
        """A hook has a call's work done by an agent: the same way as any other delegation."""
        return value_of(await self.call(DELEGATE, dict(request), by="hook"))

    _STEPS: ClassVar[dict[type, Callable[[Any, Any], Coroutine[Any, Any, list[Command]]]]] = {
        **HookedDriver._STEPS,
        AskModel: _ask_model,
        AskPerson: _ask_person,
    }
