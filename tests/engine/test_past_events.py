"""Past events come in bounded pages, without secrets, to whom they belong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ferrule.core.errors import ConfigError, SessionNotFound
from ferrule.core.events import ContextAdded, RunStarted
from ferrule.core.identity import Identity
from ferrule.engine.event_bus.event_selection import OwnSession
from ferrule.engine.event_bus.past_events import past_events
from ferrule.permissions.redaction import Redactor
from ferrule.storage.journal.sqlite import SqliteJournal

MINE = OwnSession("local", "ada", "s1")
SECRET = "sk-" + "a1B2" * 12


@pytest.fixture
def journal() -> Iterator[SqliteJournal]:
    with SqliteJournal(":memory:") as made:
        events = [RunStarted("go"), *(ContextAdded(f"{number} {SECRET}") for number in range(9))]
        made.append("s1", "r1", events, identity=Identity("local", "ada", "s1", "r1"))
        yield made


def test_pages_follow_each_other_without_a_gap_and_without_secrets(journal: SqliteJournal) -> None:
    redactor, after, seen = Redactor(), 0, list[str]()
    while True:
        page = past_events(journal, MINE, redactor, after=after, most=4)
        seen += [str(event.sequence) for event in page.events]
        assert all(SECRET not in event.data.decode() for event in page.events)
        if not (after := page.next):
            break
    assert seen == [str(number) for number in range(1, 11)]


def test_a_filter_that_lets_nothing_through_looks_at_no_more_than_the_bound(
    journal: SqliteJournal,
) -> None:
    page = past_events(journal, MINE, Redactor(), kinds=["model.*"], looked=6)
    assert (page.events, page.examined, page.next) == ([], 6, 6)
    page = past_events(journal, MINE, Redactor(), kinds=["model.*"], after=6, looked=6)
    assert (page.events, page.examined, page.next) == ([], 4, 0)


def test_a_session_of_somebody_else_and_a_kind_that_is_none_are_errors(
    journal: SqliteJournal,
) -> None:
    with pytest.raises(SessionNotFound):
        past_events(journal, OwnSession("local", "bob", "s1"), Redactor())
    with pytest.raises(ConfigError, match="no event is of the kind"):
        past_events(journal, MINE, Redactor(), kinds=["nothing.*"])
