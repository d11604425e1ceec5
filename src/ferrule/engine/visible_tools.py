"""The tools that an agent's sessions begin with, and how they find deferred ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from ferrule.models.client import ToolSpec
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.tools import search as tool_ranking
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import PROVIDER_TYPE, SEARCH_TOOLS_SOURCE, Loading, Tool
from ferrule.tools.search import DEFER_ABOVE

from . import tool_search
from .run_inputs import UNSET, Unset

_LOADING = attrgetter("loading")
_LEAST_BOUND = 64
"""No provider is known to take fewer tools than this."""


class VisibleTools:
    """A catalog as a gate and scopes let a model see it.

    Args:
        catalog: All tools. May grow.
        gate: Hides tools that are denied.
        scopes: The scopes of the sessions.
        search: How deferred tools are found (`Agent(tool_calling=ToolCalling(search=...))`).
        find_bound: Returns how many tools the model's provider takes; None if that is not known.
    """

    def __init__(
        self,
        catalog: Catalog,
        gate: PermissionGate,
        scopes: frozenset[str],
        search: tool_ranking.ToolSearch | Mapping[str, Any] | str | bool | None,
        find_bound: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.find_bound = find_bound
        self.catalog = catalog
        self.gate = gate
        self.scopes = scopes
        self._given = search
        self._search_option = _option_of(search)
        option = self._search_option
        self._always_searched = option is not None and not option.only_if_deferred
        self._specs: tuple[int, str, tuple[ToolSpec, ...]] | None = None
        self._search: tuple[tuple[int, int | None], tool_ranking.ToolSearch | None] | None = None

    def copy(
        self,
        *,
        catalog: Catalog | None = None,
        gate: PermissionGate | None = None,
        scopes: frozenset[str] | None = None,
        search: tool_ranking.ToolSearch | Mapping[str, Any] | str | bool | Unset | None = UNSET,
        searched: bool = True,
    ) -> VisibleTools:
        """Return a copy with another catalog, gate, scopes or search.

        With `searched=False` a search is offered only if there are deferred tools.
        """
        # An empty catalog is one, too.
        made = VisibleTools(
            self.catalog if catalog is None else catalog,
            self.gate if gate is None else gate,
            self.scopes if scopes is None else scopes,
            self._given if search is UNSET else search,
            self.find_bound,
        )
        made._always_searched = made._always_searched and searched
        return made

    def is_usable(self, tool: Tool) -> bool:
        """Whether sessions may call the tool."""
        return self.gate.is_usable(tool, self.scopes)

    def specs(self, mode: str = "client") -> tuple[ToolSpec, ...]:
        """Return the tools as a model gets them: sorted, hidden ones left out.

        The same value is returned while nothing changes. Where deferred tools are searched for
        (`search`), `mode` says by whom: `client` leaves them out, `native` marks them.
        """
        version, option = self.catalog.version, self.search
        cached = self._specs
        if cached is None or cached[:2] != (version, mode):
            cached = (version, mode, self._list_specs(option, mode))
            self._specs = cached
        return cached[2]

    def _list_specs(
        self, option: tool_ranking.ToolSearch | None, mode: str
    ) -> tuple[ToolSpec, ...]:
        if option is not None:
            return tool_search.first_specs(self.catalog, option, mode, self.is_usable)
        names = self.catalog.api_names()
        return tuple(
            ToolSpec(
                tool.full_name,
                names[tool.full_name],
                tool.offered_description,
                tool.schema_json(),
                tool.examples,
                provider_type=str(tool.annotations.get(PROVIDER_TYPE, "")),
                side_effect=tool.declared_side_effect,
            )
            for tool in self.catalog
            if tool.source != SEARCH_TOOLS_SOURCE and self.is_usable(tool)
        )

    @property
    def search(self) -> tool_ranking.ToolSearch | None:
        """How sessions find deferred tools at the moment; None if there is no need.

        Raises ConfigError if a model would start with no tool but the search, and if the search's
        name is taken.
        """
        bound = self.find_bound() if len(self.catalog) > _LEAST_BOUND else None
        cached = self._search
        if cached is None or cached[0] != (self.catalog.version, bound):
            option = self._choose_search(bound)
            # Read again: the tools that search are in the catalog by now.
            cached = self._search = ((self.catalog.version, bound), option)
        return cached[1]

    def count_free_places(self) -> int | None:
        """Return how many discovered tools fit into a request; None if that is not known."""
        bound = self.find_bound()
        return None if bound is None else max(1, bound - len(self.specs()))

    def _choose_search(self, bound: int | None) -> tool_ranking.ToolSearch | None:
        if self._given is False:
            return None
        option = self._search_option
        least = DEFER_ABOVE if option is None else option.defer_above
        is_many = least is not None and len(self.catalog) > least
        if not (
            self._always_searched
            or is_many
            or bound is not None
            or Loading.DEFERRED in map(_LOADING, self.catalog)
        ):
            return None
        option = tool_search.defer_many(option, self.catalog, self.is_usable, bound)
        return tool_search.prepare_search(
            option, self.catalog, self.is_usable, always=self._always_searched
        )


def _option_of(
    search: tool_ranking.ToolSearch | Mapping[str, Any] | str | bool | None,
) -> tool_ranking.ToolSearch | None:
    if search is None or search is False:
        return None
    # Loaded where it is used: most agents search for no tools.

    return tool_ranking.ToolSearch.from_setting(search)
