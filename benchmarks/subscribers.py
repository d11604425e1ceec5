"""What live readers cost: `python benchmarks/subscribers.py [readers] [events]`. 500 readers,
10,000 events, a real server.

A process of its own serves the web console. Runs in it (a scripted model that takes 20 ms for an
answer, tools that do nothing) publish the events; this process holds a connection for every reader
and reads server-sent events from all of them over loopback. Ten readers are
slow: they take 4 KiB four times a second until the runs are over.

Every reader's account is checked: for each session it must have read, or been told to have lost,
every event from the first to the last, each once. Latency is from the event's own time (whole ms,
taken when it happened) to when its line was read here, for readers that are not slow. Server and
readers share the machine: with two cores, both are at their limit, and what is printed is the
latency under full load.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

READERS = 500
EVENTS = 10_000
SLOW = 10
SESSIONS = 8
TOKEN = "a-token-for-this-benchmark"
PEOPLE = 10
"""Who reads: a person may have 64 readers at a time. All are operators and see the same."""
Place = tuple[int, int]


# ---- the server


async def serve_console(folder: str, events: int) -> None:
    from ferrule import tool
    from ferrule.console.app import make_app
    from ferrule.console.setup import build_console_over, close_console
    from ferrule.console.viewer import Viewer
    from ferrule.core.messages import AssistantMessage, Message, UserMessage
    from ferrule.engine.agent import Agent
    from ferrule.engine.agent_options import Host, Storage
    from ferrule.engine.event_bus.events import BusEvent
    from ferrule.models.scripted import Scripted, Step, calls, says
    from ferrule.runtime.assemble import Assembly
    from ferrule.runtime.http.http_security import HttpGuard, Principal
    from ferrule.runtime.http.server import accepted_hosts, bound_port, listen, serve
    from ferrule.storage.journal.sqlite import SqliteJournal
    from ferrule.storage.settings.settings import load_settings

    @tool(risk="safe", side_effect="read")
    def look(at: str) -> str:
        """Look at something."""
        return f"{at}: " + "nothing to see here. " * 10

    async def answer(history: Sequence[Message]) -> Step:
        await asyncio.sleep(0.02)
        rounds = 0
        for message in history:
            rounds = (
                0
                if isinstance(message, UserMessage)
                else rounds + isinstance(message, AssistantMessage)
            )
        return (
            says("I looked.")
            if rounds >= 8
            else calls(*(("look", {"at": f"place {n}"}) for n in range(10)))
        )

    store = SqliteJournal(Path(folder) / "journal.db")
    wire = Scripted([answer] * events, model="scripted:bench")

    def make(_setup: Any, _journal: Any, bus: Any) -> Assembly:
        agent = Agent(
            wire,
            [look],
            workspace=folder,
            storage=Storage(journal=store, user="reader"),
            host=Host(bus=bus),
        )
        return Assembly(agent, load_settings(workspace=folder), lambda _: None, owns_journal=False)

    console = build_console_over(make, owner="reader")
    published: dict[str, Place] = {}
    count = 0

    def tally(event: BusEvent) -> None:
        nonlocal count
        if (
            event.sequence is not None
            and event.identity is not None
            and event.identity.tenant == "local"
        ):
            published[event.identity.session] = (event.sequence.event, event.sequence.piece)
            count += 1

    console.bus.tap(tally)
    listening = listen("127.0.0.1", 0)
    port = bound_port(listening)
    people = {f"{TOKEN}-{number}": Principal(f"reader{number}", True) for number in range(PEOPLE)}
    door = HttpGuard(make_app(console), token=people, hosts=accepted_hosts("127.0.0.1", port))
    serving = asyncio.ensure_future(
        serve(door, "127.0.0.1", port, listening=listening, on_stopping=console.bus.close)
    )
    print(json.dumps({"port": port}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)

    async def run_until_enough() -> None:
        live = await console.open_sessions.start(Viewer("reader", False), "look around")
        while True:
            assert live.run_task is not None
            await asyncio.wait([live.run_task])
            if count >= events:
                return
            await console.open_sessions.start_run(live, "and again")

    begin = time.perf_counter()
    await asyncio.gather(*(run_until_enough() for _ in range(SESSIONS)))
    took = time.perf_counter() - begin
    print(json.dumps({"published": published, "count": count, "seconds": took}), flush=True)
    await serving
    await close_console(console)
    store.close()


# ---- a reader


class Reader(asyncio.Protocol):
    """One connection: takes server-sent events apart as they come and keeps account of them."""

    def __init__(self, slow: bool, delays: Counter[int]) -> None:
        self.slow = slow
        self.last: dict[str, Place] = {}
        self.read = 0
        self.lost = 0
        self.gaps = 0
        self.wrong: list[str] = []
        self.gone = False
        self._delays = delays
        self._kept = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True

    def pace(self, reading: bool) -> None:
        """Read on, or not."""
        if not self.gone:
            (self._transport.resume_reading if reading else self._transport.pause_reading)()

    def data_received(self, data: bytes) -> None:
        if self.slow:
            self.pace(False)
        # A chunk of the answer holds whole messages, so that its size stands before the first of
        # them and is passed over with it.
        *whole, self._kept = (self._kept + data).split(b"\n\n")
        now = int(time.time() * 1000)
        for message in whole:
            self._take(message, now)

    def _take(self, message: bytes, now: int) -> None:
        start = message.find(b"\ndata: ")
        if start < 0:
            return
        if b"event: bus.dropped" in message[:start]:
            for lost in json.loads(message[start + 7 :])["payload"]["ranges"]:
                self._lose(lost)
            return
        session = _between(message, b'"session":"', start)
        self._follows(session, _place(_between(message, b'"sequence":"', start)))
        self.read += 1
        if not self.slow:
            at = message.find(b'"time":', start) + 7
            self._delays[now - int(message[at : at + 13])] += 1

    def _lose(self, lost: dict[str, Any]) -> None:
        self.gaps += 1
        self.lost += lost["count"]
        first, last = _place(lost["first"]), _place(lost["last"])
        self._follows(lost["session"], first)
        if last < first or lost["count"] < last[0] - first[0] + 1:
            self.wrong.append(f"a gap from {first} to {last} of {lost['count']} events")
        self.last[lost["session"]] = last

    def _follows(self, session: str, place: Place) -> None:
        before = self.last.get(session, (0, 0))
        if place not in ((before[0] + 1, 0), (before[0], before[1] + 1)):
            self.wrong.append(f"{session}: {place} after {before}")
        self.last[session] = place


def _between(message: bytes, key: bytes, start: int) -> str:
    at = message.index(key, start) + len(key)
    return message[at : message.index(b'"', at)].decode()


def _place(text: str) -> Place:
    event, _, piece = text.partition(".")
    return int(event), int(piece or 0)


_PERSON = count()


async def connect(port: int, slow: bool, delays: Counter[int]) -> Reader:
    connecting = socket.socket()
    if slow:
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connecting.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connecting, ("127.0.0.1", port))
    _, reader = await loop.create_connection(lambda: Reader(slow, delays), sock=connecting)
    reader._transport.max_size = 4096 if slow else 262_144
    token = f"{TOKEN}-{next(_PERSON) % PEOPLE}"
    head = (
        f"GET /stream HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {token}\r\n\r\n"
    )
    reader._transport.write(head.encode())
    return reader


async def dawdle(readers: Sequence[Reader]) -> None:
    """Slow readers take what lies there, four times a second."""
    while True:
        await asyncio.sleep(0.25)
        for reader in readers:
            reader.pace(True)


def memory(process: int, field: str = "VmRSS") -> float:
    """MiB that a process has resident (`VmHWM`: had at the most). Linux."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def percentile(delays: Counter[int], part: float) -> int:
    left = part * delays.total()
    for delay in sorted(delays):
        left -= delays[delay]
        if left <= 0:
            return delay
    return 0


