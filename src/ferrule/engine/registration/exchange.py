"""The conversation of a session that may gain tools while it runs, by registration or because they
were found.

A model learns of a new tool with the next question that it is asked, in the same run: the
conversation is opened anew, with the tools it had, byte for byte and in their order, and the new
ones behind them. That costs encoding the history once more, for all that came since the last
question together. In the ways that describe tools in the system text, that text grows, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message
from ferrule.models.client import Exchange, Sink, ToolSpec

from .session_catalog import SessionCatalog

if TYPE_CHECKING:
    from ferrule.engine.tool_search.discovery import Searching

Open = Callable[[tuple[ToolSpec, ...], str], Awaitable[Exchange]]
"""Opens a conversation with these tools behind the agent's own, in a way of calling tools ("": the
agent's).
"""


class GrowingExchange:
    """An `Exchange` that is opened anew, with more tools behind those it had, once the catalog has
    grown.

    `searching` is told of each question and of what a provider's own search found in the answer to
    it.
    """

    def __init__(
        self,
        open: Open,
        catalog: SessionCatalog,
        specs: Callable[[], tuple[ToolSpec, ...]],
        searching: Searching | None = None,
    ) -> None:
        self._searching = searching
        self._open = open
        self._catalog = catalog
        self._specs = specs
        self._inner: Exchange | None = None
        self._discovered: tuple[str, ...] = ()
        self._version = -1
        self._first = self._way = ""
        self.notices: list[tuple[str, str]] = []

    async def open(self) -> Exchange:
        """The conversation as it should be now. Raises ProviderError and ConfigError, as opening
        one does.
        """
        if self._inner is not None and self._version == self._catalog.version:
            return self._inner
        version, self._discovered = self._catalog.version, self._catalog.discovered
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
        searching = self._searching
        if searching is not None:
            searching.asked(self._discovered)
        try:
            answer = await inner.ask(history, tools=tools, schema=schema, sink=sink)
        finally:
            self.notices += inner.notices
            inner.notices.clear()
        if searching is not None and answer.provider_calls:
            searching.heard(answer.provider_calls)
        return answer
