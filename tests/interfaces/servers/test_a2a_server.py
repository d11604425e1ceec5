"""An agent of ours as an A2A server: who gets in, what its tasks do, and how a call that must be
allowed is asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dev_mode import run_to_end
from grouped_options import grouped

try:
    import httpx
    import uvicorn
    from a2a.server.agent_execution import AgentExecutor as _  # noqa: F401  the extra is there
except ImportError as error:
    pytest.skip(f"the extra `a2a` is not installed here: {error}", allow_module_level=True)

from ferrule import Image, tool
from ferrule.connectors.a2a import A2aPeer, Auth, PeerApprovals, connect
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError
from ferrule.core.media import MediaReference, load_media
from ferrule.core.messages import UserMessage
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions, Storage
from ferrule.engine.live_events import Progress
from ferrule.engine.session import Session
from ferrule.models.scripted import Scripted, calls, says
from ferrule.permissions.approvals import AllowlistApprover
from ferrule.runtime.http import http_security
from ferrule.servers.a2a.conversations import TaskRefused
from ferrule.servers.a2a.server import (
    CARD_PATH,
    RPC_PATH,
    A2aServer,
    Skill,
    _find_or_start_task,  # pyright: ignore[reportPrivateUsage]
    _media_parts,  # pyright: ignore[reportPrivateUsage]
    build_card,
)
from ferrule.tools.context import Context
from media_samples import make_png

TOKEN = "a-token-that-is-long-enough"


@dataclass
class Place:
    """An agent that is served, and another one that asks it."""

    folder: Path
    done: list[str] = field(default_factory=list[str])
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    server: A2aServer | None = None

    def agent(self, *steps: Any, **more: Any) -> Agent:
        @tool(risk="medium")
        async def shelve(book: str, context: Context) -> str:
            """Put a book on its shelf."""
            context.progress(f"carrying {book}")
            self.done.append(book)
            return f"{book} is on its shelf"

        @tool(risk="safe", side_effect="read")
        async def wait(context: Context) -> str:
            """Wait for ever."""
            context.progress("waiting")
            await asyncio.Event().wait()
            return ""

        @tool(risk="critical")
        async def burn() -> str:
            """Burn everything."""
            self.done.append("burnt")
            return "burnt"

        @tool
        async def draw() -> Image:
            """Draw a cat."""
            return Image.from_bytes(make_png(5, 4), name="cat.png")

        agent = Agent(
            Scripted(list(steps)),
            [shelve, wait, burn, draw],
            **grouped(journal=self.folder / "served.db", **more),
        )
        self.stack.push_async_callback(agent.close)
        return agent

    async def serve(self, *steps: Any, **more: Any) -> A2aServer:
        listening = socket.create_server(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        skills = [Skill("find", "Find", "Finds books.", ("books",))]
        made = A2aServer(
            self.agent(*steps, **more),
            name="Librarian",
            description="Knows the library.",
            token=TOKEN,
            port=port,
            skills=skills,
        )
        config = uvicorn.Config(
            made.app, log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=0
        )
        running = uvicorn.Server(config)
        running.capture_signals = contextlib.nullcontext
        task = asyncio.create_task(running.serve(sockets=[listening]))

        async def stop() -> None:
            running.should_exit = running.force_exit = True
            await task
            listening.close()

        self.stack.push_async_callback(stop)
        self.stack.push_async_callback(made.close)
        self.server = made
        return made

    async def open_client_session(self, workspace: Path | None = None, **more: Any) -> Session:
        """A session of another agent, whose tool asks the one that is served."""
        assert self.server is not None
        peer = A2aPeer(
            "librarian", url=self.server.url, plain_http=True, auth=Auth("LIBRARY_TOKEN"), **more
        )
        peers = await self.stack.enter_async_context(
            connect([peer], approvals=PeerApprovals(self.folder / "a2a"))
        )
        assert peers.notices == ()
        agent = Agent(
            "scripted:x",
            peers.tools,
            permissions=Permissions(approver=AllowlistApprover(["*"])),
            storage=Storage(journal=self.folder / "asking.db"),
            workspace=workspace,
        )
        session = agent.session()
        self.stack.push_async_callback(session.close)
        return session


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    monkeypatch.setenv("LIBRARY_TOKEN", TOKEN)
    made = Place(tmp_path)
    yield made
    await made.stack.aclose()


async def test_a_message_is_a_run_of_the_agent_and_its_answer_an_artifact(place: Place) -> None:
    await place.serve(says("On the third shelf."))
    result = await (await place.open_client_session()).call(
        "librarian__find", message="Where is Moby Dick?"
    )
    assert result.data == {"agent": "librarian", "answer": "On the third shelf."}


async def test_a_context_is_a_session_that_remembers(place: Place) -> None:
    server = await place.serve(says("one"), says("two"))
    session = await place.open_client_session()
    for answer in ("one", "two"):
        result = await session.call("librarian__find", message="again")
        assert result.data["answer"] == answer
    (conversation,) = server.conversations._pool  # pyright: ignore[reportPrivateUsage]
    said = [
        message.text
        for message in conversation.session.driver.machine.history
        if isinstance(message, UserMessage)
    ]
    assert said == ["again", "again"]


@pytest.mark.parametrize(("words", "shelved"), [("Yes, please", ["Moby Dick"]), ("not today", [])])
async def test_a_call_that_must_be_allowed_waits_for_whoever_sent_the_task(
    place: Place, words: str, shelved: list[str]
) -> None:
    await place.serve(calls(("shelve", {"book": "Moby Dick"})), says("That was it."))
    session = await place.open_client_session()
    first = await session.call("librarian__find", message="shelve it")
    assert first.data["state"] == "input-required" and place.done == []
    assert "Allow `shelve` to run?" in first.data["wants"] and "Moby Dick" in first.data["wants"]
    second = await session.call("librarian__find", message=words, task_id=first.data["task_id"])
    assert second.data == {"agent": "librarian", "answer": "That was it."} and place.done == shelved


async def test_critical_risk_is_no_question_for_a_message(place: Place) -> None:
    await place.serve(calls(("burn", {})), says("I may not."))
    result = await (await place.open_client_session()).call("librarian__find", message="burn it")
    assert result.data["answer"] == "I may not." and place.done == []


async def test_a_cancelled_task_ends_the_run_and_what_it_does(place: Place) -> None:
    server = await place.serve(calls(("wait", {})))
    session = await place.open_client_session()
    session.observe(lambda one: place.begun.set() if isinstance(one, Progress) else None)
    calling = asyncio.create_task(session.call("librarian__find", message="wait"))
    async with asyncio.timeout(20):
        await place.begun.wait()
        (task,) = server.conversations._tasks.values()  # pyright: ignore[reportPrivateUsage]
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        await session.close()
        assert task.work is not None
        await asyncio.wait([task.work])
    (conversation,) = server.conversations._pool  # pyright: ignore[reportPrivateUsage]
    assert [str(one.error_type) for one in conversation.session.driver.machine.results()] == [
        "cancelled"
    ]


async def test_what_goes_wrong_inside_stays_inside(place: Place) -> None:
    await place.serve()
    result = await (await place.open_client_session()).call("librarian__find", message="anything")
    assert result.error_type is ErrorType.TOOL_ERROR
    assert str(result.error_message).endswith("the agent cannot work now (script_over)")


# ---- the HTTP guard


async def knock(
    server: A2aServer, method: str = "POST", path: str = RPC_PATH, **more: Any
) -> httpx.Response:
    headers = {
        "authorization": f"Bearer {TOKEN}",
        "content-type": "application/json",
        **more.pop("headers", {}),
    }
    sent = {name: value for name, value in headers.items() if value is not None}
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.request(method, server.url + path, headers=sent, **more)


@pytest.mark.proves("serve.door")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": None}, 401),
        ({"authorization": "Bearer wrong-wrong-wrong"}, 401),
        ({"authorization": TOKEN}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
async def test_nobody_gets_in_without_the_token_from_a_page_or_under_another_name(
    place: Place, headers: dict[str, Any], status: int
) -> None:
    server = await place.serve()
    answer = await knock(
        server, headers=headers, json={"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
    )
    assert answer.status_code == status and server.conversations.find_task("any") is None


@pytest.mark.proves("serve.door")
async def test_the_card_is_open_to_read_and_nothing_else_is(place: Place) -> None:
    server = await place.serve()
    nobody = {"authorization": None}
    card = (await knock(server, "GET", CARD_PATH, headers=nobody)).json()
    assert card["name"] == "Librarian" and card["skills"][0]["id"] == "find"
    assert card["securityRequirements"] == [{"schemes": {"bearer": {}}}]
    # As version 1.0 says it, and as 0.3 does.
    assert card["securitySchemes"]["bearer"] == {
        "httpAuthSecurityScheme": {"scheme": "Bearer"},
        "scheme": "Bearer",
        "type": "http",
    }
    assert (await knock(server, "POST", CARD_PATH, headers=nobody)).status_code == 401
    assert (await knock(server, "GET", "/docs", headers=nobody)).status_code == 401
    assert (
        await knock(server, "GET", CARD_PATH, headers={"host": "evil.example"})
    ).status_code == 421


@pytest.mark.proves("serve.door")
async def test_a_body_without_end_is_read_up_to_a_bound(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine 48 MiB may take longer than a body has: only its length is to end it here.
    monkeypatch.setattr(http_security, "BODY_SECONDS", 600.0)
    server = await place.serve()
    assert (await knock(server, content=b"x" * (48 * 1024 * 1024 + 1))).status_code == 413
    page = (Path(__file__).parents[3] / "docs" / "serve.md").read_text(encoding="utf-8")
    assert "above 48 MiB" in page

    async def slow() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 65_536

    with contextlib.suppress(httpx.TransportError):
        assert (await knock(server, content=slow())).status_code == 413


@pytest.mark.proves("serve.door")
async def test_a_body_that_does_not_come_is_not_waited_for(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_security, "BODY_SECONDS", 0.1)
    server = await place.serve()

    host = server.url.removeprefix("http://")
    head = (
        f"POST {RPC_PATH} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer "
        f"{TOKEN}\r\ncontent-length: 9\r\n\r\n{{"
    )
    reader, writer = await asyncio.open_connection(*host.split(":"))
    writer.write(head.encode())
    async with asyncio.timeout(20):
        assert b" 408 " in await reader.readline()
    writer.close()


@pytest.mark.proves("serve.door")
@pytest.mark.parametrize("token", ["", "short", "with a space in the middle", "ü" * 20])
def test_a_token_that_can_be_guessed_or_sent_by_nobody_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        A2aServer(
            Agent("scripted:x", storage=Storage(journal=":memory:")),
            name="a",
            description="b",
            token=token,
        )


@pytest.mark.proves("serve.door")
def test_beyond_this_machine_only_behind_tls() -> None:
    agent = Agent("scripted:x", storage=Storage(journal=":memory:"))
    given = {"name": "a", "description": "b", "token": TOKEN, "host": "0.0.0.0"}
    with pytest.raises(ConfigError, match="in the clear"):
        A2aServer(agent, **given)
    assert A2aServer(agent, **given, url="https://library.example").card["supportedInterfaces"][0][
        "url"
    ] == ("https://library.example/a2a")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b'{"jsonrpc": "2.0", "id": 1, "method": "Nothing"}', b"[" * 100_000]
)
async def test_nonsense_is_an_error_and_the_next_message_is_answered(
    place: Place, body: bytes
) -> None:
    server = await place.serve(says("still here"))
    answer = await knock(server, content=body, headers={"a2a-version": "1.0"})
    assert answer.status_code < 500 or "error" in answer.text
    assert (
        await (await place.open_client_session()).call("librarian__find", message="there?")
    ).data["answer"] == "still here"


def test_every_skill_of_a_card_has_a_tag() -> None:
    card = build_card(
        "n",
        "d",
        [Skill("ask", "Ask", "Answers."), Skill("sum", "Sum", "Adds.", ("maths",))],
        "u",
        "1",
    )
    assert [skill["tags"] for skill in card["skills"]] == [["ask"], ["maths"]]


async def test_the_value_of_an_output_type_is_data(place: Place) -> None:
    shape = {"type": "object", "properties": {"shelf": {"type": "integer"}}, "required": ["shelf"]}
    large = 2**63 + 1
    steps = [says('{"shelf":3}'), says(f'{{"shelf":{large}}}'), *[says("no shelf")] * 3]
    await place.serve(*steps, output_type=shape)
    session = await place.open_client_session()
    found = [await session.call("librarian__find", message="Where?") for _ in range(3)]
    assert found[0].data["answer"] == {"shelf": 3}
    # The protocol's numbers would change it.
    assert found[1].data["answer"] == f'{{"shelf":{large}}}'
    assert not found[2].success
    assert "no value that fits" in (found[2].error_message or "")


async def test_files_of_a_message_become_media_of_the_run(place: Place) -> None:
    from a2a.types import Message, Part

    server = await place.serve(says("a cat"))
    parts = [
        Part(text="see"),
        Part(raw=make_png(3, 2), media_type="text/html", filename="../cat.html"),
        Part(url="https://elsewhere.example/b.png"),
    ]
    context = SimpleNamespace(
        message=Message(parts=parts), task_id="t1", context_id="c1", current_task=None
    )
    task = await _find_or_start_task(server.conversations, context)
    async with asyncio.timeout(20):
        update = await task.updates.get()
    assert (update.kind, update.text) == ("done", "a cat")
    (conversation,) = server.conversations._pool  # pyright: ignore[reportPrivateUsage]
    asked = conversation.session.history[0]
    assert isinstance(asked, UserMessage)
    assert asked.text == "see\n[a file, which is not read]"
    assert [(one.mime, one.name) for one in asked.media] == [("image/png", "cat.html")]
    broken = Message(parts=[Part(raw=make_png()[:-20], filename="x.png")])
    context = SimpleNamespace(message=broken, task_id="t2", context_id="c1", current_task=None)
    with pytest.raises(TaskRefused, match="cut off"):
        await _find_or_start_task(server.conversations, context)


async def test_files_reach_a_served_agent_and_what_its_tools_return_comes_back(
    place: Place,
) -> None:
    """From the workspace of one agent to another and back, over the protocol itself."""

    server = await place.serve(calls(("draw", {})), says("here"))
    (place.folder / "mine.png").write_bytes(make_png(3, 2))
    (place.folder / "notes.zip").write_bytes(b"PK\3\4 and more")
    session = await place.open_client_session(workspace=place.folder)
    result = await session.call(
        "librarian__find", message="Draw this.", files=["mine.png", "notes.zip"]
    )
    assert not result.success  # A zip is nothing that a model takes.
    assert "notes.zip" in result.error_message
    result = await session.call("librarian__find", message="Draw this.", files=["mine.png"])
    assert result.success, result.error_message
    assert [(one.mime, one.name) for one in result.media] == [("image/png", "cat.png")]
    assert session.history.read_media(result.media[0]) == make_png(5, 4)
    (conversation,) = server.conversations._pool  # pyright: ignore[reportPrivateUsage]
    asked = conversation.session.history[0]
    assert isinstance(asked, UserMessage)
    assert [(one.mime, one.name, one.size) for one in asked.media] == [
        ("image/png", "mine.png", len(make_png(3, 2)))
    ]


def test_media_are_sent_in_types_that_the_client_takes_and_within_a_bound() -> None:
    most = 16 * 1024 * 1024
    png = load_media(
        MediaReference("image", "image/png", "a" * 64, 3, 0, "a.png"), lambda _: b"png"
    )
    pdf = load_media(MediaReference("document", "application/pdf", "b" * 64, 3), lambda _: b"pdf")
    huge = load_media(
        MediaReference("image", "image/png", "c" * 64, most, 0, "c.png"), lambda _: b"?"
    )

    def sent(*accepted: str) -> list[Any]:
        parts = _media_parts([png, pdf, huge], accepted)
        return [(part.raw, part.filename) if part.HasField("raw") else part.text for part in parts]

    caption = f"[image c.png: image/png, {most} bytes]"
    assert sent() == [(b"png", "a.png"), (b"pdf", ""), caption]
    assert sent("text/plain", "application/pdf") == [(b"pdf", "")]
    assert sent("image/*") == [(b"png", "a.png"), caption]
    assert sent("text/plain") == []


SERVED_ONCE = """
import gc
import weakref

from ferrule import Agent
from ferrule.servers.a2a.server import A2aServer


def serve() -> weakref.ref[Agent]:
    agent = Agent("scripted:hello")
    A2aServer(agent, name="Librarian", description="Knows the library.", token="a" * 32)
    return weakref.ref(agent)


served = serve()
gc.collect()
print("gone" if served() is None else "kept")
"""


def test_the_first_agent_of_a_process_that_is_served_can_go(tmp_path: Path) -> None:
    """The library is imported for it, and keeps errors of that import."""
    script = tmp_path / "served_once.py"
    script.write_text(SERVED_ONCE, encoding="utf-8")
    assert run_to_end([sys.executable, str(script)], tmp_path).stdout == "gone\n"
