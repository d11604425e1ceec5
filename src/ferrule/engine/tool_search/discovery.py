"""Tool search in a session: which deferred tools its model has discovered, and who searches.

    native   the provider searches: all tools are sent, deferred ones marked; what it found is read
             from its answer
    client   Ferrule searches: deferred tools are not sent, two tools find them (`search_tools`),
             and what was found is sent from the next request on, behind all that was sent before
             (`engine.registration.session_catalog`)

Rules of this file, each a promise with a test:

* A model may not call a tool that was not sent with the request: a guess, or a search and the call
  in one answer, is refused with the way to find the tool (`ToolDiscovery.refusal`, which the
  dispatcher asks). This applies to models only, not to people, scripts or programs.
* Nothing is found that this run may not use (rights, deny rules, tools for other tools).
* Every search is two events in the journal, of the same form whoever searched. A resumed session is
  rebuilt from them.
* In client mode the list only grows, unless `budget_tokens` or the provider's number of tools
  limits it: then the oldest discoveries leave it, and can be found again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable
from typing import Any, cast

from ferrule.core.calls import ErrorType, ToolCall, ToolResult, encode_json, parse_json
from ferrule.core.errors import ConfigError, FerruleError, ToolFailed
from ferrule.core.events import (
    Event,
    ModelAnswered,
    ProviderToolCall,
    ToolSearchQuery,
    ToolSearchResult,
)
from ferrule.engine.registration.session_catalog import SessionCatalog
from ferrule.engine.threads import run_blocking
from ferrule.models.client import ModelClient, ModelOptions, ToolSpec
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import SEARCH_TOOLS_SOURCE, Loading, Tool
from ferrule.tools.search.index import SearchHit, read_names
from ferrule.tools.search.options import NamedSearcher, ToolSearch
from ferrule.tools.word_stems import first_sentence

from .index import Indexes, group_of, tags_of

NATIVE, CLIENT = "native", "client"
DEFAULT_LIMIT = 10
"""Default number of tools that a search finds."""
MAX_LIMIT = 50
"""Maximum number of tools that one search finds."""
_MAX_SNIPPET = 160
_REMOTE = ("mcp ", "http ")
"""Beginnings of the sources of tools that servers and documents bring, dozens at a time."""
_SEARCH_TOOLS = 2
"""Number of tools that a search adds."""


class ToolDiscovery:
    """The tool search of one session. `context.resource(ToolDiscovery)` finds it.

    `usable` says whether the run may use a tool, `record` adds an event to its journal.
    """

    def __init__(
        self,
        option: ToolSearch,
        catalog: SessionCatalog,
        indexes: Indexes,
        session: str,
        *,
        usable: Callable[[Tool], bool],
        record: Callable[[Event], None],
        max_found: int | None = None,
    ) -> None:
        self.option = option
        self.catalog = catalog
        self.mode = ""
        """Who searches; "" until the model was asked what it can do."""
        self.usable = usable
        self.record = record
        self.max_found = max_found
        """The most discovered tools that fit into a request of the provider; None: not known."""
        self._indexes = indexes
        self._session = session
        self._sent: frozenset[str] = frozenset()
        """The discovered tools that were sent with the last request."""
        self._found_by_provider: set[str] = set()

    # ---- deferred tools

    def list_deferred(self) -> list[Tool]:
        """Return the tools that can be found here, including those already found, by name."""
        return [
            tool for tool in self.catalog if is_deferred(tool, self.option) and self.usable(tool)
        ]

    def is_deferred(self, tool: Tool) -> bool:
        """Whether the tool is kept back until it is found."""
        return is_deferred(tool, self.option)

    def is_loaded(self, tool: Tool) -> bool:
        """Whether a model may call the tool in its current answer."""
        name = tool.full_name
        return (
            not is_deferred(tool, self.option)
            or name in self._sent
            or name in self._found_by_provider
        )

    def refusal(self, tool: Tool) -> str:
        """Explain why a model may not call the tool now, and how to find it; "" if it may."""
        if self.is_loaded(tool):
            return ""
        name = self.catalog.api_name(tool)
        if self.mode == NATIVE:
            return (
                f"`{name}` is not loaded: no tool search has found it; search for it, then call it"
            )
        if tool.full_name in self.catalog.discovered:
            return (
                f"`{name}` was found in this turn: call it in your next answer, when you have "
                "its parameters"
            )
        return (
            f"`{name}` is not loaded: find it with `{self.option.name}`, then call it in the "
            "answer after that"
        )

    # ---- one search

    async def find(self, call_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Search, promote what was found, and return what the model reads of it.

        `arguments` are `query`, and perhaps `tags` and `limit`. Raises ToolFailed if a custom
        searcher fails.
        """
        searcher = self.option.searcher_name
        query = str(arguments["query"])
        tags = tuple(arguments.get("tags", ()))
        limit = min(int(arguments.get("limit", DEFAULT_LIMIT)), MAX_LIMIT)
        asked = ToolSearchQuery(
            call_id, f"tool_search_tool_{searcher}", dict(arguments), searcher, CLIENT
        )
        self.record(asked)
        there = self.list_deferred()
        chosen = [tool for tool in there if set(tags) <= tags_of(tool)] if tags else there
        hits: list[SearchHit] = []
        promoted: tuple[str, ...] = ()
        problem = ""
        try:
            hits = await self._rank(query, chosen, tags, limit)
            promoted = self.promote([hit.name for hit in hits])
        except ValueError as error:
            if self.option.own_strategy != "regex":
                raise
            problem = f"the expression cannot be used: {error}"
        finally:
            found = tuple(hit.name for hit in hits)
            self.record(ToolSearchResult(call_id, found, promoted, searcher, CLIENT))
        return self._describe(
            query,
            tags,
            hits,
            promoted,
            problem or self._describe_nothing(query, tags, there, chosen),
        )

    async def _rank(
        self, query: str, chosen: Sequence[Tool], tags: Sequence[str], limit: int
    ) -> list[SearchHit]:
        """Return the best hits.

        Raises ValueError for an invalid expression, ToolFailed for a searcher that fails.
        """
        own = self.option.own_strategy
        if isinstance(own, NamedSearcher):
            return await self._rank_by_function(own, query, chosen, tags, limit)
        if not query.strip():
            # Tags without a query list all tools that have them.
            return [_make_hit(tool) for tool in chosen[:limit]] if tags else []
        return await run_blocking(lambda: self._indexes.of(chosen).search(query, own, limit))

    async def _rank_by_function(
        self,
        own: NamedSearcher,
        query: str,
        chosen: Sequence[Tool],
        tags: Sequence[str],
        limit: int,
    ) -> list[SearchHit]:
        state: dict[str, Any] = {
            "limit": limit,
            "tags": list(tags),
            "discovered": list(self.catalog.discovered),
            "session": self._session,
        }
        places = {tool.full_name: tool for tool in chosen}
        names: list[str] = []
        failed = ""
        try:
            answer = await _name_called(lambda: own.handler(query, tuple(chosen), state))
            names = [self._full_name(name) for name in read_names(answer)]
        except Exception as error:  # noqa: BLE001  boundary: somebody else's searcher fails as its call
            failed = f"{type(error).__name__}: {error}"
            if isinstance(error, FerruleError):
                failed = error.detail
        if failed:
            raise ToolFailed(ErrorType.INTERNAL_ERROR, f"the search `{own.name}` failed: {failed}")
        return [_make_hit(places[name]) for name in dict.fromkeys(names) if name in places][:limit]

    def _full_name(self, name: str) -> str:
        tool = self.catalog.get(name)
        return name if tool is None else tool.full_name

    def _describe_nothing(
        self, query: str, tags: Sequence[str], there: Sequence[Tool], chosen: Sequence[Tool]
    ) -> str:
        """Explain why nothing was found, and what to do about it."""
        if not there:
            return "there are no tools to be found: all that may be used here are loaded"
        if not chosen:
            known = ", ".join(sorted({tag for tool in there for tag in tags_of(tool)})[:20])
            return f"no tool has the tags {', '.join(tags)}; tags there are: {known or 'none'}"
        if not query.strip():
            return "the query is empty; say in a few words what the tool should do"
        return f"none of {len(chosen)} tools fits; use other words for what it does or works on"

    def _describe(
        self,
        query: str,
        tags: Sequence[str],
        hits: Sequence[SearchHit],
        promoted: Iterable[str],
        empty: str,
    ) -> dict[str, Any]:
        names = self.catalog.api_names()
        ranked = [
            {"tool_name": names[hit.name], "score": round(hit.score, 6), "snippet": hit.snippet}
            for hit in hits
        ]
        report: dict[str, Any] = {
            "tool_names": [one["tool_name"] for one in ranked],
            "ranked": ranked,
        }
        if not hits:
            return report | {"diagnostic": empty}
        given = set(promoted)
        left = [names[hit.name] for hit in hits if hit.name not in given]
        if left:
            report["not_loaded"] = left
            report["diagnostic"] = (
                "those in not_loaded did not fit the budget: search for one of them alone"
            )
        return report

    # ---- promotion

    def promote(self, names: Iterable[str]) -> tuple[str, ...]:
        """Send these tools from the next request on, best first, as far as the budget allows.

        The oldest others leave the list for them, but none that this search found.

        Returns:
            The names of those that are sent then.
        """
        known = [self.catalog.get(name) for name in names]
        found = [tool for tool in known if tool is not None and self.usable(tool)]
        budget = self.option.budget_tokens
        held = {name: self._tool_tokens(self.catalog.get(name)) for name in self.catalog.discovered}
        fresh = {tool.full_name for tool in found}
        given: list[str] = []
        for tool in found:
            name, size = tool.full_name, self._tool_tokens(tool)
            if name not in held:
                staying = sum(tokens for other, tokens in held.items() if other in fresh)
                if budget is not None and staying + size > budget:
                    continue
                if self.max_found is not None and len(fresh & held.keys()) >= self.max_found:
                    continue
                while budget is not None and sum(held.values()) + size > budget:
                    del held[next(other for other in held if other not in fresh)]
                while self.max_found is not None and len(held) >= self.max_found:
                    del held[next(other for other in held if other not in fresh)]
                held[name] = size
            given.append(name)
        self.catalog.discover(tuple(held))
        return tuple(given)

    def on_call_answered(self, call: ToolCall, tool: Tool, result: ToolResult) -> None:
        """Promote the tools that a hook's or a recording's answer to a search names."""
        if (
            tool.source != SEARCH_TOOLS_SOURCE
            or tool.name != self.option.name
            or not result.success
        ):
            return
        try:
            names = [self._full_name(name) for name in read_names(result.data)]
            asked = _parse_object(call.arguments)
        except ConfigError:
            return
        searcher = self.option.searcher_name
        promoted = self.promote(names)
        self.record(
            ToolSearchQuery(call.id, f"tool_search_tool_{searcher}", asked, searcher, CLIENT)
        )
        self.record(ToolSearchResult(call.id, tuple(names), promoted, searcher, CLIENT))

    def _tool_tokens(self, tool: Tool | None) -> int:
        if tool is None or self.option.budget_tokens is None:
            return 0
        return estimate_tool_tokens(tool)

    # ---- searches of the provider

    def on_question(self, discovered: Iterable[str]) -> None:
        """Take note of the discovered tools that are sent with a request."""
        self._sent = frozenset(discovered)

    def on_provider_calls(self, made: Sequence[ProviderToolCall]) -> None:
        """Take note of what the provider's own search found.

        The model may call those tools in the same answer.
        """
        for one in made:
            if one.tool_kind == "tool_search":
                query, result = _to_events(
                    one, self.option.provider_variant, self._select_promoted(one.references)
                )
                self._found_by_provider.update(result.promoted)
                self.record(query)
                self.record(result)

    def _select_promoted(self, references: Iterable[str]) -> tuple[str, ...]:
        tools = ((name, self.catalog.get(name)) for name in references)
        return tuple(name for name, tool in tools if tool is not None and self.usable(tool))

    def rebuild(self, journal: Iterable[Event]) -> None:
        """Restore what a journal says was discovered."""
        for event in journal:
            if isinstance(event, ToolSearchResult) and event.mode == NATIVE:
                self._found_by_provider.update(self._select_promoted(event.promoted))
            elif isinstance(event, ToolSearchResult):
                self.promote(event.promoted)
            elif isinstance(event, ModelAnswered):
                # The request had everything that was found by then.
                self.on_question(self.catalog.discovered)

    # ---- who searches

    async def choose_mode(self, model_client: ModelClient, tool_mode: str) -> str:
        """Choose who searches for this model.

        Raises ConfigError if it must be the provider and the provider has no search; ProviderError.
        """
        self.mode = CLIENT
        if self.option.mode == CLIENT or not self.option.can_be_native:
            return self.mode
        if tool_mode in ("auto", NATIVE):
            able = await model_client.capabilities()
            if able.tool_search and able.tools is not False:
                self.mode = NATIVE
        if self.option.mode == NATIVE and self.mode != NATIVE:
            raise ConfigError(
                f"`{model_client.model}` has no tool search of its own",
                hint='let Ferrule search, with tool_search mode "client" (or "auto"); where a '
                "gateway passes the"
                " provider's search on, say so with `force_native_tool_search`",
            )
        return self.mode

    def offer(
        self, sent: tuple[ToolSpec, ...], added: tuple[ToolSpec, ...], options: ModelOptions
    ) -> tuple[tuple[ToolSpec, ...], ModelOptions]:
        """Return everything that goes to the model in the chosen mode.

        `sent` are the agent's tools, `added` the session's.
        """
        if self.mode == NATIVE:
            options = replace(options, tool_search=self.option.provider_variant)
            if added:
                # Ferrule found them while another model was asked: no search of this provider will
                # find them again.
                names = {spec.name for spec in added}
                sent = tuple(spec for spec in sent if spec.name not in names)
        return ((*sent, *added) if added else sent), options


