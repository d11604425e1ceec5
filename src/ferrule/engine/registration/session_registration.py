"""A driver extension for a session that may gain tools, hooks and agents while it runs.

How a model learns of a new tool is explained in `engine.registration.growing_exchange`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ferrule.core.events import DirectCall, Event
from ferrule.engine.delegation.delegation import Delegation
from ferrule.engine.dispatcher import Dispatcher
from ferrule.engine.driver import Driver, DriverExtension
from ferrule.engine.hooks.chain import Hooks
from ferrule.engine.hooks.session_hooks import SessionHooks

from .registration import SOURCE, Registration, RegistrationLimits, describe_lost


class SessionRegistration(DriverExtension):
    """Registers for a session with a `SessionCatalog`.

    Implements `registration.RegisteringSession`.
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
