"""Check functions that are given as options where they are given, not at their first call."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

from .errors import ConfigError


def check_callback(option: str, given: object, parameters: Sequence[str]) -> None:
    """Check that something can be called with so many positional arguments.

    A callable that does not tell its parameters is believed.

    Args:
        option: The name of the option, for the error.
        given: What was given for it.
        parameters: What it will be called with, by their usual names.

    Raises:
        ConfigError: It is not callable, or takes other arguments.
    """
    form = f"{option}({', '.join(parameters)})"
    if not callable(given):
        raise ConfigError(
            f"{option}: found a {type(given).__name__}", hint=f"give a function, called as {form}"
        )
    try:
        signature = inspect.signature(given)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*parameters)
    except TypeError as error:
        raise ConfigError(
            f"{option}: the function cannot be called as {form}: {error}",
            hint=f"let it take {' and '.join(f'`{name}`' for name in parameters)}",
        ) from error
