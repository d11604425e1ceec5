"""The running calls of a driver: which is the newest, which can be cancelled, and why one was."""

from __future__ import annotations

import asyncio

import pytest

from ferrule.engine.running_calls import RunningCalls


@pytest.mark.parametrize("question", [False, True])
async def test_a_call_is_running_until_its_task_is_done(question: bool) -> None:
    running, end = RunningCalls(), asyncio.Event()
    first = asyncio.create_task(asyncio.sleep(0))
    second = asyncio.create_task(end.wait())
    running.add("first", first, question=question)
    running.add("second", second, question=question)
    await first
    await asyncio.sleep(0)
    assert not running.cancel("first", "too late")
    assert running.find_newest() == ("" if question else "second")
    assert running.cancel("second", "enough")
    await asyncio.wait([second])
    assert second.cancelled()
    assert running.find_newest() == ""
    assert [running.take_reason(name) for name in ("first", "second", "second")] == [
        None,
        "enough",
        None,
    ]
