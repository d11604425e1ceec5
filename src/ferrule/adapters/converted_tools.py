"""What all tools of other frameworks have in common when they become ours.

Their schemas stay as they are, and no defaults are added to calls. They say nothing about effects
that we could rely on, so they count as undeclared, like plain functions; `tools.toolset.configure`
says more about them.
"""

from __future__ import annotations

import base64
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from ferrule.core.media import Media
from ferrule.tools.define import SchemaArguments
from ferrule.tools.definition import Risk, Tool
from ferrule.tools.names import check_name

_UNUSABLE = re.compile(r"[^A-Za-z0-9_.\-]+")


def convert_tool(
    name: str,
    description: str | None,
    schema: Mapping[str, Any],
    handler: Callable[..., Any],
    *,
    source: str,
    risk: Risk = Risk.SAFE,
) -> Tool:
    """Return a tool of another framework as ours.

    Args:
        name: Its name there; what no name of ours may hold becomes `_`.
        description: What it does, for the model; its name if nobody said it.
        schema: JSON Schema of its arguments.
        handler: Takes the arguments by keyword. An async one runs on the event loop.
        source: Where it comes from, for people.
        risk: The risk of its calls.

    Raises:
        ToolDefinitionError: The name or the schema cannot be used.
    """
    usable = _UNUSABLE.sub("_", name)
    check_name(usable)
    properties: Mapping[str, Any] = {"type": "object", "properties": {}}
    return Tool(
        name=usable,
        description=inspect.cleandoc(description or "") or name,
        arguments=SchemaArguments(usable, {**properties, **schema}),
        handler=handler,
        is_async=inspect.iscoroutinefunction(handler),
        risk=risk,
        source=source,
    )


def decode_medium(encoded: str, name: str = "") -> Media:
    """Return a picture, a sound or a document from its bytes in base64."""
    return Media(base64.b64decode(encoded), name=name)
