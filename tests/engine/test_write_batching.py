"""Runs that go on at once share their writes: fewer of them, and nothing else is different."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import JournalError, SessionNotFound
from ferrule.core.events import CallStarted, Event, RunFinished, RunStarted
from ferrule.core.identity import Identity
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.engine.session import RunResult
from ferrule.models.client import ModelOptions, ToolSpec
from ferrule.models.scripted import Scripted, ScriptedExchange, Step, calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.decorator import tool

RUNS = 24


@tool(side_effect="none")
async def look(n: int) -> str:
    """Look at it."""
    await asyncio.sleep(0)
    return f"seen {n}"


class Counting(SqliteJournal):
    """Counts its transactions. Sessions in `refused` cannot be written."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.writes, self.shared = 0, 0
        self.refused: set[str] = set()

    def __enter__(self) -> Counting:
        return self

    def append(self, session: str, run: str, events: Any, **more: Any) -> Any:
        self.writes += 1
        if session in self.refused:
            raise JournalError("the disk is full", code="journal_full")
        return super().append(session, run, events, **more)

    def append_batches(self, batches: Any) -> None:
        self.writes += 1
        self.shared = max(self.shared, len(batches))
        if refused := self.refused & {identity.session for identity, _ in batches}:
            raise JournalError(f"no room for {sorted(refused)}", code="journal_full")
        super().append_batches(batches)


class Afresh(Scripted):
    """Each session has the script from its beginning."""

    def __init__(self, *steps: Step) -> None:
        super().__init__(steps)
        self._script = steps

    def open(
        self, system: str, tools: Sequence[ToolSpec], options: ModelOptions
    ) -> ScriptedExchange:
        return Scripted(self._script).open(system, tools, options)


def agent_on(journal: SqliteJournal) -> Agent:
    script = Afresh(calls(("look", {"n": 1})), calls(("look", {"n": 2})), says("done"))
    return Agent(script, [look], storage=Storage(journal=journal), tool_calling="native")


async def at_once(agent: Agent, count: int) -> list[RunResult | BaseException]:
    return list(
        await asyncio.gather(*(agent.run(f"go {n}") for n in range(count)), return_exceptions=True)
    )


def story(journal: SqliteJournal, session: str) -> list[Event]:
    return [record.event for record in journal.records(session)]


def test_runs_at_once_need_far_fewer_writes_and_leave_the_same_journal(tmp_path: Path) -> None:
    with Counting(tmp_path / "many.db") as many, Counting(tmp_path / "one.db") as one:
        asyncio.run(at_once(agent_on(many), RUNS))
        asyncio.run(at_once(agent_on(one), 1))
        alone = one.writes
        assert many.shared > RUNS // 2
        assert many.writes < alone * RUNS / 4
        (model,) = one.sessions()
        kinds = [type(event) for event in story(one, model.session)]
        told = many.sessions()
        assert len(told) == RUNS
        for info in told:
            many.verify(info.session)
            assert [type(event) for event in story(many, info.session)] == kinds
        assert not many.find_problems()


def test_a_run_alone_writes_at_once(tmp_path: Path) -> None:
    with Counting(tmp_path / "j.db") as journal:
        asyncio.run(at_once(agent_on(journal), 1))
        assert journal.shared == 0 and journal.writes > 0


def test_where_one_session_cannot_be_written_the_others_are(tmp_path: Path) -> None:
    with Counting(tmp_path / "j.db") as journal:
        agent = agent_on(journal)

        async def story_of_all() -> list[RunResult | BaseException]:
            sessions = [agent.session() for _ in range(RUNS)]
            journal.refused = {sessions[3].id}
            found = await asyncio.gather(
                *(one.run("go") for one in sessions), return_exceptions=True
            )
            return list(found)

        found = asyncio.run(story_of_all())
        failed = [number for number, one in enumerate(found) if isinstance(one, BaseException)]
        assert failed == [3]
        assert isinstance(found[3], JournalError) and "disk is full" in str(found[3])
        for info in journal.sessions():
            journal.verify(info.session)
            assert isinstance(story(journal, info.session)[-1], RunFinished)


