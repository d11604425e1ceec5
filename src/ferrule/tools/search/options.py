"""Tool search as an option of a run: what a person may say, read into one value.

    True                    on: BM25 of the provider where it searches itself, else the ranking of `ranking.py`
    "bm25", "regex"         that variant, whoever searches
    "hybrid"                BM25 and field weights; Ferrule searches
    a mapping               the fields of `ToolSearch`, by name
    None (`Agent` alone)    on exactly where the run has deferred tools that it may use
    False                   off: deferred tools are sent like all others

A wrong type names its field, a wrong word the words there are: both are ConfigError. What needs the
model's capabilities (`native` where there is no such thing) is checked when it is known, before
anything is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Literal, cast

from ferrule.core.errors import ConfigError
from ferrule.core.frozen import frozen
from ferrule.tools.definition import Tool
from ferrule.tools.names import check_name

from .index import STRATEGIES

Searcher = Callable[[str, Sequence[Tool], Mapping[str, Any]], "object | Awaitable[object]"]
"""A searcher of one's own: `(query, deferred_tools, state)`, sync or async; what it returns is read
by `index.names_in`.

`state` says `limit` (how many are wanted), `tags` (those that the tools given have already been
chosen by), `discovered` (full names that the model has by now) and `session` (its id).
"""

MODES = ("auto", "native", "client")
VARIANTS = ("bm25", "regex", "hybrid")
NATIVE = ("bm25", "regex")
"""Variants that providers have."""
NAME = "tool_search"
_LONGEST = 64


@frozen
class Named:
    """A searcher of one's own and what it is called in events."""

    handler: Searcher
    name: str = "custom"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSearch:
    """How a run's deferred tools are found.

    `variant` is whose words a query is written in (`bm25`: a request, `regex`: an expression,
    `hybrid`: names above all); "" leaves it to Ferrule. `mode` says who searches: `native` the
    provider, `client` Ferrule, `auto` the provider where it can. `strategy` is how Ferrule ranks:
    one of `index.STRATEGIES`, a function, or `{"handler": function, "name": text}`; a function and
    `hybrid` have Ferrule search. `always_loaded` are tools that are sent from the start, whatever
    they say of themselves. `budget_tokens` bounds what the schemas of discovered tools take
    together: the oldest leave the model's list for new ones. `name` is what the search tool is
    called. `include_stub_listing` adds names and first sentences of deferred tools to the system
    text. Raises ConfigError for what cannot be meant.
    """

    variant: str = ""
    mode: str = "auto"
    strategy: str | Searcher | Named | Mapping[str, Any] | None = None
    always_loaded: Sequence[str] = ()
    budget_tokens: int | None = None
    name: str = NAME
    include_stub_listing: bool = False

    def __post_init__(self) -> None:
        _word("variant", self.variant, ("", *VARIANTS))
        _word("mode", self.mode, MODES)
        object.__setattr__(self, "strategy", _strategy(self.strategy))
        object.__setattr__(self, "always_loaded", _names(self.always_loaded))
        _check_tokens(self.budget_tokens)
        _check_name(self.name)
        if not isinstance(self.include_stub_listing, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
            raise _wrong("include_stub_listing", self.include_stub_listing, "true or false")
        if self.mode == "native" and not self.native:
            raise ConfigError(
                f"tool_search: no provider searches with `{self.searcher}`",
                hint='use mode "client" with it, or "bm25" or "regex"',
            )

    @staticmethod
    def of(value: object) -> ToolSearch:
        """What a person said, but for None and False. Raises ConfigError."""
        match value:
            case ToolSearch():
                return value
            case True:
                return ToolSearch()
            case str():
                _word("", value, VARIANTS)
                return ToolSearch(variant=value)
            case Mapping():
                return _from_mapping(cast("Mapping[object, Any]", value))
            case _:
                shapes = f"true, false, {_listed(VARIANTS)} or a mapping"
                raise ConfigError(f"tool_search: found {_shown(value)}", hint=f"say {shapes}")

    @property
    def native(self) -> bool:
        """Whether a provider's own search may stand in for it."""
        return self.variant != "hybrid" and (
            self.strategy is None or self.strategy in (*NATIVE, "default")
        )

    @property
    def asked(self) -> Literal["bm25", "regex"]:
        """The variant of a provider's own search."""
        return (
            "regex"
            if "regex" in (self.variant, *(() if self.variant else (self.strategy,)))
            else "bm25"
        )

    @property
    def own(self) -> str | Named:
        """The strategy of Ferrule's search."""
        if isinstance(self.strategy, (str, Named)):
            return self.strategy
        return self.variant or "default"

    @property
    def searcher(self) -> str:
        """What Ferrule's search is called in events."""
        return self.own.name if isinstance(self.own, Named) else self.own


def _from_mapping(given: Mapping[object, Any]) -> ToolSearch:
    known = tuple(field.name for field in fields(ToolSearch))
    for key in given:
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"tool_search: unknown field `{key}`", hint=hint)
    values: dict[str, Any] = {str(key): value for key, value in given.items() if value is not None}
    return ToolSearch(**values)


def _strategy(given: object) -> str | Named | None:
    match given:
        case None | Named():
            return given
        case str():
            return _word("strategy", given, STRATEGIES)
        case Mapping():
            return _named(cast("Mapping[object, Any]", given))
        case _ if callable(given):
            name = str(getattr(given, "__name__", "")).strip("<>_") or "custom"
            return Named(cast("Searcher", given), name if name != "lambda" else "custom")
        case _:
            raise _wrong(
                "strategy",
                given,
                f"{_listed(STRATEGIES)}, a function, or a mapping with a `handler`",
            )


def _named(given: Mapping[object, Any]) -> Named:
    if unknown := [key for key in given if key not in ("handler", "name")]:
        raise ConfigError(
            f"tool_search: `strategy` has the field `{unknown[0]}`",
            hint="it takes `handler` and `name`",
        )
    handler, name = given.get("handler"), given.get("name", "custom")
    if not callable(handler):
        raise _wrong("strategy.handler", handler, "a function of query, deferred tools and state")
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST:
        raise _wrong("strategy.name", name, f"a short text, {_LONGEST} characters at the most")
    return Named(cast("Searcher", handler), name)


def _names(given: object) -> tuple[str, ...]:
    if isinstance(given, (list, tuple)) and all(
        isinstance(one, str) for one in cast("list[object]", given)
    ):
        return tuple(cast("Sequence[str]", given))
    raise _wrong("always_loaded", cast("object", given), "a list of names")


def _check_tokens(tokens: object) -> None:
    if tokens is None or (isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0):
        return
    raise _wrong("budget_tokens", tokens, "a whole number of tokens, 1 or more")


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise _wrong("name", name, "the name of a tool")
    try:
        check_name(name)
    except ConfigError as error:
        raise ConfigError(f"tool_search: name: {error.detail}", hint=error.hint) from error


def _word(field: str, value: object, known: Sequence[str]) -> str:
    if not isinstance(value, str):
        raise _wrong(field, value, _listed(known))
    if value not in known:
        shown = f"{field} = " if field else ""
        raise ConfigError(f"tool_search: {shown}{value!r}", hint=f"use {_listed(known)}")
    return value


def _wrong(field: str, value: object, wanted: str) -> ConfigError:
    return ConfigError(f"tool_search: `{field}` is {_shown(value)}", hint=f"it must be {wanted}")


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words if word)


def _shown(value: object) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:60] + '…'}"
