"""A driver of a session that may gain tools, hooks and agents while it runs. Sessions that may not
use another one and pay nothing.

How a model learns of a new tool is said in `engine.registration.exchange`.
"""

from __future__ import annotations

from typing import Any

from ferrule.core import events
from ferrule.core.commands import Command
from ferrule.engine.delegation.driver import DelegatingDriver

from .registration import SOURCE, Registration, RegistrationLimits, gone


class GrowingDriver(DelegatingDriver):
    """Drives a session whose dispatcher has a `SessionCatalog`."""

    def __init__(
        self,
        *given: Any,
        registration: RegistrationLimits,
        resources: dict[type, object],
        **more: Any,
    ) -> None:
        self.registration = Registration(self, registration)
        self.callers: dict[str, str] = {}
        self._gone = ""
        resources = {**resources, Registration: self.registration}
        super().__init__(*given, resources=resources, **more)

    def recall(self, journal: list[events.Event]) -> None:
        super().recall(journal)
        self._gone = gone(journal)

    def open(self, opened: events.SessionOpened | None) -> None:
        super().open(opened)
        if self._gone:
            self.inbox.tell(self._gone, SOURCE)
            self._gone = ""

    def watch_end(self) -> None:
        """See `registration.Registrar`."""
        self.closers.add(self._end)

    def _feed(self, event: events.Event) -> list[Command]:
        if isinstance(event, events.DirectCall):
            # Kept for the session, as the machine keeps ids: a tool may go on after its call was
            # answered.
            self.callers[event.call.id] = event.by
        return super()._feed(event)
