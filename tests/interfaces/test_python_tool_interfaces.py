"""A project's Python tools are there at every interface of the command line once its folder is trusted,
and at none before.

`tools.py` is the one that `ferrule init` makes, with a line more that leaves a mark where it is
run. An interface is asked as whoever stands before it asks: a command line, a message that makes the
model call, a client's own call.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from ferrule.cli.init.project import project_files
from ferrule.cli.terminal_agent import assemble_at_terminal
from ferrule.runtime.assemble import assemble
from ferrule.storage import paths
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.trust import TrustStore

ARGUMENTS = {"item": "coffee", "count": 4321}
PRICE = "12098.8"
"""What the tool answers, and nothing else prints."""
HINT = "has no effect; `ferrule trust` shows it"
TOKEN = "a-token-that-is-long-enough"

Options = dict[str, Any]
Told = list[str]


async def chat(options: Options, told: Told) -> None:
    """What a line comes to there; the terminal itself is that of `test_chat`."""
    assembly = assemble_at_terminal(options)
    session = assembly.open_session(None)
    try:
        await session.run("go")
    finally:
        await assembly.close(session)


async def acp(options: Options, told: Told) -> None:
    from ferrule.servers.acp.conversation import open_conversation
    from ferrule.servers.acp.session_sources import SettingsSource

    class Editor:
        async def update(self, session: str, update: Any) -> None:
            told.append(str(update))

        async def request(self, method: str, params: Any) -> Any:
            raise AssertionError(f"asked for {method}")

    conversation = await open_conversation(
        SettingsSource(options), Editor(), folder=".", servers={}
    )
    try:
        await conversation.prompt("go")
    finally:
        await conversation.close()


async def console(options: Options, told: Told) -> None:
    import httpx

    from ferrule.console.app import make_app
    from ferrule.console.setup import build_console, close_console
    from ferrule.runtime.http.http_security import Visitor

    made = build_console(options, told.append)
    app = make_app(made)

    async def owner(scope: Any, receive: Any, send: Any) -> None:
        scope.setdefault("state", {})["visitor"] = Visitor("owner", True, "local", csrf="x")
        await app(scope, receive, send)

    try:
        transport = httpx.ASGITransport(app=owner)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1:8000"
        ) as browser:
            fields = {"tool": "price", "more": json.dumps(ARGUMENTS)}
            answer = await browser.post("/tools/try", data=fields, follow_redirects=True)
            told.append(answer.text)
    finally:
        await close_console(made)


async def mcp(options: Options, told: Told) -> None:
    from mcp.client.client import Client
    from mcp.shared.memory import create_client_server_memory_streams

    from ferrule.servers.mcp import McpServer

    assembly = assemble(options, notice=told.append)
    server = McpServer(assembly.agent, name="demo")
    async with create_client_server_memory_streams() as (ours, theirs):
        task = asyncio.create_task(server.connect(*theirs))

        class Streams:
            async def __aenter__(self) -> Any:
                return ours

            async def __aexit__(self, *_: object) -> None:
                return None

        try:
            async with Client(cast("Any", Streams()), mode="2026-07-28") as client:
                told.append(f"listed: {[one.name for one in (await client.list_tools()).tools]}")
                if "'price'" in told[-1]:
                    told.append(str(await client.call_tool("price", ARGUMENTS)))
        finally:
            for stream in ours:
                await stream.aclose()
            await task
            await server.close()
            await assembly.close(strict=False)


async def _posted(app: Any, path: str, body: Any, **headers: str) -> str:
    import httpx

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:8000"
    ) as client:
        answer = await client.post(
            path, json=body, headers={"authorization": f"Bearer {TOKEN}", **headers}
        )
    assert answer.status_code == 200, answer.text
    return answer.text


async def openai(options: Options, told: Told) -> None:
    from ferrule.servers.openai.server import OpenAiServer

    assembly = assemble(options, notice=told.append)
    server = OpenAiServer(assembly, token=TOKEN, port=8000)
    message = {"model": "ferrule", "messages": [{"role": "user", "content": "go"}]}
    try:
        told.append(await _posted(server.app, "/v1/chat/completions", message))
    finally:
        await server.close()
        await assembly.close(strict=False)


async def a2a(options: Options, told: Told) -> None:
    from ferrule.servers.a2a.server import RPC_PATH, A2aServer, Skill

    assembly = assemble(options, notice=told.append)
    server = A2aServer(
        assembly.agent,
        name="Demo",
        description="Demo.",
        token=TOKEN,
        port=8000,
        skills=[Skill("find", "Find", "Finds.", ("x",))],
    )
    message = {"role": "ROLE_USER", "messageId": "m1", "parts": [{"text": "go"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    try:
        told.append(await _posted(server.app, RPC_PATH, body, **{"a2a-version": "1.0"}))
    finally:
        await server.close()
        await assembly.close(strict=False)


NEEDS = {
    "console": "jinja2",
    "mcp": "mcp",
    "openai": "starlette",
    "a2a": "a2a",
    "acp": "json",
    "chat": "rich",
}
INTERFACES: dict[str, Callable[[Options, Told], Awaitable[None]]] = {
    "chat": chat, "console": console, "mcp": mcp, "openai": openai, "a2a": a2a, "acp": acp,
}  # fmt: skip
COMMANDS = {
    "run": ("run", "go"),
    "tools list": ("tools", "list"),
    "tools show": ("tools", "show", "price"),
    "tools call": ("tools", "call", "price", "item=coffee", "count=4321"),
}


@pytest.fixture
def project(folder: Path) -> Path:
    """What `ferrule init` writes, in the current folder, and a mark that `tools.py` leaves beside
    that.
    """
    for name, text in project_files("work").items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    with Path("tools.py").open("a") as file:
        file.write(
            "\nPath(__file__).parent.parent.joinpath('mark').touch()\nprint('it is imported')\n"
        )
    return folder.parent / "mark"


@pytest.fixture
def model(script: Any, a_call: Any) -> str:
    return script(a_call("price", **ARGUMENTS), {"say": "done"})


def journaled() -> str:
    """All that the person's journal holds."""
    if not paths.default_journal().exists():
        return ""
    with SqliteJournal(paths.default_journal()) as journal:
        return "".join(
            one.body for info in journal.sessions() for one in journal.records(info.session)
        )


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "untrusted"])
@pytest.mark.parametrize("interface", INTERFACES)
async def test_a_projects_python_tool_works_at_every_interface_once_it_is_trusted_and_is_not_run_before(
    interface: str, trusted: bool, project: Path, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if importlib.util.find_spec(NEEDS[interface]) is None:
        pytest.skip("its extra is not installed here")
    if trusted:
        TrustStore().trust(".")
    told: Told = []
    await INTERFACES[interface]({"model": model, "workspace": "."}, told)
    said = "".join([*told, *capsys.readouterr(), journaled()])
    assert project.exists() == trusted
    assert (PRICE in said) == trusted, said
    assert (HINT in " ".join(said.split())) != trusted, said


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "untrusted"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_projects_python_tool_is_there_for_commands_once_it_is_trusted_and_is_not_run_before(
    command: str, trusted: bool, project: Path, model: str, ferrule: Any
) -> None:
    if trusted:
        TrustStore().trust(".")
    ran = ferrule(*COMMANDS[command], *(("-m", model) if command == "run" else ()))
    assert project.exists() == trusted
    assert "it is imported" not in ran.out, "what it prints is no answer of a command"
    found = PRICE in ran.out + journaled() or "\nprice " in ran.out or "(file tools.py;" in ran.out
    assert found == trusted, ran
    assert (HINT in " ".join(ran.err.split())) != trusted, ran.err
