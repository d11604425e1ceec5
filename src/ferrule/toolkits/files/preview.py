"""Makes a preview of a call out of a function that reads files: in a thread, and never failing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.tools.context import Context
from ferrule.tools.definition import Preview


def make_preview(describe: Callable[[Mapping[str, Any], Context], str]) -> Preview:
    """Return a preview that runs `describe(values, context)` in a thread.

    An error becomes a line that states the reason.
    """

    async def show(values: Mapping[str, Any], context: Any) -> str:
        try:
            return await asyncio.to_thread(describe, values, context)
        except ToolFailed as failure:
            return f"[this call would fail: {failure}]"
        except (FerruleError, OSError, LookupError, TypeError, ValueError) as error:
            # Boundary: a preview is part of an approval request, which an error must not prevent.
            return f"[no preview: {error}]"

    return show
