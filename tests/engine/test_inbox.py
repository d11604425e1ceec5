"""Words for the model on the way, and what is closed with a session: through the public API."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ferrule import Agent, Context, Scripted, Storage, tool
from ferrule.core.events import Noticed, NoticeGiven
from ferrule.core.messages import ToolMessage, UserMessage
from ferrule.engine.cleanup import Cleanup
from ferrule.engine.session_log import SessionLog
from ferrule.models.scripted import calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.journal_conformance import ME


def agent(steps: list[Any], tools: list[Any], journal: SqliteJournal | None = None) -> Agent:
    return Agent(
        Scripted(steps), tools, storage=Storage(journal=journal or SqliteJournal(":memory:"))
    )


async def test_a_tool_tells_the_model_from_a_task_of_its_own_and_from_a_thread() -> None:
    @tool(side_effect="none")
    async def start(context: Context) -> str:
        """Start something."""

        async def later() -> None:
            context.tell("from a task")

        await asyncio.create_task(later())
        thread = threading.Thread(target=context.tell, args=("from a thread",))
        thread.start()
        await asyncio.to_thread(thread.join)
        return "started"

    ours = agent([calls(("start", {})), says("ok")], [start])
    await ours.run("go")
    assert (
        ours.model_client.histories[-1][2].text
        ==
        # type: ignore[attr-defined]
        (
            'started\n<notice source="start">\nfrom a task\n</notice>\n<notice '
            'source="start">\nfrom a thread\n</notice>'
        )
    )


async def test_a_blocking_tool_tells_the_model_from_its_thread() -> None:
    @tool(side_effect="none")
    def start(context: Context) -> str:
        """Start something."""
        context.tell("half way")
        return "started"

    ours = agent([calls(("start", {})), says("ok")], [start])
    await ours.run("go")
    assert "half way" in ours.model_client.histories[-1][2].text  # type: ignore[attr-defined]


async def test_a_persons_words_reach_the_model_with_the_next_question() -> None:
    running, go_on = asyncio.Event(), asyncio.Event()

    @tool(side_effect="none")
    async def work() -> str:
        """Work."""
        running.set()
        await asyncio.wait_for(go_on.wait(), 5)
        return "worked"

    ours = agent([calls(("work", {})), says("ok")], [work])
    session = ours.session()
    task = asyncio.create_task(session.run("go"))
    await asyncio.wait_for(running.wait(), 5)
    session.tell("use tabs")
    go_on.set()
    await task
    told = ours.model_client.histories[-1][-2:]  # type: ignore[attr-defined]
    assert [type(message) for message in told] == [ToolMessage, UserMessage]
    assert [message.text for message in told] == ["worked", "use tabs"]


async def test_words_between_runs_are_journaled_and_wait_also_across_a_restart() -> None:
    journal = SqliteJournal(":memory:")
    kept: list[Callable[[str], None]] = []

    @tool(side_effect="none")
    async def start(context: Context) -> str:
        """Start something."""
        kept.append(context.tell)
        return "started"

    session = agent([calls(("start", {})), says("ok")], [start], journal).session()
    await session.run("go")
    kept[0]("the job ended")
    await session.close()
    given = [e for r in journal.records(session.id) if isinstance(e := r.event, NoticeGiven)]
    assert given == [NoticeGiven("the job ended", "start")]
    later = agent([says("I see")], [start], journal)
    await later.resume(session.id).run("more")
    assert later.model_client.histories[0][-1].text == (  # type: ignore[attr-defined]
        '<notice source="start">\nthe job ended\n</notice>\n\nmore'
    )


# ---- what is closed with a session


def opening(log: list[str], *closers: Callable[[], Awaitable[None]]) -> Any:
    @tool(side_effect="none")
    async def open_it(context: Context) -> str:
        """Open something."""
        for closer in closers:
            context.on_close(closer)
        log.append("opened")
        return "open"

    return open_it


@pytest.mark.proves("session.closers")
@pytest.mark.parametrize("by", ["session", "agent", "run"])
async def test_what_a_tool_opened_is_closed_once_and_last_opened_first(by: str) -> None:
    log: list[str] = []

    async def first() -> None:
        log.append("first")

    async def second() -> None:
        log.append("second")

    ours = agent([calls(("open_it", {})), says("ok")], [opening(log, first, second)])
    if by == "run":
        await ours.run("go")
    else:
        session = ours.session()
        await session.run("go")
        assert log == ["opened"]
        await (session.close() if by == "session" else ours.close())
        await session.close()
    await ours.close()
    assert log == ["opened", "second", "first"]


async def test_a_closer_that_fails_is_said_and_the_others_run_all_the_same() -> None:
    log: list[str] = []
    journal = SqliteJournal(":memory:")

    async def fine() -> None:
        log.append("closed")

    async def broken() -> None:
        raise OSError("it is stuck")

    session = agent(
        [calls(("open_it", {})), says("ok")], [opening(log, fine, broken)], journal
    ).session()
    await session.run("go")
    await session.close()
    said = [e for r in journal.records(session.id) if isinstance(e := r.event, Noticed)]
    assert log == ["opened", "closed"]
    assert said == [Noticed("close", "something could not be closed: OSError: it is stuck")]


async def test_a_closer_that_never_ends_is_left_after_its_time_and_said() -> None:
    journal, unclosed = SqliteJournal(":memory:"), set[Cleanup]()
    log = SessionLog(journal, ME)
    log.is_recorded = True
    closers = Cleanup(log, unclosed, seconds=0.01)
    ran: list[str] = []

    async def never_begun() -> None:
        ran.append("never begun")

    async def endless() -> None:
        await asyncio.Event().wait()

    closers.add(never_begun)
    closers.add(endless)
    assert unclosed == {closers}
    await closers.run()
    (record,) = journal.records(ME.session)
    assert record.event == Noticed(
        "close", "something did not end within 0.01 s and was left; 1 more were not begun"
    )
    assert (ran, unclosed) == ([], set())