def first_specs(
    catalog: Catalog, option: ToolSearch, mode: str, usable: Callable[[Tool], bool]
) -> tuple[ToolSpec, ...]:
    """Return the tools that a model is sent first.

    Without deferred ones, or all with those marked (`native`).
    """
    names = catalog.api_names()
    native = mode == NATIVE
    found = (
        (tool, is_deferred(tool, option))
        for tool in catalog
        if usable(tool) and not (native and tool.source == SEARCH_TOOLS_SOURCE)
    )
    return tuple(
        ToolSpec(
            tool.full_name,
            names[tool.full_name],
            tool.offered_description,
            tool.schema_json(),
            tool.examples,
            deferred,
            group_of(tool) if deferred else "",
            side_effect=tool.declared_side_effect,
        )
        for tool, deferred in found
        if native or not deferred
    )


def _to_events(
    made: ProviderToolCall, strategy: str, promoted: tuple[str, ...]
) -> tuple[ToolSearchQuery, ToolSearchResult]:
    """Convert a provider's search to the two events of Ferrule's own search."""
    strategy = next((name for name in ("regex", "bm25") if made.name.endswith(name)), strategy)
    query = _parse_object(made.arguments)
    id = made.provider_tool_id
    return (
        ToolSearchQuery(id, f"tool_search_tool_{strategy}", query, strategy, NATIVE),
        ToolSearchResult(id, made.references, promoted, strategy, NATIVE),
    )


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value: Any = parse_json(text)
    except ValueError:
        value = text
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"query": value}


