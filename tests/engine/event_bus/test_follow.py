"""Following a session that another process drives, by its journal."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import cast

import pytest

from ferrule import ConfigError, Identity, SessionNotFound
from ferrule.core.events import Noticed
from ferrule.engine.event_bus import journal_events
from ferrule.engine.event_bus.events import BusEvent, CursorError
from ferrule.engine.event_bus.journal_events import follow
from ferrule.storage.journal.change_detection import (
    ChangeDetector,
    SqliteChangeDetector,
    create_change_detector,
)
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal

ADA = Identity("acme", "ada", "s1", "r1")
WRITER = """
import sys
from ferrule.core.events import Noticed
from ferrule.core.identity import Identity
from ferrule.storage.journal.sqlite import SqliteJournal
journal, who = SqliteJournal(sys.argv[1]), Identity("acme", "ada", "s1", "r1")
for line in sys.stdin:
    journal.append("s1", "r1", [Noticed("t", line.strip())], identity=who)
    print("ok", flush=True)
journal.close()
"""


async def read(events: AsyncIterator[BusEvent], count: int) -> list[BusEvent]:
    async with asyncio.timeout(30):
        return [await anext(events) for _ in range(count)]


class Other:
    """A process that writes to the journal when told to."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def write(self, text: str) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def close(self) -> None:
        self.process.communicate(timeout=30)


async def test_a_reader_sees_what_another_process_writes(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    other = Other(path)
    try:
        other.write("one")
        with SqliteJournal(path) as journal:
            async with aclosing(follow(journal, ADA, interval=0.02)) as events:
                (first,) = await read(events, 1)
                other.write("two")
                other.write("token=abcdefghijkl")
                second, third = await read(events, 2)
        assert [str(e.sequence) for e in (first, second, third)] == ["1", "2", "3"]
        assert [e.payload["text"] for e in (first, second)] == ["one", "two"]
        assert third.payload["text"].startswith("token=[redacted")
        assert first.identity == ADA
        with SqliteJournal(path) as journal:
            again = follow(journal, ADA, cursor=second.cursor, interval=0.02)
            assert [str(e.sequence) for e in await read(again, 1)] == ["3"]
            await again.aclose()
    finally:
        other.close()


async def test_only_the_owner_can_follow_a_session(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        journal.append("s1", "r1", [Noticed("t", "x")], identity=ADA)
        for stranger in (
            Identity("acme", "eve", "s1", "r1"),
            Identity("other", "ada", "s1", "r1"),
            Identity("acme", "ada", "s", "r1"),
        ):
            with pytest.raises(SessionNotFound):
                await read(follow(journal, stranger), 1)
        with pytest.raises(CursorError):
            await read(follow(journal, ADA, cursor="2"), 1)
        for interval in (0.0, 0.001, 60.0):
            with pytest.raises(ConfigError, match="interval"):
                await read(follow(journal, ADA, interval=interval), 1)


async def test_who_stops_following_leaves_no_connection_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ChangeDetector] = []

    def remember(journal: Journal) -> ChangeDetector:
        made.append(create_change_detector(journal))
        return made[-1]

    monkeypatch.setattr(journal_events, "create_change_detector", remember)
    with SqliteJournal(tmp_path / "j.db") as journal:
        journal.append("s1", "r1", [Noticed("t", "x")], identity=ADA)
        events = follow(journal, ADA, interval=0.02)
        await read(events, 1)
        await events.aclose()
        journal.append("s1", "r1", [Noticed("t", "y")], identity=ADA)
        (detector,) = made
        assert not detector.has_changed(), "it still looks"


async def test_a_journal_that_cannot_tell_of_changes_is_followed_as_well() -> None:
    journal = SqliteJournal(":memory:")
    journal.append("s1", "r1", [Noticed("t", "x")], identity=ADA)
    async with aclosing(
        follow(cast(Journal, journal), ADA, kinds=["notice"], interval=0.02)
    ) as events:
        await read(events, 1)
        journal.append("s1", "r1", [Noticed("t", "y"), Noticed("t", "z")], identity=ADA)
        assert [e.payload["text"] for e in await read(events, 2)] == ["y", "z"]


def test_a_look_says_whether_anybody_wrote_and_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "odd % ? #.db"
    with SqliteJournal(path) as journal:
        journal.append("s1", "r1", [Noticed("t", "x")], identity=ADA)
        changes = create_change_detector(journal)
        assert isinstance(changes, SqliteChangeDetector)
        looks = [changes.has_changed(), changes.has_changed()]
        journal.append("s1", "r1", [Noticed("t", "y")], identity=ADA)
        looks += [changes.has_changed(), changes.has_changed()]
        assert looks == [True, False, True, False]
        changes.close()
        assert not changes.has_changed()
