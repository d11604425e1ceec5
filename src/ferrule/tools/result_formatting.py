"""Choose how a set of tools shows its values to the model.

    value     as the handler returned it (text is shown unchanged, all else as compact JSON)
    json      always JSON: a text that the handler returned becomes a JSON string
    display   readable text: `name: value` lines, one item per line

A formatter is a function `(tool, value) -> JSON-compatible value`. A formatter of one tool wins
over the one for all, and both win over a format. Failures are results without a value and stay as
they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, cast

from ferrule.core.callbacks import check_callback
from ferrule.core.calls import encode_json
from ferrule.core.errors import ConfigError
from ferrule.tools.json_conversion import to_json_value

from .definition import Tool, misfit_notice
from .toolset import Tools, settings_by_position

OutputFormat = Literal["value", "json", "display"]
Formatter = Callable[[Tool, Any], Any]

OUTPUT_FORMATS: tuple[OutputFormat, ...] = ("value", "json", "display")


def format_results(
    tools: Iterable[Tool],
    output_format: OutputFormat = "value",
    *,
    result_formatter: Formatter | None = None,
    formatters: Mapping[str, Formatter] | None = None,
) -> Tools:
    """Return tools whose values are shown in another format.

    A formatted tool no longer has an output schema.

    Args:
        tools: The tools.
        output_format: `value`, `json` or `display`.
        result_formatter: A formatter for all tools.
        formatters: Formatters of single tools, by logical key or name.

    Raises:
        ConfigError: Unknown format, logical key or name, or a function of another form.
    """
    if output_format not in OUTPUT_FORMATS:
        raise ConfigError(
            f"output_format: found {output_format!r}",
            hint=f"use one of {', '.join(OUTPUT_FORMATS)}",
        )
    for given in (result_formatter, *(formatters or {}).values()):
        if given is not None:
            check_callback("result_formatter", given, ("tool", "value"))
    items = tuple(tools)
    own = settings_by_position(items, formatters or {}, "formatters")
    shared = result_formatter or _FORMATTERS.get(output_format)
    return tuple(_add_formatter(tool, own.get(n, shared)) for n, tool in enumerate(items))


def _add_formatter(tool: Tool, formatter: Formatter | None) -> Tool:
    if formatter is None:
        return tool
    show = partial(formatter, tool)

    def run(**values: Any) -> Any:
        return _show_value(tool.handler(**values), show)

    return replace_handler(tool, run)


def replace_handler(tool: Tool, handler: Callable[..., Any]) -> Tool:
    """Replace a tool's handler with a wrapper around it; its output schema is dropped."""
    if tool.is_async:

        async def run(**values: Any) -> Any:
            return await handler(**values)

        return tool.wrap(run, output=None)
    return tool.wrap(handler, output=None)


def _show_value(value: Any, show: Callable[[Any], Any]) -> Any:
    """Return `show(value)`, or an awaitable of it if a handler returned an awaitable."""
    if inspect.isawaitable(value):
        return _await_and_show(value, show)
    return show(value)


async def _await_and_show(value: Awaitable[Any], show: Callable[[Any], Any]) -> Any:
    return show(await value)


def format_json(tool: Tool, value: Any) -> str:
    """Format a value as compact JSON."""
    encoded, notice = _encode(tool, value)
    return encode_json(encoded) + notice


def format_display(tool: Tool, value: Any) -> str:
    """Format a value as readable text."""
    encoded, notice = _encode(tool, value)
    return _display(encoded) + notice


_FORMATTERS: Mapping[str, Formatter] = {"json": format_json, "display": format_display}


def _display(value: Any, indent: str = "") -> str:
    if isinstance(value, Mapping):
        return "\n".join(
            _display_field(str(name), item, indent)
            for name, item in cast("Mapping[Any, Any]", value).items()
        )
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return "\n".join(f"{indent}- {_display(item, indent + '  ').lstrip()}" for item in items)
    return indent + (value if isinstance(value, str) else encode_json(value))


def _display_field(name: str, value: Any, indent: str) -> str:
    if isinstance(value, (Mapping, list)) and value:
        return f"{indent}{name}:\n{_display(value, indent + '  ')}"
    if isinstance(value, str) and "\n" in value:
        lines = "\n".join(f"{indent}  {line}" for line in value.splitlines())
        return f"{indent}{name}:\n{lines}"
    shown = "none" if isinstance(value, (Mapping, list)) else _display(value)
    return f"{indent}{name}: {shown}"


def _encode(tool: Tool, value: Any) -> tuple[Any, str]:
    """Return a handler's value as JSON types, and a notice if it does not fit the output schema."""
    if tool.output is None:
        return to_json_value(value), ""
    encoded, problems = tool.output.encode(value)
    if problems:
        return to_json_value(value), f"\n{misfit_notice(tool, problems)}"
    return to_json_value(encoded), ""
