"""A worker process for `test_scale`: an agent whose model does what the job's text says, and whose
calls leave traces in the database.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from ferrule import Agent, Storage
from ferrule.core.errors import ConfigError
from ferrule.core.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ferrule.engine.distributed.job import Job
from ferrule.engine.distributed.worker import Worker, WorkerTimes
from ferrule.models.scripted import Scripted, Step, calls, says
from ferrule.storage.journal.postgres import PostgresJournal
from ferrule.storage.journal.protocols import Journal
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.outcome_probe import NOT_HAPPENED, ProbeResult, report_effect
from ferrule.tools.process_resources import end_process

DATABASE = os.environ["SCALE_DATABASE"]
LOOK = 0.05
"""Seconds between two looks at a gate. Nothing is proved by their length."""


async def said(statement: str, *values: object) -> list[Any]:
    async with await psycopg.AsyncConnection.connect(DATABASE, autocommit=True) as db:
        cursor = await db.execute(statement.encode(), values)
        return await cursor.fetchall() if cursor.description else []


def key(context: Context) -> str:
    return f"{context.identity.session}/{context.call_id}"


async def done(values: Mapping[str, Any], context: Context) -> ProbeResult:
    """The probe: whether the effect is there."""
    found = await said("SELECT 1 FROM effects WHERE call = %s", key(context))
    return report_effect("held") if found else NOT_HAPPENED


@tool(side_effect="external", risk="safe", probe=done, timeout=60)
async def hold(gate: str, context: Context) -> str:
    """Wait until the gate is open, then have an effect. The table has no key: done twice, it would
    be there twice.
    """
    await said("INSERT INTO attempts VALUES (%s, %s, %s)", key(context), gate, os.getpid())
    while not await said("SELECT 1 FROM gates WHERE name = %s", gate):
        await asyncio.sleep(LOOK)
    await said("INSERT INTO effects VALUES (%s, %s, %s)", key(context), gate, os.getpid())
    return "held"


@tool(side_effect="external", risk="safe", timeout=60)
def block(gate: str, context: Context) -> str:
    """Do the same without a probe, in a thread that nothing can end."""
    with psycopg.connect(DATABASE, autocommit=True) as db:
        db.execute("INSERT INTO attempts VALUES (%s, %s, %s)", (key(context), gate, os.getpid()))
        while not db.execute("SELECT 1 FROM gates WHERE name = %s", (gate,)).fetchall():
            time.sleep(LOOK)
    return "held"


@tool(side_effect="none", risk="safe")
def added() -> str:
    """Is a tool that newer code has."""
    return "added"


def step(history: Sequence[Message]) -> Step:
    """`hold GATE` and `block GATE` call the tools; anything else is answered with how many messages
    there were.
    """
    asked = [message for message in history if isinstance(message, UserMessage)]
    word, _, rest = asked[-1].text.partition(" ")
    if word in ("hold", "block") and not isinstance(history[-1], ToolMessage):
        return calls((word, {"gate": rest}))
    answers = sum(isinstance(message, AssistantMessage) for message in history)
    return says(f"{rest}, after {answers} answers")


class Endless(Scripted):
    """A scripted model that may be asked less than it could answer: others may have had the first
    answers.
    """

    def __init__(self) -> None:
        super().__init__([step] * 4)

    def assert_finished(self) -> None:
        """Steps may be left over."""


def make(job: Job, journal: Journal) -> Agent:
    if job.text == "misconfigured":
        raise ConfigError("there is no such model", code="model_unknown", hint="pull it")
    if job.text == "broken":
        raise ValueError("a bug in somebody's factory")
    is_newer = os.environ.get("SCALE_CODE") == "newer"
    return Agent(
        Endless(),
        [added, block, hold] if is_newer else [block, hold],
        instructions="You are newer." if is_newer else "",
        storage=Storage(journal=journal, tenant=job.tenant, user=job.user),
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
    Worker(
        DATABASE,
        make,
        engine=os.environ.get("SCALE_ENGINE", "procrastinate"),
        concurrency=8,
        per_tenant=1,
        times=WorkerTimes(lost_after=3, grace=float(sys.argv[1])),
        journal=PostgresJournal(DATABASE, lease_seconds=2),
    ).run()
    end_process()