# ---- the measurement


async def measure(server: subprocess.Popen[str], readers: int) -> bool:
    loop = asyncio.get_running_loop()
    assert server.stdout is not None and server.stdin is not None
    port = json.loads(await loop.run_in_executor(None, server.stdout.readline))["port"]
    empty = memory(server.pid)
    delays: Counter[int] = Counter()
    all_readers = [await connect(port, number < SLOW, delays) for number in range(readers)]
    while any(not reader._kept and not reader.gone and not reader.slow for reader in all_readers):
        await asyncio.sleep(0.05)
    connected = memory(server.pid)
    dawdling = asyncio.ensure_future(dawdle(all_readers[:SLOW]))
    server.stdin.write("\n")
    server.stdin.flush()
    told = json.loads(await loop.run_in_executor(None, server.stdout.readline))
    dawdling.cancel()
    for reader in all_readers[:SLOW]:
        reader.slow = False
        reader._delays = Counter()
        reader.pace(True)
    published = {session: tuple(place) for session, place in told["published"].items()}
    async with asyncio.timeout(120):
        while any(not reader.gone and reader.last != published for reader in all_readers):
            await asyncio.sleep(0.1)
    peak, after = memory(server.pid, "VmHWM"), memory(server.pid)
    return report(told, all_readers, delays, (empty, connected, peak, after))


def report(told: Any, readers: list[Reader], delays: Counter[int], held: tuple[float, ...]) -> bool:
    count, seconds = told["count"], told["seconds"]
    slow, quick = readers[:SLOW], readers[SLOW:]
    print(
        f"{len(readers)} readers, {count} events of {SESSIONS} sessions in {seconds:.1f} s: "
        f"{count / seconds:.0f} events/s, "
        f"{count * len(readers) / seconds:,.0f} deliveries/s; {os.cpu_count()} cores for "
        "server and readers together"
    )
    print(
        (
            "server memory, MiB: {:.0f} without readers, {:.0f} with, {:.0f} at the most, {:.0f} "
            "afterwards"
        ).format(*held),
        f"({(held[1] - held[0]) / len(readers) * 1024:.0f} KiB a reader)",
    )
    print(
        "latency of {:,} deliveries, ms: p50 {}, p95 {}, p99 {}, most {}".format(
            delays.total(), *(percentile(delays, part) for part in (0.5, 0.95, 0.99, 1.0))
        )
    )
    for name, group in (("quick", quick), ("slow", slow)):
        lost = sorted(reader.lost for reader in group)
        print(
            f"{len(group)} {name} readers: lost {lost[0]} to {lost[-1]} events each, told of "
            f"in {sum(one.gaps for one in group)} notices"
        )
    fine = [
        one for one in readers if not one.gone and not one.wrong and one.read + one.lost == count
    ]
    print(
        f"{len(fine)} of {len(readers)} accounts are complete: every event read, or named as "
        "lost, once"
    )
    for reader in readers:
        if reader not in fine:
            print(
                f"  read {reader.read}, lost {reader.lost}, gone {reader.gone}; {reader.wrong[:3]}"
            )
    return len(fine) == len(readers) and all(reader.lost for reader in slow)


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve_console(sys.argv[2], int(sys.argv[3])))
        return
    given = [int(word) for word in sys.argv[1:]]
    readers, events = [*given, *(READERS, EVENTS)[len(given) :]]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--serve", folder, str(events)]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            fine = asyncio.run(measure(server, readers))
        finally:
            server.terminate()
            server.wait()
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
