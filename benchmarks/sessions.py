"""Long sessions and recordings: what they cost to open, list, go on with, verify, export and
replay.

    python benchmarks/sessions.py                    # sessions of 2,500, 5,000 and 10,000 events
    python benchmarks/sessions.py replays [200]      # so many runs of the real local model, recorded, then replayed offline

The first form is part of `make lab NAME=bench`. A figure is the best of three; what counts is that twice the
events take twice the time, shown as the ratio of milliseconds per event between the longest and the
shortest session.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SIZES = (2_500, 5_000, 10_000)
EVENTS_PER_RUN = 6
FILES = {
    "README.md": "# Lighthouse\n\nport: 8080\n",
    "src/lamp.py": "def light() -> str:\n    return 'on'\n",
}


def echo(text: str) -> str:
    """Say it again."""
    return f"{text} " * 20


async def made(folder: Path, size: int) -> tuple[Any, str]:
    """An agent whose journal holds a session of about so many events, and its id."""
    from ferrule import Agent, Permissions, Storage
    from ferrule.core.limits import Limits
    from ferrule.models.scripted import Scripted, calls, says
    from ferrule.tools.decorator import tool

    runs = size // EVENTS_PER_RUN
    steps = [
        step
        for n in range(runs + 2)
        for step in (calls(("echo", {"text": f"word {n}"})), says(f"said {n}"))
    ]
    agent = Agent(
        Scripted(steps),
        [tool(side_effect="read")(echo)],
        permissions=Permissions(allow=["echo"]),
        storage=Storage(journal=folder / f"{size}.db", user="bench"),
        limits=Limits(),
    )
    session = agent.session()
    for n in range(runs):
        await session.run(f"say word {n}")
    await session.close()
    return agent, session.id


async def figures(folder: Path, size: int) -> dict[str, float]:
    """Milliseconds of each operation on a session of that size, and how many events it has."""
    from ferrule.engine.replay.replay import replay
    from ferrule.storage.export.jsonl import export_jsonl
    from ferrule.storage.export.transcripts import write_markdown

    agent, session = await made(folder, size)
    journal = agent.journal
    events = journal.head(session)[0]

    async def gone_on() -> None:
        opened = agent.resume(session)
        await opened.run("once more")
        await opened.close()

    async def opened() -> None:
        await agent.resume(session).close()

    def checked() -> None:
        assert replay(journal.records(session)).same

    found = {
        "open": await best(opened),
        "list": await best(journal.sessions),
        "open, one more run": await best(gone_on, 2),
        "verify": await best(lambda: journal.verify(session)),
        "replay": await best(checked),
        "export .jsonl": await best(lambda: sum(map(len, export_jsonl(journal.records(session))))),
        "export .md": await best(lambda: sum(map(len, write_markdown(journal.records(session))))),
    }
    await agent.close()
    journal.close()
    return {**found, "events": float(events)}


async def best(work: Callable[[], Any], repeats: int = 3) -> float:
    """Milliseconds of this process on a core, the best of a few: waiting for a disk is not in
    it.
    """
    times: list[float] = []
    for _ in range(repeats):
        started = time.process_time()
        done = work()
        if asyncio.iscoroutine(done):
            await done
        times.append((time.process_time() - started) * 1000)
    return min(times)


async def measured() -> list[tuple[str, str, str, str]]:
    """Rows of `make lab NAME=bench`: figure, value, beside, aim."""
    with tempfile.TemporaryDirectory(prefix="ferrule-sessions-") as folder:
        os.environ.setdefault("FERRULE_STATE", f"{folder}/state")
        found = [await figures(Path(folder), size) for size in SIZES]
    rows: list[tuple[str, str, str, str]] = []
    short, long = found[0], found[-1]
    sizes = " / ".join(f"{one['events']:,.0f}" for one in found)
    for name in short:
        if name == "events":
            continue
        ratio = (long[name] / long["events"]) / (short[name] / short["events"])
        value = " / ".join(f"{one[name]:.1f}" for one in found)
        label = f"session of {sizes} events: {name}, ms"
        rows.append((label, value, f"per event, longest to shortest: {ratio:.2f}", "<= 1.3"))
    return rows


async def replays(count: int) -> int:
    """Record runs of the real model over the tasks of the evaluation, replay them; 1 if one comes
    out otherwise.
    """
    from ferrule import Agent, Permissions, Storage
    from ferrule.engine.replay.replay import replay
    from ferrule.engine.replay.what_if import what_if
    from ferrule.permissions.rule_evaluation import PermissionGate
    from ferrule.permissions.rules import RuleSet
    from ferrule.storage.audit.past_calls import read_past_calls
    from ferrule.toolkits import clock
    from ferrule.toolkits.files import browse, tools
    from ferrule.toolkits.search import search_files

    questions = [
        task["request"]
        for task in yaml.safe_load((HERE.parent / "evals" / "tasks.yaml").read_text())
    ]
    with tempfile.TemporaryDirectory(prefix="ferrule-replays-") as name:
        folder = Path(name)
        work = folder / "work"
        for path, text in FILES.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
        agent = Agent(
            "local:smollm2",
            [*tools.TOOLS, *browse.TOOLS, *search_files.TOOLS, *clock.TOOLS],
            workspace=work,
            permissions=Permissions(allow=["Read(**)", "Edit(**)"]),
            storage=Storage(journal=folder / "journal.db", user="bench"),
        )
        started = time.perf_counter()
        for number in range(count):
            try:
                await agent.run(questions[number % len(questions)])
            except Exception as error:
                print(f"  run {number}: {type(error).__name__}: {error}")
        recorded = time.perf_counter() - started
        journal = agent.journal
        await agent.close()
        sessions = journal.sessions()
        started = time.perf_counter()
        outcomes = [replay(journal.records(info.session)) for info in sessions]
        replayed = time.perf_counter() - started
        same = sum(one.same and not one.unproven for one in outcomes)
        events = sum(one.events for one in outcomes)
        print(
            f"recorded {len(sessions)} runs of {agent.model}, {events} events, in {recorded:.0f} s"
        )
        print(
            f"replayed in {replayed * 1000:.0f} ms: {same} of {len(outcomes)} byte for byte "
            "the same, no model, no tool"
        )
        started = time.perf_counter()
        strict = PermissionGate(RuleSet.parse(deny=["Edit(**)"]), root=work)
        judged = list(what_if(read_past_calls(journal), lambda _: strict, agent.catalog))
        stopped = sum(one.stricter for one in judged)
        print(
            f"another policy over {len(judged)} calls in "
            f"{(time.perf_counter() - started) * 1000:.0f} ms: "
            f"{stopped} that ran would have been stopped"
        )
        for one in outcomes:
            for difference in one.differences:
                print(f"  {one.session[:12]} {difference}")
        journal.close()
        return int(same != len(outcomes))


if __name__ == "__main__":
    if sys.argv[1:2] == ["replays"]:
        raise SystemExit(asyncio.run(replays(int(sys.argv[2]) if len(sys.argv) > 2 else 200)))
    for cells in asyncio.run(measured()):
        print("  ".join(cells))
