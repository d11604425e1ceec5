"""Numbers for pages: one reading of the journal for all of them, updated when someone looks.

A page waits at most `SECONDS` for new events. The rest of a long journal is read by later requests;
pages say so and ask again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TypeVar

from ferrule.engine.threads import run_blocking
from ferrule.models.prices import find_price
from ferrule.storage.statistics.incremental import JournalStatistics, ReadingProgress
from ferrule.storage.statistics.tools import Owner

from .state import Console
from .timeline_cache import TimelineCache
from .viewer import Viewer

T = TypeVar("T")
SECONDS = 1.0
_statistics: weakref.WeakKeyDictionary[TimelineCache, JournalStatistics] = (
    weakref.WeakKeyDictionary()
)


def find_statistics(console: Console) -> JournalStatistics:
    """Return the statistics of a console's journal. They live as long as the console."""
    found = _statistics.get(console.timelines)
    if found is None:
        found = _statistics[console.timelines] = JournalStatistics(
            console.journal, price_of=find_price
        )
        console.close_with_reading(found.close)
    return found


async def query_statistics(
    console: Console, query: Callable[[JournalStatistics], T]
) -> tuple[T, ReadingProgress]:
    """Query the statistics as they are now. Also returns how far they have been read.

    Raises:
        JournalError: the journal cannot be read.
    """
    numbers = find_statistics(console)
    return await run_blocking(lambda: numbers.query(query, seconds=SECONDS))


def statistics_owner(viewer: Viewer) -> Owner | None:
    """Return whose numbers a viewer sees: their own, or for an operator everyone's (None)."""
    return None if viewer.operator else (viewer.tenant, viewer.user)
