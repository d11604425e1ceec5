"""Join policies: how many of the calls that run together must succeed.

The policy is `all` (every call runs to its end), `first_success`, or a number of successes. A
failure never ends the calls beside it, and results keep the order of the calls. Whoever starts a
run chooses (`run(text, join=...)`), a model cannot; scripts choose for the calls that they launch
(`parallel.join`). Source: systems.md §5.1, Planner and execution.

Once enough calls have succeeded, the running ones are stopped and the others do not start. Each of
them still gets a result, `cancelled`, which says what is known about its effect. If too few
succeed, all run to their end.
"""

from __future__ import annotations

from collections.abc import Iterable

from .call_states import CallSlot
from .calls import ErrorType, ToolCall, ToolResult
from .commands import Command, StopCall
from .errors import ConfigError

ALL = "all"
FIRST_SUCCESS = "first_success"
MAX_PARALLEL_CALLS = 50
"""The most calls that run in parallel; further calls of a turn are refused with a `limit`."""


def parse_join(given: object) -> int:
    """Return how many successes are enough, from `all` (0), `first_success` (1) or a number.

    Raises:
        ConfigError: `given` is none of these.
    """
    if given == ALL:
        return 0
    if given == FIRST_SUCCESS:
        return 1
    number = given
    if isinstance(given, str) and given.isdecimal() and len(given) < 4:
        number = int(given)
    if type(number) is int and 1 <= number <= MAX_PARALLEL_CALLS:
        return number
    hint = (
        f"`{ALL}`, `{FIRST_SUCCESS}`, or how many successes are enough: 1 to {MAX_PARALLEL_CALLS}"
    )
    raise ConfigError(f"join = {given!r:.60}", hint=hint)


def has_enough_successes(wanted: int, results: Iterable[ToolResult | None]) -> bool:
    """Return whether at least `wanted` results are successes; never if `wanted` is 0."""
    return 0 < wanted <= sum(result is not None and result.success for result in results)


def build_cancelled_result(call: ToolCall, why: str) -> ToolResult:
    """Return the result of a call that was cancelled before it started."""
    return ToolResult.error(call, ErrorType.CANCELLED, f"not run: {why}")


def stop_unneeded_calls(wanted: int, turn: list[CallSlot]) -> list[Command]:
    """Return commands that stop the calls of a turn that are no longer needed, each once."""
    if not has_enough_successes(wanted, (slot.result for slot in turn)):
        return []
    stops: list[Command] = []
    for slot in turn:
        if slot.result is None and not slot.unneeded:
            slot.unneeded = True
            stops.append(StopCall(slot.call, f"enough calls of this answer succeeded ({wanted})"))
    return stops
