"""Jobs through real engines, worked by real processes that are stopped, killed and frozen: one run
each, one result per call, whatever the engine.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from engine_servers import RECIPES, EngineServer, list_engines, serve

pytest.importorskip("psycopg", reason="needs the extra `scale`")

from ferrule.cli.exit_codes import run as ferrule
from ferrule.core.errors import ConfigError, SessionNotFound
from ferrule.core.events import (
    CallProbed,
    CallStarted,
    JournalRecord,
    ModelAnswered,
    RunFinished,
    RunStarted,
    ToolAnswered,
)
from ferrule.engine.distributed.engines import EngineOptions, EngineUnreachable, open_engine
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.jobs import Jobs, UnknownJob
from ferrule.engine.distributed.outcomes import QueueError
from ferrule.storage.journal.postgres import PostgresJournal
from left_open import kept_by_process

SECONDS = 60
"""That anything may take before a test gives up: far more than it takes."""
LOST_AFTER = 3.0


class Fleet:
    """Workers of one engine, their database, and the traces that calls leave there."""

    def __init__(self, cluster: Cluster, server: EngineServer) -> None:
        name = f"scale_{cluster.free_name()}"
        cluster.sql(f"CREATE DATABASE {name}")
        self.url = f"postgresql:///{name}?host={cluster.folder}&user=ferrule"
        self.log = cluster.folder / f"{name}.log"
        self.workers: list[subprocess.Popen[bytes]] = []
        for table in ("attempts (call text, gate text, pid integer)", "gates (name text)"):
            self.sql(f"CREATE TABLE {table}")
        self.sql("CREATE TABLE effects (call text, gate text, pid integer)")
        self.server = server
        self.engine = server.engine
        options = EngineOptions(self.url, lost_after=LOST_AFTER)
        self.jobs = Jobs(self.url, engine=open_engine(server.engine, options))
        self.journal = PostgresJournal(self.url)

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url, autocommit=True) as db:
            cursor = db.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def start(self, count: int = 1, *, grace: float = 1, code: str = "") -> None:
        program = Path(__file__).with_name("scale_worker.py")
        for _ in range(count):
            with self.log.open("ab") as log:
                started = subprocess.Popen(
                    [sys.executable, str(program), str(grace)],
                    env={
                        **os.environ,
                        "SCALE_DATABASE": self.url,
                        "SCALE_ENGINE": self.engine,
                        "SCALE_CODE": code,
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            self.workers.append(started)

    def need(self, count: int) -> None:
        """So many workers that live."""
        alive = [worker for worker in self.workers if worker.poll() is None]
        self.start(count - len(alive))

    def stop_all(self) -> None:
        """Ask all workers to stop, and wait until they have."""
        alive = [worker for worker in self.workers if worker.poll() is None]
        for worker in alive:
            self.until(partial(catches_sigterm, worker.pid), "a worker that can be asked to stop")
            worker.terminate()
        assert [worker.wait(timeout=SECONDS) for worker in alive] == [0] * len(alive)

    def until(self, found: Callable[[], Any], what: str) -> Any:
        end = time.monotonic() + SECONDS
        while not (seen := found()):
            said = self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""
            assert time.monotonic() < end, f"{what} did not come about; the workers said:\n{said}"
            time.sleep(0.05)
        return seen

    def attempt(self, gate: str, *, but: int = 0) -> int:
        """The process that is before the gate, in the middle of its call."""
        rows = self.until(
            lambda: self.sql("SELECT pid FROM attempts WHERE gate = %s AND pid <> %s", gate, but),
            f"an attempt at `{gate}`",
        )
        return int(rows[0][0])

    def open(self, gate: str) -> None:
        self.sql("INSERT INTO gates VALUES (%s)", gate)

    def effects(self, gate: str) -> int:
        return len(self.sql("SELECT 1 FROM effects WHERE gate = %s", gate))

    def worker(self, pid: int) -> subprocess.Popen[bytes]:
        return next(worker for worker in self.workers if worker.pid == pid)

    def records(self, session: str) -> list[JournalRecord]:
        self.journal.verify(session)
        return list(self.journal.records(session))

    def schedule(self) -> bool:
        """Schedule a job. Return whether the engine takes jobs: with some a worker must be there."""
        try:
            self.jobs.schedule("ticking", "*/2 * * * * *", Job("say tick", tenant="clock"))
        except EngineUnreachable:
            return False
        return True

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.wait(timeout=SECONDS)
        self.jobs.close()
        self.journal.close()


def catches_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line for line in status.splitlines() if line.startswith("SigCgt:")).split()[1]
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def keep_open(engine: str) -> AbstractContextManager[None]:
    """What the libraries of examples leave open is not ours to close."""
    return kept_by_process() if engine in RECIPES else nullcontext()


@pytest.fixture(autouse=True)
def let_examples_leave_open(request: pytest.FixtureRequest) -> Iterator[None]:
    case = getattr(request.node, "callspec", None)
    with keep_open("" if case is None else case.params.get("fleet", "")):
        yield


@pytest.fixture(scope="module", params=list_engines())
def fleet(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """One for all tests over an engine: a worker takes seconds to start."""
    with serve(request.param) as server:
        with keep_open(request.param):
            made = Fleet(cluster, server)
        try:
            with keep_open(request.param):
                made.start()
                made.until(made.schedule, "a server that knows of the worker")
            yield made
        finally:
            made.close()


def of(records: list[JournalRecord], kind: type) -> list[Any]:
    return [record.event for record in records if isinstance(record.event, kind)]


def answered_once(records: list[JournalRecord]) -> bool:
    """Whether every call that the model made has exactly one result."""
    made = sorted(call.id for answer in of(records, ModelAnswered) for call in answer.calls)
    return made == sorted(answer.result.call_id for answer in of(records, ToolAnswered))


def test_a_job_is_worked_by_a_worker_and_its_outcome_is_told(fleet: Fleet) -> None:
    job = fleet.jobs.submit(Job("say hello", tenant="acme", user="ines"))
    outcome = fleet.jobs.outcome(job.run)
    assert (outcome["stop"], outcome["text"]) == ("done", "hello, after 0 answers")
    assert (outcome["run"], outcome["session"]) == (job.run, job.session)
    records = fleet.records(job.session)
    assert {(record.tenant, record.user) for record in records} == {("acme", "ines")}
    listed = next(one for one in fleet.jobs.recent() if one.job.run == job.run)
    assert (listed.state, listed.job.tenant, listed.job.text) == ("done", "acme", "say hello")


def test_the_same_key_twice_is_one_run(fleet: Fleet) -> None:
    key = Job("hold twice", run="order-7", tenant="twice")
    first, second = fleet.jobs.submit(key), fleet.jobs.submit(key)
    assert first == second
    fleet.attempt("twice")
    fleet.open("twice")
    assert fleet.jobs.outcome("order-7")["stop"] == "done"
    third = fleet.jobs.submit(key)
    assert fleet.jobs.outcome(third.run)["text"] == "twice, after 1 answers"
    assert len(of(fleet.records(first.session), RunStarted)) == fleet.effects("twice") == 1


def test_jobs_of_one_session_go_on_with_it_one_after_the_other(fleet: Fleet) -> None:
    first = fleet.jobs.submit(Job("hold first", tenant="talk"))
    others = [
        fleet.jobs.submit(Job(f"say more {n}", tenant="talk", session=first.session))
        for n in range(2)
    ]
    fleet.attempt("first")
    fleet.open("first")
    texts = [fleet.jobs.outcome(job.run)["text"] for job in (first, *others)]
    assert texts == ["first, after 1 answers", "more 0, after 2 answers", "more 1, after 3 answers"]
    edges = [
        isinstance(record.event, RunStarted)
        for record in fleet.records(first.session)
        if isinstance(record.event, RunStarted | RunFinished)
    ]
    assert edges == [True, False] * 3


def test_a_tenant_has_no_more_jobs_at_work_than_its_bound_and_they_go_by_priority(
    fleet: Fleet,
) -> None:
    gates = ["begun", "last", "middle", "next"]
    jobs = [
        fleet.jobs.submit(Job(f"hold {gate}", tenant="queue", priority=priority))
        for gate, priority in zip(gates[:1], [1], strict=True)
    ]
    fleet.attempt("begun")
    jobs += [
        fleet.jobs.submit(Job(f"hold {gate}", tenant="queue", priority=priority))
        for gate, priority in zip(gates[1:], [30, 20, 10], strict=True)
    ]
    elsewhere = fleet.jobs.submit(Job("say I am not held up", tenant="other"))
    assert fleet.jobs.outcome(elsewhere.run)["stop"] == "done"
    order: list[str] = []
    for gate in ("begun", "next", "middle", "last"):
        fleet.attempt(gate)
        order = [
            row[0] for row in fleet.sql("SELECT gate FROM attempts WHERE gate = ANY(%s)", gates)
        ]
        states = [one.state for one in fleet.jobs.recent() if one.job.tenant == "queue"]
        assert states.count("working") <= 1
        fleet.open(gate)
    assert order == ["begun", "next", "middle", "last"]
    assert all(fleet.jobs.outcome(job.run)["stop"] == "done" for job in jobs)


def test_a_cancelled_job_ends_as_cancelled_and_one_that_waits_never_begins(fleet: Fleet) -> None:
    working = fleet.jobs.submit(Job("hold for ever", tenant="stop"))
    waiting = fleet.jobs.submit(Job("hold never", tenant="stop"))
    fleet.attempt("for ever")
    fleet.jobs.cancel(waiting.run)
    fleet.jobs.cancel(working.run)
    for job in (working, waiting):
        outcome = fleet.jobs.outcome(job.run)
        assert (outcome["stop"], outcome["session"]) == ("cancelled", job.session)
    ended = fleet.until(
        lambda: of(fleet.records(working.session), RunFinished), "the end of the run"
    )
    assert ended[0].stop == "cancelled"
    assert answered_once(fleet.records(working.session))
    with pytest.raises(SessionNotFound):
        fleet.records(waiting.session)
    after = fleet.jobs.submit(Job("say the place is free", tenant="stop"))
    assert fleet.jobs.outcome(after.run)["stop"] == "done"
    assert fleet.effects("for ever") == fleet.effects("never") == 0


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        ("misconfigured", "model_unknown", "there is no such model\nhint: pull it"),
        ("broken", "job_failed", "ValueError: a bug in somebody's factory"),
    ],
)
def test_a_job_that_can_never_begin_has_failed_and_says_why(
    fleet: Fleet, text: str, code: str, detail: str
) -> None:
    job = fleet.jobs.submit(Job(text))
    outcome = fleet.jobs.outcome(job.run)
    assert (outcome["stop"], outcome["code"], outcome["detail"]) == ("failed", code, detail)
    assert next(one.state for one in fleet.jobs.recent() if one.job.run == job.run) == "failed"


def test_a_session_of_another_tenant_does_not_exist_for_a_job(fleet: Fleet) -> None:
    theirs = fleet.jobs.submit(Job("say a secret", tenant="theirs"))
    assert fleet.jobs.outcome(theirs.run)["stop"] == "done"
    ours = fleet.jobs.submit(Job("say what was that", tenant="ours", session=theirs.session))
    outcome = fleet.jobs.outcome(ours.run)
    assert (outcome["stop"], outcome["code"]) == ("failed", "session_not_found")
    assert len(of(fleet.records(theirs.session), RunStarted)) == 1


def test_a_schedule_hands_its_job_in_again_and_again(fleet: Fleet) -> None:
    def ticks() -> list[str]:
        return [
            one.job.run
            for one in fleet.jobs.recent(50)
            if one.job.tenant == "clock" and one.state == "done"
        ]

    fleet.until(lambda: len(ticks()) >= 2, "a second tick")
    outcomes = [fleet.jobs.outcome(run) for run in ticks()[:2]]
    assert {outcome["text"] for outcome in outcomes} == {"tick, after 0 answers"}
    assert len({outcome["session"] for outcome in outcomes}) == 2
    fleet.jobs.unschedule("ticking")


def test_the_command_waits_for_the_answer_lists_and_cancels(
    fleet: Fleet, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FERRULE_DATABASE", fleet.url)
    monkeypatch.setenv("FERRULE_ENGINE", fleet.engine)
    assert ferrule(["submit", "--key", "asked", "--tenant", "acme", "--wait", "say", "hello"]) == 0
    assert capsys.readouterr() == ("hello, after 0 answers\n", "asked\n")
    assert ferrule(["submit", "--key", "wrong", "--wait", "misconfigured"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[1]) == ("", "failed: there is no such model")
    assert ferrule(["submit", "--key", "later", "--delay", "600", "say", "later"]) == 0
    assert ferrule(["submit", "--cancel", "later"]) == 0
    capsys.readouterr()
    assert ferrule(["submit", "--list"]) == 0
    head, *listed = capsys.readouterr().out.splitlines()
    assert head.split() == ["RUN", "STATE", "TENANT", "WORKER", "MESSAGE"]
    states = {line.split()[0]: line.split()[1] for line in listed}
    assert [states[key] for key in ("asked", "wrong", "later")] == ["done", "failed", "cancelled"]


def test_what_a_killed_worker_had_begun_is_finished_by_another_and_done_once(fleet: Fleet) -> None:
    fleet.need(2)
    job = fleet.jobs.submit(Job("hold killed", tenant="kill"))
    dead = fleet.attempt("killed")
    fleet.worker(dead).kill()
    assert fleet.attempt("killed", but=dead) != dead
    fleet.open("killed")
    assert fleet.jobs.outcome(job.run)["text"] == "killed, after 1 answers"
    records = fleet.records(job.session)
    assert [probed.found for probed in of(records, CallProbed)] == ["not_happened"]
    assert (
        len(of(records, RunStarted))
        == len(of(records, RunFinished))
        == fleet.effects("killed")
        == 1
    )
    assert answered_once(records)


def test_a_job_that_is_cancelled_while_its_worker_is_dead_makes_no_call_any_more(
    fleet: Fleet,
) -> None:
    fleet.need(1)
    job = fleet.jobs.submit(Job("hold bygone", tenant="bygone"))
    dead = fleet.attempt("bygone")
    fleet.worker(dead).kill()
    fleet.worker(dead).wait(timeout=SECONDS)
    fleet.jobs.cancel(job.run)
    fleet.need(1)
    assert fleet.jobs.outcome(job.run)["stop"] == "cancelled"
    records = fleet.records(job.session)
    assert [end.stop for end in of(records, RunFinished)] == ["cancelled"]
    assert len(of(records, CallStarted)) == len(of(records, ModelAnswered)) == 1
    assert fleet.sql("SELECT pid FROM attempts WHERE gate = 'bygone'") == [(dead,)]


def test_a_frozen_worker_that_goes_on_writes_nothing_any_more(fleet: Fleet) -> None:
    fleet.need(2)
    job = fleet.jobs.submit(Job("hold frozen", tenant="freeze"))
    frozen = fleet.attempt("frozen")
    os.kill(frozen, signal.SIGSTOP)
    try:
        fleet.attempt("frozen", but=frozen)
        fleet.open("frozen")
        assert fleet.jobs.outcome(job.run)["text"] == "frozen, after 1 answers"
        before = fleet.records(job.session)
    finally:
        os.kill(frozen, signal.SIGCONT)
    fleet.until(
        lambda: fleet.sql("SELECT 1 FROM effects WHERE gate = 'frozen' AND pid = %s", frozen),
        "the frozen worker going on",
    )
    # It ends its jobs before it ends: then it has tried to write.
    fleet.worker(frozen).terminate()
    assert fleet.worker(frozen).wait(timeout=SECONDS) == 0
    assert fleet.records(job.session) == before
    assert len(of(before, RunFinished)) == 1
    assert answered_once(before)


def test_a_worker_that_is_asked_to_stop_leaves_its_runs_open_for_others(fleet: Fleet) -> None:
    fleet.need(1)
    job = fleet.jobs.submit(Job("hold stopped", tenant="leave"))
    leaving = fleet.attempt("stopped")
    fleet.worker(leaving).terminate()
    assert fleet.worker(leaving).wait(timeout=SECONDS) == 0
    assert of(fleet.records(job.session), RunFinished) == []
    # Another worker that is there may have taken it by now, which is a token more.
    free = "SELECT 1 FROM ferrule.sessions WHERE session = %s AND (holder IS NULL OR token > 1)"
    assert fleet.sql(free, job.session), "the lease was given back"
    fleet.start()
    fleet.attempt("stopped", but=leaving)
    fleet.open("stopped")
    assert fleet.jobs.outcome(job.run)["text"] == "stopped, after 1 answers"
    assert fleet.effects("stopped") == 1
    assert answered_once(fleet.records(job.session))


def test_a_worker_that_is_asked_to_stop_waits_for_no_thread_that_nothing_ends(fleet: Fleet) -> None:
    fleet.need(1)
    job = fleet.jobs.submit(Job("block thread", tenant="thread"))
    blocked = fleet.attempt("thread")
    fleet.worker(blocked).terminate()
    assert fleet.worker(blocked).wait(timeout=SECONDS) == 0
    fleet.need(1)
    assert fleet.jobs.outcome(job.run)["stop"] == "done"
    records = fleet.records(job.session)
    assert len(fleet.sql("SELECT 1 FROM attempts WHERE gate = 'thread'")) == 1
    [answer] = of(records, ToolAnswered)
    assert "unknown" in str(answer.result.error_message)
    assert answered_once(records)


def test_a_run_goes_on_with_newer_code(fleet: Fleet) -> None:
    fleet.need(1)
    job = fleet.jobs.submit(Job("hold deployed", tenant="deploy"))
    old = fleet.attempt("deployed")
    fleet.stop_all()
    fleet.start(code="newer")
    fleet.attempt("deployed", but=old)
    fleet.open("deployed")
    assert fleet.jobs.outcome(job.run)["text"] == "deployed, after 1 answers"
    assert fleet.effects("deployed") == 1
    assert answered_once(fleet.records(job.session))


def test_a_delayed_job_outlives_the_workers_that_may_have_waited_for_it(fleet: Fleet) -> None:
    fleet.need(1)
    job = fleet.jobs.submit(Job("hold outlives", tenant="outlives"), delay=LOST_AFTER)
    fleet.stop_all()
    fleet.start()
    fleet.attempt("outlives")
    fleet.open("outlives")
    assert fleet.jobs.outcome(job.run)["stop"] == "done"
    assert len(fleet.sql("SELECT 1 FROM attempts WHERE gate = 'outlives'")) == 1


def test_connections_that_somebody_ends_are_made_anew(fleet: Fleet) -> None:
    fleet.need(1)
    fleet.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    for text in ("say once", "say twice"):
        job = fleet.jobs.submit(Job(text, tenant="ended"))
        assert fleet.jobs.outcome(job.run)["stop"] == "done"


@pytest.mark.proves("scale.taken-once")
def test_a_job_that_takes_longer_than_a_worker_may_be_silent_is_worked_once(fleet: Fleet) -> None:
    fleet.need(2)
    job = fleet.jobs.submit(Job("hold long", tenant="long"))
    fleet.attempt("long")
    time.sleep(2 * LOST_AFTER)
    fleet.open("long")
    assert fleet.jobs.outcome(job.run)["stop"] == "done"
    assert len(fleet.sql("SELECT 1 FROM attempts WHERE gate = 'long'")) == 1
    assert fleet.effects("long") == 1


@pytest.mark.proves("scale.taken-once")
def test_a_job_that_is_delayed_for_longer_than_that_begins_once_and_not_before(
    fleet: Fleet,
) -> None:
    fleet.need(2)
    now = "SELECT extract(epoch FROM clock_timestamp())::float8"
    submitted = fleet.sql(now)[0][0]
    job = fleet.jobs.submit(Job("hold delayed", tenant="delay"), delay=LOST_AFTER + 1)
    fleet.attempt("delayed")
    assert fleet.sql(now)[0][0] >= submitted + LOST_AFTER + 1
    fleet.open("delayed")
    assert fleet.jobs.outcome(job.run)["stop"] == "done"
    assert len(fleet.sql("SELECT 1 FROM attempts WHERE gate = 'delayed'")) == 1


def test_a_job_larger_than_what_the_engine_carries_is_worked(fleet: Fleet) -> None:
    fleet.need(1)
    job = fleet.jobs.submit(Job(f"say {'x' * 5_000_000}", tenant="large"))
    outcome = fleet.jobs.outcome(job.run)
    assert (outcome["stop"], len(outcome["text"])) == ("done", 5_000_000 + len(", after 0 answers"))


def test_a_database_that_restarts_loses_no_job_and_stops_no_worker(
    fleet: Fleet, cluster: Cluster
) -> None:
    fleet.need(1)
    alive = [worker for worker in fleet.workers if worker.poll() is None]
    working = fleet.jobs.submit(Job("hold restarted", tenant="restart"))
    fleet.attempt("restarted")
    cluster.restart()
    waiting = fleet.jobs.submit(Job("say I came meanwhile", tenant="restarted"))
    fleet.open("restarted")
    assert fleet.jobs.outcome(waiting.run)["stop"] == "done"
    assert fleet.jobs.outcome(working.run)["text"] == "restarted, after 1 answers"
    records = fleet.records(working.session)
    assert len(of(records, RunFinished)) == 1
    assert answered_once(records)
    assert all(worker.poll() is None for worker in alive)


def test_a_schedule_goes_on_when_the_database_has_restarted(fleet: Fleet, cluster: Cluster) -> None:
    fleet.need(1)
    fleet.jobs.schedule("lasting", "*/2 * * * * *", Job("say lasting", tenant="lasting"))

    def count() -> int:
        jobs = fleet.jobs.recent(200)
        return sum(one.job.tenant == "lasting" and one.state == "done" for one in jobs)

    fleet.until(lambda: count() >= 1, "a time of the schedule")
    cluster.restart()
    before = count()
    fleet.until(lambda: count() >= before + 2, "two times more after the restart")
    fleet.jobs.unschedule("lasting")


def test_a_server_of_the_engine_that_restarts_loses_no_job_and_stops_no_worker(
    fleet: Fleet,
) -> None:
    if fleet.server.why_not_restarted:
        pytest.skip(fleet.server.why_not_restarted)
    fleet.need(1)
    alive = [worker for worker in fleet.workers if worker.poll() is None]
    working = fleet.jobs.submit(Job("hold served", tenant="serve"))
    fleet.attempt("served")
    fleet.server.restart()
    waiting = fleet.jobs.submit(Job("say I came after it", tenant="served"))
    fleet.open("served")
    assert fleet.jobs.outcome(waiting.run)["stop"] == "done"
    assert fleet.jobs.outcome(working.run)["text"] == "served, after 1 answers"
    assert fleet.effects("served") == 1
    assert answered_once(fleet.records(working.session))
    assert all(worker.poll() is None for worker in alive)


@pytest.mark.parametrize("blank", [{"tenant": " "}, {"user": ""}])
def test_a_job_for_nobody_is_refused(blank: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="needs a tenant and a user"):
        Job("say hello", **blank)


def test_what_cannot_be_reached_scheduled_or_found_is_said_in_a_line(fleet: Fleet) -> None:
    with pytest.raises(QueueError, match="cannot be reached"):
        Jobs("postgresql://nobody@localhost:1/none")
    with pytest.raises(ConfigError, match="2 fields"):
        fleet.jobs.schedule("nightly", "every day", Job("say good night"))
    with pytest.raises(ConfigError, match="new id each time"):
        fleet.jobs.schedule("nightly", "0 3 * * *", Job("say good night", run="once"))
    for ask in (fleet.jobs.outcome, fleet.jobs.cancel):
        with pytest.raises(UnknownJob, match="no job `nothing`"):
            ask("nothing")
