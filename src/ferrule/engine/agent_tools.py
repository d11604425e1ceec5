"""The tools that an agent's sessions begin with, and how they find those that they do not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ferrule.tools.definition import FINDERS, Loading, Tool

if TYPE_CHECKING:
    from ferrule.models.client import Exchange, ToolSpec
    from ferrule.permissions.gate import Gate
    from ferrule.tools.catalog import Catalog
    from ferrule.tools.search.options import ToolSearch

    from .driver import Driver
    from .registration.exchange import Open
    from .tool_search.discovery import Searching
    from .tool_search.index import Indexes

_LOADING = attrgetter("loading")


class Offering:
    """What of an agent is about its tools. `Agent` is one; nothing else is."""

    catalog: Catalog
    gate: Gate
    _scopes: frozenset[str]
    _specs: tuple[Gate, int, str, tuple[ToolSpec, ...]] | None = None

    def specs(self, mode: str = "client") -> tuple[ToolSpec, ...]:
        """The tools as the model gets them: sorted, hidden ones left out. The same value while
        nothing changes.

        Where deferred tools are searched for (`search`), `mode` says by whom: without those, or all
        with those marked (`native`).
        """
        gate, version, option = self.gate, self.catalog.version, self.search
        cached = self._specs
        if cached is None or cached[0] is not gate or cached[1:3] != (version, mode):
            if option is not None:
                from .tool_search.discovery import first_specs

                specs = first_specs(self.catalog, option, mode, self._usable)
            else:
                from ferrule.models.client import ToolSpec

                names = self.catalog.wire_table()
                specs = tuple(
                    ToolSpec(
                        tool.full_name,
                        names[tool.full_name],
                        tool.description,
                        tool.schema_json(),
                        tool.examples,
                    )
                    for tool in self.catalog
                    if tool.loading is not Loading.INTERNAL
                    and tool.source != FINDERS
                    and tool.scopes <= self._scopes
                    and not gate.hidden(tool)
                )
            cached = self._specs = (gate, version, mode, specs)
        return cached[3]

    def _search_with(self, given: ToolSearch | Mapping[str, Any] | str | bool | None) -> None:
        self._tool_search: ToolSearch | bool | None = None if given is None else False
        if given is not None and given is not False:
            from ferrule.tools.search.options import ToolSearch

            self._tool_search = ToolSearch.of(given)
        self._searches_always = bool(self._tool_search)
        self._search: tuple[Gate, Catalog, int, ToolSearch | None] | None = None
        self._indexes: Indexes | None = None

    @property
    def search(self) -> ToolSearch | None:
        """How this agent's sessions find deferred tools, as things are; None where they need not.

        Raises ConfigError for a model that would begin with no tool but the search, and where the
        search's name is taken.
        """
        gate, catalog, cached = self.gate, self.catalog, self._search
        if (
            cached is None
            or cached[0] is not gate
            or cached[1] is not catalog
            or cached[2] != catalog.version
        ):
            given, option = self._tool_search, None
            if given is not False and (
                self._searches_always or Loading.DEFERRED in map(_LOADING, catalog)
            ):
                from .tool_search.tools import prepared

                option = prepared(given, catalog, self._usable, always=self._searches_always)
            # Read again: the tools that search are among the agent's by now.
            cached = self._search = (gate, catalog, catalog.version, option)
        return cached[3]

    def _usable(self, tool: Tool) -> bool:
        return (
            tool.loading is not Loading.INTERNAL
            and tool.scopes <= self._scopes
            and not self.gate.hidden(tool)
        )

    def _searching(self, option: ToolSearch, catalog: Catalog, session_id: str) -> Searching:
        from .registration.session_catalog import SessionCatalog
        from .tool_search.discovery import Searching
        from .tool_search.index import Indexes

        assert isinstance(catalog, SessionCatalog)
        self._indexes = self._indexes or Indexes()
        return Searching(option, catalog, self._indexes, session_id)

    def _growing(
        self, open: Open, catalog: Catalog, driver: Callable[[], Driver]
    ) -> Callable[[], Awaitable[Exchange]]:
        from .registration.exchange import GrowingExchange
        from .registration.session_catalog import SessionCatalog

        assert isinstance(catalog, SessionCatalog)

        async def opened() -> Exchange:
            dispatcher = driver().dispatcher
            grown = GrowingExchange(
                open, catalog, lambda: catalog.specs(dispatcher.usable), dispatcher.searching
            )
            await grown.open()
            return grown

        return opened
