"""The console and the endpoints inside another application, under that one's own sign-in."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from ferrule import Agent, ConfigError, HookBlocked, Scripted, Storage, tool
from ferrule.hooks import block, hook
from ferrule.models.scripted import calls, says
from ferrule.servers.a2a.conversations import describe_failure
from ferrule.web import (
    Folder,
    MountableApp,
    Principal,
    create_ag_ui_endpoint,
    create_console,
    create_mcp_endpoint,
    create_openai_endpoint,
)

ADDRESS = "https://app.example.org"
LINKS = re.compile(r'(?:href|src|action|hx-get|hx-post|data-stream)="([^"]*)"')
SHOWN = ("/runs", "/playground", "/tools", "/events", "/artifacts", "/policy", "/audit", "/costs")


def identify(request: Request) -> Principal | None:
    user = request.headers.get("x-user")
    return Principal(user, operator=user == "root") if user else None


@tool(side_effect="write")
def send_mail(to: str) -> str:
    """Send a mail.

    Args:
        to: The address.
    """
    return f"sent to {to}"


def make_agent(*steps: Any, journal: Path | None = None) -> Agent[Any, Any]:
    storage = Storage(journal=None if journal is None else str(journal), user="host")
    return Agent(Scripted(steps), [send_mail], storage=storage)


@asynccontextmanager
async def mounted(app: MountableApp, path: str = "/console") -> AsyncIterator[httpx.AsyncClient]:
    """A client of a host application in which `app` is mounted and open."""
    host = Starlette(routes=[Mount(path, app)])
    transport = httpx.ASGITransport(app=host)
    async with app, httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        yield client


def console_of(agent: Agent[Any, Any], **more: Any) -> MountableApp:
    return create_console(agent, address=ADDRESS, identify=identify, **more)


def csrf_of(page: str) -> str:
    found = re.search(r'<meta name="csrf" content="([^"]+)"', page)
    assert found is not None
    return found[1]


# ---- the console


async def test_links_forms_and_redirects_lead_to_where_the_console_is_mounted(
    tmp_path: Path,
) -> None:
    agent = make_agent(
        calls(("send_mail", {"to": "ines"}, "c1")), says("Done."), journal=tmp_path / "j.db"
    )
    await agent.run("Write to Ines.")
    (past,) = agent.journal.sessions()
    root = {"x-user": "root"}
    async with mounted(console_of(agent), "/inside/console") as client:
        home = await client.get("/inside/console/", headers=root)
        assert home.status_code == 303 and home.headers["location"] == "/inside/console/runs"
        more = [
            f"/runs/{past.session}",
            "/tools/tool?name=send_mail",
            f"/audit?session={past.session}",
        ]
        for path in (*SHOWN, *more):
            page = await client.get(f"/inside/console{path}", headers=root)
            assert page.status_code == 200, path
            links = [
                link for link in LINKS.findall(page.text) if not link.startswith(("#", "http"))
            ]
            assert len(links) > 10
            assert [link for link in links if not link.startswith("/inside/console/")] == []
            assert 'data-root="/inside/console"' in page.text and "Sign out" not in page.text
        current = re.findall(r'href="([^"]+)"[^>]*aria-current="page"', page.text)
        assert "/inside/console/audit" in current
        style = await client.get("/inside/console/static/console.css")
        assert style.status_code == 200


async def test_what_is_sent_from_a_page_leads_back_to_the_mounted_console() -> None:
    async with mounted(console_of(make_agent(says("Hello.")))) as client:
        ada = {"x-user": "ada"}
        page = (await client.get("/console/playground", headers=ada)).text
        form = {"text": "Hi.", "csrf": csrf_of(page)}
        begun = await client.post("/console/playground", data=form, headers=ada)
        assert begun.status_code == 303
        assert begun.headers["location"].startswith("/console/runs/")
        form["hx"] = ""
        swapped = await client.post(
            "/console/playground", data=form, headers={**ada, "hx-request": "true"}
        )
        assert swapped.headers.get("hx-redirect", "/console/").startswith("/console/")


async def test_a_form_without_its_senders_csrf_token_changes_nothing() -> None:
    agent = make_agent(says("Hello."))
    async with mounted(console_of(agent)) as client:
        of_bo = csrf_of((await client.get("/console/playground", headers={"x-user": "bo"})).text)
        for token in ("", of_bo):
            form = {"text": "Hi.", "csrf": token}
            sent = await client.post("/console/playground", data=form, headers={"x-user": "ada"})
            assert sent.status_code == 403 and "CSRF" in sent.text
    assert agent.journal.sessions() == []


async def test_people_see_their_own_sessions_and_an_operator_sees_all(tmp_path: Path) -> None:
    agent = make_agent(says("Hello Ada."), says("Hello Bo."), journal=tmp_path / "j.db")
    async with mounted(console_of(agent)) as client:
        for user in ("ada", "bo"):
            who = {"x-user": user}
            page = (await client.get("/console/playground", headers=who)).text
            form = {"text": f"I am {user}.", "csrf": csrf_of(page)}
            assert (await client.post("/console/playground", data=form, headers=who)).is_redirect
        seen = {
            user: (await client.get("/console/runs", headers={"x-user": user})).text
            for user in ("ada", "bo", "root")
        }
    assert "I am ada." in seen["ada"] and "I am bo." not in seen["ada"]
    assert "I am bo." in seen["bo"] and "I am ada." not in seen["bo"]
    assert "I am ada." in seen["root"] and "I am bo." in seen["root"]


async def test_nobody_is_sent_to_the_sign_in_of_the_host_application() -> None:
    page = {"accept": "text/html"}
    async with mounted(console_of(make_agent(), sign_in="/account/login")) as client:
        sent = await client.get("/console/runs", headers=page)
        assert sent.status_code == 303 and sent.headers["location"] == "/account/login"
        assert (await client.get("/console/login", headers=page)).status_code == 303
        assert (await client.get("/console/stream")).status_code == 401
    async with mounted(console_of(make_agent())) as client:
        assert (await client.get("/console/runs", headers=page)).status_code == 401


# ---- all of them

MAKERS: dict[str, tuple[Any, str]] = {
    "console": (create_console, "/playground"),
    "ag-ui": (create_ag_ui_endpoint, "/run"),
    "openai": (create_openai_endpoint, "/v1/chat/completions"),
    "mcp": (create_mcp_endpoint, "/mcp"),
}
REFUSED: dict[str, tuple[int, dict[str, str]]] = {
    "another host": (421, {"host": "evil.example"}),
    "another port": (421, {"host": "app.example.org:8443"}),
    "a page of another site": (403, {"origin": "https://evil.example"}),
    "a page in the clear": (403, {"origin": "http://app.example.org"}),
    "a page of no site": (403, {"origin": "null"}),
    "a link of another site": (403, {"sec-fetch-site": "cross-site"}),
    "a form": (403, {"content-type": "application/x-www-form-urlencoded"}),
    "a text": (403, {"content-type": "text/plain"}),
    "nobody": (401, {"x-user": ""}),
    "a bearer token of nobody": (401, {"x-user": "", "authorization": "Bearer " + "x" * 40}),
}


@pytest.mark.parametrize("attack", REFUSED)
@pytest.mark.parametrize("name", MAKERS)
async def test_the_guard_stays_in_front_of_each(name: str, attack: str) -> None:
    maker, path = MAKERS[name]
    status, headers = REFUSED[attack]
    agent = make_agent(says("Hello."))
    app = maker(agent, address=ADDRESS, identify=identify)
    sent = {"x-user": "ada", "content-type": "application/json", **headers}
    body = '{"threadId": "t", "runId": "r", "messages": []}'
    async with mounted(app, "/here") as client:
        answer = await client.post(f"/here{path}", content=body, headers=sent)
    assert answer.status_code == status, answer.text
    assert agent.journal.sessions() == []


async def test_chat_completions_are_answered_below_the_mount() -> None:
    app = create_openai_endpoint(make_agent(says("Hello.")), address=ADDRESS, identify=identify)
    ada = {"x-user": "ada"}
    chat = {"model": "ferrule", "messages": [{"role": "user", "content": "Hi."}]}
    async with mounted(app, "/llm") as client:
        listed = await client.get("/llm/v1/models", headers=ada)
        assert listed.json()["data"][0]["id"] == "ferrule"
        answer = await client.post("/llm/v1/chat/completions", json=chat, headers=ada)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello."


@pytest.mark.proves("serve.hook-refusals")
@pytest.mark.parametrize(("reason", "shown"), [("not on Sundays", True), ("", False)])
async def test_a_hooks_refusal_reaches_the_page_with_its_reason(reason: str, shown: bool) -> None:
    @hook("turn.start")
    def refuse(_: Any) -> Any:
        if reason:
            return block(reason)
        raise ValueError("not for the page")

    agent = make_agent(says("never"))
    agent.hooks = (refuse,)
    app = create_ag_ui_endpoint(agent, address=ADDRESS, identify=identify)
    asked = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "m", "role": "user", "content": "Hi."}],
    }
    async with mounted(app, "/a") as client:
        answer = await client.post("/a/run", json=asked, headers={"x-user": "ada"})
    (error,) = [line for line in answer.text.splitlines() if "RUN_ERROR" in line]
    assert "not for the page" not in error and ("not on Sundays" in error) == shown


@pytest.mark.proves("serve.hook-refusals")
def test_a_hooks_refusal_is_told_over_a2a() -> None:
    refused = HookBlocked("the message was refused by `x`: not on Sundays")
    broken = HookBlocked("secret", code="hook_broken")
    assert "not on Sundays" in describe_failure(refused)
    assert "secret" not in describe_failure(broken)


async def test_one_person_takes_no_place_of_another() -> None:
    go_on = asyncio.Event()

    async def answer_later(_: Any) -> Any:
        await go_on.wait()
        return says("At last.")

    agent = make_agent(answer_later, says("Hello."))
    app = create_openai_endpoint(agent, address=ADDRESS, identify=identify, at_once=1)
    chat = {"model": "ferrule", "messages": [{"role": "user", "content": "Hi."}]}

    async def ask(client: httpx.AsyncClient, user: str) -> httpx.Response:
        return await client.post("/llm/v1/chat/completions", json=chat, headers={"x-user": user})

    async with mounted(app, "/llm") as client, asyncio.timeout(20):
        first = asyncio.create_task(ask(client, "ada"))
        while not agent.journal.sessions():
            await asyncio.sleep(0.005)
        second = await ask(client, "ada")
        other = await ask(client, "owner")
        go_on.set()
        answers = [await first, second, other]
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert second.headers["retry-after"] == "1"
    assert "1 of your requests" in second.json()["error"]["message"]


@pytest.mark.parametrize("user", ["ada", "owner"])
async def test_tools_are_listed_and_called_over_mcp_in_the_name_of_whoever_is_signed_in(
    user: str,
) -> None:
    agent = make_agent()
    app = create_mcp_endpoint(agent, address=ADDRESS, identify=identify, yes_to=["send_mail"])
    about = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "send_mail", "arguments": {"to": "ines"}, "_meta": about}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "x-user": user,
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "send_mail",
    }
    async with mounted(app, "/tools") as client:
        answer = await client.post("/tools/mcp", json=call, headers=headers)
    assert answer.status_code == 200 and "sent to ines" in answer.text
    (session,) = agent.journal.sessions()
    assert session.user == user


async def test_a_sign_in_may_be_asynchronous() -> None:
    async def look_up(request: Request) -> Principal | None:
        return identify(request)

    app = create_openai_endpoint(make_agent(), address=ADDRESS, identify=look_up)
    async with mounted(app, "/llm") as client:
        assert (await client.get("/llm/v1/models", headers={"x-user": "ada"})).status_code == 200
        assert (await client.get("/llm/v1/models")).status_code == 401


@pytest.mark.parametrize(
    "found", ["ada", {"user": "ada"}, Principal(""), Principal("a", False, "")]
)
async def test_what_cannot_tell_people_apart_is_an_error(found: Any) -> None:
    app = create_openai_endpoint(make_agent(), address=ADDRESS, identify=lambda _: found)
    async with mounted(app, "/llm") as client:
        with pytest.raises(ConfigError, match="without a user"):
            await client.get("/llm/v1/models")


@pytest.mark.parametrize("address", ["app.example.org", "ftp://x", "https://", "https://a@b", []])
def test_an_address_that_is_none_is_an_error(address: Any) -> None:
    with pytest.raises(ConfigError, match="address"):
        create_console(make_agent(), address=address, identify=identify)


# ---- opened and closed


async def test_an_application_that_nobody_opened_says_what_to_do() -> None:
    host = Starlette(routes=[Mount("/console", console_of(make_agent()))])
    transport = httpx.ASGITransport(app=host)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        answer = await client.get("/console/runs", headers={"x-user": "ada"})
    assert answer.status_code == 503 and "lifespan" in answer.text


async def test_the_lifespan_of_a_fastapi_application_opens_and_closes_it() -> None:
    console = console_of(make_agent())
    app = FastAPI(lifespan=console.lifespan)
    app.mount("/console", console)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
        async with app.router.lifespan_context(app):
            answer = await client.get("/console/runs", headers={"x-user": "ada"})
            assert answer.status_code == 200
        answer = await client.get("/console/runs", headers={"x-user": "ada"})
        assert answer.status_code == 503


async def test_without_a_host_application_it_takes_the_lifespan_events() -> None:
    app = console_of(make_agent())
    steps = [{"type": "lifespan.shutdown"}, {"type": "lifespan.startup"}]
    said: list[str] = []

    async def receive() -> dict[str, Any]:
        return steps.pop()

    async def send(message: Any) -> None:
        said.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_a_run_that_waits_is_settled_when_the_host_application_ends() -> None:
    agent = make_agent(calls(("send_mail", {"to": "ines"}, "c1")))
    app = create_ag_ui_endpoint(agent, address=ADDRESS, identify=identify)
    said = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "m", "role": "user", "content": "Go."}],
    }
    async with mounted(app, "/agent") as client:
        answer = await client.post("/agent/run", json=said, headers={"x-user": "ada"})
        assert '"interrupt"' in answer.text
    (session,) = agent.journal.sessions()
    assert session.state == "cancelled" and session.user == "ada"


async def test_the_agent_of_a_folder_is_served_with_its_settings(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text('- say: "Hello from the folder."\n')
    (tmp_path / "work").mkdir()
    folder = Folder(
        tmp_path / "work",
        {"model": f"scripted:{script}", "journal.path": str(tmp_path / "j.db")},
    )
    app = create_openai_endpoint(folder, address=ADDRESS, identify=identify)
    chat = {"model": "ferrule", "messages": [{"role": "user", "content": "Hi."}]}
    async with mounted(app, "/llm") as client:
        answer = await client.post("/llm/v1/chat/completions", json=chat, headers={"x-user": "ada"})
    assert answer.json()["choices"][0]["message"]["content"] == "Hello from the folder."
    assert (tmp_path / "j.db").exists()


def test_a_setting_that_is_none_is_an_error() -> None:
    with pytest.raises(ConfigError, match="`journal` is no setting") as refused:
        Folder(".", {"journal": "j.db"})
    assert refused.value.hint == "did you mean `journal.path`?"
