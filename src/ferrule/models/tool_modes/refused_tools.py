"""A refusal that is about one tool, their number or their size, and not about tools as such.

Providers refuse a whole request for one schema or name, or because it offers more tools, or larger
schemas, than they take. Then that tool, or as many as are too many or too large, are left out, and
the rest is offered as before. Servers agree on no form for this, so what they say is searched for
places and names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ferrule.core.errors import ProviderError
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.models.client import ToolSpec
from ferrule.models.request_encoding import describe_tool

_PLACE = compile_lazily(r"(?:tools|functions?_?[dD]eclarations?)[\[.](\d+)")
_NAMED = compile_lazily(r"(?i)\b(?:tools?|functions?)\b[^'\"`\n]{0,40}['\"`]([\w.:-]{1,128})['\"`]")
_TOO_MANY = compile_lazily(
    r"(?i)(too many (?:tools|functions)|\b(?:tools|functions|declarations)\b['\"`]?[^.]{0,60}"
    r"(?:too long|exceeds?|maximum|at most|more than)|array_above_max_length"
    r"|(?:maximum|max|limit)[^.]{0,40}\b(?:tools|functions|declarations)\b)"
)
_BOUND = compile_lazily(
    r"(?i)(?:maximum|max|at most|limit|more than|up to|exceeds?)[^\d]{0,50}(\d{1,4})"
)
_TOO_LARGE = compile_lazily(
    r"(?i)(too many states|(?:schemas?|grammar|declarations|tools|functions)\b[^.]{0,60}"
    r"\btoo (?:large|complex|big)|simplify your (?:tool )?schema)"
)
"""No provider tells this bound in numbers: Gemini counts states of what its schemas compile to, and
Anthropic and others the size of a grammar."""
_STATUS = (400, 422)


def find_refused_tools(error: ProviderError, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return the tools that a refusal is about; none if it is about something else.

    Args:
        error: The refusal.
        tools: The tools of the request, in its order.
    """
    if error.status not in _STATUS or error.code == "context_overflow":
        return []
    detail = error.detail
    place = _PLACE.search(detail)
    if place is not None and int(place[1]) < len(tools):
        return [tools[int(place[1])]]
    for found in _NAMED.finditer(detail):
        named = [tool for tool in tools if found[1] in (tool.api_name, tool.name)]
        if named:
            return named
    if _TOO_MANY.search(detail):
        bound = _BOUND.search(detail)
        if bound is not None and 0 < int(bound[1]) < len(tools):
            return choose_excess(tools, int(bound[1]))
    if _TOO_LARGE.search(detail):
        return choose_largest(tools)
    return []


def is_about_number(error: ProviderError) -> bool:
    """Return whether a refusal says that there are too many tools."""
    return error.status in _STATUS and _TOO_MANY.search(error.detail) is not None


def choose_largest(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return the tools with the largest schemas, half of all by size, and never all of them."""
    total = sum(len(tool.schema) for tool in tools)
    largest = sorted(tools, key=lambda tool: -len(tool.schema))[: len(tools) - 1]
    chosen: list[ToolSpec] = []
    for tool in largest:
        chosen.append(tool)
        if 2 * sum(len(one.schema) for one in chosen) >= total:
            break
    return chosen


def shorten_descriptions(
    tools: Sequence[ToolSpec], most: int
) -> tuple[Sequence[ToolSpec], list[ToolSpec]]:
    """Return the tools with descriptions of at most `most` characters, and those that changed.

    Examples are a part of what is sent as description; they go first.
    """
    shortened: list[ToolSpec] = []
    result: list[ToolSpec] = []
    for tool in tools:
        if len(describe_tool(tool)) > most:
            text = tool.description
            if len(text) > most:
                text = text[: most - 1].rstrip() + "…"
            tool = replace(tool, description=text, examples=())
            shortened.append(tool)
        result.append(tool)
    return (tuple(result) if shortened else tools), shortened


def choose_excess(tools: Sequence[ToolSpec], most: int) -> list[ToolSpec]:
    """Return the tools to leave out so that `most` are left: those of servers first."""
    excess = len(tools) - most
    last_first = tools[::-1]
    of_servers = [tool for tool in last_first if "__" in tool.name]
    others = [tool for tool in last_first if "__" not in tool.name]
    return [*of_servers, *others][:excess]
