"""One job and a journal: begun, gone on with, told of, whatever the journal says, and whoever else
has the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ferrule import Agent, Storage
from ferrule.core.errors import (
    ConfigError,
    FerruleError,
    JournalError,
    ProviderError,
    SessionNotFound,
)
from ferrule.core.events import (
    Event,
    JournalRecord,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
)
from ferrule.core.identity import Identity
from ferrule.core.messages import Message, ToolMessage, UserMessage
from ferrule.core.output import OutputRequest
from ferrule.engine.distributed import job_run as working
from ferrule.engine.distributed.job import Job, JobEnd, build_outcome
from ferrule.engine.distributed.job_run import SessionTurns, run_job
from ferrule.engine.distributed.jobs import libpq_url
from ferrule.models.scripted import Scripted, Step, calls, fails, says
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.tools.decorator import tool
from ferrule.tools.outcome_probe import report_effect
from leaving_journal import LeavingJournal

JOB = Job("look", run="run-1", session="session-1", tenant="acme", user="ines")
SECONDS = 10
T = TypeVar("T")


def step(history: Sequence[Message]) -> Step:
    """A call for `act`, words for anything else."""
    last = history[-1]
    if isinstance(last, UserMessage) and last.text == "act":
        return calls(("act", {}))
    return says(
        f"saw {last.text}" if isinstance(last, ToolMessage | UserMessage) else "saw nothing"
    )


class Endless(Scripted):
    def __init__(self) -> None:
        super().__init__([step] * 3)

    def assert_finished(self) -> None:
        """Steps may be left over."""


class Acts:
    """The tool `act`, which waits inside a call until it is let go."""

    def __init__(self) -> None:
        self.inside, self.go_on = asyncio.Event(), asyncio.Event()
        self.acted = 0

        async def found(values: object, context: object) -> Any:
            return report_effect("acted")

        @tool(side_effect="external", risk="safe", probe=found)
        async def act() -> str:
            """Act."""
            self.acted += 1
            self.inside.set()
            await self.go_on.wait()
            return "acted"

        self.tool = act

    def make(self, job: Job, journal: Journal) -> Agent:
        return Agent(
            Endless(),
            [self.tool],
            storage=Storage(journal=journal, tenant=job.tenant, user=job.user),
        )


def make(job: Job, journal: Journal) -> Agent:
    return Agent(Endless(), storage=Storage(journal=journal, tenant=job.tenant, user=job.user))


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[LeavingJournal]:
    with LeavingJournal(tmp_path / "journal.db") as opened:
        yield opened


def bounded(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(coroutine, SECONDS))


def count(journal: Journal, kind: type, session: str = JOB.session) -> int:
    return sum(isinstance(record.event, kind) for record in journal.records(session))


async def abandoned(job: Job, journal: LeavingJournal, acts: Acts) -> None:
    """A worker that is stopped in the middle of a call, so that nothing is written of its end."""
    task = asyncio.create_task(run_job(job, journal, acts.make))
    await acts.inside.wait()
    journal.stop_writing()
    task.cancel()
    with pytest.raises((JournalError, asyncio.CancelledError)):
        await task
    journal.is_left = False


def test_a_job_that_was_not_begun_begins_and_its_end_is_told(journal: LeavingJournal) -> None:
    outcome = bounded(run_job(JOB, journal, make))
    assert outcome == {
        "stop": "done",
        "text": "saw look",
        "code": "",
        "detail": "",
        "session": "session-1",
        "run": "run-1",
        "usage": {"input": 0, "output": 0, "cached": 0},
    }
    journal.verify(JOB.session)


def test_a_job_that_has_ended_is_only_told_of(journal: LeavingJournal) -> None:
    first = bounded(run_job(JOB, journal, make))

    def nobody(job: Job, journal: Journal) -> Agent:
        raise AssertionError("no agent is needed to tell of a run")

    assert bounded(run_job(JOB, journal, nobody)) == first
    assert count(journal, RunStarted) == 1


def test_a_run_that_was_left_in_the_middle_of_a_call_is_gone_on_with(
    journal: LeavingJournal,
) -> None:
    async def both() -> dict[str, Any]:
        acts = Acts()
        job = Job("act", run="run-1", session="session-1", tenant="acme", user="ines")
        await abandoned(job, journal, acts)
        assert count(journal, RunFinished) == 0
        outcome = await run_job(job, journal, acts.make)
        assert acts.acted == 1
        return outcome

    outcome = bounded(both())
    assert outcome["stop"] == "done"
    assert (
        count(journal, RunStarted)
        == count(journal, RunFinished)
        == count(journal, ToolAnswered)
        == 1
    )


def test_a_run_that_another_job_left_open_is_finished_before_the_next_begins(
    journal: LeavingJournal,
) -> None:
    async def both() -> tuple[dict[str, Any], dict[str, Any]]:
        acts = Acts()
        first = Job("act", run="first", session="session-1", tenant="acme", user="ines")
        second = Job("look", run="second", session="session-1", tenant="acme", user="ines")
        await abandoned(first, journal, acts)
        after = await run_job(second, journal, acts.make)
        return await run_job(first, journal, acts.make), after

    first, second = bounded(both())
    assert (first["run"], first["stop"], second["run"], second["text"]) == (
        "first",
        "done",
        "second",
        "saw look",
    )
    ends = [
        record.run
        for record in journal.records("session-1")
        if isinstance(record.event, RunFinished)
    ]
    assert ends == ["first", "second"]


def test_a_cancelled_job_ends_its_run_with_a_result_for_every_call(journal: LeavingJournal) -> None:
    async def cancelled() -> None:
        acts = Acts()
        job = Job("act", run="run-1", session="session-1", tenant="acme", user="ines")
        task = asyncio.create_task(run_job(job, journal, acts.make))
        await acts.inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    bounded(cancelled())
    ends = [
        record.event
        for record in journal.records("session-1")
        if isinstance(record.event, RunFinished)
    ]
    assert [end.stop for end in ends] == ["cancelled"]
    assert count(journal, ToolAnswered) == 1


def test_a_job_that_is_cancelled_before_its_run_began_leaves_its_session_as_it_was(
    journal: LeavingJournal,
) -> None:
    bounded(run_job(replace(JOB, run="before"), journal, make))
    before = list(journal.records(JOB.session))

    def nobody(job: Job, journal: Journal) -> Agent:
        raise AssertionError("no agent is needed for a run that never begins")

    with pytest.raises(asyncio.CancelledError):
        bounded(run_job(JOB, journal, nobody, is_cancelled=True))
    assert list(journal.records(JOB.session)) == before


def test_jobs_of_one_session_in_one_process_take_turns(journal: LeavingJournal) -> None:
    async def both() -> list[dict[str, Any]]:
        acts, turns = Acts(), SessionTurns()
        first = Job("act", run="first", session="session-1", tenant="acme", user="ines")
        second = Job("look", run="second", session="session-1", tenant="acme", user="ines")
        one = asyncio.create_task(run_job(first, journal, acts.make, turns))
        await acts.inside.wait()
        two = asyncio.create_task(run_job(second, journal, acts.make, turns))
        elsewhere = Job("look", run="third", session="session-2", tenant="acme", user="ines")
        assert (await run_job(elsewhere, journal, acts.make, turns))["stop"] == "done"
        assert not two.done()
        acts.go_on.set()
        return [await one, await two]

    assert [outcome["stop"] for outcome in bounded(both())] == ["done", "done"]
    edges = [
        (record.run, type(record.event))
        for record in journal.records("session-1")
        if isinstance(record.event, RunStarted | RunFinished)
    ]
    assert edges == [
        (run, kind) for run in ("first", "second") for kind in (RunStarted, RunFinished)
    ]
    journal.verify("session-1")


def test_a_job_that_comes_while_another_waits_is_behind_both() -> None:
    async def story() -> list[tuple[str, bool]]:
        turns = SessionTurns()
        began: list[tuple[str, bool]] = []
        gates = {name: asyncio.Event() for name in ("first", "second", "third")}

        async def work(name: str) -> None:
            async with turns.of("session-1") as was_free:
                began.append((name, was_free))
                await gates[name].wait()

        async def until(count: int) -> None:
            while len(began) < count:
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(work(name)) for name in ("first", "second")]
        await until(1)
        gates["first"].set()
        await until(2)
        tasks.append(asyncio.create_task(work("third")))
        for _ in range(10):
            await asyncio.sleep(0)
        assert [name for name, _ in began] == ["first", "second"]
        gates["second"].set()
        gates["third"].set()
        await asyncio.gather(*tasks)
        assert not list(turns._locks), "sessions that are over are forgotten"
        return began

    assert bounded(story()) == [("first", True), ("second", False), ("third", False)]


class Passing:
    """A journal that is away, or whose session another has, so many times."""

    def __init__(self, journal: Journal, code: str, times: int) -> None:
        self._journal, self.code, self.left = journal, code, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def lease(self, session: str) -> None:
        self._refuse()
        self._journal.lease(session)

    def append(
        self,
        session: str,
        run: str,
        events: Sequence[Event],
        *,
        identity: Identity,
        times: Sequence[int] | None = None,
    ) -> list[JournalRecord]:
        self._refuse()
        return self._journal.append(session, run, events, identity=identity, times=times)

    def _refuse(self) -> None:
        if self.left:
            self.left -= 1
            raise JournalError("not now", code=self.code)


@pytest.mark.parametrize("code", ["journal_leased", "journal_unreachable", "journal_unsure"])
def test_a_job_waits_while_another_has_the_session_or_the_journal_is_away(
    journal: LeavingJournal, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "RETRY_SECONDS", 0)
    passing = Passing(journal, code, 3)
    assert bounded(run_job(JOB, passing, make))["stop"] == "done"
    assert passing.left == 0
    assert count(journal, RunStarted) == 1


def test_an_error_of_the_journal_that_waiting_does_not_mend_is_raised_at_once(
    journal: LeavingJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "RETRY_SECONDS", 0)
    passing = Passing(journal, "journal_damaged", 3)
    with pytest.raises(JournalError, match="not now"):
        bounded(run_job(JOB, passing, make))
    assert passing.left == 2


def test_a_session_that_another_process_holds_is_worked_when_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "RETRY_SECONDS", 0)
    with (
        SqliteJournal(tmp_path / "journal.db") as mine,
        SqliteJournal(tmp_path / "journal.db") as theirs,
    ):
        theirs.lease(JOB.session)

        async def both() -> dict[str, Any]:
            tried = asyncio.Event()

            def tries(job: Job, journal: Journal) -> Agent:
                tried.set()
                return make(job, journal)

            task = asyncio.create_task(run_job(JOB, mine, tries))
            await tried.wait()
            await asyncio.sleep(0)
            assert not task.done()
            theirs.release(JOB.session)
            return await task

        assert bounded(both())["stop"] == "done"


def test_a_job_whose_agent_cannot_be_made_raises_and_leaves_no_session(
    journal: LeavingJournal,
) -> None:
    def refuses(job: Job, journal: Journal) -> Agent:
        raise ConfigError("no such model")

    with pytest.raises(ConfigError, match="no such model"):
        bounded(run_job(JOB, journal, refuses))
    assert journal.sessions() == []


def test_the_run_of_somebody_else_is_not_told(journal: LeavingJournal) -> None:
    bounded(run_job(JOB, journal, make))
    theirs = Job("look", run="run-1", session="session-1", tenant="other", user="ines")
    with pytest.raises(SessionNotFound):
        bounded(run_job(theirs, journal, make))


def test_a_key_names_the_run_and_its_new_session() -> None:
    job = Job("look", run="order-7").with_name()
    assert (job.run, job.session) == ("order-7", "order-7")
    assert Job("look", run="order-7", session="talk").with_name().session == "talk"
    assert Job("look").with_name().run != Job("look").with_name().run


def test_a_job_is_loaded_as_it_was_stored_and_fields_of_newer_versions_are_dropped() -> None:
    job = Job("look", tenant="acme", priority=3, options={"max_turns": 2}).with_name()
    assert Job.of({**job.as_dict(), "colour": "red"}) == job


@pytest.mark.parametrize("start", ["postgres://", "postgresql://", "postgresql+psycopg://"])
def test_a_database_is_named_as_postgresql_programs_name_it(start: str) -> None:
    assert libpq_url(f"{start}ann@db/x") == "postgresql://ann@db/x"


@pytest.mark.parametrize("wrong", ["", "sqlite:///x.db", "db.example.com", "mysql://db/x"])
def test_a_database_that_is_no_postgresql_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="is PostgreSQL"):
        libpq_url(wrong)


class Unread:
    """A journal that counts how often its events are read."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def records(self, session: str) -> Iterator[JournalRecord]:
        self.read += 1
        return self._journal.records(session)


