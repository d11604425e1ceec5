"""What tools did, in numbers: calls, failures, latency, the last calls, and who stopped how many.

A projection of the journal: nothing here is stored. It grows with the number of tools and days,
never with the number of calls: percentiles are those of the last `KEPT_DURATIONS` calls of a tool,
and of the calls themselves the last `RECENT` are kept. Names beyond `NAMES` for one owner are
counted together, because a model can make up as many as it likes.

Numbers are kept per owner (tenant and user), so that a view of one person's calls is made of theirs
alone. Days are in UTC.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Generic, TypeVar

from ferrule.core.calls import ErrorType

from .finished_calls import FinishedCall

T = TypeVar("T")

KEPT_DURATIONS = 500
KEPT_CALLS = 50
MAX_NAMES = 1_000
OTHER_NAMES = "(other names)"
"""Stands for all tools beyond `NAMES`."""

Owner = tuple[str, str]
"""Tenant and user."""


def day_of(time: int) -> str:
    """Return the day in UTC (`2026-11-22`) of a time in ms since 1970."""
    return datetime.fromtimestamp(time / 1000, UTC).date().isoformat()


def percentile(values: Iterable[int], share: float) -> int | None:
    """Return the smallest value that a `share` (0 to 1) of all do not exceed (nearest rank).

    Returns None if there are no values.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


class Newest(Generic[T]):
    """Keeps the `most` things with the latest times.

    Journals are read session by session, so times go back and forth.
    """

    __slots__ = ("_count", "_kept", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._count = 0
        self._kept: list[tuple[int, int, T]] = []

    def add(self, time: int, thing: T) -> None:
        """Keep this if it is among the newest. If times are equal, the one added later is newer."""
        kept = self._kept
        if len(kept) >= self.most and time < kept[0][0]:
            return
        self._count += 1
        # The count makes every entry different, so that the things themselves are never compared.
        insort(kept, (time, self._count, thing))
        if len(kept) > self.most:
            del kept[0]

    def merge(self, other: Newest[T]) -> None:
        """Add what another one kept."""
        for time, _, thing in other._kept:
            self.add(time, thing)

    def __iter__(self) -> Iterator[T]:
        """Yield the newest first."""
        return (thing for _, _, thing in reversed(self._kept))

    def __len__(self) -> int:
        return len(self._kept)


@dataclass(slots=True)
class ToolUse:
    """The calls of one tool.

    `outcomes` counts them by outcome (`finished_calls`); `bytes` is the uncut size of their
    results.
    """

    calls: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    bytes: int = 0
    last: int = 0
    last_failed: int = 0
    durations: Newest[int] = field(default_factory=lambda: Newest[int](KEPT_DURATIONS))
    recent: Newest[FinishedCall] = field(default_factory=lambda: Newest[FinishedCall](KEPT_CALLS))

    @property
    def failures(self) -> int:
        """Calls that ran, or could not, and did not end with success."""
        return self.calls - self.outcomes["success"] - self.denials

    @property
    def denials(self) -> int:
        """Calls that somebody refused, which says nothing about the tool."""
        return self.outcomes[str(ErrorType.PERMISSION_DENIED)]

    def latency(self, share: float) -> int | None:
        """Return the milliseconds in the handler that this share of the last calls did not exceed.

        Returns None if none ran.
        """
        return percentile(self.durations, share)

    def add(self, call: FinishedCall) -> None:
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
        """Add the counts of another one."""
        self.calls += other.calls
        self.outcomes += other.outcomes
        self.bytes += other.bytes
        self.last = max(self.last, other.last)
        self.last_failed = max(self.last_failed, other.last_failed)
        self.durations.merge(other.durations)
        self.recent.merge(other.recent)


@dataclass(slots=True)
class _OwnerStatistics:
    """Numbers of one owner."""

    tools: dict[str, ToolUse] = field(default_factory=dict[str, ToolUse])
    days: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    stopped: Newest[FinishedCall] = field(default_factory=lambda: Newest[FinishedCall](KEPT_CALLS))
    sandboxes: Counter[str] = field(default_factory=Counter[str])


class ToolStatistics:
    """Counts finished calls."""

    def __init__(self) -> None:
        self._owners: dict[Owner, _OwnerStatistics] = {}

    def add(self, call: FinishedCall) -> None:
        """Count a call."""
        numbers = self._owners.get(call.owner)
        if numbers is None:
            numbers = self._owners[call.owner] = _OwnerStatistics()
        use = numbers.tools.get(call.tool)
        if use is None:
            name = call.tool if len(numbers.tools) < MAX_NAMES else OTHER_NAMES
            use = numbers.tools.setdefault(name, ToolUse())
        use.add(call)
        if call.sandbox:
            numbers.sandboxes[call.sandbox] += 1
        if call.stopped_by:
            numbers.days.setdefault(day_of(call.time), Counter())[call.stopped_by] += 1
            numbers.stopped.add(call.time, call)

    def tools(self, owner: Owner | None = None) -> dict[str, ToolUse]:
        """Return the use of each tool, by name: of this owner, or of all together."""
        merged: dict[str, ToolUse] = {}
        for numbers in self._select(owner):
            for name, use in numbers.tools.items():
                merged.setdefault(name, ToolUse()).merge(use)
        return merged

    def tool(self, name: str, owner: Owner | None = None) -> ToolUse:
        """Return the use of one tool."""
        merged = ToolUse()
        for numbers in self._select(owner):
            if name in numbers.tools:
                merged.merge(numbers.tools[name])
        return merged

    def count_stopped(self, owner: Owner | None = None) -> dict[str, Counter[str]]:
        """Return, by day, how many calls were stopped by whom (`finished_calls.STOPPERS`)."""
        merged: dict[str, Counter[str]] = {}
        for numbers in self._select(owner):
            for day, counts in numbers.days.items():
                merged.setdefault(day, Counter()).update(counts)
        return dict(sorted(merged.items()))

    def list_stopped(self, owner: Owner | None = None) -> list[FinishedCall]:
        """Return the last calls that were stopped, newest first."""
        merged = Newest[FinishedCall](KEPT_CALLS)
        for numbers in self._select(owner):
            merged.merge(numbers.stopped)
        return list(merged)

    def sandboxes(self, owner: Owner | None = None) -> Counter[str]:
        """Return how many calls started programs under which mechanism; `none` means unconfined."""
        merged = Counter[str]()
        for numbers in self._select(owner):
            merged.update(numbers.sandboxes)
        return merged

    def _select(self, owner: Owner | None) -> list[_OwnerStatistics]:
        if owner is None:
            return list(self._owners.values())
        return [self._owners[owner]] if owner in self._owners else []
