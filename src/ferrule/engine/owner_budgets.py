"""Budgets of users and tenants: what all their runs together may use of models, in any process.

Rules of this file, each a promise with a test:

* What was used is what the journal says: every answer counts when it is written, however its run
  ended, and whatever interface, worker or sub-agent asked for it.
* It is looked at before each question to a model. A run that meets a used-up budget ends with a
  `LimitReached` of its own code (`limit_user_tokens` and so on); its session is intact.
* So each run under way can exceed the budget by its last answer, and no more.
* A journal that cannot be read ends the run: what cannot be counted is not allowed.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ferrule.core.events import LimitHit
from ferrule.core.identity import Identity
from ferrule.core.limits import Limits
from ferrule.models.prices import find_price
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.statistics.owner_spending import follow_spending
from ferrule.storage.statistics.spending import SpendingTotal


async def find_used_up(journal: Journal, owner: Identity, limits: Limits) -> LimitHit | None:
    """Return the limit of a user or a tenant that is used up; None if there is none.

    Raises JournalError.
    """
    spending = follow_spending(journal, find_price)
    for name, most in limits.of_owners.items():
        user = owner.user if name.startswith("user_") else None
        # In a thread: a journal may be on a server, and the first question reads a lot.
        read = partial(spending.total, owner.tenant, user, limits.period_days)
        used = await asyncio.to_thread(read)
        if _measure(used, in_dollars=name.endswith("_cost")) >= most:
            return LimitHit(name, most)
    return None


def _measure(used: SpendingTotal, *, in_dollars: bool) -> float:
    if in_dollars:
        return float(used.dollars or 0)
    return used.usage.input + used.usage.output
