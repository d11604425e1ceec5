"""A year of use in one journal: a million events, written, verified, vacuumed, and what they take.

    python benchmarks/year_of_use.py [EVENTS]       # 1,000,000

The events are those of a real session (an agent whose scripted model reads files, edits one, runs
the tests and answers), written over and over, by several sessions at once as people and servers
have them. The payload is the JSON of the events with every field, as an export has it, without
session, run, owner, time and hash; what a file takes beyond it is ours.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ferrule.core.events import Event, RunStarted, SessionOpened
from ferrule.core.identity import Identity
from ferrule.storage.audit.verification import verify_sessions
from ferrule.storage.export.jsonl import export_jsonl
from ferrule.storage.journal.sqlite import SqliteJournal

SESSIONS_AT_ONCE = 8
RUNS_IN_A_SESSION = 12
MILLISECONDS_APART = 31_000
"""A million events are a year of days and nights, then."""
SOURCE = "    for number, line in enumerate(lines):\n        total += weigh(line)\n" * 14


def read(path: str) -> str:
    """Read a file."""
    return f"{path}\n{SOURCE}"


def edit(path: str, old: str, new: str) -> dict[str, object]:
    """Replace text in a file."""
    return {"path": path, "replaced": 1, "bytes": len(new) - len(old)}


def test(path: str) -> str:
    """Run the tests of a file."""
    return f"{path} ........................\n24 passed in 0.31 s\n"


async def record(folder: Path) -> list[list[Event]]:
    """Return the events of a session, as its runs: the session is opened in the first one."""
    from ferrule import Agent, Permissions, Storage
    from ferrule.models.scripted import Scripted, calls, says
    from ferrule.tools.decorator import tool

    answer = "It counted the last line twice; now it does not, and the tests pass."
    steps = [
        calls(("read", {"path": "src/scales.py"}), ("read", {"path": "tests/test_scales.py"})),
        calls(("edit", {"path": "src/scales.py", "old": "range(n + 1)", "new": "range(n)"})),
        calls(("test", {"path": "tests/test_scales.py"})),
        says(answer),
    ]
    agent = Agent(
        Scripted(steps * 2),
        [tool(side_effect="read")(read), tool(side_effect="write")(edit), tool(test)],
        permissions=Permissions(allow=["read", "edit", "test"]),
        storage=Storage(journal=folder / "recorded.db", user="somebody"),
    )
    session = agent.session()
    await session.run("Why are the totals in src/scales.py too high? Please mend it.")
    await session.run("Once more, please, for the other scale.")
    await session.close()
    with agent.journal as journal:
        events = [record.event for record in journal.records(session.id)]
        await agent.close()
    starts = [at for at, event in enumerate(events) if isinstance(event, RunStarted)]
    assert isinstance(events[0], SessionOpened)
    return [events[: starts[1]], events[starts[1] :]]


def turns(events: list[Event]) -> Iterator[list[Event]]:
    """Yield events in the portions in which a run writes them: up to each answer of the model."""
    portion: list[Event] = []
    for event in events:
        portion.append(event)
        if event.kind == "model.answered":
            yield portion
            portion = []
    yield portion


def fill(file: Path, runs: list[list[Event]], wanted: int) -> tuple[int, int]:
    """Write about so many events; return their number and that of the sessions."""
    first, later = [list(turns(run)) for run in runs]
    story = [(run, part) for run in range(RUNS_IN_A_SESSION) for part in (later if run else first)]
    clock = itertools.count(1_700_000_000_000, MILLISECONDS_APART)
    written = 0
    numbers = itertools.count()
    active: list[tuple[int, Iterator[tuple[int, list[Event]]]]] = []
    with SqliteJournal(file, now=lambda: next(clock) / 1000) as journal:
        while written < wanted or active:
            while len(active) < SESSIONS_AT_ONCE and written < wanted:
                active.append((next(numbers), iter(story)))
            batches: list[tuple[Identity, list[Event]]] = []
            ended: list[int] = []
            for number, parts in active:
                session = f"{number:08x}{number * 2654435761 % 2**96:024x}"
                part = next(parts, None)
                if part is None:
                    ended.append(number)
                    journal.release(session)
                    continue
                run = f"{part[0]:08x}{number * 40503 % 2**96:024x}"
                events = [
                    replace(event, text=f"{event.text} ({number})")
                    if isinstance(event, RunStarted)
                    else event
                    for event in part[1]
                ]
                batches.append((Identity("local", "somebody", session, run), events))
                written += len(events)
            journal.append_batches(batches)
            active = [one for one in active if one[0] not in ended]
    return written, next(numbers)


def payload(journal: SqliteJournal) -> float:
    """Return bytes of JSON of an event, over a session."""
    session = journal.sessions(limit=1)[0].session
    lines = [line for line in export_jsonl(journal.records(session)) if '"body":' in line]
    return sum(len(line.encode()) - line.index('"body":') - 8 for line in lines) / len(lines)


def main() -> int:
    wanted = int(sys.argv[1]) if sys.argv[1:] else 1_000_000
    with tempfile.TemporaryDirectory(prefix="ferrule-year-") as folder:
        os.environ.setdefault("FERRULE_STATE", f"{folder}/state")
        runs = asyncio.run(record(Path(folder)))
        file = Path(folder, "journal.db")
        begun = time.perf_counter()
        events, sessions = fill(file, runs, wanted)
        print(f"{events:,} events in {sessions:,} sessions, load {os.getloadavg()[0]:.1f}")
        print(f"written: {events / (time.perf_counter() - begun):,.0f} events/s")
        with SqliteJournal(file) as journal:
            each = payload(journal)
            size = file.stat().st_size / events
            print(f"size: {size:.0f} bytes an event, {size / each:.2f} x the payload of {each:.0f}")
            begun = time.process_time()
            names = [info.session for info in journal.sessions()]
            listed = time.process_time() - begun
            begun = time.process_time()
            for name in names:
                journal.verify(name)
            taken = time.process_time() - begun
            print(f"verify: {events / taken:,.0f} events/s of processor time, chains alone")
            begun = time.process_time()
            done = verify_sessions(journal)
            taken = time.process_time() - begun
            assert done.is_intact and len(done.sessions) == len(names)
            print(f"verify: {events / taken:,.0f} events/s with the file and list of sessions")
            print(f"list of all sessions: {listed * 1000:.0f} ms")
        db = sqlite3.connect(file)
        begun = time.perf_counter()
        db.execute("VACUUM")
        taken = time.perf_counter() - begun
        db.close()
        size = file.stat().st_size / events
        print(f"vacuum: {taken:.1f} s, then {size:.0f} bytes an event, {size / each:.2f} x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
