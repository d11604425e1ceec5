"""What a session may gain while it runs: a limited number of tools, hooks and agents of its own.

Who may register what, and whether it is valid, is decided before
(`extensions.tool_files.registration_tools`); a person's approval is the gate's task, since a
registration is a call like any other. This module enforces what holds for everybody: the limits, no
name that is taken, no hook that sees how hooks are registered, no model that the session could not
use anyway. Nothing of it outlives the process: a resumed session is told what was lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import ClassVar

from ferrule.core.calls import ErrorType, read_arguments
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.core.events import DirectCall, Event, NoticeGiven, ToolAnswered
from ferrule.core.value_class import frozen, options
from ferrule.engine.delegation.delegation import Delegation
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.engine.dispatcher import Dispatcher
from ferrule.engine.driver import Driver, DriverExtension
from ferrule.engine.hooks.call_adapter import insert_call_hook
from ferrule.engine.hooks.chain import Hooks
from ferrule.engine.hooks.events import EventHook, Occasion, ToolPost, ToolPre
from ferrule.engine.hooks.session_hooks import SessionHooks
from ferrule.engine.plugins.protocol import Parts, PartsInternals, Setup
from ferrule.tools.definition import BUILTIN_NAMESPACE, Tool

from .session_catalog import SessionCatalog

REGISTER_TOOL, REGISTER_HOOK, REGISTER_AGENT = "register_tool", "register_hook", "register_agent"
REGISTRATION_TOOLS = (REGISTER_TOOL, REGISTER_HOOK, REGISTER_AGENT)
"""The tools whose calls register something."""

MAX_LIMIT = 1000
MIN_PRIORITY = 50
"""The lowest priority of a registered hook, so that existing hooks can come before it."""
SOURCE = "registration"
"""The source of the notice about what was lost."""


@options
class RegistrationLimits:
    """How much one session may gain. Raises ConfigError.

    Source of the defaults: systems.md §4.1.
    """

    tools: int = 50
    hooks: int = 30
    agents: int = 10

    def __post_init__(self) -> None:
        for name, value in (("tools", self.tools), ("hooks", self.hooks), ("agents", self.agents)):
            if not 0 <= value <= MAX_LIMIT:
                raise ConfigError(f"{name} = {value}: 0 to {MAX_LIMIT}")


@frozen
class Registering:
    """Lets sessions gain tools, hooks and agents (`Context.resource(Registration)`), and delegate.

    Attributes:
        limits: How much one session may gain.
    """

    name: ClassVar[str] = "registration"
    limits: RegistrationLimits = field(default_factory=RegistrationLimits)

    def setup(self, setup: Setup) -> Parts:
        """Return the limits."""
        return Parts(internals=PartsInternals(registration=self.limits))


class Registration:
    """The registrations of one session. `context.resource(Registration)` finds it."""

    def __init__(self, driver: SessionRegistration, limits: RegistrationLimits) -> None:
        self._driver = driver
        self._limits = limits
        self._agents = 0

    @property
    def catalog(self) -> SessionCatalog:
        """The session's tools."""
        catalog = self._driver.dispatcher.catalog
        assert isinstance(catalog, SessionCatalog)
        return catalog

    def caller(self, call_id: str) -> str:
        """Return the id of the call that made this one.

        Returns "" if a model, a person or a hook made it.
        """
        by = self._driver.callers.get(call_id, "")
        return by.removeprefix("call ") if by.startswith("call ") else ""

    def name_of(self, name: str) -> str:
        """Return the name of a registering tool here: a file may have taken its own."""
        return (
            f"{BUILTIN_NAMESPACE}::{name}"
            if f"{BUILTIN_NAMESPACE}::{name}" in self.catalog
            else name
        )

    def add_tool(self, tool: Tool) -> int:
        """Add a tool and return how many more there may be.

        Raises ToolFailed (`limit`), and ConfigError for a name that is taken or denied.
        """
        catalog = self.catalog
        left = _count_left("tools", len(catalog.added), self._limits.tools)
        if self._driver.dispatcher.gate.is_hidden(tool):
            raise ConfigError(f"a deny rule names `{tool.full_name}`", hint="choose another name")
        catalog.add(tool)
        return left

    def add_hook(self, hook: EventHook) -> int:
        """Add a hook, from the next event on, and return how many more there may be.

        Raises ToolFailed (`limit`) and ConfigError.
        """
        hooks = self._driver.hooks
        dispatcher = self._driver.dispatcher
        left = _count_left("hooks", len(hooks.added), self._limits.hooks)
        if hook.priority < MIN_PRIORITY:
            raise ConfigError(
                f"`priority` is {hook.priority}; a registered hook must have {MIN_PRIORITY} or more"
            )
        if any(one.name == hook.name for one in hooks.hooks):
            raise ConfigError(f"there is a hook `{hook.name}` already", hint="choose another name")
        if hook.handles("session.start"):
            raise ConfigError(
                "`session.start` is over when a hook is registered", hint="use `turn.start`"
            )
        blind = replace(hook, when=_HiddenFromRegistration(hook))
        if hook.handles("session.end") and not hooks.for_event("session.end"):
            self._driver.fire_session_end()
        hooks.add(blind)
        dispatcher.change_hooks(insert_call_hook(dispatcher.hooks, hooks, blind))
        return left

    def add_agent(self, agent: SubAgent) -> int:
        """Add a sub-agent and return how many more there may be.

        Raises ToolFailed (`limit`), and ConfigError for a name that is taken, a model that is not
        allowed or hooks.
        """
        left = _count_left("agents", self._agents, self._limits.agents)
        delegation = self._driver.delegation
        if agent.model and agent.model not in delegation.models:
            known = ", ".join(sorted(delegation.models))
            raise ConfigError(
                f"the model `{agent.model}` may not be used for this", hint=f"allowed: {known}"
            )
        delegation.add(agent)
        self._agents += 1
        return left


