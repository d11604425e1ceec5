"""What users and tenants have used of models, counted in the journal by day.

A question reads only what is new since the last one: sessions are listed with the one used last
first, so the first that has nothing new ends the reading. The first question about an owner reads
the sessions that were used in the days that it is about. A copied session (`forked`) counts from
where it goes on by itself. A session that is archived or deleted later stays counted in this
process and is not counted in another one.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta

from ferrule.core.errors import SessionNotFound
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.tools.forking import make_lock

from .spending import PriceOf, Spending, SpendingTotal

_FIRST_PAGE = 20
"""Sessions that are listed first; the next pages are larger."""

Scope = tuple[str, str | None]
"""A tenant and a user; None for all users of the tenant."""


def _now() -> datetime:
    return datetime.now(UTC)


class OwnerSpending:
    """What owners have used, in one journal. Safe to use from several threads.

    Args:
        journal: The journal.
        price_of: Prices answers whose cost is not in the journal.
        now: The time, in UTC.
    """

    def __init__(
        self,
        journal: Journal,
        price_of: PriceOf | None = None,
        *,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self._journal = weakref.ref(journal)
        self._spending = Spending(price_of)
        self._now = now
        self._lock = make_lock()
        self._read: dict[str, int] = {}
        """Session -> number of its events that were read."""
        self._since: dict[Scope, date] = {}
        """The first day from which all sessions of a scope were read."""

    def total(self, tenant: str, user: str | None, days: int) -> SpendingTotal:
        """Return what a user used in the last days, today included; None for the whole tenant.

        Blocks while it reads. Raises JournalError.
        """
        since = self._now().date() - timedelta(days=days - 1)
        with self._lock:
            self._read_new((tenant, user), since)
            return self._spending.total(tenant, user, since.isoformat())

    def _read_new(self, scope: Scope, since: date) -> None:
        journal = self._journal()
        assert journal is not None
        tenant, user = scope
        first = datetime.combine(since, time(), UTC).timestamp() * 1000
        known = self._since.get(scope)
        limit = _FIRST_PAGE if known is not None and known <= since else None
        while True:
            infos = journal.sessions(tenant=tenant, user=user, limit=limit)
            is_whole = limit is None or len(infos) < limit
            used = [info for info in infos if info.last >= first]
            was_read = bool(used) and self._read.get(used[-1].session) == used[-1].events
            for info in used:
                self._read_session(journal, info)
            if is_whole or was_read or len(used) < len(infos):
                break
            assert limit is not None
            limit *= 4
        self._since[scope] = since

    def _read_session(self, journal: Journal, info: SessionInfo) -> None:
        name = info.session
        after = self._read.get(name, 0)
        if after >= info.events:
            return
        try:
            for record in journal.records(name, after=after):
                self._spending.feed(record)
                self._read[name] = record.seq
        except SessionNotFound:
            return  # Archived since it was listed.


_followed: weakref.WeakKeyDictionary[Journal, OwnerSpending] = weakref.WeakKeyDictionary()
_lock = make_lock()


def follow_spending(journal: Journal, price_of: PriceOf | None = None) -> OwnerSpending:
    """Return what owners have used in a journal: the same object for each question about it."""
    with _lock:
        if journal not in _followed:
            _followed[journal] = OwnerSpending(journal, price_of)
        return _followed[journal]
