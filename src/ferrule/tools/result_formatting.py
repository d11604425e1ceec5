"""What a tool's value looks like to the model, chosen for a set of tools instead of by each tool.

    value     as the handler returned it (the dispatcher shows text as it is, all else as compact JSON)
    json      always one JSON text: what the handler returned as text becomes a JSON string
    display   text for reading: `name: value` lines, one item per line

A formatter is a function `(tool, value) -> JSON-able value`; a tool's own wins over the one for
all, and both win over a format. Failures keep their shape: they are results without a value.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

from ferrule.core.calls import compact
from ferrule.core.errors import ConfigError

from .definition import Tool, misfit
from .toolset import Tools, named_settings

OutputFormat = Literal["value", "json", "display"]
Formatter = Callable[[Tool, Any], Any]

FORMATS: tuple[OutputFormat, ...] = ("value", "json", "display")


def formatted(
    tools: Iterable[Tool],
    output_format: OutputFormat = "value",
    *,
    result_formatter: Formatter | None = None,
    formatters: Mapping[str, Formatter] | None = None,
) -> Tools:
    """Tools whose values are shown in another way. `formatters` is by logical key or name.

    A tool that is formatted has no output schema any more. Raises ConfigError for an unknown format
    or key.
    """
    if output_format not in FORMATS:
        raise ConfigError(
            f"output_format: found {output_format!r}", hint=f"use one of {', '.join(FORMATS)}"
        )
    items = tuple(tools)
    own = named_settings(items, formatters or {}, "formatters")
    shared = result_formatter or _FORMATTERS.get(output_format)
    return tuple(_formatted(tool, own.get(n, shared)) for n, tool in enumerate(items))


def _formatted(tool: Tool, formatter: Formatter | None) -> Tool:
    if formatter is None:
        return tool
    show = partial(formatter, tool)

    def run(**values: Any) -> Any:
        return _then(tool.handler(**values), show)

    return with_handler(tool, run)


def with_handler(tool: Tool, handler: Callable[..., Any]) -> Tool:
    """The tool with a handler around its own, whose value may be of any type."""
    if tool.is_async:

        async def run(**values: Any) -> Any:
            return await handler(**values)

        return replace(tool, handler=run, output=None)
    return replace(tool, handler=handler, output=None)


def _then(value: Any, show: Callable[[Any], Any]) -> Any:
    """`show(value)`, now or when it is there: handlers may be async, or sync and return something
    to wait for.
    """
    if inspect.isawaitable(value):
        return _later(value, show)
    return show(value)


async def _later(value: Awaitable[Any], show: Callable[[Any], Any]) -> Any:
    return show(await value)


def as_json(tool: Tool, value: Any) -> str:
    """The value as one compact JSON text."""
    fitting, note = _value(tool, value)
    return compact(fitting) + note


def as_display(tool: Tool, value: Any) -> str:
    """The value as text for reading."""
    fitting, note = _value(tool, value)
    return _display(fitting) + note


_FORMATTERS: Mapping[str, Formatter] = {"json": as_json, "display": as_display}


def _display(value: Any, indent: str = "") -> str:
    if isinstance(value, Mapping):
        return "\n".join(
            _field(str(k), v, indent) for k, v in cast("Mapping[Any, Any]", value).items()
        )
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return "\n".join(f"{indent}- {_display(item, indent + '  ').lstrip()}" for item in items)
    return indent + (value if isinstance(value, str) else compact(value))


def _field(name: str, value: Any, indent: str) -> str:
    if isinstance(value, (Mapping, list)) and value:
        return f"{indent}{name}:\n{_display(value, indent + '  ')}"
    if isinstance(value, str) and "\n" in value:
        lines = "\n".join(f"{indent}  {line}" for line in value.splitlines())
        return f"{indent}{name}:\n{lines}"
    shown = "none" if isinstance(value, (Mapping, list)) else _display(value)
    return f"{indent}{name}: {shown}"


def _value(tool: Tool, value: Any) -> tuple[Any, str]:
    """The JSON value of what a handler returned, by the tool's own output schema where it has one,
    and a notice if it does not fit.
    """
    if tool.output is None:
        return _plain(value), ""
    encoded, problems = tool.output.encode(value)
    if problems:
        return _plain(value), f"\n{misfit(tool, problems)}"
    return encoded, ""


def _plain(value: Any) -> Any:
    """Tuples, dataclasses and what knows its own JSON form, as JSON values."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in cast("Iterable[Any]", value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    dump: Any = getattr(value, "model_dump", None)
    return dump(mode="json") if dump else value
