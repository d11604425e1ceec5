"""A journal of many sessions: a page of the list is the same as that of the whole list."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.events import RunFinished, RunStarted
from ferrule.core.identity import Identity
from ferrule.storage.journal import sessions
from ferrule.storage.journal.sqlite import SqliteJournal

OWNERS = [("acme", "ann"), ("acme", "bob"), ("other", "ann")]
WRITES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), max_size=30)


@settings(max_examples=60, deadline=None)
@given(WRITES, st.integers(1, 12), st.sampled_from([(None, None), ("acme", None), *OWNERS]))
def test_a_page_is_the_beginning_of_the_list_however_many_sessions_an_owner_has(
    writes: list[tuple[int, int]], limit: int, owner: tuple[str | None, str | None]
) -> None:
    clock = iter(range(1_000_000))
    few = sessions.FEW_SESSIONS
    with SqliteJournal(":memory:", now=lambda: next(clock) // 2) as journal:
        for session, which in writes:
            who = Identity(*OWNERS[which], f"s{session}-{which}", "r1")
            journal.append(who.session, "r1", [RunStarted("x"), RunFinished("done")], identity=who)
        tenant, user = owner
        whole = journal.sessions(tenant=tenant, user=user)
        try:
            for sessions.FEW_SESSIONS in (1, few):
                assert journal.sessions(tenant=tenant, user=user, limit=limit) == whole[:limit]
        finally:
            sessions.FEW_SESSIONS = few


def test_a_page_is_read_from_the_index_of_ends_and_not_from_every_session() -> None:
    with SqliteJournal(":memory:") as journal:
        db = journal._open()
        seen: list[str] = []
        db.set_trace_callback(seen.append)
        journal.sessions(limit=5)
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {seen[0]}")]
    assert any("INDEX ends" in step for step in plan) and not any("B-TREE" in s for s in plan)