def test_an_end_that_was_noted_when_it_was_written_is_not_read_again(
    journal: LeavingJournal,
) -> None:
    unread, end = Unread(journal), JobEnd(JOB)
    noted = build_outcome(JOB, "done", text="noted")

    def make_noting(job: Job, journal: Journal) -> Agent:
        end.outcome = noted
        return make(job, journal)

    assert bounded(run_job(JOB, unread, make_noting, end=end, is_new=True)) is noted
    assert unread.read == 0
    assert bounded(run_job(JOB, unread, make))["text"] == "saw look"
    assert unread.read == 1
    # Text that is escaped in the journal.
    strange = Job("\ud800", run="run-2", session="session-2", tenant="acme", user="ines")
    outcome = bounded(run_job(strange, unread, make, is_new=True))
    assert outcome == bounded(run_job(strange, unread, make))


def test_of_two_new_jobs_of_one_session_the_second_goes_on_with_it(journal: LeavingJournal) -> None:
    async def both() -> list[dict[str, Any]]:
        acts, turns = Acts(), SessionTurns()
        first = Job("act", run="first", session="session-1", tenant="acme", user="ines")
        second = Job("look", run="second", session="session-1", tenant="acme", user="ines")
        one = asyncio.create_task(run_job(first, journal, acts.make, turns, is_new=True))
        two = asyncio.create_task(run_job(second, journal, acts.make, turns, is_new=True))
        await acts.inside.wait()
        acts.go_on.set()
        return [await one, await two]

    assert [outcome["stop"] for outcome in bounded(both())] == ["done", "done"]
    assert (count(journal, SessionOpened), count(journal, RunStarted)) == (1, 2)


