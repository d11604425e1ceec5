"""A driver of a session that may gain tools, hooks and agents while it runs. Sessions that may not use another one and pay nothing.

A model learns of a new tool with the next question that it is asked, in the same run: the conversation is opened anew, with the
tools it had, byte for byte and in their order, and the new ones behind them. That costs encoding the history once more, for all
that came since the last question together. In the ways that describe tools in the system text, that text grows, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ferrule.core import events
from ferrule.core.commands import Command
from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message
from ferrule.models.wire import Exchange, Sink, ToolSpec

from .delegating import DelegatingDriver
from .registration import SOURCE, Registration, RegistrationLimits, gone
from .session_catalog import SessionCatalog

Open = Callable[[tuple[ToolSpec, ...], str], Awaitable[Exchange]]
"""Opens a conversation with these tools behind the agent's own, in a way of calling tools ("": the agent's)."""


class GrowingDriver(DelegatingDriver):
    """Drives a session whose dispatcher has a `SessionCatalog`."""

    def __init__(
        self,
        *given: Any,
        exchange: Open,
        registration: RegistrationLimits,
        resources: dict[type, object],
        **more: Any,
    ) -> None:
        self.registration = Registration(self, registration)
        self.callers: dict[str, str] = {}
        self._gone = ""
        self._open_with = exchange
        resources = {**resources, Registration: self.registration}
        super().__init__(*given, exchange=self._growing, resources=resources, **more)

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

    async def _growing(self) -> Exchange:
        catalog = self.dispatcher.catalog
        assert isinstance(catalog, SessionCatalog)
        grown = GrowingExchange(self._open_with, catalog, lambda: catalog.specs(self.dispatcher.usable))
        await grown.open()
        return grown

    def _feed(self, event: events.Event) -> list[Command]:
        if isinstance(event, events.DirectCall):
            # Kept for the session, as the machine keeps ids: a tool may go on after its call was answered.
            self.callers[event.call.id] = event.by
        return super()._feed(event)


class GrowingExchange:
    """An `Exchange` that is opened anew, with more tools behind those it had, once the catalog has grown."""

    def __init__(
        self, open: Open, catalog: SessionCatalog, specs: Callable[[], tuple[ToolSpec, ...]]
    ) -> None:
        self._open = open
        self._catalog = catalog
        self._specs = specs
        self._inner: Exchange | None = None
        self._version = -1
        self._first = self._way = ""
        self.notices: list[tuple[str, str]] = []

    async def open(self) -> Exchange:
        """The conversation as it should be now. Raises ProviderError and ConfigError, as opening one does."""
        if self._inner is not None and self._version == self._catalog.version:
            return self._inner
        version = self._catalog.version
        # A way that the provider has refused is not tried again.
        way = getattr(self._inner, "way", "")
        self._way = way if way != self._first else self._way
        self._inner = await self._open(self._specs(), self._way)
        self._first = self._first or getattr(self._inner, "way", "")
        self._version = version
        return self._inner

    async def ask(
        self,
        history: Sequence[Message],
        *,
        tools: bool = True,
        schema: Mapping[str, Any] | None = None,
        sink: Sink | None = None,
    ) -> ModelAnswered:
        """See `Exchange.ask`."""
        inner = await self.open()
        try:
            return await inner.ask(history, tools=tools, schema=schema, sink=sink)
        finally:
            self.notices += inner.notices
            inner.notices.clear()
