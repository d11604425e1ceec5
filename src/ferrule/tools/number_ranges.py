"""Refuse numbers that a tool cannot take: checks for `Tool.impossible`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Bounds = tuple[float, float | None]
"""The smallest and the largest allowed value; None: there is no largest."""


def require_ranges(**bounds: Bounds) -> Callable[[Mapping[str, Any]], list[str]]:
    """Return a check that reports named arguments outside their bounds.

    Arguments that were left out (None) are not checked.
    """

    def find_problems(values: Mapping[str, Any]) -> list[str]:
        found: list[str] = []
        for name, (least, most) in bounds.items():
            value = values.get(name)
            if value is None:
                continue
            if value >= least and (most is None or value <= most):
                continue
            allowed = f"at least {least}" if most is None else f"from {least} to {most}"
            found.append(f"`{name}` must be {allowed}, found {value}")
        return found

    return find_problems
