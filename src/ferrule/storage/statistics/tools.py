"""What tools did, in numbers: calls, failures by type, latency, the last calls, who stopped how
many on which day.

A projection of the journal: nothing here is stored. It grows with the number of tools and days,
never with the number of calls: percentiles are those of the last `DURATIONS` calls of a tool, of
calls themselves the last `RECENT` are kept. Names beyond `NAMES` for one owner are counted
together: a model can make up as many as it likes.

Numbers are kept per owner (tenant and user), so that a view of one person's calls is made of theirs
alone. Days are of UTC.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from .finished_calls import SettledCall
from .newest import Newest

DURATIONS = 500
RECENT = 50
NAMES = 1_000
OTHERS = "(other names)"
"""Stands for the tools beyond `NAMES`."""

Owner = tuple[str, str]
"""Tenant and user."""


def day_of(time: int) -> str:
    """The day of UTC, `2026-11-22`, on which `time` (ms since 1970) lies."""
    return datetime.fromtimestamp(time / 1000, UTC).date().isoformat()


def percentile(values: Iterable[int], share: float) -> int | None:
    """The smallest value that at least `share` (0 to 1) of all do not exceed (nearest rank); None
    of no values.
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


@dataclass(slots=True)
class ToolUse:
    """The calls of one tool. `outcomes` counts them by outcome (`finished_calls`); `bytes` is what
    their results were, uncut.
    """

    calls: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    bytes: int = 0
    last: int = 0
    last_failed: int = 0
    durations: Newest[int] = field(default_factory=lambda: Newest[int](DURATIONS))
    recent: Newest[SettledCall] = field(default_factory=lambda: Newest[SettledCall](RECENT))

    @property
    def failures(self) -> int:
        """Calls that ended in any other way than with success."""
        return self.calls - self.outcomes["success"]

    def latency(self, share: float) -> int | None:
        """Milliseconds inside the handler that this share of the last calls did not exceed; None if
        none ran.
        """
        return percentile(self.durations, share)

    def add(self, call: SettledCall) -> None:
        """Count a call."""
        self.calls += 1
        self.outcomes[call.outcome] += 1
        self.bytes += call.size
        self.last = max(self.last, call.time)
        if call.outcome != "success":
            self.last_failed = max(self.last_failed, call.time)
        if call.duration_ms is not None:
            self.durations.add(call.time, call.duration_ms)
        self.recent.add(call.time, call)

    def merge(self, other: ToolUse) -> None:
        """Count what another one counted."""
        self.calls += other.calls
        self.outcomes += other.outcomes
        self.bytes += other.bytes
        self.last, self.last_failed = (
            max(self.last, other.last),
            max(self.last_failed, other.last_failed),
        )
        self.durations.merge(other.durations)
        self.recent.merge(other.recent)


@dataclass(slots=True)
class _Mine:
    """Numbers of one owner."""

    tools: dict[str, ToolUse] = field(default_factory=dict[str, ToolUse])
    days: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    stopped: Newest[SettledCall] = field(default_factory=lambda: Newest[SettledCall](RECENT))
    sandboxes: Counter[str] = field(default_factory=Counter[str])


class ToolStatistics:
    """Counts settled calls."""

    def __init__(self) -> None:
        self._owners: dict[Owner, _Mine] = {}

    def add(self, call: SettledCall) -> None:
        """Count a call."""
        mine = self._owners.get(call.owner)
        if mine is None:
            mine = self._owners[call.owner] = _Mine()
        tools = mine.tools
        use = tools.get(call.tool)
        if use is None:
            name = call.tool if len(tools) < NAMES else OTHERS
            use = tools.setdefault(name, ToolUse())
        use.add(call)
        if call.sandbox:
            mine.sandboxes[call.sandbox] += 1
        if call.stopped_by:
            mine.days.setdefault(day_of(call.time), Counter())[call.stopped_by] += 1
            mine.stopped.add(call.time, call)

    def tools(self, owner: Owner | None = None) -> dict[str, ToolUse]:
        """The use of each tool, by name: of this owner, or of all of them together."""
        merged: dict[str, ToolUse] = {}
        for mine in self._of(owner):
            for name, use in mine.tools.items():
                merged.setdefault(name, ToolUse()).merge(use)
        return merged

    def tool(self, name: str, owner: Owner | None = None) -> ToolUse:
        """The use of one tool."""
        merged = ToolUse()
        for mine in self._of(owner):
            if name in mine.tools:
                merged.merge(mine.tools[name])
        return merged

    def stopped(self, owner: Owner | None = None) -> dict[str, Counter[str]]:
        """By day, how many calls were kept from something, by whom (`finished_calls.STOPPERS`)."""
        merged: dict[str, Counter[str]] = {}
        for mine in self._of(owner):
            for day, counts in mine.days.items():
                merged.setdefault(day, Counter()).update(counts)
        return dict(sorted(merged.items()))

    def last_stopped(self, owner: Owner | None = None) -> list[SettledCall]:
        """The last calls that were kept from something, newest first."""
        merged = Newest[SettledCall](RECENT)
        for mine in self._of(owner):
            merged.merge(mine.stopped)
        return list(merged)

    def sandboxes(self, owner: Owner | None = None) -> Counter[str]:
        """How many calls started programs under which mechanism; `none` is nothing that holds
        them.
        """
        merged = Counter[str]()
        for mine in self._of(owner):
            merged.update(mine.sandboxes)
        return merged

    def _of(self, owner: Owner | None) -> list[_Mine]:
        if owner is None:
            return list(self._owners.values())
        return [self._owners[owner]] if owner in self._owners else []
