"""Makes a preview of a tool out of a function that reads files: off the event loop, and it never
fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ferrule.core.errors import FerruleError, ToolFailed
from ferrule.tools.context import Context
from ferrule.tools.definition import Preview


def preview(describe: Callable[[Mapping[str, Any], Context], str]) -> Preview:
    """`describe(values, context)` runs in a thread. Instead of raising it becomes a line that says
    why.
    """

    async def show(values: Mapping[str, Any], context: Any) -> str:
        try:
            return await asyncio.to_thread(describe, values, context)
        except ToolFailed as failure:
            return f"[this call would fail: {failure}]"
        except (FerruleError, OSError, LookupError, TypeError, ValueError) as error:
            # Boundary: a preview is shown while a person is asked; it must not take the question
            #     away.
            return f"[no preview: {error}]"

    return show
