"""Tool search in a session: which deferred tools its model has discovered, and who finds them for
it.

    native   the provider searches: all tools are sent, deferred ones marked; what it found is read out of its answer
    client   Ferrule searches: deferred tools are not sent, two tools find them (`engine.tool_search.tools`), and what was found
             is sent from the next question on, behind all that was sent before
             (`engine.registration.session_catalog`)

Promises of this file:

* What a model was not sent when it was asked it may not call: a guess, or a search and the call in
  one answer, is refused with the way to find the tool (`Searching.refusal`, which the dispatcher
  asks). This binds models only, not people, scripts or programs.
* Nothing is found that this run may not use (rights, deny rules, tools for other tools).
* Every search is two events in the journal, of the same form whoever searched. A session that is
  resumed is rebuilt from them.
* In client mode the list only grows, unless `budget_tokens` bounds it: then the oldest discoveries
  leave it, and can be found again.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import isawaitable
from typing import Any, cast

from ferrule.core.calls import Call, ErrorType, Result, compact
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
from ferrule.models.client import ModelOptions, ToolSpec, Wire
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import FINDERS, Loading, Tool
from ferrule.tools.search.index import Hit, names_in
from ferrule.tools.search.options import Named, ToolSearch
from ferrule.tools.word_stems import first_sentence

from .index import Indexes, group_of, tags_of

NATIVE, CLIENT = "native", "client"
WANTED = 10
"""Tools that a search finds where it does not say how many."""
MOST = 50
"""Tools that one search finds at the most."""
_SNIPPET = 160


class Searching:
    """One session's. `context.resource(Searching)` finds it.

    `usable` says whether the run may use a tool, `record` puts an event into its journal; whoever
    makes the session sets both.
    """

    def __init__(
        self, option: ToolSearch, catalog: SessionCatalog, indexes: Indexes, session: str
    ) -> None:
        self.option = option
        self.catalog = catalog
        self.mode = ""
        """Who searches, once the model was asked what it can do; "" before."""
        self.usable: Callable[[Tool], bool] = lambda tool: False
        self.record: Callable[[Event], None] = lambda event: None
        self._indexes = indexes
        self._session = session
        self._seen: frozenset[str] = frozenset()
        """What the model had of discovered tools when it was last asked."""
        self._found_by_provider: set[str] = set()

    # ---- what may be found, and what has been

    def deferred(self) -> list[Tool]:
        """The tools that can be found here, those that have been found as well, by name."""
        return [
            tool for tool in self.catalog if is_deferred(tool, self.option) and self.usable(tool)
        ]

    def loaded(self, tool: Tool) -> bool:
        """Whether a model may call the tool in the answer that it gives now."""
        name = tool.full_name
        return (
            not is_deferred(tool, self.option)
            or name in self._seen
            or name in self._found_by_provider
        )

    def refusal(self, tool: Tool) -> str:
        """Why a model may not call the tool now, with the way to find it; "" if it may."""
        if self.loaded(tool):
            return ""
        name = self.catalog.wire_name(tool)
        if self.mode == NATIVE:
            return (
                f"`{name}` is not loaded: no tool search has found it; search for it, then call it"
            )
        if tool.full_name in self.catalog.discovered:
            return (
                f"`{name}` was found in this round: call it in your next answer, when you have "
                "its parameters"
            )
        return (
            f"`{name}` is not loaded: find it with `{self.option.name}`, then call it in the "
            "answer after that"
        )

    # ---- one search

    async def find(self, call_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Search, promote, and say what the model reads of it: `arguments` are `query`, and perhaps
        `tags` and `limit`.

        Raises ToolFailed if a searcher of one's own fails.
        """
        searcher, query = self.option.searcher, str(arguments["query"])
        tags, limit = (
            tuple(arguments.get("tags", ())),
            min(int(arguments.get("limit", WANTED)), MOST),
        )
        asked = ToolSearchQuery(
            call_id, f"tool_search_tool_{searcher}", dict(arguments), searcher, CLIENT
        )
        self.record(asked)
        there = self.deferred()
        chosen = [tool for tool in there if set(tags) <= tags_of(tool)] if tags else there
        hits: list[Hit] = []
        promoted: tuple[str, ...] = ()
        problem = ""
        try:
            hits = await self._ranked(query, chosen, tags, limit)
            promoted = self.promote([hit.name for hit in hits])
        except ValueError as error:
            if self.option.own != "regex":
                raise
            problem = f"the expression cannot be used: {error}"
        finally:
            found = tuple(hit.name for hit in hits)
            self.record(ToolSearchResult(call_id, found, promoted, searcher, CLIENT))
        return self._told(
            query, tags, hits, promoted, problem or self._nothing(query, tags, there, chosen)
        )

    async def _ranked(
        self, query: str, chosen: Sequence[Tool], tags: Sequence[str], limit: int
    ) -> list[Hit]:
        """Raises ValueError for an expression that cannot be used, ToolFailed for a searcher that
        fails.
        """
        own = self.option.own
        if isinstance(own, Named):
            return await self._by_function(own, query, chosen, tags, limit)
        if not query.strip():
            # Tags alone list what has them.
            return [_hit(tool) for tool in chosen[:limit]] if tags else []
        return await run_blocking(lambda: self._indexes.of(chosen).search(query, own, limit))

    async def _by_function(
        self, own: Named, query: str, chosen: Sequence[Tool], tags: Sequence[str], limit: int
    ) -> list[Hit]:
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
            answer = await _called(lambda: own.handler(query, tuple(chosen), state))
            names = [self._full(name) for name in names_in(answer)]
        except Exception as error:  # noqa: BLE001  boundary: somebody else's searcher fails as its call
            failed = (
                error.detail
                if isinstance(error, FerruleError)
                else f"{type(error).__name__}: {error}"
            )
        if failed:
            raise ToolFailed(ErrorType.INTERNAL_ERROR, f"the search `{own.name}` failed: {failed}")
        return [_hit(places[name]) for name in dict.fromkeys(names) if name in places][:limit]

    def _full(self, name: str) -> str:
        tool = self.catalog.get(name)
        return name if tool is None else tool.full_name

    def _nothing(
        self, query: str, tags: Sequence[str], there: Sequence[Tool], chosen: Sequence[Tool]
    ) -> str:
        """Why nothing was found, with what to do about it."""
        if not there:
            return "there are no tools to be found: all that may be used here are loaded"
        if not chosen:
            known = ", ".join(sorted({tag for tool in there for tag in tags_of(tool)})[:20])
            return f"no tool has the tags {', '.join(tags)}; tags there are: {known or 'none'}"
        if not query.strip():
            return "the query is empty; say in a few words what the tool should do"
        return f"none of {len(chosen)} tools fits; use other words for what it does or works on"

    def _told(
        self,
        query: str,
        tags: Sequence[str],
        hits: Sequence[Hit],
        promoted: Iterable[str],
        empty: str,
    ) -> dict[str, Any]:
        names = self.catalog.wire_table()
        ranked = [
            {"tool_name": names[hit.name], "score": round(hit.score, 6), "snippet": hit.snippet}
            for hit in hits
        ]
        told: dict[str, Any] = {
            "tool_names": [one["tool_name"] for one in ranked],
            "ranked": ranked,
        }
        if not hits:
            return told | {"diagnostic": empty}
        given = set(promoted)
        if left := [names[hit.name] for hit in hits if hit.name not in given]:
            told["not_loaded"] = left
            told["diagnostic"] = (
                "those in not_loaded did not fit the budget: search for one of them alone"
            )
        return told

    # ---- promotion

    def promote(self, names: Iterable[str]) -> tuple[str, ...]:
        """Let the model have these from its next question on, best first, as far as the budget
        goes.

        Gives those that it has then. The oldest others leave the list for them; none that this
        search found does.
        """
        found = [
            tool
            for name in names
            if (tool := self.catalog.get(name)) is not None and self.usable(tool)
        ]
        budget = self.option.budget_tokens
        held = {name: self._footprint(self.catalog.get(name)) for name in self.catalog.discovered}
        fresh = {tool.full_name for tool in found}
        given: list[str] = []
        for tool in found:
            name, size = tool.full_name, self._footprint(tool)
            if name not in held:
                staying = sum(tokens for other, tokens in held.items() if other in fresh)
                if budget is not None and staying + size > budget:
                    continue
                while budget is not None and sum(held.values()) + size > budget:
                    del held[next(other for other in held if other not in fresh)]
                held[name] = size
            given.append(name)
        self.catalog.discover(tuple(held))
        return tuple(given)

    def answered(self, call: Call, tool: Tool, result: Result) -> None:
        """Somebody answered a call in the tool's place (a hook, a recording): what they say a
        search found is found.
        """
        if tool.source != FINDERS or tool.name != self.option.name or not result.success:
            return
        try:
            names = [self._full(name) for name in names_in(result.data)]
            asked = _object(call.arguments)
        except ConfigError:
            return
        searcher = self.option.searcher
        promoted = self.promote(names)
        self.record(
            ToolSearchQuery(call.id, f"tool_search_tool_{searcher}", asked, searcher, CLIENT)
        )
        self.record(ToolSearchResult(call.id, tuple(names), promoted, searcher, CLIENT))

    def _footprint(self, tool: Tool | None) -> int:
        return footprint(tool) if tool is not None and self.option.budget_tokens is not None else 0

    # ---- what a provider finds

    def asked(self, discovered: Iterable[str]) -> None:
        """The model is asked, with these of the discovered tools."""
        self._seen = frozenset(discovered)

    def heard(self, made: Sequence[ProviderToolCall]) -> None:
        """What the provider's own search found in an answer: the model may call it in this very
        answer.
        """
        for one in made:
            if one.tool_kind == "tool_search":
                query, result = _as_events(
                    one, self.option.asked, self._promoted_by_provider(one.references)
                )
                self._found_by_provider.update(result.promoted)
                self.record(query)
                self.record(result)

    def _promoted_by_provider(self, references: Iterable[str]) -> tuple[str, ...]:
        tools = ((name, self.catalog.get(name)) for name in references)
        return tuple(name for name, tool in tools if tool is not None and self.usable(tool))

    def recall(self, journal: Iterable[Event]) -> None:
        """Become what a journal says was discovered."""
        for event in journal:
            if isinstance(event, ToolSearchResult) and event.mode == NATIVE:
                self._found_by_provider.update(self._promoted_by_provider(event.promoted))
            elif isinstance(event, ToolSearchResult):
                self.promote(event.promoted)
            elif isinstance(event, ModelAnswered):
                # It was asked with all that had been found by then.
                self.asked(self.catalog.discovered)

    # ---- who searches

    async def choose(self, wire: Wire, way: str) -> str:
        """Who searches for this model. Raises ConfigError if it must be the provider and it does
        not, ProviderError.
        """
        self.mode = CLIENT
        if self.option.mode == CLIENT or not self.option.native:
            return self.mode
        if way in ("auto", NATIVE):
            able = await wire.capabilities()
            if able.tool_search and able.tools is not False:
                self.mode = NATIVE
        if self.option.mode == NATIVE and self.mode != NATIVE:
            raise ConfigError(
                f"`{wire.model}` has no tool search of its own",
                hint='let Ferrule search, with tool_search mode "client" (or "auto"); where a '
                "gateway passes the"
                " provider's search on, say so with `force_native_tool_search`",
            )
        return self.mode

    def offered(
        self, sent: tuple[ToolSpec, ...], added: tuple[ToolSpec, ...], options: ModelOptions
    ) -> tuple[tuple[ToolSpec, ...], ModelOptions]:
        """All that goes to the model in the mode that was chosen; `sent` are the agent's tools,
        `added` the session's.
        """
        if self.mode == NATIVE:
            options = replace(options, tool_search=self.option.asked)
            if added:
                # Found by Ferrule while another model was asked: no search of this provider brings
                # them up again.
                names = {spec.name for spec in added}
                sent = tuple(spec for spec in sent if spec.name not in names)
        return ((*sent, *added) if added else sent), options