def _make_hit(tool: Tool) -> SearchHit:
    return SearchHit(tool.full_name, 0.0, first_sentence(tool.description)[:_MAX_SNIPPET])


async def _name_called(searcher: Callable[[], object]) -> object:
    """Call a custom searcher: in a thread, unless it is async."""
    answer = await run_blocking(searcher)
    return await cast("Awaitable[object]", answer) if isawaitable(answer) else answer


def is_deferred(tool: Tool, option: ToolSearch) -> bool:
    """Whether a run with this option keeps the tool back until it is found."""
    if tool.loading is not Loading.DEFERRED and tool.full_name not in option.also_deferred:
        return False
    pinned = option.always_loaded
    return not pinned or (tool.full_name not in pinned and tool.name not in pinned)


def estimate_tool_tokens(tool: Tool) -> int:
    """Return the rough number of tokens that a tool takes in a request.

    It is a quarter of the characters that are sent of it, plus one.
    """
    heading = encode_json({"name": tool.full_name, "description": tool.description})
    return (len(heading) + len(tool.schema_json())) // 4 + 1


def defer_many(
    given: ToolSearch | None,
    catalog: Catalog,
    usable: Callable[[Tool], bool],
    bound: int | None,
) -> ToolSearch | None:
    """Return a search in which tools that are too many are deferred.

    Above `defer_above`, those of servers and documents are. If more than `bound` are left, which is
    what the provider takes, others are, too, the last by name first.
    """
    option = given or ToolSearch()
    pinned = option.always_loaded
    loaded = [
        tool
        for tool in catalog
        if tool.source != SEARCH_TOOLS_SOURCE and usable(tool) and not is_deferred(tool, option)
    ]
    free = [tool for tool in loaded if tool.full_name not in pinned and tool.name not in pinned]
    names: list[str] = []
    if option.defer_above is not None and len(loaded) > option.defer_above:
        names = [tool.full_name for tool in free if tool.source.startswith(_REMOTE)]
    left = len(loaded) - len(names)
    if bound is not None and left > bound:
        # Half of the places are for what a search finds.
        excess = left - (bound // 2 - _SEARCH_TOOLS)
        others = [tool.full_name for tool in free if tool.full_name not in names]
        names += others[::-1][:excess]
    if not names:
        return given
    mode = option.mode
    if len(names) == len(loaded) and mode == "auto":
        mode = "client"  # providers that search want one tool that is loaded
    return replace(option, mode=mode, also_deferred=(*option.also_deferred, *names))
