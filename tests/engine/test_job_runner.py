"""What an engine calls for a job: when it begins, is joined, goes on elsewhere, or comes again."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent
from ferrule.core.errors import ConfigError, JournalError
from ferrule.core.events import RunFinished, RunStarted
from ferrule.core.identity import Identity
from ferrule.engine.distributed import engines, handing_in
from ferrule.engine.distributed import runner as running
from ferrule.engine.distributed.engines import (
    EngineExtraMissing,
    EngineOptions,
    EngineUnreachable,
    GoOnElsewhere,
    Ticket,
    open_engine,
)
from ferrule.engine.distributed.handing_in import Intake, SetAside
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.outcomes import Beginning, QueueError
from ferrule.engine.distributed.runner import Runner
from ferrule.storage.journal.protocols import Journal
from leaving_journal import LeavingJournal

SECONDS = 20


class Table:
    """A table in memory: how the next job begins, and what was written."""

    def __init__(self) -> None:
        self.answer: Beginning | Exception | None = None
        self.begun: list[str] = []
        self.asked: list[bool] = []
        self.is_anothers = False
        self.ended: dict[str, Any] = {}
        self.given_back: list[str] = []
        self.handed: list[tuple[str, str]] = []

    def begin(self, run: str, worker: str, *, per_tenant: int | None, is_again: bool) -> Beginning:
        self.asked.append(is_again)
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer
        self.begun.append(run)
        return Beginning(
            "begin", job=Job("go", run=run, tenant="acme").with_name().as_dict(), attempt=1
        )

    def end(self, run: str, worker: str, outcome: dict[str, Any]) -> bool:
        if self.is_anothers:
            return False
        self.ended[run] = outcome["stop"], outcome["code"]
        return True

    def give_back(self, run: str, worker: str) -> list[Ticket]:
        self.given_back.append(run)
        return [Ticket(run, "talk", "acme", 0, as_of="now")]

    def mark_handed(self, told: list[Ticket]) -> None:
        self.handed += [(ticket.run, ticket.as_of) for ticket in told]


class Engine:
    """Remembers what it was told of."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.error: Exception | None = None
        self.is_silent = False

    async def submit(self, tickets: list[Ticket]) -> None:
        if self.is_silent:
            await asyncio.sleep(2)
        if self.error is not None:
            raise self.error
        self.told += [ticket.run for ticket in tickets]


class Gate:
    """Stands for a run: it ends when the gate is opened."""

    def __init__(self) -> None:
        self.inside = asyncio.Event()
        self.is_open = asyncio.Event()
        self.entered = 0
        self.is_tidy = False
        self.error: Exception | None = None

    async def work(self, job: Job, *rest: object, **also: object) -> dict[str, Any]:
        self.entered += 1
        self.inside.set()
        try:
            await self.is_open.wait()
        except asyncio.CancelledError:
            # Results of cancelled calls are written meanwhile.
            await asyncio.sleep(0.05)
            self.is_tidy = True
            if self.error is not None:
                raise self.error from None
            raise
        if self.error is not None:
            raise self.error
        return {"stop": "done", "code": ""}


def make_no_agent(job: Job, journal: Journal) -> Agent:
    raise AssertionError("no agent is needed")


Story = Callable[[Runner, Table, Gate, Engine], Awaitable[None]]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Any]:
    with LeavingJournal(tmp_path / "journal.db") as opened:
        yield opened


