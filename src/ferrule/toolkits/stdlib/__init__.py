"""Typed tools that ship: deterministic facts that a model should ask for and not guess.

    math::calc  math::evaluate  regex::match  strings::count_char  crypto::sha256  json::query
    dates::add  dates::between  dates::describe  units::convert          compute, touch nothing
    vision::ocr                                                          reads an image

    Agent("ollama:llama3.2", tools=[*stdlib_tools(["math", "dates", "units::convert"])])

Each has an output schema, and bounds on its input and output. `vision::ocr` needs the program
`tesseract`; if that is missing a call says so, and how to get it.

Modules: `calc`, `dates`, `json_path`, `json_query`, `numerals`, `ocr`, `plugin`, `recognizer`,
`tesseract`, `text`, `typed`, `units`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from ferrule.tools import toolset
from ferrule.tools.definition import Tool
from ferrule.tools.pack_options import PackOptions, apply_options

from .calc import calc, evaluate
from .dates import add_to_date, between, describe
from .json_query import query
from .ocr import ocr
from .recognizer import Recognized, Recognizer, Word
from .text import count_char, match, sha256
from .units import convert

__all__ = ["TOOLS", "Recognized", "Recognizer", "Word", "stdlib_tools"]


def _add_namespace_group(*tools: Tool) -> tuple[Tool, ...]:
    """Give each tool its full name as key, in the group of its namespace.

    `add` alone would say too little.
    """
    grouped: list[Tool] = []
    for tool in tools:
        grouped += toolset.add_to_groups([tool], tool.namespace, keys={tool.name: tool.full_name})
    return tuple(grouped)


TOOLS: tuple[Tool, ...] = _add_namespace_group(
    calc, evaluate, match, count_char, sha256, query, add_to_date, between, describe, convert, ocr
)


def stdlib_tools(
    enabled: Iterable[str] | None = None, **options: Unpack[PackOptions]
) -> tuple[Tool, ...]:
    """Return the tools as a set.

    Args:
        enabled: Full names (`math::calc`) or namespaces (`dates`); None: all tools.
        options: Those of every pack (`tools.pack_options.PackOptions`), by full name.

    Raises:
        ConfigError: A name, group or option does not exist; the message names the nearest.
    """
    if enabled is not None:
        options["enabled_tools"] = enabled
    return apply_options(TOOLS, options)
