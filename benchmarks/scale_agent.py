"""The agent of `distributed.py`: five rounds with one call each, and every effect counted in a
table. Not run by itself.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from ferrule import Agent, Storage
from ferrule.core.messages import Message, ToolMessage
from ferrule.engine.distributed.job import Job
from ferrule.models.scripted import Scripted, Step, calls, says
from ferrule.storage.journal.protocols import Journal
from ferrule.tools.context import Context
from ferrule.tools.decorator import tool
from ferrule.tools.outcome_probe import NOT_HAPPENED, ProbeResult, report_effect

CALLS = 5
DATABASE = os.environ.get("SCALE_DATABASE", "")


async def said(*statements: str, key: str) -> list[Any]:
    """Run statements with the key, also while the database is being restarted; the rows of the
    last.
    """
    for _ in range(200):
        try:
            async with await psycopg.AsyncConnection.connect(DATABASE, autocommit=True) as db:
                for statement in statements:
                    cursor = await db.execute(statement.encode(), (key,))
                return await cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            await asyncio.sleep(0.1)
    raise RuntimeError("the database does not come back")


async def paid(values: Mapping[str, Any], context: Context) -> ProbeResult:
    """The probe: whether the table has this call."""
    found = await said("SELECT 1 FROM effects WHERE call = %s", key=_key(context))
    return report_effect("paid") if found else NOT_HAPPENED


@tool(side_effect="external", risk="safe", probe=paid)
async def pay(number: int, context: Context) -> str:
    """Pay once: a row of effects. The call's id is the key, as one would hand it to a bank."""
    attempt = "INSERT INTO attempts VALUES (%s)"
    await said(attempt, "INSERT INTO effects VALUES (%s) ON CONFLICT DO NOTHING", key=_key(context))
    return "paid"


def _key(context: Context) -> str:
    return f"{context.identity.session}/{context.call_id}"


def step(history: Sequence[Message]) -> Step:
    """The model: a call more until there are enough."""
    done = sum(isinstance(message, ToolMessage) for message in history)
    return calls(("pay", {"number": done})) if done < CALLS else says(f"paid {done} times")


class Endless(Scripted):
    """A scripted model that has an answer to everything."""

    def __init__(self) -> None:
        super().__init__([step] * (CALLS + 1))

    def assert_finished(self) -> None:
        """Steps may be left over: another worker may have taken the first ones."""


def make(job: Job, journal: Journal) -> Agent:
    """One for each job."""
    return Agent(
        Endless(), [pay], storage=Storage(journal=journal, tenant=job.tenant, user=job.user)
    )