def first_specs(
    catalog: Catalog, option: ToolSearch, mode: str, usable: Callable[[Tool], bool]
) -> tuple[ToolSpec, ...]:
    """What a model is sent of an agent's tools to begin with: without deferred ones, or all with
    those marked (`native`).
    """
    names = catalog.wire_table()
    native = mode == NATIVE
    found = (
        (tool, is_deferred(tool, option))
        for tool in catalog
        if usable(tool) and not (native and tool.source == FINDERS)
    )
    return tuple(
        ToolSpec(
            tool.full_name,
            names[tool.full_name],
            tool.description,
            tool.schema_json(),
            tool.examples,
            deferred,
            group_of(tool) if deferred else "",
        )
        for tool, deferred in found
        if native or not deferred
    )


def _as_events(
    made: ProviderToolCall, strategy: str, promoted: tuple[str, ...]
) -> tuple[ToolSearchQuery, ToolSearchResult]:
    """A provider's search as the two events that Ferrule's own leaves."""
    strategy = next((name for name in ("regex", "bm25") if made.name.endswith(name)), strategy)
    query = _object(made.arguments)
    id = made.provider_tool_id
    return (
        ToolSearchQuery(id, f"tool_search_tool_{strategy}", query, strategy, NATIVE),
        ToolSearchResult(id, made.references, promoted, strategy, NATIVE),
    )


def _object(text: str) -> dict[str, Any]:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"query": value}


def _hit(tool: Tool) -> Hit:
    return Hit(tool.full_name, 0.0, first_sentence(tool.description)[:_SNIPPET])


async def _called(searcher: Callable[[], object]) -> object:
    """A searcher's answer: it works in a thread, unless it is async."""
    answer = await run_blocking(searcher)
    return await cast("Awaitable[object]", answer) if isawaitable(answer) else answer


def is_deferred(tool: Tool, option: ToolSearch) -> bool:
    """Whether a run with this option keeps the tool back until it was found."""
    if tool.loading is not Loading.DEFERRED:
        return False
    pinned = option.always_loaded
    return not pinned or (tool.full_name not in pinned and tool.name not in pinned)


def footprint(tool: Tool) -> int:
    """Tokens that a tool takes in a request, roughly: characters of what is sent of it, by four,
    and one.
    """
    return (
        len(compact({"name": tool.full_name, "description": tool.description}))
        + len(tool.schema_json())
    ) // 4 + 1