@pytest.mark.parametrize(
    ("end", "output"),
    [
        (RunFinished("done", '{"a": 1}'), {"a": 1}),
        (RunFinished("done", "yes", output='"yes"'), "yes"),
        (RunFinished("done", "", output='""'), ""),
        (RunFinished("limit", "half of"), None),
    ],
    ids=["object", "text", "empty text", "stopped early"],
)
def test_an_outcome_has_the_output_of_a_run_that_ended_with_one(
    end: RunFinished, output: Any
) -> None:
    job_end = JobEnd(JOB)
    job_end.read(RunStarted("x", output_request=OutputRequest("{}")))
    outcome = job_end.read(end)
    assert outcome is not None
    assert ("output" in outcome, outcome.get("output")) == (end.stop == "done", output)


def test_a_function_that_ends_the_program_instead_of_making_an_agent_ends_its_job(
    journal: LeavingJournal,
) -> None:
    def leave(job: Job, journal: Journal) -> Agent:
        raise SystemExit("usage: make [OPTIONS]")

    with pytest.raises(FerruleError, match=r"SystemExit: usage") as failed:
        bounded(run_job(JOB, journal, leave))
    assert failed.value.code == "job_failed"


def test_a_run_whose_model_failed_after_a_call_is_only_told_of_again(
    journal: LeavingJournal,
) -> None:
    acted: list[str] = []

    @tool(side_effect="external", risk="safe")
    async def act() -> str:
        """Act."""
        acted.append("once")
        return "acted"

    def make(job: Job, journal: Journal) -> Agent:
        refused = ProviderError("bad request", code="provider_refused", status=400)
        model = Scripted([calls(("act", {})), fails(refused)])
        return Agent(
            model, [act], storage=Storage(journal=journal, tenant=job.tenant, user=job.user)
        )

    outcomes = [bounded(run_job(JOB, journal, make)) for _ in range(2)]
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0]["stop"], acted) == ("failed", ["once"])