@pytest.fixture
def play(journal: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def whole() -> None:
            gate, table = Gate(), Table()
            monkeypatch.setattr(running, "run_job", gate.work)
            table_as_any: Any = table
            engine = Engine()
            engine_as_any: Any = engine
            worker = Runner(
                "w",
                Intake(table_as_any, engine_as_any),
                journal,
                make_no_agent,
                concurrency=2,
                per_tenant=2,
            )
            async with asyncio.timeout(SECONDS):
                await story(worker, table, gate, engine)

        asyncio.run(whole())

    return run


def test_a_job_is_worked_and_its_outcome_written_before_the_engine_is_told(
    play: Callable[[Story], None],
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        gate.is_open.set()
        await worker("run-1")
        assert table.ended == {"run-1": ("done", "")}

    play(story)


@pytest.mark.proves("scale.taken-once")
def test_a_job_that_comes_twice_to_one_worker_is_joined(play: Callable[[Story], None]) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        first, second = (asyncio.create_task(worker("run-1")) for _ in range(2))
        await gate.inside.wait()
        gate.is_open.set()
        await asyncio.gather(first, second)
        assert (gate.entered, table.begun) == (1, ["run-1"])

    play(story)


def test_an_engine_that_cancels_does_not_reach_the_run(play: Callable[[Story], None]) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        first = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        first.cancel()
        with pytest.raises(GoOnElsewhere):
            await first
        again = asyncio.create_task(worker("run-1"))
        await asyncio.sleep(0)
        gate.is_open.set()
        await again
        assert (gate.entered, table.ended) == (1, {"run-1": ("done", "")})

    play(story)


def test_a_worker_that_leaves_lets_jobs_go_on_elsewhere_and_writes_no_end(
    play: Callable[[Story], None],
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        job = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        await worker.leave(0)
        await job
        with pytest.raises(GoOnElsewhere):
            await worker("run-2")
        assert (table.ended, table.given_back, table.begun) == ({}, ["run-1"], ["run-1"])
        assert (engine.told, table.handed) == (["run-1"], [("run-1", "now")])

    play(story)


def test_a_job_may_end_while_its_worker_leaves(play: Callable[[Story], None]) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        job = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        leaving = asyncio.create_task(worker.leave(SECONDS))
        await asyncio.sleep(0)
        gate.is_open.set()
        await asyncio.gather(job, leaving)
        assert (table.ended, table.given_back) == ({"run-1": ("done", "")}, [])

    play(story)


def test_a_job_that_is_cancelled_while_it_is_worked_has_that_outcome(
    play: Callable[[Story], None],
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        job = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        assert worker.list_runs() == ["run-1"]
        # Renewals name it again and again until it has ended.
        worker.cancel(["run-1", "of somebody else"])
        await asyncio.sleep(0.01)
        worker.cancel(["run-1"])
        await job
        assert gate.is_tidy
        assert table.ended == {"run-1": ("cancelled", "")}

    play(story)


def test_a_job_that_was_cancelled_before_it_began_in_a_session_with_runs_counts_as_cancelled(
    play: Callable[[Story], None], journal: LeavingJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append("run-1", "earlier", [RunStarted("go")], identity=replace(ME, run="earlier"))
    run_job = running.run_job

    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        monkeypatch.setattr(running, "run_job", run_job)
        job = Job("go", run="run-1", tenant="acme", user="worker").with_name().as_dict()
        table.answer = Beginning("begin", job=job, attempt=2, is_cancelled=True)
        await worker("run-1")
        assert table.ended == {"run-1": ("cancelled", "")}
        assert [record.run for record in journal.records("run-1")] == ["earlier"]

    play(story)


def test_a_job_can_be_cancelled_while_its_worker_stops(play: Callable[[Story], None]) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        job = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        leaving = asyncio.create_task(worker.leave(SECONDS))
        await asyncio.sleep(0)
        worker.cancel(["run-1"])
        await asyncio.gather(job, leaving)
        assert (table.ended, table.given_back) == ({"run-1": ("cancelled", "")}, [])

    play(story)


@pytest.mark.parametrize(
    ("error", "code"), [(ConfigError("no", code="model_unknown"), "model_unknown"),
                        (ValueError("no"), "job_failed")]
)  # fmt: skip
def test_a_job_that_cannot_begin_has_failed_and_does_not_come_again(
    play: Callable[[Story], None], error: Exception, code: str
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        gate.error = error
        gate.is_open.set()
        await worker("run-1")
        assert table.ended == {"run-1": ("failed", code)}

    play(story)


def test_a_job_that_ended_too_many_workers_is_given_up(play: Callable[[Story], None]) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        job = Job("go", run="run-1").with_name().as_dict()
        table.answer = Beginning("begin", job=job, attempt=21)
        await worker("run-1")
        assert (table.ended, gate.entered) == ({"run-1": ("failed", "job_given_up")}, 0)

    play(story)


def test_a_job_that_a_worker_has_is_not_given_up_however_often_it_came(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "RETRY_SECONDS", 0.01)

    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        job = Job("go", run="run-1").with_name().as_dict()
        table.answer = Beginning("begin", job=job, attempt=21, is_held=True)
        coming = asyncio.create_task(worker("run-1"))
        await asyncio.sleep(0.1)
        assert (coming.done(), table.ended, gate.entered) == (False, {}, 0)
        table.answer = Beginning("ended")
        await coming
        assert table.ended == {}

    play(story)


def test_a_job_that_cannot_be_read_has_failed_and_does_not_come_again(
    play: Callable[[Story], None],
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        unreadable = {"run": "run-1", "session": "talk", "tenant": "acme"}
        table.answer = Beginning("begin", job=unreadable, attempt=1)
        await worker("run-1")
        assert (table.ended, gate.entered) == ({"run-1": ("failed", "job_failed")}, 0)

    play(story)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_journal_that_is_away_when_a_run_ends_is_not_the_outcome_of_its_job(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch, *, is_cancelled: bool
) -> None:
    monkeypatch.setattr(running, "RETRY_SECONDS", 0.01)

    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        gate.error = JournalError("away", code="journal_unreachable")
        job = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        if is_cancelled:
            worker.cancel(["run-1"])
        else:
            gate.is_open.set()
        while gate.entered < 2:
            await asyncio.sleep(0.01)
        assert table.ended == {}
        gate.error = None
        gate.is_open.set()
        await job
        assert table.ended == {"run-1": ("done", "")}

    play(story)


def test_a_run_that_is_open_in_the_journal_is_ended_there_before_its_job_counts_as_cancelled(
    play: Callable[[Story], None], journal: LeavingJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "RETRY_SECONDS", 0.01)
    journal.append("run-1", "run-1", [RunStarted("go")], identity=ME)

    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        job = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        worker.cancel(["run-1"])
        while gate.entered < 2:
            await asyncio.sleep(0.01)
        assert table.ended == {}
        journal.append("run-1", "run-1", [RunFinished("cancelled")], identity=ME)
        worker.cancel(["run-1"])
        await job
        assert table.ended == {"run-1": ("cancelled", "")}

    play(story)


ME = Identity("acme", "worker", "run-1", "run-1")


@pytest.mark.parametrize(
    ("identity", "is_its_end"),
    [
        (ME, True),
        (replace(ME, tenant="other"), False),
        (replace(ME, user="other"), False),
        (replace(ME, session="other"), False),
    ],
)
def test_an_end_that_is_in_the_journal_with_its_outcome_is_not_written_again(
    play: Callable[[Story], None], identity: Identity, *, is_its_end: bool
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        job = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        assert worker.find_ends([(identity, [RunStarted("go")])]) == {}
        ends = worker.find_ends([(identity, [RunFinished("done", "by the journal")])])
        assert [end["text"] for end in ends.values()] == ["by the journal"] * is_its_end
        worker.note_ends(ends)
        gate.is_open.set()
        await job
        assert (table.ended == {}) is is_its_end

    play(story)


def test_the_end_of_a_run_that_another_began_is_read_from_the_journal(
    play: Callable[[Story], None],
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        job = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        assert worker.find_ends([(ME, [RunFinished("done")])]) == {}
        gate.is_open.set()
        await job
        assert table.ended == {"run-1": ("done", "")}

    play(story)


@pytest.mark.proves("scale.taken-once")
def test_a_job_that_another_worker_has_by_now_comes_again_if_that_one_dies(
    play: Callable[[Story], None],
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        first = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        # It began there, and was killed. The engine gives it to this one, which is still at it.
        table.is_anothers = True
        second = asyncio.create_task(worker("run-1"))
        await asyncio.sleep(0)
        gate.is_open.set()
        for delivery in (first, second):
            with pytest.raises(GoOnElsewhere):
                await delivery
        table.is_anothers = False
        await worker("run-1")
        assert (table.begun, table.ended) == (["run-1"] * 2, {"run-1": ("done", "")})

    play(story)


def test_no_more_jobs_are_worked_at_once_than_there_are_places(
    play: Callable[[Story], None],
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        jobs = [asyncio.create_task(worker(f"run-{number}")) for number in range(3)]
        while gate.entered < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert (gate.entered, table.begun) == (2, ["run-0", "run-1"])
        gate.is_open.set()
        await asyncio.gather(*jobs)
        assert gate.entered == 3

    play(story)


WAITS = Ticket("run-1", "talk", "acme", 0, as_of="now")


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (Beginning("full", WAITS, ahead=0), 0.5),
        (Beginning("full", WAITS, ahead=5), 1.5),
        (Beginning("full", WAITS, ahead=100_000), 30),
        (Beginning("early", WAITS, ahead=1), 0.5),
        (Beginning("early", WAITS, ahead=4), 2),
        (Beginning("early", WAITS, ahead=1, blocked=60), 6),
        (Beginning("full", WAITS, ahead=0, blocked=3600), 30),
        (Beginning("newer", WAITS), 30),
    ],
)
def test_a_job_that_may_not_begin_is_handed_in_again_later_the_more_go_first(
    play: Callable[[Story], None],
    answer: Beginning,
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused: list[float] = []
    add = SetAside.add

    def set_aside(self: SetAside, ticket: Ticket, pause: float) -> None:
        paused.append(pause)
        add(self, ticket, 0)

    monkeypatch.setattr(SetAside, "add", set_aside)

    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        table.answer = answer
        await worker("run-1")
        while not table.handed:
            await asyncio.sleep(0.01)
        assert (engine.told, table.handed) == (["run-1"], [("run-1", "now")])
        assert (paused, gate.entered, table.ended) == ([seconds], 0, {})
        table.answer = Beginning("ended")
        await worker("run-1")
        assert (gate.entered, table.ended) == (0, {})

    play(story)


def test_what_was_set_aside_is_handed_in_when_the_worker_leaves(
    play: Callable[[Story], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        table.answer = Beginning("newer", WAITS)
        await worker("run-1")
        assert engine.told == []
        assert "job `run-1` waits for a worker of the newer version" in caplog.text
        await worker.leave(0)
        assert engine.told == ["run-1"]

    play(story)


def test_a_worker_leaves_though_its_engine_does_not_answer(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LEAVE_SECONDS", 0.2)
    monkeypatch.setattr(engines, "ANSWER_SECONDS", 1)

    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        working = asyncio.create_task(worker("run-1"))
        await gate.inside.wait()
        table.answer = Beginning("early", Ticket("next", "run-1", "acme", 5))
        await worker("next")
        engine.is_silent = True
        started = asyncio.get_running_loop().time()
        await worker.leave(0)
        assert asyncio.get_running_loop().time() - started < 0.9
        with pytest.raises(GoOnElsewhere):
            await working
        assert table.handed == []

    play(story)


def test_an_engine_that_does_not_answer_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "ANSWER_SECONDS", 0.1)
    with pytest.raises(EngineUnreachable, match=r"no answer in 0\.1 s"):
        engines.ask_engine(asyncio.sleep(1))


@pytest.mark.parametrize(
    ("waiting", "handed_in"),
    [
        (Ticket("next", "run-1", "other", 5), True),
        (Ticket("next", "another", "acme", 5), True),
        (Ticket("next", "another", "other", 5), False),
    ],
    ids=["of its session", "of its tenant", "of another"],
)
def test_what_waits_for_a_job_is_handed_in_once_that_has_ended(
    play: Callable[[Story], None], waiting: Ticket, *, handed_in: bool
) -> None:
    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        table.answer = Beginning("early", waiting, ahead=60)
        await worker("next")
        table.answer = None
        gate.is_open.set()
        await worker("run-1")
        await asyncio.sleep(3 * handing_in.DUE_SECONDS)
        assert engine.told == (["next"] if handed_in else [])

    play(story)


@pytest.mark.parametrize(
    "error", [EngineUnreachable("away"), OSError("what a library lets through")]
)
def test_what_was_set_aside_waits_for_an_engine_that_is_away(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(handing_in, "RETRY_SECONDS", 0)

    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        engine.error = error
        table.answer = Beginning("early", WAITS)
        await worker("run-1")
        await asyncio.sleep(3 * handing_in.DUE_SECONDS)
        assert (engine.told, table.handed) == ([], [])
        engine.error = None
        while not table.handed:
            await asyncio.sleep(0.01)
        assert engine.told == ["run-1"]

    play(story)


def test_a_job_waits_for_its_table_unless_its_worker_leaves(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "RETRY_SECONDS", 0.01)

    async def story(worker: Runner, table: Table, gate: Gate, engine: Engine) -> None:
        gate.is_open.set()
        table.answer = QueueError("away", code="queue_unreachable")
        first = asyncio.create_task(worker("run-1"))
        await asyncio.sleep(0.1)
        assert (first.done(), table.ended) == (False, {})
        assert table.asked[:3] == [False, True, True], "one worker is one attempt"
        table.answer = None
        await first
        assert table.ended == {"run-1": ("done", "")}
        table.answer = QueueError("away", code="queue_unreachable")
        second = asyncio.create_task(worker("run-2"))
        await asyncio.sleep(0.1)
        await worker.leave(0)
        with pytest.raises(GoOnElsewhere):
            await second

    play(story)


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("procrastinate", "procrastinate", "scale"),
        ("pgqueuer", "pgqueuer", "pgqueuer"),
        ("temporal", "temporalio", "temporal"),
        ("restate", "restate", "restate"),
    ],
)
def test_an_engine_without_its_library_names_the_line_that_installs_it(
    name: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"ferrule.job_engines.{name}", raising=False)
    for loaded in [one for one in sys.modules if one.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(EngineExtraMissing, match=f"`{name}` needs `{library}") as missing:
        open_engine(name, EngineOptions(""))
    assert missing.value.hint == f"pip install 'ferrule[{extra}]'"


@pytest.mark.parametrize("writable", [True, False])
def test_an_engine_that_commands_could_change_is_not_used_and_the_error_says_so(
    writable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, site = tmp_path / "here", tmp_path / ("here/site" if writable else "site")
    metadata = site / "acme-1.0.dist-info"
    metadata.mkdir(parents=True)
    here.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[ferrule.engines]\nacme = acme_engine:Engine\n")
    (metadata / "RECORD").write_text("acme_engine.py,,\n")
    (site / "acme_engine.py").write_text("class Engine:\n    def __init__(self, options): ...\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.chdir(here)
    if not writable:
        assert type(open_engine("acme", EngineOptions(""))).__name__ == "Engine"
        return
    with pytest.raises(ConfigError, match="those of `acme` are not used") as refused:
        open_engine("acme", EngineOptions(""))
    assert str(site) in str(refused.value)
