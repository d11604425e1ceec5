"""Loads the interpreter of scripts, or says how to get it."""

from __future__ import annotations

import atexit
import time
from functools import cache
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed


def library() -> Any:
    """The package `pydantic_monty`. Raises ToolFailed(not_found) where it is not installed."""
    try:
        import pydantic_monty
    except ImportError:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            "scripts need the package `pydantic-monty`, which is not installed; ask the "
            "person to run "
            "`pip install 'ferrule[code]'`, or call the tools one by one",
        ) from None
    _leave_in_peace()
    return pydantic_monty


_FAREWELL = 0.2
"""Seconds."""


@cache
def _leave_in_peace() -> None:
    """Monty's threads (1.4) may still be putting a closed pool away when the interpreter ends, and
    one that reaches for it then aborts the process. There is nothing to wait on, so it gets a
    moment: this makes the abort rare and does not rule it out.
    """
    atexit.register(time.sleep, _FAREWELL)
