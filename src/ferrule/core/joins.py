"""Joins: of calls that run together, how many must succeed before the others are not needed.

`all` (every call is worked to its end), `first_success`, or a number of successes. A failure never
ends the calls beside it, and results keep the order of the calls. Whoever starts a run chooses
(`Agent(join=...)`), a model cannot; scripts choose for the calls that they launch
(`parallel.join`). Source: systems.md §5.1, Planner and execution.

Where enough have succeeded, what still runs is stopped and what has not begun does not begin. Each
of these calls has its result like any other, `cancelled`, which says what is known of its effect.
If too few succeed, all are worked to their end.
"""

from __future__ import annotations

from collections.abc import Iterable

from .calls import Call, ErrorType, Result
from .calls_in_flight import Slot
from .commands import Command, StopTool
from .errors import ConfigError

ALL, FIRST_SUCCESS = "all", "first_success"
BRANCHES = 50
"""Calls that run side by side at the most; more of one answer are refused with a `limit`."""


def parse_join(given: object) -> int:
    """How many successes are enough: 0 for `all`, 1 for `first_success`, or the number. Raises
    ConfigError.
    """
    if given == ALL:
        return 0
    if given == FIRST_SUCCESS:
        return 1
    number = (
        int(given) if isinstance(given, str) and given.isdecimal() and len(given) < 4 else given
    )
    if type(number) is int and 1 <= number <= BRANCHES:
        return number
    hint = f"`{ALL}`, `{FIRST_SUCCESS}`, or how many successes are enough: 1 to {BRANCHES}"
    raise ConfigError(f"join = {given!r:.60}", hint=hint)


def enough(wanted: int, results: Iterable[Result | None]) -> bool:
    """Whether so many have succeeded. `wanted` 0: there is never enough."""
    return 0 < wanted <= sum(result is not None and result.success for result in results)


def not_begun(call: Call, why: str) -> Result:
    """The result of a call that nobody needs any more."""
    return Result.error(call, ErrorType.CANCELLED, f"not run: {why}")


def settle(wanted: int, round_: list[Slot]) -> list[Command]:
    """What ends the calls of a round that are not needed any more, each once."""
    if not enough(wanted, (slot.result for slot in round_)):
        return []
    stops: list[Command] = []
    for slot in round_:
        if slot.result is None and not slot.unneeded:
            slot.unneeded = True
            stops.append(StopTool(slot.call, f"enough calls of this answer succeeded ({wanted})"))
    return stops
