"""`llm`: the tools of its plugins as tools of ours.

    agent = Agent("openai:gpt-5.2", load_plugin_tools())
    agent = Agent("openai:gpt-5.2", convert_toolbox(lambda: SQLite("library.db")))

A toolbox is made, and all its tools run, in one thread of its own: many hold a connection or a file
that only the thread which opened it may use.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import Any

from ferrule.core.media import Media
from ferrule.tools.definition import Tool

from .converted_tools import convert_tool

__all__ = ["convert_toolbox", "convert_tools", "load_plugin_tools"]


def load_plugin_tools() -> list[Tool]:
    """Return the tools of all installed plugins, as far as they need no arguments to be made.

    Toolboxes that do are left to `convert_toolbox`. Raises ToolDefinitionError.
    """
    tools: list[Tool] = []
    found: dict[str, Any] = import_module("llm").get_tools()
    for one in found.values():
        if not inspect.isclass(one):
            tools += convert_tools([one])
        elif _needs_nothing(one):
            tools += convert_toolbox(one)
    return tools


def convert_tools(tools: Iterable[Any]) -> list[Tool]:
    """Return `llm`'s tools, or functions that it would take for tools, as ours.

    Raises ToolDefinitionError.
    """
    llm: Any = import_module("llm")
    wrapped = [one if isinstance(one, llm.Tool) else llm.Tool.function(one) for one in tools]
    return [_convert(one, _run_in_place(one.implementation)) for one in wrapped]


def convert_toolbox(make: Callable[[], Any]) -> list[Tool]:
    """Make a toolbox and return its tools as ours.

    Args:
        make: Makes the toolbox: its class, or a function that gives the class its arguments.

    Raises:
        ToolDefinitionError: A name or a schema cannot be used.
    """
    thread = ThreadPoolExecutor(1, thread_name_prefix="ferrule-llm-toolbox")
    toolbox = thread.submit(make).result()
    thread.submit(toolbox.prepare).result()
    return [_convert(one, _run_in_thread(one.implementation, thread)) for one in toolbox.tools()]


def _needs_nothing(toolbox: type) -> bool:
    """Return whether a class can be called without arguments."""
    try:
        inspect.signature(toolbox).bind()
    except (TypeError, ValueError):
        return False
    return True


def _convert(tool: Any, handler: Callable[..., Any]) -> Tool:
    source = f"llm {tool.plugin or ''}".strip()
    return convert_tool(tool.name, tool.description, tool.input_schema, handler, source=source)


def _run_in_place(implementation: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(implementation):

        async def wait(**arguments: Any) -> Any:
            return _to_value(await implementation(**arguments))

        return wait

    def run(**arguments: Any) -> Any:
        return _to_value(implementation(**arguments))

    return run


def _run_in_thread(
    implementation: Callable[..., Any], thread: ThreadPoolExecutor
) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(implementation):
        return _run_in_place(implementation)

    async def wait(**arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return _to_value(await loop.run_in_executor(thread, partial(implementation, **arguments)))

    return wait


def _to_value(value: Any) -> Any:
    """Return what a tool returned, its attachments as media."""
    attachments: list[Any] | None = getattr(value, "attachments", None)
    if attachments is None:
        return value
    output: Any = value.output
    return [output, *(Media(one.content_bytes()) for one in attachments)] if attachments else output
