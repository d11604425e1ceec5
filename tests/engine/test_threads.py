"""Threads for handlers that block."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from ferrule.engine.threads import Threads

BOUND = 20
"""Seconds after which a test that waits for an event has failed."""


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, BOUND))


def test_the_loop_goes_on_while_a_handler_blocks() -> None:
    release = threading.Event()

    async def both() -> str:
        blocked = Threads().run(lambda: release.wait(BOUND))
        await asyncio.sleep(0)
        release.set()
        return "released" if await blocked else "hung"

    assert run(both()) == "released"


def test_a_lone_handler_is_waited_for_in_place_and_one_that_takes_longer_holds_nothing_up() -> None:
    release = threading.Event()
    order: list[str] = []

    async def quick_and_slow() -> tuple[bool, bool, bool]:
        loop = asyncio.get_running_loop()

        def tell_and_end() -> None:
            loop.call_soon_threadsafe(order.append, "told")
            time.sleep(0.02)

        patient, hasty = Threads(patience=BOUND), Threads(patience=0.001)
        quick = patient.run(tell_and_end)
        order.append("ended" if quick.done() else "waited for")
        await asyncio.sleep(0)
        was_done = quick.done()
        slow = hasty.run(lambda: release.wait(BOUND))
        await asyncio.sleep(0)
        slow_was_done = slow.done()
        release.set()
        return was_done, slow_was_done, await slow

    assert run(quick_and_slow()) == (True, False, True)
    assert order == ["waited for", "told"], "what a handler says comes before its result"


def test_many_blocking_handlers_run_at_once() -> None:
    together = threading.Barrier(40)

    async def all_of_them() -> list[int]:
        pool = Threads()
        return await asyncio.gather(*(pool.run(lambda: together.wait(BOUND)) for _ in range(40)))

    assert sorted(run(all_of_them())) == list(range(40))


def test_an_idle_thread_is_used_again() -> None:
    async def one_after_another() -> set[int]:
        pool = Threads()
        return {await pool.run(threading.get_ident) for _ in range(20)}

    assert len(run(one_after_another())) == 1


def test_no_more_threads_than_allowed_and_nothing_is_lost() -> None:
    async def crowd() -> tuple[set[int], list[int]]:
        pool = Threads(most=3)
        used: set[int] = set()

        def work(number: int) -> int:
            used.add(threading.get_ident())
            return number

        return used, await asyncio.gather(*(pool.run(lambda n=n: work(n)) for n in range(50)))  # type: ignore[misc]

    used, numbers = run(crowd())
    assert len(used) <= 3
    assert numbers == list(range(50))


def test_a_cancelled_call_that_waits_for_a_thread_never_starts() -> None:
    release = threading.Event()
    ran: list[str] = []

    async def cancel_the_second() -> None:
        pool = Threads(most=1)
        first = pool.run(lambda: release.wait(BOUND))
        second = pool.run(lambda: ran.append("second"))
        second.cancel()
        third = pool.run(lambda: ran.append("third"))
        release.set()
        await asyncio.gather(first, third)

    run(cancel_the_second())
    assert ran == ["third"]


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(3), MemoryError(), StopIteration(1), GeneratorExit()]
)
def test_whatever_a_handler_raises_reaches_the_caller_and_the_thread_survives(
    error: BaseException,
) -> None:
    def fail() -> None:
        raise error

    async def twice() -> tuple[BaseException | None, str]:
        pool = Threads(most=1)
        raised: BaseException | None = None
        try:
            await pool.run(fail)
        except BaseException as caught:
            raised = caught
        return raised, await pool.run(lambda: "alive")

    raised, after = run(twice())
    means_something_to_coroutines = isinstance(error, StopIteration | GeneratorExit)
    assert type(raised) is (RuntimeError if means_something_to_coroutines else type(error))
    assert after == "alive"


def test_a_handler_sees_the_context_variables_of_its_caller() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")

    async def ask() -> str:
        who.set("caller")
        return await Threads().run(who.get)

    assert run(ask()) == "caller"


def test_a_handler_that_hangs_does_not_keep_the_process_alive() -> None:
    program = """
import asyncio, threading
from ferrule.engine.threads import run_blocking

async def main():
    run_blocking(threading.Event().wait)

asyncio.run(main())
print("over")
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=BOUND, check=True
    )
    assert ran.stdout == "over\n"


def test_an_answer_that_comes_after_the_loop_is_closed_is_dropped() -> None:
    release, done = threading.Event(), threading.Event()
    pool = Threads(most=1)

    def slow() -> None:
        release.wait(BOUND)

    async def leave() -> None:
        pool.run(slow)

    asyncio.run(leave())
    release.set()

    async def after() -> bool:
        return await pool.run(lambda: done.set() or True)

    assert run(after())


def test_of_many_short_calls_in_several_loops_each_gets_its_own_answer() -> None:
    pool = Threads(most=8)

    async def many(first: int) -> list[int]:
        wanted = range(first, first + 500)
        return list(await asyncio.gather(*(pool.run(lambda n=n: n) for n in wanted)))

    def loop_of_its_own(first: int, found: dict[int, list[int]]) -> None:
        found[first] = run(many(first))

    found: dict[int, list[int]] = {}
    loops = [
        threading.Thread(target=loop_of_its_own, args=(first, found)) for first in (0, 1000, 2000)
    ]
    for one in loops:
        one.start()
    for one in loops:
        one.join(BOUND)
    assert found == {first: list(range(first, first + 500)) for first in (0, 1000, 2000)}
