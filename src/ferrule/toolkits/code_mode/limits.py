"""What a script may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLimits:
    """Bounds of one script.

    `seconds` is time in which the script itself computes, `total_seconds` also counts its calls;
    `memory` is bytes of its values, `depth` calls of functions within each other. `calls` counts
    calls of tools, `parallel` those that run at a time. `source` and `printed` are characters,
    `nodes` values in one argument or result.
    """

    seconds: float = 5.0
    total_seconds: float = 300.0
    memory: int = 64 * 1024 * 1024
    depth: int = 200
    calls: int = 50
    parallel: int = 8
    source: int = 20_000
    printed: int = 32_000
    nodes: int = 50_000
