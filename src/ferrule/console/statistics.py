"""Numbers for pages: one reading of the journal for all of them, updated when someone looks.

A page waits at most `SECONDS` for new events. The rest of a long journal is read by later requests;
pages say so and ask again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ferrule.engine.threads import run_blocking
from ferrule.models.prices import price_of
from ferrule.storage.statistics.incremental import Following, Reading
from ferrule.storage.statistics.tools import Owner

from .timeline_cache import Views
from .viewer import Viewer

if TYPE_CHECKING:
    from .state import Console

T = TypeVar("T")
SECONDS = 1.0
_of: weakref.WeakKeyDictionary[Views, Following] = weakref.WeakKeyDictionary()


def numbers_of(console: Console) -> Following:
    """Return the statistics of a console's journal. They live as long as the console."""
    found = _of.get(console.views)
    if found is None:
        found = _of[console.views] = Following(console.journal, price_of=price_of)
        weakref.finalize(console.views, found.close)
    return found


async def ask(console: Console, query: Callable[[Following], T]) -> tuple[T, Reading]:
    """Query the statistics as they are now. Also returns how far they have been read.

    Raises:
        JournalError: the journal cannot be read.
    """
    numbers = numbers_of(console)
    return await run_blocking(lambda: numbers.ask(query, seconds=SECONDS))


def owner_of(viewer: Viewer) -> Owner | None:
    """Return whose numbers a viewer sees: their own, or for an operator everyone's (None)."""
    return None if viewer.operator else (viewer.tenant, viewer.user)
