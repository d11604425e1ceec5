"""The limits of a script."""

from __future__ import annotations

from dataclasses import KW_ONLY

from ferrule.core.value_class import options


@options
class CodeLimits:
    """Bounds of one script.

    Attributes:
        seconds: Time in which the script itself computes.
        total_seconds: Time including its calls.
        memory: Bytes of its values.
        depth: Calls of functions within each other.
        calls: Calls of tools.
        parallel: Calls that run at a time.
        source: Characters of the script.
        printed: Characters of its output that are kept.
        nodes: Values in one argument or result.
    """

    _: KW_ONLY
    seconds: float = 5.0
    total_seconds: float = 300.0
    memory: int = 64 * 1024 * 1024
    depth: int = 200
    calls: int = 50
    parallel: int = 8
    source: int = 20_000
    printed: int = 32_000
    nodes: int = 50_000
