"""What agents and sessions own ends with them: closed, forgotten or collected."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule import Agent, Context, OpenAIChat, Scripted, Storage, tool
from ferrule.models.scripted import calls, says
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.http_double import HttpDouble, Reply

AGENTS = 60


def count() -> tuple[int, int, int]:
    """Return the numbers of open descriptors (sockets among them), threads and live agents."""
    gc.collect()
    agents = sum(isinstance(one, Agent) for one in gc.get_objects())
    return len(os.listdir("/proc/self/fd")), threading.active_count(), agents


@tool(side_effect="read")
def look() -> str:
    """Look, in a thread."""
    return "seen"


def script() -> Scripted:
    return Scripted([calls(("look", {})), says("end")])


def run_and_forget(journal: SqliteJournal) -> None:
    Agent(script(), [look]).run_sync("go")


def run_with_a_journal(journal: SqliteJournal) -> None:
    Agent(script(), [look], storage=Storage(journal=journal)).run_sync("go")


def leave_a_session_open(journal: SqliteJournal) -> None:
    asyncio.run(Agent(script(), [look]).session().run("go"))


def use_with(journal: SqliteJournal) -> None:
    with Agent(script(), [look], storage=Storage(journal=journal)) as agent:
        agent.run_sync("go")


def use_async_with(journal: SqliteJournal) -> None:
    async def run() -> None:
        async with Agent(script(), [look]) as agent, agent.session() as session:
            await session.run("go")

    asyncio.run(run())


def be_cancelled(journal: SqliteJournal) -> None:
    async def run() -> None:
        begun = asyncio.Event()

        @tool(side_effect="read")
        async def wait() -> str:
            """Wait for the end."""
            begun.set()
            await asyncio.Event().wait()
            return "never"

        session = Agent(Scripted([calls(("wait", {})), says("end")]), [wait]).session()
        work = asyncio.ensure_future(session.run("go"))
        await begun.wait()
        work.cancel()
        await asyncio.wait([work])

    asyncio.run(run())


USES = (
    run_and_forget,
    run_with_a_journal,
    leave_a_session_open,
    use_with,
    use_async_with,
    be_cancelled,
)


@pytest.mark.parametrize("use", USES, ids=lambda use: use.__name__)
def test_nothing_grows_with_the_number_of_agents(
    use: Callable[[SqliteJournal], None], tmp_path: Path
) -> None:
    with SqliteJournal(tmp_path / "journal.db") as journal:
        use(journal)
        before = count()
        for _ in range(AGENTS):
            use(journal)
        after = count()
    assert after == before


async def test_connections_to_a_server_do_not_outlive_their_agents() -> None:
    body = {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
        ],
    }
    async with HttpDouble(lambda request: Reply(json=body)) as server:

        async def run() -> None:
            model = OpenAIChat("m", base_url=f"{server.url}/v1", api_key="k")
            async with Agent(model) as agent:
                await agent.run("go")

        await run()
        before = count(), len(asyncio.all_tasks())
        for _ in range(AGENTS):
            await run()
        # The server's side of the last connections ends when it has read their end.
        while len(asyncio.all_tasks()) > before[1]:
            await asyncio.sleep(0)
        after = count(), len(asyncio.all_tasks())
    assert after == before


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_leaving_an_agent_closes_what_its_tools_left_open(kind: str) -> None:
    closed: list[str] = []

    @tool(side_effect="read")
    def open_it(context: Context) -> str:
        """Leave something open."""

        async def close() -> None:
            closed.append("closed")

        context.on_close(close)
        return "open"

    def make() -> Agent:
        return Agent(Scripted([calls(("open_it", {})), says("end")]), [open_it])

    async def run() -> None:
        async with make() as agent:
            session = agent.session()
            await session.run("go")
            assert closed == []

    if kind == "async":
        asyncio.run(run())
    else:
        with make() as agent:
            asyncio.run(agent.session().run("go"))
            assert closed == []
    assert closed == ["closed"]
