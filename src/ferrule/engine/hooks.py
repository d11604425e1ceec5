"""Hooks around a call: what may block it, change it, or redact its result.

A hook that raises blocks the call (fail closed). Changed arguments are validated and gated again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ferrule.core.calls import Result
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool


@dataclass(frozen=True, slots=True)
class Block:
    """The call must not run; the model reads `reason`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Change:
    """Run the call with these arguments instead (raw, before validation)."""

    arguments: Mapping[str, Any]


class Hook(Protocol):
    """`before` sees checked values and answers None to let the call pass; `after` may return another
    result for the same call. Both run for every call, whoever asked for it."""

    async def before(
        self, tool: Tool, values: Mapping[str, Any], context: Context
    ) -> Block | Change | None: ...

    async def after(self, tool: Tool, result: Result, context: Context) -> Result | None: ...
