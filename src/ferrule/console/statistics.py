"""Numbers for pages: one reading of the journal for all of them, kept up to date when somebody
looks.

A page waits at most `SECONDS` for what is new. Of a long journal the rest is read by the next
looks; pages say so and ask again.
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
    """The numbers of a console's journal; they go with the console."""
    found = _of.get(console.views)
    if found is None:
        found = _of[console.views] = Following(console.journal, price_of=price_of)
        weakref.finalize(console.views, found.close)
    return found


async def ask(console: Console, query: Callable[[Following], T]) -> tuple[T, Reading]:
    """What the numbers say now, and how far they go. Raises JournalError."""
    numbers = numbers_of(console)
    return await run_blocking(lambda: numbers.ask(query, seconds=SECONDS))


def owner_of(viewer: Viewer) -> Owner | None:
    """Whose numbers somebody sees: their own, or as an operator everybody's."""
    return None if viewer.operator else (viewer.tenant, viewer.user)
