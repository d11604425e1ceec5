"""What models cost: tokens and money per day, model and session, read from their answers.

A projection of the journal. Each answer counts where it was given: those of sub-agents in their own
sessions, summaries of a long context with the model that made them. Money is what the journal says
(`Usage.cost`, counted where the price was known) or else what `price_of` says; an answer without
either is counted as unpriced, never as free. Days are in UTC. Sessions beyond the `MAX_SESSIONS`
used last are left out of the list, not out of the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple

from ferrule.core.errors import ConfigError
from ferrule.core.events import (
    ContextCompacted,
    JournalRecord,
    ModelAnswered,
    RunStarted,
    SessionOpened,
    Usage,
)

MAX_SESSIONS = 1_000
NO_USAGE = Usage()
NANODOLLARS = 10**9
"""Money is counted in this fraction of a US dollar."""

Owner = tuple[str, str]
"""Tenant and user."""
Price = Callable[[Usage], Decimal]
PriceOf = Callable[[str], Price | None]
"""Returns, for a model's name, the function from usage to US dollars (`models.prices.price_of`)."""


class DayAndModel(NamedTuple):
    """What one sum is for."""

    day: str
    model: str


@dataclass(slots=True)
class SpendingTotal:
    """A sum.

    `usage.cost` is in billionths of a US dollar, over the answers that had a price; `unpriced` is
    the number of the others.
    """

    usage: Usage = field(default_factory=Usage)
    answers: int = 0
    unpriced: int = 0
    last: int = 0

    @property
    def dollars(self) -> Decimal | None:
        """US dollars, or None if no answer had a price."""
        if self.unpriced == self.answers:
            return None
        return Decimal(self.usage.cost or 0) / NANODOLLARS

    def add(self, other: SpendingTotal) -> None:
        """Add another sum to this one."""
        self.usage += other.usage
        self.answers += other.answers
        self.unpriced += other.unpriced
        self.last = max(self.last, other.last)


@dataclass(slots=True, kw_only=True)
class SessionSpending(SpendingTotal):
    """The sum of a session, its owner, and the model of its last answer."""

    session: str
    owner: Owner
    model: str


def count_copied_events(event: SessionOpened) -> int:
    """Return how many events of a session are copies of another one's."""
    return int(event.forked.rpartition(":")[2]) if event.forked else 0


class Spending:
    """Adds up answers. Feed it the records of each session in order; sessions may alternate.

    A copied session (`forked`) counts from where it goes on by itself.
    """

    def __init__(self, price_of: PriceOf | None = None) -> None:
        self._price_of = price_of
        self._prices: dict[str, Price | None] = {}
        self._slots: dict[Owner, dict[DayAndModel, SpendingTotal]] = {}
        self._sessions: dict[str, SessionSpending] = {}
        self._models: dict[str, str] = {}
        self._copied: dict[str, int] = {}
        """Session -> number of its events that are copies of another one's."""
        self.problem = ""
        """Why there are no prices, if a price list cannot be read."""

    def feed(self, record: JournalRecord) -> None:
        """Add a record."""
        event = record.event
        if isinstance(event, SessionOpened) and (copied := count_copied_events(event)):
            self._copied[record.session] = copied
        if isinstance(event, SessionOpened | RunStarted):
            if event.model:
                self._models[record.session] = event.model
        elif self.is_copy(record):
            return
        elif isinstance(event, ModelAnswered):
            model = event.model or self._models.get(record.session, "")
            self._add_answer(record, event.usage, model)
        elif isinstance(event, ContextCompacted) and event.usage != NO_USAGE:
            # A summary is an answer too, often of another model.
            model = event.model or self._models.get(record.session, "")
            self._add_answer(record, event.usage, model)

    def is_copy(self, record: JournalRecord) -> bool:
        """Return whether a record was copied from another session; ask in the order of records."""
        return record.seq <= self._copied.get(record.session, 0)

    def _add_answer(self, record: JournalRecord, usage: Usage, model: str) -> None:
        cost = self._cost(model, usage) if usage.cost is None else usage.cost
        counted = replace(usage, cost=cost or 0)
        spent = SpendingTotal(counted, 1, int(cost is None), record.time)
        day = datetime.fromtimestamp(record.time / 1000, UTC).date().isoformat()
        owner = (record.tenant, record.user)
        self._slots.setdefault(owner, {}).setdefault(DayAndModel(day, model), SpendingTotal()).add(
            spent
        )
        session = self._sessions.pop(record.session, None) or SessionSpending(
            session=record.session, owner=owner, model=model
        )
        session.model = model
        session.add(spent)
        self._sessions[record.session] = session
        if len(self._sessions) > 2 * MAX_SESSIONS:
            kept = sorted(self._sessions.values(), key=lambda one: one.last)[-MAX_SESSIONS:]
            self._sessions = {one.session: one for one in kept}

    def _cost(self, model: str, usage: Usage) -> int | None:
        """Return billionths of a US dollar."""
        if self._price_of is None:
            return None
        if model not in self._prices:
            try:
                self._prices[model] = self._price_of(model)
            except ConfigError as error:
                # A mistake in a price list must not hide the tokens.
                self.problem = str(error)
                self._prices[model] = None
        price = self._prices[model]
        if price is None:
            return None
        return int(price(usage) * NANODOLLARS)

    def totals_by_day_and_model(
        self, owner: Owner | None = None
    ) -> dict[DayAndModel, SpendingTotal]:
        """Return the sums by day and model, in the order of days: of this owner, or of all."""
        merged: dict[DayAndModel, SpendingTotal] = {}
        for who, slots in self._slots.items():
            if owner in (None, who):
                for slot, spent in slots.items():
                    merged.setdefault(slot, SpendingTotal()).add(spent)
        return dict(sorted(merged.items()))

    def total(self, tenant: str, user: str | None, since: str) -> SpendingTotal:
        """Return the sum of a user, or of a tenant's users, from a day (`2026-01-31`) on."""
        summed = SpendingTotal()
        for owner, slots in self._slots.items():
            if owner[0] == tenant and user in (None, owner[1]):
                for slot, spent in slots.items():
                    if slot.day >= since:
                        summed.add(spent)
        return summed

    def find(self, session: str) -> SessionSpending | None:
        """Return the sum of a session, as far as it was read; None without an answer."""
        return self._sessions.get(session)

    def sessions(self, owner: Owner | None = None, limit: int = 50) -> list[SessionSpending]:
        """Return the sums of the sessions used last, newest first."""
        mine = [one for one in self._sessions.values() if owner in (None, one.owner)]
        return sorted(mine, key=lambda one: one.last, reverse=True)[:limit]


def add_up(slots: Mapping[DayAndModel, SpendingTotal], by: str) -> dict[str, SpendingTotal]:
    """Return the sums of `slots` for each `day` or each `model`, in their order."""
    merged: dict[str, SpendingTotal] = {}
    for slot, spent in slots.items():
        merged.setdefault(getattr(slot, by), SpendingTotal()).add(spent)
    return merged
