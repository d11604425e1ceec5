"""Kills a run that delegates at each of its journal writes, resumes it, and says what became of it.
Not a test: `test_interrupted_delegation` starts it.

    delegating.py FOLDER

The run's model delegates to `boss`, whose model delegates to `clerk`, whose model calls `pay`,
which a person is asked about. A process is killed with SIGKILL `before` or `after` its Nth write,
while the person is `asked`, or after the `effect` and before its answer is recorded. Another one
resumes the run; it is killed too where a second point says so. A line of JSON for each.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ferrule import Agent, ApprovalAnswer, Limits, Permissions, Scripted, Storage, SubAgent, tool
from ferrule.core.events import (
    DelegationFinished,
    PersonAnswered,
    RunFinished,
    RunStarted,
    SessionOpened,
    ToolAnswered,
    Usage,
)
from ferrule.core.messages import Message, ToolMessage
from ferrule.engine.replay.replay import replay
from ferrule.models.scripted import Step, calls, says
from ferrule.plugins import Parts
from ferrule.storage import SqliteJournal

counted = {"writes": 0}
WHERE, AT = "", 0
LOG = Path()


def note(word: str) -> None:
    with LOG.open("a") as file:
        file.write(f"{word}\n")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@tool(side_effect="external", risk="high")
def pay(to: str) -> str:
    """Pay somebody."""
    note("paid")
    if WHERE == "effect":
        die()
    return "paid"


class Person:
    async def ask(self, request: Any) -> ApprovalAnswer:
        note(f"asked: {request.reason}")
        if WHERE == "asked":
            die()
        return ApprovalAnswer("once", by="ada")


STEPS = {
    "go": ("delegate", {"task": "plan", "agent": "boss"}),
    "plan": ("delegate", {"task": "pay Bo", "agent": "clerk"}),
    "pay Bo": ("pay", {"to": "Bo"}),
}


def answer(history: Sequence[Message]) -> Step:
    """One call, then its result in other words: whatever process is asked."""
    used = Usage(10, 1)
    last = history[-1]
    if isinstance(last, ToolMessage):
        unknown = "outcome unknown" in last.text
        return says("unknown" if unknown else f"ended ({last.success})", usage=used)
    return calls(STEPS[history[0].text], usage=used)


def make_agent(journal: Path) -> Agent[Any, Any]:
    agents = [
        SubAgent("boss", "Plans.", tools=["delegate", "pay"]),
        SubAgent("clerk", "Pays.", tools=["pay"]),
    ]
    return Agent(
        Scripted([answer] * 20),
        [pay],
        plugins=[Parts(agents=agents)],
        limits=Limits(max_tokens=1000),
        storage=Storage(journal=journal, user="ada"),
        permissions=Permissions(approver=Person()),
    )


def patch_journal() -> None:
    for name in ("append", "append_batches"):
        write = getattr(SqliteJournal, name)

        def patched(self: Any, *given: Any, write: Any = write, **more: Any) -> Any:
            counted["writes"] += 1
            if WHERE == "before" and counted["writes"] == AT:
                die()
            done = write(self, *given, **more)
            if WHERE == "after" and counted["writes"] == AT:
                die()
            return done

        setattr(SqliteJournal, name, patched)


async def work(journal: Path) -> None:
    agent = make_agent(journal)
    session = agent.session(id="outer", resume=True)
    if session.has_open_run:
        await session.resume()
    elif not session.history:
        await session.run("go")
    await session.close()


def in_child(folder: Path, where: str, at: int) -> tuple[bool, int]:
    """Run or resume in a process of its own. Return whether it was killed, and its exit code."""
    global WHERE, AT, LOG
    pid = os.fork()
    if not pid:
        code = 1
        try:
            WHERE, AT, LOG = where, at, folder / "log.txt"
            asyncio.run(work(folder / "journal.db"))
            code = 0
        finally:
            (folder / "writes.txt").write_text(str(counted["writes"]))
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.WIFSIGNALED(status), -1 if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def read_events(journal: SqliteJournal) -> dict[str, list[Any]]:
    """The events of each session, under the name of its agent."""
    found: dict[str, list[Any]] = {}
    for info in journal.sessions():
        events = [record.event for record in journal.records(info.session)]
        assert isinstance(events[0], SessionOpened)
        if len(events) > 1 or events[0].agent not in found:
            found[events[0].agent] = events
    return found


def try_point(folder: Path, *points: tuple[str, int]) -> dict[str, Any]:
    """Begin the run, have its process killed at each of these points, and finish it."""
    folder.mkdir()
    log = folder / "log.txt"
    log.touch()
    killed = [in_child(folder, where, at)[0] for where, at in points]
    with SqliteJournal(folder / "journal.db") as journal:
        before = [event for events in read_events(journal).values() for event in events]
    asked = log.read_text().count("asked")
    _, code = in_child(folder, "", 0)
    lines = log.read_text().splitlines()
    with SqliteJournal(folder / "journal.db") as journal:
        problems: list[str] = []
        for info in journal.sessions():
            journal.verify(info.session)
            problems += [str(one) for one in replay(journal.records(info.session)).differences]
        found = read_events(journal)
    last = found[""][-1]
    assert isinstance(last, RunFinished), last
    results = [one.result for one in found["clerk"] if isinstance(one, ToolAnswered)]
    return {
        "points": points,
        "killed": killed,
        "code": code,
        "problems": problems,
        "paid": lines.count("paid"),
        "was_answered": any(isinstance(event, PersonAnswered) for event in before),
        "asked_later": [line for line in lines if line.startswith("asked")][asked:],
        "says": last.text,
        "tokens": last.usage.input + last.usage.output,
        "pay": [one.error_message or one.data for one in results],
        "runs": {name: count(events, RunStarted) for name, events in found.items()},
        "ended": {name: count(events, DelegationFinished) for name, events in found.items()},
        "writes": int((folder / "writes.txt").read_text()),
    }


def count(events: list[Any], kind: type) -> int:
    return sum(isinstance(event, kind) for event in events)


def main() -> None:
    folder = Path(sys.argv[1])
    patch_journal()
    whole = try_point(folder / "whole")
    tries: list[list[tuple[str, int]]] = [[("after", at)] for at in range(1, whole["writes"] + 1)]
    tries += [[("before", 1)], [("asked", 0)], [("effect", 0)]]
    tries += [[("after", at), ("after", at)] for at in (3, 5, 8)]
    tries += [[("asked", 0), ("asked", 0)], [("asked", 0), ("effect", 0)]]
    print(json.dumps(whole), flush=True)
    for number, points in enumerate(tries):
        print(json.dumps(try_point(folder / str(number), *points)), flush=True)


if __name__ == "__main__":
    main()
