"""The newest few of many things that come in any order."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Newest(Generic[T]):
    """Keeps the `most` things with the latest times. Journals are read session by session, so times
    go back and forth.
    """

    __slots__ = ("_count", "_kept", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self._count = 0
        self._kept: list[tuple[int, int, T]] = []

    def add(self, time: int, thing: T) -> None:
        """Keep this, if it is among the newest. Of two with the same time, the one that came later
        counts as newer.
        """
        kept = self._kept
        if len(kept) >= self.most and time < kept[0][0]:
            return
        self._count += 1
        # The number makes every entry different, so that things themselves are never compared.
        insort(kept, (time, self._count, thing))
        if len(kept) > self.most:
            del kept[0]

    def merge(self, other: Newest[T]) -> None:
        """Take in what another one kept."""
        for time, _, thing in other._kept:
            self.add(time, thing)

    def __iter__(self) -> Iterator[T]:
        """The newest first."""
        return (thing for _, _, thing in reversed(self._kept))

    def __len__(self) -> int:
        return len(self._kept)
