"""An exchange whose tools can grow while the session runs, by registration or by tool search.

A model learns of a new tool with the next request, in the same run: the exchange is opened anew,
with the tools it had, byte for byte and in their order, and the new ones behind them. That costs
encoding the history once more, however many tools were added since the last request. In the tool
modes that describe tools in the system text, that text grows, too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ferrule.core.events import ModelAnswered
from ferrule.core.messages import Message
from ferrule.engine.tool_search.discovery import ToolDiscovery
from ferrule.models.client import Exchange, Sink, ToolSpec, tool_mode_of

from .session_catalog import SessionCatalog

OpenExchange = Callable[[tuple[ToolSpec, ...], str], Awaitable[Exchange]]
"""Opens an exchange with these tools behind the agent's own, in a tool mode ("": the agent's)."""


class RegistrationExchange:
    """An `Exchange` that is opened anew, with more tools, once the catalog has grown.

    `searching` is told of each request and of what a provider's own search found for its answer.
    """

    def __init__(
        self,
        open: OpenExchange,
        catalog: SessionCatalog,
        specs: Callable[[], tuple[ToolSpec, ...]],
        searching: ToolDiscovery | None = None,
    ) -> None:
        self._searching = searching
        self._open = open
        self._catalog = catalog
        self._specs = specs
        self._inner: Exchange | None = None
        self._discovered: tuple[str, ...] = ()
        self._version = -1
        self._first = self._tool_mode = ""
        self.notices: list[tuple[str, str]] = []

    async def open(self) -> Exchange:
        """Return the exchange with the current tools.

        Raises ProviderError and ConfigError, as opening one does.
        """
        await self._catalog.gather()
        if self._inner is not None and self._version == self._catalog.version:
            return self._inner
        version = self._catalog.version
        self._discovered = self._catalog.discovered
        # A tool mode that the provider has refused is not tried again.
        tool_mode = tool_mode_of(self._inner)
        if tool_mode != self._first:
            self._tool_mode = tool_mode
        self._inner = await self._open(self._specs(), self._tool_mode)
        self._first = self._first or tool_mode_of(self._inner)
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
            searching.on_question(self._discovered)
        try:
            answer = await inner.ask(history, tools=tools, schema=schema, sink=sink)
        finally:
            self.notices += inner.notices
            inner.notices.clear()
        if searching is not None and answer.provider_calls:
            searching.on_provider_calls(answer.provider_calls)
        return answer
