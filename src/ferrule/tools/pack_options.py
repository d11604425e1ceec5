"""How a person wants a set of tools: the options that every pack of tools takes, applied in one
order.

    which (enabled, disabled) -> raw overrides -> descriptions -> annotations -> names -> format ->
    namespace -> deferred

Names are given by logical key, so an option means the same tool whatever the others do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypedDict, cast

from ferrule.core.errors import ConfigError

from . import toolset
from .definition import Tool
from .result_formatting import Formatter, OutputFormat, formatted
from .toolset import Tools


class Shape(TypedDict, total=False):
    """Options of a set of tools, with the names of requirement 001. All may be left out.

    `enabled_tools` and `disabled_tools` take logical keys, names and groups; the others are by
    logical key, `annotations` and `tool_config` also under `*`. `formatters` are
    `result_formatter`s of single tools.
    """

    enabled_tools: Iterable[str] | None
    disabled_tools: Iterable[str]
    names: Mapping[str, str]
    descriptions: Mapping[str, str]
    annotations: Mapping[str, Mapping[str, Any]]
    tool_config: Mapping[str, Mapping[str, Any]]
    namespace: str
    defer_loading: bool
    output_format: OutputFormat
    result_formatter: Formatter | None
    formatters: Mapping[str, Formatter]


def shaped(tools: Iterable[Tool], options: Shape, *, default: Iterable[str] | None = None) -> Tools:
    """The tools as `options` want them; `default` is what is enabled where they do not say.

    Settings for a tool that the options themselves disable are accepted and have no effect. Raises
    ConfigError for an option, key, name or group that does not exist, naming the nearest.
    """
    check_options(options, Shape)
    found = tuple(tools)
    every = {toolset.key_of(tool) for tool in found} | {tool.name for tool in found}
    enabled = options.get("enabled_tools")
    kept = toolset.select(
        found, default if enabled is None else enabled, without=options.get("disabled_tools", ())
    )
    left = {toolset.key_of(tool) for tool in kept} | {tool.name for tool in kept} | {toolset.EVERY}

    def of(option: str) -> dict[str, Any]:
        """Settings of an option for tools that are still there. Words that nobody knows stay: they
        are refused below.
        """
        given = cast("Mapping[str, Any]", options.get(option) or {})
        return {word: value for word, value in given.items() if word in left or word not in every}

    kept = toolset.configured(kept, of("tool_config"))
    kept = toolset.described(kept, of("descriptions"))
    kept = toolset.annotated(kept, of("annotations"))
    kept = toolset.renamed(kept, of("names"))
    kept = formatted(
        kept,
        options.get("output_format", "value"),
        result_formatter=options.get("result_formatter"),
        formatters=of("formatters"),
    )
    if (namespace := options.get("namespace", "")) != "":
        kept = toolset.namespaced(kept, namespace)
    return toolset.deferred(kept, defer=True) if _defers(options) else kept


def _defers(options: Shape) -> bool:
    defer = options.get("defer_loading", False)
    if not isinstance(defer, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
        raise ConfigError(f"defer_loading: found {defer!r}", hint="say true or false")
    return defer


def check_options(options: Mapping[str, Any], kind: type) -> None:
    """Raises ConfigError for an option that `kind` (a TypedDict) does not have, naming the
    nearest.
    """
    known = list(kind.__annotations__)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(known)}"
            raise ConfigError(f"there is no option `{name}` here", hint=hint)
