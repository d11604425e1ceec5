"""The queue of jobs: what many workers may do to it at once, and when its line breaks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cluster import Cluster
from faulty import AFTER, Faulty

from ferrule.engine.distributed.job_queue import JobQueue, QueueError
from ferrule.engine.distributed.jobs import Job, Jobs
from ferrule.engine.distributed.worker import submit_due


@pytest.fixture
def url(cluster: Cluster) -> str:
    name = f"queue_{cluster.free_name()}"
    cluster.sql(f"CREATE DATABASE {name}")
    return f"postgresql:///{name}?host={cluster.folder}&user=ferrule"


@pytest.fixture
def queue(url: str) -> Iterator[JobQueue]:
    opened = JobQueue(url)
    yield opened
    opened.close()


def jobs(count: int, tenant: str = "acme", **more: Any) -> list[dict[str, Any]]:
    named = [Job(f"job {n}", run=f"{tenant}-{n}", tenant=tenant, **more) for n in range(count)]
    return [job.with_name().as_dict() for job in named]


def take(queue: JobQueue, worker: str, free: int, **more: Any) -> list[str]:
    taken, _ = queue.exchange(worker, {}, [], free, **more)
    return [job["run"] for job, _ in taken]


@pytest.mark.proves("scale.taken-once")
def test_workers_that_take_at_once_never_take_the_same_job(queue: JobQueue, url: str) -> None:
    queue.submit(jobs(200))

    def work(worker: str) -> list[str]:
        mine = JobQueue(url)
        known: list[str] = []
        while True:
            taken, _ = mine.exchange(worker, {}, known, 7)
            if not taken:
                mine.close()
                return known
            known += [job["run"] for job, _ in taken]

    with ThreadPoolExecutor(4) as pool:
        taken = [run for runs in pool.map(work, "abcd") for run in runs]
    assert len(taken) == len(set(taken)) == 200


@pytest.mark.proves("scale.per-tenant")
def test_workers_that_take_at_once_keep_to_the_bound_of_each_tenant(
    queue: JobQueue, url: str
) -> None:
    for tenant in ("a", "b", "c"):
        queue.submit(jobs(20, tenant))

    def work(worker: str) -> list[str]:
        mine = JobQueue(url)
        runs = take(mine, worker, 20, per_tenant=3)
        mine.close()
        return runs

    with ThreadPoolExecutor(4) as pool:
        taken = [run for runs in pool.map(work, "wxyz") for run in runs]
    assert sorted(taken) == [f"{tenant}-{n}" for tenant in "abc" for n in range(3)]


@pytest.mark.proves("scale.priority")
def test_jobs_are_taken_by_priority_and_then_in_their_order_and_none_before_its_time(
    queue: JobQueue,
) -> None:
    queue.submit(jobs(2, "late", priority=9))
    queue.submit(jobs(2, "soon", priority=1))
    queue.submit(jobs(1, "now"))
    queue.submit(jobs(1, "tomorrow"), delay=86_400)
    assert take(queue, "w", 9) == ["now-0", "soon-0", "soon-1", "late-0", "late-1"]


@pytest.mark.proves("scale.same-key")
def test_an_outcome_counts_only_from_the_worker_that_has_the_job(queue: JobQueue) -> None:
    queue.submit(jobs(1))
    assert take(queue, "slow", 1) == ["acme-0"]
    queue.requeue(["slow"])
    assert take(queue, "quick", 1) == ["acme-0"]
    queue.exchange("slow", {"acme-0": {"stop": "failed"}}, ["acme-0"], 0)
    found = queue.find("acme-0")
    assert found is not None and found.outcome is None
    queue.exchange("quick", {"acme-0": {"stop": "done"}}, ["acme-0"], 0)
    queue.exchange("quick", {"acme-0": {"stop": "failed"}}, ["acme-0"], 0)
    queue.submit(jobs(1))
    found = queue.find("acme-0")
    assert found is not None and (found.state, found.outcome) == ("ended", {"stop": "done"})
    assert take(queue, "quick", 5) == []


@pytest.mark.proves("scale.taken-once")
def test_what_was_taken_without_an_answer_is_given_to_the_worker_again(
    queue: JobQueue, faulty: Faulty
) -> None:
    queue.submit(jobs(2))
    far = JobQueue(f"{faulty.dsn.replace('dbname=postgres', '')} dbname={_database(queue)}")
    far.exchange("w", {}, [], 0)
    faulty.plan.extend([AFTER])
    assert take(far, "w", 1) == ["acme-0"], "taken once, and not a second one instead"
    taken, _ = far.exchange("w", {}, ["acme-0"], 1)
    assert [job["run"] for job, _ in taken] == ["acme-1"]
    far.close()


def test_a_connection_whose_other_end_is_gone_is_noticed_within_half_a_minute(url: str) -> None:
    for more, interval in (("", "5"), ("&keepalives_interval=7", "7")):
        queue = JobQueue(url + more)
        queue.submit(jobs(1))
        connection = queue._db._connection
        assert connection is not None
        used = connection.info.get_parameters()
        names = ("keepalives_idle", "keepalives_interval", "keepalives_count")
        assert [used[name] for name in names] == ["15", interval, "3"]
        queue.close()


def _database(queue: JobQueue) -> str:
    return str(queue._db._dsn_parts["dbname"])


@pytest.mark.proves("scale.cancel")
def test_a_cancelled_job_is_told_to_its_worker_and_has_no_other_end(queue: JobQueue) -> None:
    queue.submit(jobs(2))
    assert take(queue, "w", 1) == ["acme-0"]
    queue.cancel("acme-0")
    queue.cancel("acme-1")
    taken, cancelled = queue.exchange("w", {}, ["acme-0"], 5)
    assert (taken, cancelled) == ([], ["acme-0"])
    queue.exchange("w", {"acme-0": {"stop": "done"}}, ["acme-0"], 0)
    found = queue.find("acme-0")
    assert found is not None and (found.state, found.outcome) == ("cancelled", None)


@pytest.mark.proves("scale.submitted-together")
def test_jobs_that_are_submitted_together_are_one_commit(
    url: str, cluster: Cluster, queue: JobQueue
) -> None:
    handed = Jobs(url)
    odd = 'a NUL \0, a lone \ud800 and "quotes"'
    runs = handed.submit_all([Job(odd), *(Job(str(n)) for n in range(50))])
    assert len({job.run for job in runs}) == 51
    taken, _ = queue.exchange("w", {}, [], 100)
    assert [Job.of(job) for job, _ in taken] == runs and taken[0][0]["text"] == odd
    handed.close()


@pytest.mark.proves("scale.schedule")
def test_a_schedule_leaves_out_what_is_long_past_and_two_workers_submit_one_job(
    url: str, queue: JobQueue
) -> None:
    import psycopg

    handed = Jobs(url)
    handed.schedule("daily", "0 0 * * *", Job("good morning"))
    with psycopg.connect(url, autocommit=True) as db:
        past = "UPDATE ferrule.schedules SET due = clock_timestamp() - interval %s"
        for ago, count in (("3 days", 0), ("5 seconds", 1)):
            db.execute(past.replace("%s", f"'{ago}'").encode())
            due = queue.list_due()
            submit_due(queue)
            queue.submit([])
            assert len(list(handed.recent())) == count, json.dumps(str(due))
            assert queue.list_due() == []
    handed.close()


@pytest.mark.proves("scale.errors")
def test_a_queue_that_is_away_is_an_error_within_its_bound() -> None:
    away = JobQueue("postgresql://me:s3cret@127.0.0.1:1/none")
    away._db.seconds = 1
    with pytest.raises(QueueError, match="cannot be reached") as refused:
        away.submit(jobs(1))
    assert refused.value.retryable and "s3cret" not in str(refused.value)
