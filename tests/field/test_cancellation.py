"""Public reports about stopping, forking and errors that no other test shows."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule import Agent, RunCancelled, Scripted, tool
from ferrule.models.scripted import calls, says


def test_run_sync_works_after_a_program_has_closed_its_event_loop() -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.close()
    try:
        assert Agent(Scripted([says("hello")])).run_sync("go").text == "hello"
    finally:
        asyncio.set_event_loop(None)


async def test_leaving_a_stream_is_a_cancellation_and_no_unknown_error() -> None:
    begun = asyncio.Event()

    @tool(side_effect="read")
    async def wait() -> str:
        """Wait for ever."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    session = Agent(Scripted([calls(("wait", {})), says("end")]), [wait]).session()
    run = asyncio.ensure_future(session.run("go"))
    await begun.wait()
    session.cancel()
    with pytest.raises(RunCancelled) as caught:
        await run
    assert caught.value.code == "cancelled"
    await session.close()


WORKERS = """
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from ferrule import Agent, ProviderError, Scripted
from ferrule.models.scripted import fails

def work():
    busy = ProviderError("slow down", code="rate_limited", status=429, retry_after=7.0)
    Agent(Scripted([fails(busy)])).run_sync("go")

if __name__ == "__main__":
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(work).exception(60)
    print(type(error).__name__, error.code, error.status, error.retry_after)
"""


def test_an_error_crosses_a_pool_of_processes(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(WORKERS)
    ended = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.split() == ["ProviderError", "rate_limited", "429", "7.0"], ended.stderr
