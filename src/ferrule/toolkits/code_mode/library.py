"""Loads the interpreter of scripts, or says how to get it."""

from __future__ import annotations

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
            "scripts need the package `pydantic-monty`, which is not installed; ask the person to run "
            "`pip install 'ferrule[code]'`, or call the tools one by one",
        ) from None
    return pydantic_monty
