"""Loads the interpreter of scripts, or explains how to install it."""

from __future__ import annotations

import atexit
import time
from functools import cache
from typing import Any

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed


def import_monty() -> Any:
    """Return the package `pydantic_monty`. Raises ToolFailed(not_found) if it is not installed."""
    try:
        import pydantic_monty
    except ImportError:
        raise ToolFailed(
            ErrorType.NOT_FOUND,
            "scripts need the package `pydantic-monty`, which is not installed; ask the "
            "person to run `pip install 'ferrule[code]'`, or call the tools one by one",
        ) from None
    _delay_exit()
    return pydantic_monty


_EXIT_SECONDS = 0.2


@cache
def _delay_exit() -> None:
    """Delay the end of the process, once.

    Monty's threads (1.4) may still be closing a pool when the interpreter ends, and a thread that
    reaches for it then aborts the process. There is nothing to wait on, so they get a moment: this
    makes the abort rare but does not rule it out.
    """
    atexit.register(time.sleep, _EXIT_SECONDS)
