"""Makes a preview of a call out of a function that reads files: in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ferrule.tools.context import Context
from ferrule.tools.definition import Preview


def make_preview(describe: Callable[[Mapping[str, Any], Context], str]) -> Preview:
    """Return a preview that runs `describe(values, context)` in a thread."""

    async def show(values: Mapping[str, Any], context: Any) -> str:
        return await asyncio.to_thread(describe, values, context)

    return show
