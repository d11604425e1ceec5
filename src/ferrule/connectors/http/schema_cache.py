"""Checkers of arguments by schema, made once and shared.

A file is read, its tools are tried, and then they are made, all with the same schemas. The bounds
are those of `connectors.bounded_schemas`. A schema without references can cost no more than it is
long, so it is not walked for that: a document may have five hundred of them.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ferrule.connectors.bounded_schemas import MAX_BYTES, MAX_DEPTH, make_arguments
from ferrule.core.calls import encode_json
from ferrule.tools.define import SchemaArguments
from ferrule.tools.definition import Arguments

MAX_CACHED = 1024
_cache: OrderedDict[str, Arguments] = OrderedDict()
"""Checkers by the schema's JSON. They do not change, so tools can share them."""
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_REFERENCE_KEYWORDS = ('"$ref"', '"$dynamicRef"', '"$recursiveRef"')


def cached_arguments(tool: str, schema: Mapping[str, Any]) -> Arguments:
    """Return a checker for the arguments of a tool.

    Raises:
        ToolDefinitionError: The schema cannot be used; the message says why.
    """
    text = encode_json(schema)
    checker = _cache.pop(text, None) or _make_checker(tool, schema, text)
    _cache[text] = checker
    if len(_cache) > MAX_CACHED:
        _cache.popitem(last=False)
    return checker


def _make_checker(tool: str, schema: Mapping[str, Any], text: str) -> Arguments:
    is_small = len(text.encode("utf-8", "replace")) <= MAX_BYTES
    has_references = any(keyword in text for keyword in _REFERENCE_KEYWORDS)
    is_simple = schema.get("type") == "object" and is_small and not has_references
    if is_simple and _bracket_depth(text) <= MAX_DEPTH:
        return SchemaArguments(tool, dict(schema))
    return make_arguments(tool, schema)


def _bracket_depth(text: str) -> int:
    """Return how deeply JSON text is nested, by its brackets."""
    deepest = depth = 0
    for character in _JSON_STRING.sub("", text):
        if character in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}]":
            depth -= 1
    return deepest
