"""A journal of many sessions: its first page, a search by words, resuming one, checking all.

    python benchmarks/many_sessions.py [SESSIONS ...]       # 20000 200000

Each session has a message, an answer and the events between. `resume` finds a session by the beginning
of its id, takes its lease and reads it; the search looks for two words in what the console's list
looks through (its newest 500). Verifying checks the chain of every session, one after the other.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ferrule.core.events import Event, ModelAnswered, RunFinished, RunStarted, SessionOpened
from ferrule.core.identity import Identity
from ferrule.storage.journal.sqlite import SqliteJournal

AT_ONCE = 250
USERS = 7


def story(number: int) -> list[Event]:
    text = f"Please fix bug {number} in module {number % 991}."
    return [
        SessionOpened(
            model="scripted",
            workspace="/work",
            mode="default",
            system="",
            tools=(),
            results="value",
        ),
        RunStarted(text),
        ModelAnswered(text="It was an off-by-one error in the loop. " * 5),
        RunFinished("done", "It was an off-by-one error in the loop."),
    ]


def fill(file: Path, count: int) -> None:
    with SqliteJournal(file) as journal:
        for start in range(0, count, AT_ONCE):
            batch = [
                (Identity("local", f"u{n % USERS}", f"{n:032x}"[::-1], f"r{n}"), story(n))
                for n in range(start, min(start + AT_ONCE, count))
            ]
            journal.append_batches(batch)
            for identity, _ in batch:
                journal.release(identity.session)


def milliseconds(work: Callable[[], object], times: int = 7) -> float:
    taken: list[float] = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1000


def measure(file: Path, count: int) -> None:
    with SqliteJournal(file) as journal:
        name = f"{count // 2:032x}"[::-1]

        def search() -> int:
            found = journal.sessions(limit=500)
            words = ("bug", f"module {(count - 9) % 991}")
            return sum(all(word in info.question for word in words) for info in found)

        def resume() -> None:
            found = journal.find(name[:12])
            journal.lease(found.session)
            list(journal.records(found.session))
            journal.release(found.session)

        begun = time.perf_counter()
        checked = 0
        for number in range(0, count, max(1, count // 5000)):
            session = f"{number:032x}"[::-1]
            journal.verify(session)
            checked += len(story(number))
        rate = checked / (time.perf_counter() - begun)
        assert search() >= 1
        page = milliseconds(lambda: journal.sessions(limit=50))
        owner = milliseconds(lambda: journal.sessions(tenant="local", user="u3", limit=50))
        print(
            f"{count:,} sessions ({file.stat().st_size / count / 4:.0f} bytes an event): "
            f"first page {page:.1f} ms, of one owner {owner:.1f} ms, "
            f"search {milliseconds(search):.1f} ms, resume {milliseconds(resume):.1f} ms; "
            f"verify {rate:,.0f} events/s"
        )


def main() -> int:
    for count in [int(word) for word in sys.argv[1:]] or [20_000, 200_000]:
        with tempfile.TemporaryDirectory(prefix="ferrule-sessions-") as folder:
            file = Path(folder, "journal.db")
            fill(file, count)
            measure(file, count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