class SessionRegistration(DriverExtension):
    """Adds the registrations to a session with a `SessionCatalog`.

    How a model learns of a new tool is explained in `engine.registration.growing_exchange`.

    Attributes:
        delegation: The session's delegation.
        callers: Who made each direct call (`DirectCall.by`).
    """

    def __init__(
        self,
        driver: Driver,
        limits: RegistrationLimits,
        hooks: SessionHooks,
        delegation: Delegation,
    ) -> None:
        super().__init__(driver)
        self.delegation = delegation
        self.callers: dict[str, str] = {}
        self._hooks = hooks
        self._registration = Registration(self, limits)
        self._gone = ""

    def resources(self) -> Mapping[type, object]:
        return {Registration: self._registration}

    @property
    def hooks(self) -> Hooks:
        """The session's hooks."""
        return self._hooks.hooks

    @property
    def dispatcher(self) -> Dispatcher:
        """The session's dispatcher."""
        return self.driver.dispatcher

    def fire_session_end(self) -> None:
        """Fire `session.end` when the session closes."""
        self._hooks.fire_end_on_close()

    def rebuild(self, journal: Sequence[Event]) -> None:
        self._gone = describe_lost(journal)

    def after_open(self) -> None:
        if self._gone:
            self.driver.inbox.put(self._gone, SOURCE)
            self._gone = ""

    def before_event(self, event: Event) -> None:
        if isinstance(event, DirectCall):
            # Kept for the whole session, as the machine keeps ids: a tool may go on after its call
            # was answered.
            self.callers[event.call.id] = event.by


@frozen
class _HiddenFromRegistration:
    """The condition of a registered hook: never on calls that register hooks, else its own."""

    hook: EventHook

    def __call__(self, occasion: Occasion) -> bool:
        payload = occasion.payload
        if isinstance(payload, (ToolPre, ToolPost)) and payload.name == REGISTER_HOOK:
            return False
        return self.hook.when is None or self.hook.when(occasion)


def _count_left(what: str, there: int, most: int) -> int:
    if there >= most:
        raise ToolFailed(
            ErrorType.LIMIT,
            f"not registered: limit {what} = {most} for one session; use those that there are",
        )
    return most - there - 1


def describe_lost(events: Iterable[Event]) -> str:
    """Describe what was registered in a session and is lost, because its process has ended.

    Returns "" if there is nothing.
    """
    requested: dict[str, str] = {}
    lost: list[str] = []
    for event in events:
        match event:
            case DirectCall(call=call) if (
                call.tool.removeprefix(f"{BUILTIN_NAMESPACE}::") in REGISTRATION_TOOLS
            ):
                kind = call.tool.rpartition("_")[2]
                requested[call.id] = f"{kind} `{_name_of(call.arguments)}`"
            case ToolAnswered(result=result) if result.success and result.call_id in requested:
                lost.append(requested[result.call_id])
            case NoticeGiven(source=source) if source == SOURCE:
                lost.clear()
            case _:
                pass
    if not lost:
        return ""
    listed = ", ".join(lost)
    return f"This session goes on in another process. What was registered in it is gone: {listed}."


def _name_of(arguments: str) -> str:
    given = read_arguments(arguments) or {}
    return str(given.get("name", "?"))[:64]
