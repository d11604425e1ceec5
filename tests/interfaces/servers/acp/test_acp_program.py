"""A program's own agent for the editor that starts the program."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import acp
import pytest

from ferrule import Agent, Permissions, Scripted, Storage, tool
from ferrule.models.scripted import calls, says
from ferrule.servers.acp.agent import AcpAgent
from ferrule.servers.acp.peer import RequestRefused
from ferrule.servers.acp.session_sources import ProgramSource
from ferrule.storage import SqliteJournal

PROGRAM = """
from ferrule import Agent, Scripted, tool
from ferrule.models.scripted import calls, says
from ferrule.servers import AcpServer

@tool
def shelf(book: str) -> str:
    "Say where a book is."
    print("this is not a message")
    return "third"

AcpServer(Agent(Scripted([calls(("shelf", {"book": "Emma"})), says("On the third.")]), [shelf])).run_sync()
"""


class Editor:
    """Keeps what it is shown, and gives the same answer to every question."""

    def __init__(self, answer: str = "once") -> None:
        self.shown: list[Any] = []
        self.asked: list[Mapping[str, Any]] = []
        self.answer = answer

    async def update(self, session: str, update: Any) -> None:
        self.shown.append(dict(update))

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        self.asked.append(params)
        return {"outcome": {"outcome": "selected", "optionId": self.answer}}


@tool(side_effect="external", risk="high")
def order(book: str) -> str:
    """Order a book."""
    return f"{book} is ordered"


async def open_session(agent: Agent[Any, Any], editor: Editor, folder: Path, **more: Any) -> Any:
    server = AcpAgent(ProgramSource(agent), editor)
    await server.handle("initialize", {"protocolVersion": 1})
    opened = await server.handle("session/new", {"cwd": str(folder), "mcpServers": [], **more})
    return server, opened


async def prompt(server: AcpAgent, session: str) -> str:
    asked = {"sessionId": session, "prompt": [{"type": "text", "text": "go"}]}
    return str((await server.handle("session/prompt", asked))["stopReason"])


async def test_questions_go_to_the_editor_and_sessions_are_in_the_programs_journal(
    tmp_path: Path,
) -> None:
    script = [calls(("order", {"book": "Emma"})), says("Ordered."), says("Yes?"), says("More.")]
    with SqliteJournal(tmp_path / "kept.db") as journal:
        agent = Agent(Scripted(script), [order], storage=Storage(journal=journal, user="ada"))
        editor = Editor()
        server, opened = await open_session(agent, editor, tmp_path)
        session = opened["sessionId"]
        assert await prompt(server, session) == "end_turn"
        assert len(editor.asked) == 1 and "Emma is ordered" in str(editor.shown)
        listed = await server.handle("session/list", {"cwd": str(tmp_path)})
        assert [(one["sessionId"], one["cwd"]) for one in listed["sessions"]] == [
            (session, str(tmp_path))
        ]
        await server.handle("session/close", {"sessionId": session})
        where = {"cwd": str(tmp_path), "mcpServers": [], "sessionId": session}
        await server.handle("session/load", where)
        assert await prompt(server, session) == "end_turn"
        await server.close()
        assert journal.find(session).user == "ada"
        # The agent stays the program's.
        async with agent.session(id=session, resume=True) as later:
            assert (await later.run("more")).text == "More."


async def test_the_workspace_is_the_only_folder_and_only_the_agents_model_is_offered(
    tmp_path: Path,
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    agent = Agent(Scripted([says("fine")]), workspace=here, permissions=Permissions(mode="plan"))
    with pytest.raises(RequestRefused, match="another folder"):
        await open_session(agent, Editor(), tmp_path)
    server, opened = await open_session(agent, Editor(), here)
    options = {one["id"]: one for one in opened["configOptions"]}
    assert options["mode"]["currentValue"] == "plan"
    assert [one["value"] for one in options["model"]["options"]] == [agent.model]
    await server.close()


async def test_servers_of_the_editor_are_named_as_unused(tmp_path: Path) -> None:
    editor = Editor()
    given = [{"name": "files", "command": "x", "args": [], "env": []}]
    agent = Agent(Scripted([says("fine")]))
    server, opened = await open_session(agent, editor, tmp_path, mcpServers=given)
    assert opened["_meta"]["ferrule/notices"] == [
        "the MCP servers of the editor are not used (`files`)"
    ]
    assert await prompt(server, opened["sessionId"]) == "end_turn"
    assert "`files`" in str(editor.shown[0])
    await server.close()


async def test_an_editor_starts_the_program(tmp_path: Path) -> None:
    class Client:
        shown: str = ""

        async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
            self.shown += update.model_dump_json()

        async def request_permission(
            self, session_id: str, tool_call: Any, options: Any, **more: Any
        ) -> Any:
            outcome = {"outcome": "selected", "optionId": options[0].option_id}
            return acp.RequestPermissionResponse.model_validate({"outcome": outcome})

        def on_connect(self, conn: Any) -> None:
            """There is nothing to prepare."""

    client: Any = Client()
    started = acp.spawn_agent_process(client, sys.executable, "-c", PROGRAM)
    async with asyncio.timeout(60), started as (agent, process):
        await agent.initialize(protocol_version=1)
        opened = await agent.new_session(cwd=str(tmp_path), mcp_servers=[])
        blocks = [acp.text_block("where?")]
        answered = await agent.prompt(session_id=opened.session_id, prompt=blocks)
        assert answered.stop_reason == "end_turn" and "On the third." in client.shown
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
