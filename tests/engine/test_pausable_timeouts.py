"""The timeouts of a call while a person is asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ferrule import Agent, Context, tool
from ferrule.core.calls import ErrorType
from grouped_options import grouped


@tool(timeout=0.2)
async def answered_late(context: Context) -> str:
    """Ask two people at once for longer than it may take."""

    async def ask(seconds: float) -> None:
        with context.timeouts.pause():
            await asyncio.sleep(seconds)

    await asyncio.gather(ask(0.1), ask(0.5))
    return "yes"


@tool(timeout=0.2)
async def hangs_afterwards(context: Context) -> None:
    """Ask a person, and hang."""
    with context.timeouts.pause():
        pass
    await asyncio.Event().wait()


async def test_timeouts_stand_still_while_a_person_is_asked_and_hold_afterwards(
    tmp_path: Path,
) -> None:
    agent = Agent(
        "scripted:x", [answered_late, hangs_afterwards], **grouped(journal=tmp_path / "j.db")
    )
    session = agent.session()
    async with asyncio.timeout(20):
        late = await session.call("answered_late")
        hung = await session.call("hangs_afterwards")
    await session.close()
    assert late.data == "yes"
    assert hung.error_type is ErrorType.TIMEOUT
