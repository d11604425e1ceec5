"""`tool_search` and `tool_get`: the model finds deferred tools, and reads what one of them takes.

They belong to an agent's tools and have no state: the session's search is found in their context
(`engine.tool_search.discovery`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, RetryCall, ToolFailed
from ferrule.core.similar_names import find_similar_names
from ferrule.engine.artifacts.tools import TOOLS
from ferrule.engine.delegation.sub_agent import DELEGATE
from ferrule.tools.catalog import Catalog
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.definition import SEARCH_TOOLS_SOURCE, Loading, Tool
from ferrule.tools.search.options import VARIANTS, ToolSearch
from ferrule.tools.word_stems import first_sentence

from .discovery import DEFAULT_LIMIT, MAX_LIMIT, NATIVE, ToolDiscovery, is_deferred
from .index import tags_of

MAX_QUERY = 2_000
"""Maximum characters of a query."""
MAX_LISTING = 16_384
"""Maximum characters of the list of deferred tools in a system text."""
_MAX_SENTENCE = 160

_HOW = {
    "bm25": "Query: a few words that say what the tool should do.",
    "regex": (
        "Query: a regular expression over names, descriptions and parameters, whatever the case."
    ),
    "hybrid": "Query: words of the tool's name, or of what it does.",
}
_ABOUT = (
    "Find tools that are not loaded yet. What is found can be called from your next answer on. "
    "Search before you say that something cannot be done. {how}"
)


def _make_search(name: str, description: str) -> Tool:
    # Not parallel: what two searches of an answer find is sent in the order of the answer.
    @tool(name=name, description=description, side_effect="none", risk="safe", parallel=False)
    async def search(
        context: Context,
        query: Annotated[str, "What to look for."],
        tags: Annotated[list[str] | None, "Only tools that have all of these tags."] = None,
        limit: Annotated[int, f"Tools to find at the most, up to {MAX_LIMIT}."] = DEFAULT_LIMIT,
    ) -> Any:
        if len(query) > MAX_QUERY:
            raise RetryCall(
                f"the query has {len(query)} characters; use a few words, {MAX_QUERY} at the most"
            )
        if limit < 1:
            raise RetryCall(f"`limit` must be at least 1, found {limit}")
        here = _find_search(context)
        if here.mode == NATIVE:
            raise ToolFailed(
                ErrorType.NOT_FOUND, "tools are found by the provider's own search here: use that"
            )
        given: dict[str, Any] = {"query": query}
        if tags:
            given["tags"] = tags
        if limit != DEFAULT_LIMIT:
            given["limit"] = limit
        return await here.find(context.call_id, given)

    return search


@tool(name="tool_get", side_effect="none", risk="safe")
async def tool_get(context: Context, name: Annotated[str, "The name of the tool."]) -> Any:
    """Read what one tool does and takes: its description, its parameters as JSON Schema, examples
    of its arguments.
    """
    here = _find_search(context)
    catalog = here.catalog
    found = catalog.get(name)
    if found is None or not here.usable(found):
        usable = [one.full_name for one in catalog if here.usable(one)]
        near = find_similar_names(name, usable, count=3, cutoff=0.5)
        return {
            "found": False,
            "name": name,
            "nearest": [catalog.api_names()[one] for one in near],
        }
    return {
        "found": True,
        "name": catalog.api_name(found),
        "description": found.description,
        "schema": found.arguments.schema,
        "examples": list(found.examples),
        "tags": sorted(tags_of(found)),
        "loaded": here.is_loaded(found) or found.full_name in catalog.discovered,
    }


def _find_search(context: Context) -> ToolDiscovery:
    try:
        return context.resource(ToolDiscovery)
    except ConfigError as error:
        raise ToolFailed(
            ErrorType.NOT_FOUND, "there are no tools to be found here: all are loaded"
        ) from error


@lru_cache(maxsize=32)
def _make_tool(name: str, variant: str) -> Tool:
    made = _make_search(name, _ABOUT.format(how=_HOW.get(variant, _HOW["bm25"])))
    return replace(made, source=SEARCH_TOOLS_SOURCE)


_GET = replace(tool_get, source=SEARCH_TOOLS_SOURCE)


def prepare_search(
    given: object, catalog: Catalog, usable: Callable[[Tool], bool], *, always: bool
) -> ToolSearch | None:
    """Return the search of an agent's sessions, and add its tools to the agent's.

    None if there is nothing to search for, unless `always` is set. Raises ConfigError
    (`check_search`, `add_search_tools`).
    """
    option = given if isinstance(given, ToolSearch) else ToolSearch()
    if not always:
        there = any(is_deferred(one, option) and usable(one) for one in catalog)
        if not there or not usable(_finder(option)):
            return None
    check_search(catalog, option, usable)
    add_search_tools(catalog, option)
    return option


def _finder(option: ToolSearch) -> Tool:
    own = option.own_strategy if isinstance(option.own_strategy, str) else ""
    return _make_tool(option.name, own if own in VARIANTS else "")


def add_search_tools(catalog: Catalog, option: ToolSearch) -> None:
    """Add the search tools to an agent's tools, unless they are there.

    Raises ConfigError if their name is taken.
    """
    there = catalog.get(option.name)
    if there is not None and there.source != SEARCH_TOOLS_SOURCE:
        hint = (
            f'give the search another name: tool_search={{"name": "find_tool"}} instead of '
            f"`{option.name}`"
        )
        raise ConfigError(
            f"the tool search cannot be called `{option.name}`: there is such a tool", hint=hint
        )
    if there is None:
        catalog.add(_finder(option))
    if "tool_get" not in catalog:
        catalog.add(_GET)


def check_search(catalog: Catalog, option: ToolSearch, usable: Callable[[Tool], bool]) -> None:
    """Raise ConfigError if a model would start with nothing but a search.

    Providers refuse that, so it is refused in every mode.
    """
    joined = {id(one) for one in TOOLS}
    given = [
        one
        for one in catalog
        if usable(one)
        and one.source != SEARCH_TOOLS_SOURCE
        and id(one) not in joined
        and one.full_name != DELEGATE
    ]
    if given and all(_asks_to_be_deferred(one, option) for one in given):
        raise ConfigError(
            f"all {len(given)} tools are deferred, and a model needs one to begin with",
            hint="do not defer one of them (`defer_loading`, `deferred`, `loading`), or name it in "
            "`ToolSearch(always_loaded=[...])` or the setting `tools.always_loaded`",
        )


def _asks_to_be_deferred(tool: Tool, option: ToolSearch) -> bool:
    return tool.loading is Loading.DEFERRED and is_deferred(tool, option)


def list_deferred_tools(
    catalog: Catalog, option: ToolSearch, usable: Callable[[Tool], bool]
) -> str:
    """Return the deferred tools by name and first sentence, for a system text.

    If there are too many the list is cut, and says so.
    """
    names = catalog.api_names()
    rows = [
        f"- {names[one.full_name]}: {first_sentence(one.description)[:_MAX_SENTENCE]}"
        for one in catalog
        if is_deferred(one, option) and usable(one)
    ]
    shown: list[str] = []
    room = MAX_LISTING
    for row in rows:
        room -= len(row) + 1
        if room < 0:
            shown.append(f"- and {len(rows) - len(shown)} more")
            break
        shown.append(row)
    if not rows:
        return ""
    return "\n".join(("Tools that are not loaded; search for one before you call it:", *shown))
