"""Apply the options that every pack of tools takes, in a fixed order.

    selection (enabled, disabled) -> tool_config -> descriptions -> annotations -> names -> format
    -> namespace -> deferred

Tools are named by logical key, so an option means the same tool whatever the others change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, cast

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names

from . import toolset
from .definition import Tool
from .result_formatting import Formatter, OutputFormat, format_results
from .toolset import Tools


class PackOptions(TypedDict, total=False):
    """Options of a pack of tools; all may be left out.

    `enabled_tools` and `disabled_tools` take logical keys, names and groups. The mappings are by
    logical key; `annotations` and `tool_config` also take `*` for all tools. `formatters` are
    result formatters of single tools. The names are those of requirement 001.
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


def apply_options(
    tools: Iterable[Tool], options: PackOptions, *, default_selection: Iterable[str] | None = None
) -> Tools:
    """Apply options to tools; `default_selection` counts if `enabled_tools` is not given.

    Settings for a tool that the same options disable are accepted and have no effect.

    Raises:
        ConfigError: An option, key, name or group does not exist; suggests the nearest.
    """
    check_options(options, PackOptions)
    found = tuple(tools)
    known = {toolset.logical_key(tool) for tool in found} | {tool.name for tool in found}
    enabled = options.get("enabled_tools")
    kept = toolset.select(
        found,
        default_selection if enabled is None else enabled,
        without=options.get("disabled_tools", ()),
    )
    remaining = {toolset.logical_key(tool) for tool in kept} | {tool.name for tool in kept}
    remaining.add(toolset.ALL_TOOLS)

    def settings_for(option: str) -> dict[str, Any]:
        """Return the settings of an option for tools that are left.

        Unknown names stay: they are refused below.
        """
        given = cast("Mapping[str, Any]", options.get(option) or {})
        return {
            name: value for name, value in given.items() if name in remaining or name not in known
        }

    kept = toolset.configure(kept, settings_for("tool_config"))
    kept = toolset.describe(kept, settings_for("descriptions"))
    kept = toolset.annotate(kept, settings_for("annotations"))
    kept = toolset.rename(kept, settings_for("names"))
    kept = format_results(
        kept,
        options.get("output_format", "value"),
        result_formatter=options.get("result_formatter"),
        formatters=settings_for("formatters"),
    )
    namespace = options.get("namespace", "")
    if namespace != "":
        kept = toolset.add_namespace(kept, namespace)
    if _read_defer_loading(options):
        return toolset.mark_deferred(kept, defer=True)
    return kept


def _read_defer_loading(options: PackOptions) -> bool:
    defer = options.get("defer_loading", False)
    if not isinstance(defer, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  said by people
        raise ConfigError(f"defer_loading: found {defer!r}", hint="say true or false")
    return defer


def check_options(options: Mapping[str, Any], kind: type) -> None:
    """Check that a TypedDict type has all these options.

    Raises:
        ConfigError: `kind` does not have one of the options; suggests the nearest.
    """
    known = list(kind.__annotations__)
    for name in options:
        if name not in known:
            hint = suggest_names(name, known, f"there are: {', '.join(known)}")
            raise ConfigError(f"there is no option `{name}` here", hint=hint)
