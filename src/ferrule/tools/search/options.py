"""Read the option `tool_search` of a run into one value.

    True                    on: the provider's BM25 if it can search, else `default_ranking.py`
    "bm25", "regex"         this variant, whoever searches
    "hybrid"                BM25 and field weights; Ferrule searches
    a mapping               the fields of `ToolSearch`, by name
    None (`Agent` alone)    on if the run has deferred tools that it may use, or more tools than
                            `defer_above`
    False                   off: deferred tools are sent like all others

A wrong type or value raises ConfigError with the field and the accepted values. What depends on the
model's capabilities (`native` with a provider that cannot search) is checked once they are known,
before anything is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, fields
from typing import Any, Literal, cast

from ferrule.core.callbacks import check_callback
from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen, options
from ferrule.tools.definition import Tool
from ferrule.tools.names import check_name
from ferrule.tools.search import DEFER_ABOVE

STRATEGIES = ("default", "bm25", "hybrid", "regex")

Searcher = Callable[[str, Sequence[Tool], Mapping[str, Any]], "object | Awaitable[object]"]
"""A custom searcher `(query, deferred_tools, state)`, sync or async.

Its answer is read by `index.read_names`.

`state` has `limit` (how many tools are wanted), `tags` (by which the given tools were already
selected), `discovered` (full names that the model already has) and `session` (the session's id).
"""

SearchMode = Literal["auto", "native", "client"]
Variant = Literal["", "bm25", "regex", "hybrid"]
MODES: tuple[SearchMode, ...] = ("auto", "native", "client")
VARIANTS: tuple[Variant, ...] = ("bm25", "regex", "hybrid")
NATIVE_VARIANTS = ("bm25", "regex")
"""Variants that providers offer."""
SEARCH_TOOL_NAME = "tool_search"
_MAX_NAME = 64
_SEARCHER_PARAMETERS = ("query", "tools", "state")


@frozen
class NamedSearcher:
    """A custom searcher and its name in events."""

    handler: Searcher
    name: str = "custom"


@options
class ToolSearch:
    """How a run's deferred tools are found.

    Attributes:
        variant: How a query is written (`bm25`: a request, `regex`: an expression, `hybrid`: mostly
            names); "" leaves it to Ferrule.
        mode: Who searches: `native` the provider, `client` Ferrule, `auto` the provider if it can.
        strategy: How Ferrule ranks: one of `index.STRATEGIES`, a function, or `{"handler":
            function, "name": text}`. With a function or `hybrid`, Ferrule searches.
        always_loaded: Tools that are sent from the start, even if they are deferred.
        defer_above: Number of tools above which those of MCP servers and HTTP documents are
            deferred, whatever they say; None: they never are.
        also_deferred: Names of other tools to defer. Tools beyond the provider's maximum are added.
        budget_tokens: Limit for the schemas of all discovered tools; the oldest leave the model's
            list for new ones.
        only_if_deferred: Whether the search is offered only if tools are deferred.
        name: The name of the search tool.
        include_stub_listing: Whether names and first sentences of deferred tools are added to the
            system text.

    Raises:
        ConfigError: A value is wrong, or values contradict each other.
    """

    _: KW_ONLY
    variant: Variant = ""
    mode: SearchMode = "auto"
    strategy: str | Searcher | NamedSearcher | Mapping[str, Any] | None = None
    always_loaded: Sequence[str] = ()
    defer_above: int | None = DEFER_ABOVE
    also_deferred: Sequence[str] = ()
    budget_tokens: int | None = None
    name: str = SEARCH_TOOL_NAME
    include_stub_listing: bool = False
    only_if_deferred: bool = False

    def __post_init__(self) -> None:
        _check_choice("variant", self.variant, ("", *VARIANTS))
        _check_choice("mode", self.mode, MODES)
        object.__setattr__(self, "strategy", _read_strategy(self.strategy))
        for field in ("always_loaded", "also_deferred"):
            object.__setattr__(self, field, _read_names(field, getattr(self, field)))
        _check_number("defer_above", self.defer_above, 0, "tools, 0 or more")
        _check_number("budget_tokens", self.budget_tokens, 1, "tokens, 1 or more")
        _check_name(self.name)
        for field in ("include_stub_listing", "only_if_deferred"):
            if not isinstance(getattr(self, field), bool):
                raise _value_error(field, getattr(self, field), "true or false")
        if self.mode == "native" and not self.can_be_native:
            raise ConfigError(
                f"tool_search: no provider searches with `{self.searcher_name}`",
                hint='use mode "client" with it, or "bm25" or "regex"',
            )

    @staticmethod
    def from_setting(value: object) -> ToolSearch:
        """Read the setting `tool_search`, other than None and False. Raises ConfigError."""
        match value:
            case ToolSearch():
                return value
            case True:
                return ToolSearch()
            case str():
                _check_choice("", value, VARIANTS)
                return ToolSearch(variant=cast("Variant", value))
            case Mapping():
                return _from_mapping(cast("Mapping[object, Any]", value))
            case _:
                shapes = f"true, false, {_join_quoted(VARIANTS)} or a mapping"
                raise ConfigError(
                    f"tool_search: found {_format_value(value)}", hint=f"say {shapes}"
                )

    @property
    def can_be_native(self) -> bool:
        """Whether a provider's own search can be used."""
        return self.variant != "hybrid" and (
            self.strategy is None or self.strategy in (*NATIVE_VARIANTS, "default")
        )

    @property
    def provider_variant(self) -> Literal["bm25", "regex"]:
        """The variant of a provider's own search."""
        wanted = self.variant or self.strategy
        return "regex" if wanted == "regex" else "bm25"

    @property
    def own_strategy(self) -> str | NamedSearcher:
        """The strategy of Ferrule's search."""
        if isinstance(self.strategy, (str, NamedSearcher)):
            return self.strategy
        return self.variant or "default"

    @property
    def searcher_name(self) -> str:
        """The name of Ferrule's search in events."""
        return (
            self.own_strategy.name
            if isinstance(self.own_strategy, NamedSearcher)
            else self.own_strategy
        )


def _from_mapping(given: Mapping[object, Any]) -> ToolSearch:
    known = tuple(field.name for field in fields(ToolSearch))
    for key in given:
        if key not in known:
            hint = suggest_names(str(key), known, f"known: {', '.join(known)}")
            raise ConfigError(f"tool_search: unknown field `{key}`", hint=hint)
    values: dict[str, Any] = {str(key): value for key, value in given.items() if value is not None}
    return ToolSearch(**values)


def _read_strategy(given: object) -> str | NamedSearcher | None:
    match given:
        case None | NamedSearcher():
            return given
        case str():
            return _check_choice("strategy", given, STRATEGIES)
        case Mapping():
            return _read_searcher(cast("Mapping[object, Any]", given))
        case _ if callable(given):
            check_callback("strategy", given, _SEARCHER_PARAMETERS)
            name = str(getattr(given, "__name__", "")).strip("<>_") or "custom"
            return NamedSearcher(cast("Searcher", given), name if name != "lambda" else "custom")
        case _:
            raise _value_error(
                "strategy",
                given,
                f"{_join_quoted(STRATEGIES)}, a function, or a mapping with a `handler`",
            )


def _read_searcher(given: Mapping[object, Any]) -> NamedSearcher:
    unknown = [key for key in given if key not in ("handler", "name")]
    if unknown:
        raise ConfigError(
            f"tool_search: `strategy` has the field `{unknown[0]}`",
            hint="it takes `handler` and `name`",
        )
    handler = given.get("handler")
    name = given.get("name", "custom")
    if not callable(handler):
        raise _value_error(
            "strategy.handler", handler, "a function of query, deferred tools and state"
        )
    check_callback("strategy", handler, _SEARCHER_PARAMETERS)
    if not isinstance(name, str) or not name.strip() or len(name) > _MAX_NAME:
        raise _value_error("strategy.name", name, f"a short text, at most {_MAX_NAME} characters")
    return NamedSearcher(cast("Searcher", handler), name)


def _read_names(field: str, given: object) -> tuple[str, ...]:
    if isinstance(given, (list, tuple)) and all(
        isinstance(one, str) for one in cast("list[object]", given)
    ):
        return tuple(cast("Sequence[str]", given))
    raise _value_error(field, cast("object", given), "a list of names")


def _check_number(field: str, value: object, least: int, wanted: str) -> None:
    if value is None:
        return
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return
    raise _value_error(field, value, f"a whole number of {wanted}")


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise _value_error("name", name, "the name of a tool")
    try:
        check_name(name)
    except ConfigError as error:
        raise ConfigError(f"tool_search: name: {error.detail}", hint=error.hint) from error


def _check_choice(field: str, value: object, known: Sequence[str]) -> str:
    if not isinstance(value, str):
        raise _value_error(field, value, _join_quoted(known))
    if value not in known:
        shown = f"{field} = " if field else ""
        raise ConfigError(f"tool_search: {shown}{value!r}", hint=f"use {_join_quoted(known)}")
    return value


def _value_error(field: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(
        f"tool_search: `{field}` is {_format_value(value)}", hint=f"it must be {wanted}"
    )


def _join_quoted(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words if word)


def _format_value(value: object) -> str:
    shown = repr(value)
    if len(shown) > 60:
        shown = shown[:60] + "…"
    return f"{type(value).__name__} {shown}"
