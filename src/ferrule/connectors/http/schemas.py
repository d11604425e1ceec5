"""Schemas of arguments, made ready once: a file is read, its tools are tried, and then they are
made, all with the same ones.

What bounds them is `connectors.schemas`. A schema without references can cost no more than it is
long, so it is not walked through for that: a document may bring five hundred of them.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ferrule.connectors.schemas import MAX_BYTES, MAX_DEPTH, arguments_of
from ferrule.core.calls import compact
from ferrule.tools.define import SchemaArguments
from ferrule.tools.definition import Arguments

KEPT = 1024
_known: OrderedDict[str, Arguments] = OrderedDict()
"""By the schema's JSON. What checks arguments does not change, so tools can share it."""
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_REFERS = ('"$ref"', '"$dynamicRef"', '"$recursiveRef"')


def checking(tool: str, schema: Mapping[str, Any]) -> Arguments:
    """What checks the arguments of a tool. Raises ToolDefinitionError saying what is wrong with the
    schema.
    """
    text = compact(schema)
    made = _known.pop(text, None) or _made(tool, schema, text)
    _known[text] = made
    if len(_known) > KEPT:
        _known.popitem(last=False)
    return made


def _made(tool: str, schema: Mapping[str, Any], text: str) -> Arguments:
    simple = schema.get("type") == "object" and len(text.encode("utf-8", "replace")) <= MAX_BYTES
    if simple and not any(mark in text for mark in _REFERS) and _depth(text) <= MAX_DEPTH:
        return SchemaArguments(tool, dict(schema))
    return arguments_of(tool, schema)


def _depth(text: str) -> int:
    """How deeply JSON is nested, by its brackets."""
    deepest = depth = 0
    for sign in _TEXT.sub("", text):
        if sign in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif sign in "}]":
            depth -= 1
    return deepest
