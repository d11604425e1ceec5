"""What runs beside an engine's library, and ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any


@asynccontextmanager
async def run_with(*coroutines: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run coroutines beside the block, until it ends."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def call_when(event: asyncio.Event, call: Callable[[], None]) -> None:
    """Call something once an event has happened."""
    await event.wait()
    call()


async def repeat(
    call: Callable[[], Awaitable[bool | None] | None],
    seconds: float,
    *,
    but: type[Exception] | None = None,
) -> None:
    """Call something now and again each time after so many seconds, until it returns True.

    An error of the class `but` is left to the next time.
    """
    while True:
        with suppress(but) if but else nullcontext():
            called = call()
            if called is not None and await called:
                return
        await asyncio.sleep(seconds)
