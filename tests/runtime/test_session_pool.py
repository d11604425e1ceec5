"""The pool of sessions that all interfaces share: bounds, eviction, idle sweeps, the end."""

from __future__ import annotations

import asyncio

import pytest

from ferrule.runtime.session_pool import PoolFull, SessionPool


class Pooled:
    """A session that says what happened to it."""

    def __init__(self, *, busy: bool = False) -> None:
        self.is_busy = busy
        self.ends: list[str] = []
        self.may_close = asyncio.Event()
        self.may_close.set()

    async def cancel(self) -> None:
        self.ends.append("cancelled")
        self.is_busy = False

    async def close(self) -> None:
        await self.may_close.wait()
        self.ends.append("closed")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_the_least_recently_used_session_makes_room_and_a_busy_one_never_does() -> None:
    pool = SessionPool[str, Pooled](2)
    busy, quiet, used = Pooled(busy=True), Pooled(), Pooled()
    pool.add("busy", busy)
    pool.add("quiet", quiet)
    pool.make_room()
    pool.add("used", used)
    await pool.wait_closed("quiet")
    assert (pool.open_keys(), quiet.ends, busy.ends) == (["busy", "used"], ["closed"], [])
    used.is_busy = True
    with pytest.raises(PoolFull, match="2 sessions are at work already"):
        pool.make_room()
    assert pool.count_busy() == 2 and pool.find("quiet") is None


async def test_what_is_used_again_goes_last() -> None:
    pool = SessionPool[str, Pooled](2)
    pool.add("a", Pooled())
    pool.add("b", Pooled())
    assert pool.use("a") is pool.find("a")
    pool.make_room()
    assert pool.open_keys() == ["a"]
    await pool.close_all()


async def test_a_pool_that_does_not_evict_refuses_the_next_session() -> None:
    pool = SessionPool[str, Pooled](1, evicts=False)
    only = Pooled()
    pool.add("only", only)
    with pytest.raises(PoolFull, match="1 sessions are open already"):
        pool.make_room()
    assert pool.find("only") is only and not only.ends
    await pool.close("only")
    pool.make_room()


async def test_a_session_that_was_idle_for_too_long_is_closed_and_a_busy_one_is_not() -> None:
    clock = Clock()
    pool = SessionPool[str, Pooled](9, 30.0, clock=clock)
    idle, busy = Pooled(), Pooled(busy=True)
    pool.add("idle", idle)
    pool.add("busy", busy)
    clock.now = 29.0
    fresh = Pooled()
    pool.add("fresh", fresh)
    pool.sweep()
    assert pool.open_keys() == ["idle", "busy", "fresh"]
    clock.now = 31.0
    pool.sweep()
    await pool.wait_closed("idle")
    assert (pool.open_keys(), idle.ends) == (["busy", "fresh"], ["closed"])
    await pool.close_all()


async def test_idle_sessions_are_closed_without_anybody_asking() -> None:
    pool = SessionPool[str, Pooled](9, 0.0)
    idle = Pooled()
    pool.add("idle", idle)
    async with asyncio.timeout(5):
        while not idle.ends:
            await asyncio.sleep(0)
    assert len(pool) == 0


async def test_whoever_opens_a_session_again_waits_until_it_has_been_closed() -> None:
    pool = SessionPool[str, Pooled](9)
    first = Pooled()
    first.may_close.clear()
    pool.add("a", first)
    pool.close_soon("a")
    waiting = asyncio.create_task(pool.wait_closed("a"))
    await asyncio.sleep(0)
    assert not waiting.done() and pool.use("a") is None
    first.may_close.set()
    await waiting
    assert first.ends == ["closed"]
    await pool.wait_closed("a")


async def test_the_end_cancels_what_works_and_waits_for_all() -> None:
    pool = SessionPool[str, Pooled](9, 60.0)
    busy, quiet, leaving = Pooled(busy=True), Pooled(), Pooled()
    for name, one in (("busy", busy), ("quiet", quiet), ("leaving", leaving)):
        pool.add(name, one)
    pool.close_soon("leaving")
    await pool.close_all()
    assert [one.ends for one in (busy, quiet, leaving)] == [
        ["cancelled", "closed"],
        ["closed"],
        ["closed"],
    ]
    assert len(pool) == 0


async def test_one_that_cannot_be_closed_does_not_keep_the_others_open() -> None:
    class Failing(Pooled):
        async def close(self) -> None:
            raise RuntimeError("the disk is full")

    class Slow(Pooled):
        async def close(self) -> None:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            await super().close()

    pool = SessionPool[str, Pooled](9)
    slow = Slow()
    pool.add("failing", Failing())
    pool.add("slow", slow)
    with pytest.raises(RuntimeError, match="the disk is full"):
        await pool.close_all()
    assert slow.ends == ["closed"]