def test_an_effect_among_many_runs_begins_only_when_the_journal_has_its_call(
    tmp_path: Path,
) -> None:
    place = tmp_path / "j.db"
    early: list[str] = []
    asked: list[int] = []

    async def effect(n: int) -> str:
        """Do it."""
        with closing(sqlite3.connect(place)) as other:  # as another process would see the file
            begun = other.execute(
                "SELECT count(*) FROM records WHERE kind = ?", (CallStarted.kind,)
            ).fetchone()
        asked.append(n)
        if begun[0] < len(asked):
            early.append(f"{begun[0]} of {len(asked)}")
        return "done"

    with SqliteJournal(place) as journal:
        agent = Agent(
            Afresh(calls(("effect", {"n": 1})), says("done")),
            [tool(effect, side_effect="write")],
            storage=Storage(journal=journal),
            tool_calling="native",
            permissions=Permissions(allow=["*"]),
        )
        found = asyncio.run(at_once(agent, RUNS))
        assert not [one for one in found if isinstance(one, BaseException)]
    assert len(asked) == RUNS and not early


def test_runs_that_are_cancelled_while_they_wait_for_the_write_are_settled(tmp_path: Path) -> None:
    with Counting(tmp_path / "j.db") as journal:
        agent = agent_on(journal)

        async def story_of_all(turns: int) -> None:
            tasks = [asyncio.create_task(agent.run("go")) for _ in range(RUNS)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        for turns in range(1, 24):
            asyncio.run(story_of_all(turns))
        for info in journal.sessions():
            journal.verify(info.session)
            told = story(journal, info.session)
            begun = sum(isinstance(event, RunStarted) for event in told)
            assert begun == sum(isinstance(event, RunFinished) for event in told), info


def test_an_agent_in_two_threads_shares_no_write_between_them(tmp_path: Path) -> None:
    with Counting(tmp_path / "j.db") as journal:
        agent = agent_on(journal)
        threads = [
            threading.Thread(target=lambda: asyncio.run(at_once(agent, RUNS)), daemon=True)
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        told = journal.sessions()
        assert len(told) == 2 * RUNS and journal.shared <= RUNS
        for info in told:
            journal.verify(info.session)
            assert isinstance(story(journal, info.session)[-1], RunFinished)


ADA = Identity("t", "ada", "s1", "r1")
BOB = Identity("t", "bob", "s2", "r2")


def test_what_is_written_together_stands_as_if_written_alone(tmp_path: Path) -> None:
    with (
        SqliteJournal(tmp_path / "j.db", now=lambda: 1.0) as both,
        SqliteJournal(":memory:", now=lambda: 1.0) as each,
    ):
        events: list[Event] = [RunStarted("a"), RunStarted("b")]
        both.append_batches(
            [(ADA, events), (BOB, events[:1]), (Identity("t", "eve", "s3", "r3"), [])]
        )
        both.append_batches([(BOB, events), (ADA, events)])
        for identity, given in ((ADA, events), (BOB, events[:1]), (BOB, events), (ADA, events)):
            each.append(identity.session, identity.run, given, identity=identity)
        for session in ("s1", "s2"):
            assert list(both.records(session)) == list(each.records(session))
            both.verify(session)
        assert len(both.sessions()) == 2


def test_a_common_write_is_all_or_nothing(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "j.db") as journal:
        journal.append("s1", "r1", [RunStarted("a")], identity=ADA)
        stranger = Identity("t", "eve", "s1", "r9")
        odd = RunStarted({1, 2})  # type: ignore[arg-type]  # no JSON
        for wrong in ((stranger, [RunStarted("mine")]), (BOB, [odd])):
            with pytest.raises((JournalError, SessionNotFound)):
                journal.append_batches([(ADA, [RunStarted("b")]), wrong])
            assert journal.head("s1")[0] == 1
        journal.append_batches([(ADA, [RunStarted("c")]), (BOB, [RunStarted("d")])])
        assert journal.head("s1")[0] == 2 and journal.head("s2")[0] == 1
        journal.verify("s1")
