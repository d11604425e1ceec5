"""What the event bus costs: `python benchmarks/bus.py`. 500 readers, 10,000 events, one process.

Memory is what the process has resident (Linux), time is the publisher's; readers that read all do
so in one event loop.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

from ferrule import Identity
from ferrule.core.calls import ToolResult
from ferrule.core.events import Event, Noticed, ToolAnswered
from ferrule.engine.event_bus.bus import Bus
from ferrule.engine.event_bus.event_selection import OwnSession, OwnSessions
from ferrule.engine.event_bus.feed import Feed

READERS = 500
EVENTS = 10_000
LARGE = ToolAnswered(ToolResult("c", "read_file", True, "lorem ipsum dolor sit amet " * 2400))
SMALL = Noticed("t", "a line of text")


def identity(user: int = 0) -> Identity:
    return Identity("acme", f"user{user}", "s1", "r1")


def timed(feed: Feed, event: Event, count: int) -> float:
    """Microseconds per event."""
    begin = time.perf_counter()
    for _ in range(count):
        feed.publish(event)
    return (time.perf_counter() - begin) / count * 1e6


def published(readers: int, mine: bool, event: Event, count: int) -> float:
    """Microseconds per event for a session that `readers` read, or that somebody else's `readers`
    do not concern.
    """
    bus = Bus()
    feed = bus.feed(identity())
    kept = [
        bus.subscribe(OwnSession("acme", f"user{0 if mine else n + 1}", "s1"))
        for n in range(readers)
    ]
    took = timed(feed, event, count)
    del kept
    return took


def never_read() -> tuple[float, float]:
    """MiB that 500 readers that never read hold after 10,000 events, and microseconds per event."""
    bus = Bus()
    feed = bus.feed(identity())
    readers = [bus.subscribe(OwnSessions("acme", "user0")) for _ in range(READERS)]
    before = resident()
    took = timed(feed, SMALL, EVENTS)
    after = resident()
    lost = [reader.take_nowait()[0].payload["count"] for reader in readers]
    assert set(lost) == {EVENTS - 256}
    return after - before, took


def resident() -> float:
    """MiB that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def all_read() -> float:
    """Deliveries per second where 500 readers in this loop read all of 10,000 events."""
    bus = Bus()
    feed = bus.feed(identity())
    readers = [bus.subscribe(identity(), buffer=1024) for _ in range(READERS)]
    count = 0

    async def read(reader: object) -> None:
        nonlocal count
        async for event in reader:  # type: ignore[attr-defined]
            assert event.kind == "notice", event.payload
            count += 1
            if event.sequence.event == EVENTS:
                return

    begin = time.perf_counter()
    tasks = [asyncio.create_task(read(reader)) for reader in readers]
    await asyncio.sleep(0)
    for number in range(EVENTS):
        feed.publish(SMALL)
        if number % 256 == 255:
            # As a run does, the publisher waits for something now and then.
            while any(len(reader._buffer) for reader in readers):
                await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    return count / (time.perf_counter() - begin)


def main() -> None:
    rows: list[tuple[str, Callable[[], str]]] = [
        ("nobody reads, small event", lambda: f"{published(0, True, SMALL, 5000):.1f} us"),
        ("nobody reads, 64 KiB result", lambda: f"{published(0, True, LARGE, 200):.0f} us"),
        ("one reads", lambda: f"{published(1, True, SMALL, 5000):.1f} us"),
        ("500 read others", lambda: f"{published(500, False, SMALL, 5000):.1f} us"),
        ("500 read this one", lambda: f"{published(500, True, SMALL, 1000):.0f} us"),
    ]
    # First: memory that was used before is used again.
    held, took = never_read()
    for name, measure in rows:
        print(f"publish, {name:32} {measure()}")
    print(
        f"{READERS} that never read, {EVENTS} events: {held:.1f} MiB held, {took:.0f} us an event"
    )
    print(f"{READERS} that read all, {EVENTS} events: {asyncio.run(all_read()):,.0f} deliveries/s")


if __name__ == "__main__":
    main()
