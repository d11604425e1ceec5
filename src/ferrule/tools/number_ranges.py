"""Ranges of numbers that a tool takes: what `Tool.impossible` says of values outside of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Bounds = tuple[float, float | None]
"""The least and the most, both allowed; None: there is no most."""


def ranges(**bounds: Bounds) -> Callable[[Mapping[str, Any]], list[str]]:
    """Say which of the named arguments lie outside of their bounds. What was left out (None) is not
    looked at.
    """

    def problems(values: Mapping[str, Any]) -> list[str]:
        found: list[str] = []
        for name, (least, most) in bounds.items():
            value = values.get(name)
            if value is None or (value >= least and (most is None or value <= most)):
                continue
            allowed = f"at least {least}" if most is None else f"from {least} to {most}"
            found.append(f"`{name}` must be {allowed}, found {value}")
        return found

    return problems
