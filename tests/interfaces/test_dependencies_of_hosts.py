"""`Host(make_deps=...)` is honoured by every host that runs an agent of a program."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from ferrule import Agent, Context, Host, Identity, Scripted, Storage, tool
from ferrule.engine.distributed.job_run import run_job
from ferrule.evaluation import EvaluationOptions, Target, evaluate, load_cases, open_agents
from ferrule.jobs import Job
from ferrule.models.scripted import calls, says
from ferrule.servers import A2aServer
from ferrule.servers.a2a.server import RPC_PATH
from ferrule.servers.acp.agent import AcpAgent
from ferrule.servers.acp.session_sources import ProgramSource
from ferrule.storage import SqliteJournal
from ferrule.web import (
    MountableApp,
    Principal,
    create_ag_ui_endpoint,
    create_console,
    create_mcp_endpoint,
    create_openai_endpoint,
)

ADDRESS = "https://app.example.org"
TOKEN = "a-token-that-is-long-enough"


@tool
def whose(context: Context[str]) -> str:
    """Say whose run this is."""
    return f"made for {context.deps}"


CALL_WHOSE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "whose",
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
ASK_AG_UI: dict[str, Any] = {
    "threadId": "t",
    "runId": "r",
    "state": {},
    "messages": [{"id": "1", "role": "user", "content": "whose?"}],
    "tools": [],
    "context": [],
    "forwardedProps": {},
}


class Office:
    """An agent whose dependencies are made for each run, and what its model was answered."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.made_for: list[Identity] = []

    async def make_deps(self, identity: Identity) -> str:
        await asyncio.sleep(0)
        self.made_for.append(identity)
        return identity.user

    def answer(self, history: Any) -> Any:
        self.read.append(str(history[-1]))
        return says("fine")

    def agent(self, storage: Storage | None = None) -> Agent[str, str]:
        return Agent(
            Scripted([calls(("whose", {})), self.answer]),
            [whose],
            deps_type=str,
            host=Host(make_deps=self.make_deps),
            storage=storage or Storage(user="ada"),
        )


def identify(request: Request) -> Principal | None:
    return Principal(request.headers["x-user"], operator=True)


@asynccontextmanager
async def client_of(app: Any) -> Any:
    transport = httpx.ASGITransport(app=Starlette(routes=[Mount("/x", app)]))
    headers = {"x-user": "ada"}
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS, headers=headers) as client:
        yield client


def post(create: Callable[..., MountableApp], path: str, body: Any, **headers: str) -> Any:
    async def ask(office: Office, folder: Path) -> str:
        app = create(office.agent(), address=ADDRESS, identify=identify)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with app, client_of(app) as client:
            answered = await client.post(f"/x{path}", json=body, headers=named)
        assert answered.status_code == 200, answered.text
        return str(answered.text)

    return ask


async def ask_console(office: Office, folder: Path) -> str:
    app = create_console(office.agent(), address=ADDRESS, identify=identify)
    async with app, client_of(app) as client:
        page = (await client.get("/x/playground")).text
        token = re.search(r'<meta name="csrf" content="([^"]+)"', page)
        assert token is not None
        sent = {"text": "whose?", "model": "scripted:test", "mode": "default", "csrf": token[1]}
        led = await client.post("/x/playground", data=sent, headers={"origin": ADDRESS})
        assert led.status_code == 303, led.text
        async with asyncio.timeout(30):
            while not office.read:
                await asyncio.sleep(0.01)
    return ""


async def ask_a2a(office: Office, folder: Path) -> str:
    server = A2aServer(office.agent(), name="Office", description="Knows.", token=TOKEN)
    message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"text": "whose?"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    headers = {"authorization": f"Bearer {TOKEN}", "a2a-version": "1.0"}
    transport = httpx.ASGITransport(app=server.app)
    async with server, httpx.AsyncClient(transport=transport, base_url=server.url) as client:
        answered = await client.post(RPC_PATH, json=body, headers=headers)
        assert answered.status_code == 200, answered.text
    return answered.text


class Editor:
    """An editor that shows nothing and approves of everything."""

    async def update(self, session: str, update: Any) -> None:
        """Take an update."""

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        return {"outcome": {"outcome": "selected", "optionId": params["options"][0]["optionId"]}}


async def ask_acp(office: Office, folder: Path) -> str:
    server = AcpAgent(ProgramSource(office.agent()), Editor())
    await server.handle("initialize", {"protocolVersion": 1})
    opened = await server.handle("session/new", {"cwd": str(folder), "mcpServers": []})
    prompt = [{"type": "text", "text": "whose?"}]
    asked = {"sessionId": opened["sessionId"], "prompt": prompt}
    answered = await server.handle("session/prompt", asked)
    await server.close()
    assert answered["stopReason"] == "end_turn"
    return ""


async def work_job(office: Office, folder: Path) -> str:
    job = Job("whose?", user="ada").with_name()

    def make(job: Job, journal: Any) -> Agent[Any, Any]:
        return office.agent(Storage(journal=journal, tenant=job.tenant, user=job.user))

    with SqliteJournal(folder / "jobs.db") as journal:
        outcome = await run_job(job, journal, make)
    assert outcome["stop"] == "done", outcome
    return ""


async def evaluate_case(office: Office, folder: Path) -> str:
    (folder / "cases.yaml").write_text("cases: [{name: asks, message: whose?}]")
    open_agent = open_agents(lambda trial: office.agent(Storage(journal=trial.journal, user="ada")))
    cases = load_cases(folder / "cases.yaml")
    report = await evaluate(cases, [Target("scripted:test")], open_agent, EvaluationOptions())
    assert report.holds
    return ""


async def run_directly(office: Office, folder: Path) -> str:
    return (await office.agent().run("whose?")).text


HOSTS: Mapping[str, Callable[[Office, Path], Awaitable[str]]] = {
    "program": run_directly,
    "worker": work_job,
    "evaluation": evaluate_case,
    "mcp": post(
        create_mcp_endpoint,
        "/mcp",
        CALL_WHOSE,
        accept="application/json, text/event-stream",
        mcp_protocol_version="2026-07-28",
        mcp_method="tools/call",
        mcp_name="whose",
    ),
    "openai": post(
        create_openai_endpoint,
        "/v1/chat/completions",
        {"model": "ferrule", "messages": [{"role": "user", "content": "whose?"}]},
    ),
    "ag-ui": post(create_ag_ui_endpoint, "/run", ASK_AG_UI, accept="text/event-stream"),
    "a2a": ask_a2a,
    "acp": ask_acp,
    "console": ask_console,
}


@pytest.mark.parametrize("host", HOSTS)
async def test_each_host_has_the_dependencies_of_a_run_made(host: str, tmp_path: Path) -> None:
    office = Office()
    shown = await HOSTS[host](office, tmp_path)
    assert "made for ada" in "".join((shown, *office.read))
    assert [identity.user for identity in office.made_for] == ["ada"]
