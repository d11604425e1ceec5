"""An editor that is the official client package, and `ferrule serve acp` as the process that it
starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import acp
import pytest
import pytest_asyncio

from ferrule.storage import paths

MAIN = ("-c", "import sys; from ferrule.cli.entry import main; sys.argv[0] = 'ferrule'; main()")
PATIENCE = 60
"""Seconds that something may take before it counts as never happening."""


async def soon(awaitable: Any) -> Any:
    """What it gives, bounded in time."""
    return await asyncio.wait_for(awaitable, PATIENCE)


@dataclass
class Question:
    """A permission request and the way to answer it."""

    session: str
    call: dict[str, Any]
    options: dict[str, dict[str, Any]]
    answer: asyncio.Future[str]


@dataclass
class Editor:
    """The client's side: what it was told, by session, and what it was asked. `says` answers at
    once; where it gives None, a test does.
    """

    told: dict[str, list[dict[str, Any]]] = field(default_factory=dict[str, list[dict[str, Any]]])
    asked: list[Question] = field(default_factory=list[Question])
    says: Callable[[Question], str | None] = lambda question: None
    news: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def session_update(self, session_id: str, update: Any, **more: Any) -> None:
        # By the client's own types: what these do not know would be missing here. Before anything
        # is waited for: the client hands on each update in a task of its own, and an answer that
        # comes after it must find it here.
        self.told.setdefault(session_id, []).append(
            update.model_dump(by_alias=True, exclude_none=True)
        )
        async with self.news:
            self.news.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **more: Any
    ) -> acp.RequestPermissionResponse:
        shown = {option.option_id: option.model_dump(by_alias=True) for option in options}
        call = tool_call.model_dump(by_alias=True, exclude_none=True)
        question = Question(session_id, call, shown, asyncio.get_running_loop().create_future())
        async with self.news:
            self.asked.append(question)
            self.news.notify_all()
        said = self.says(question) or await question.answer
        outcome = (
            {"outcome": "cancelled"}
            if said == "cancelled"
            else {"outcome": "selected", "optionId": said}
        )
        return acp.RequestPermissionResponse.model_validate({"outcome": outcome})

    def on_connect(self, conn: Any) -> None:
        """There is nothing to prepare."""

    async def question(self) -> Question:
        """The question that stands, or the next one."""
        async with self.news:
            await soon(self.news.wait_for(lambda: any(not one.answer.done() for one in self.asked)))
            return next(one for one in self.asked if not one.answer.done())

    async def update(self, session: str, test: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first update of a session that is so."""
        async with self.news:
            await soon(self.news.wait_for(lambda: any(map(test, self.told.get(session, [])))))
            return next(filter(test, self.told[session]))


RESULTS = {
    "initialize": acp.schema.InitializeResponse,
    "session/new": acp.schema.NewSessionResponse,
    "session/load": acp.schema.LoadSessionResponse,
    "session/resume": acp.schema.ResumeSessionResponse,
    "session/list": acp.schema.ListSessionsResponse,
    "session/prompt": acp.schema.PromptResponse,
    "session/set_config_option": acp.schema.SetSessionConfigOptionResponse,
}
SENT = {
    "session/update": acp.schema.SessionNotification,
    "session/request_permission": acp.schema.RequestPermissionRequest,
}


@dataclass
class Strict:
    """Reads every message of the agent by the protocol's types, and keeps what they lost: the
    client package passes over it.
    """

    lost: list[str] = field(default_factory=list[str])
    asked: dict[Any, str] = field(default_factory=dict[Any, str])

    def __call__(self, event: Any) -> None:
        message = event.message
        if event.direction == "outgoing":
            self.asked[message.get("id")] = message.get("method", "")
            return
        model, value = SENT.get(message.get("method", "")), message.get("params")
        if "result" in message:
            model, value = RESULTS.get(self.asked.get(message["id"], "")), message["result"]
        if model is not None:
            read = model.model_validate(value).model_dump(
                mode="json", by_alias=True, exclude_unset=True
            )
            if read != value:
                self.lost.append(f"sent {value}\nread {read}")


@dataclass
class Talk:
    """A session in a folder of its own, with a model that says what its script tells it."""

    served: Served
    id: str
    folder: Path
    opened: Any

    @property
    def told(self) -> list[dict[str, Any]]:
        return self.served.editor.told.setdefault(self.id, [])

    async def prompt(self, text: str = "go") -> str:
        """Why the turn ended."""
        blocks = [acp.text_block(text)]
        return (await soon(self.served.agent.prompt(session_id=self.id, prompt=blocks))).stop_reason

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [one for one in self.told if one["sessionUpdate"] == kind]

    def text(self, kind: str = "agent_message_chunk") -> str:
        return "".join(one["content"]["text"] for one in self.of(kind))

    def call(self, number: int = 0) -> dict[str, Any]:
        """A call as an editor shows it: its start with all updates laid over it."""
        started = self.of("tool_call")[number]
        name = started["toolCallId"]
        for update in self.of("tool_call_update"):
            started = {**started, **update} if update["toolCallId"] == name else started
        return started


@dataclass
class Served:
    """A running agent, its editor, and the person's folders."""

    agent: Any
    process: asyncio.subprocess.Process
    editor: Editor
    home: Path
    count: int = 0

    def script(self, *steps: Mapping[str, Any]) -> str:
        self.count += 1
        file = self.home / f"talk{self.count}.json"
        file.write_text(json.dumps(list(steps)))
        return f"scripted:{file}"

    def settings(self, **given: Any) -> None:
        """The person's own settings from the next session on."""
        file = self.home / "config" / "ferrule.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            json.dumps({"sandbox": {"mode": "off"}, "commands": {"shell": True}, **given})
        )

    async def talk(self, *steps: Mapping[str, Any], servers: Any = (), **settings: Any) -> Talk:
        self.settings(model=self.script(*steps), **settings)
        folder = self.home / f"work{self.count}"
        folder.mkdir()
        (folder / "note.txt").write_text("one\ntwo\n")
        self.editor.says = lambda question: None
        self.editor.asked.clear()
        opened = await soon(self.agent.new_session(cwd=str(folder), mcp_servers=list(servers)))
        return Talk(self, opened.session_id, folder, opened)

    async def request(self, method: str, **params: Any) -> Any:
        """A request that the client package has no method for, or would not let through."""
        return await soon(self.agent._conn.send_request(method, params))


@asynccontextmanager
async def serving(home: Path, *words: str) -> AsyncIterator[Served]:
    """`ferrule serve acp` with the person's folders below `home`, and an editor that has begun to
    speak with it.
    """
    environment = {
        **os.environ,
        "FERRULE_STATE": str(home / "state"),
        "FERRULE_CONFIG": str(home / "config"),
        "FERRULE_CACHE": os.environ.get("FERRULE_CACHE", str(paths.cache())),
        "HOME": str(home),
    }
    editor = Editor()
    more = {"stderr": None, "shutdown_timeout": PATIENCE}
    strict = Strict()
    async with acp.spawn_agent_process(
        editor, sys.executable, *MAIN, "serve", "acp", *words,
        env=environment, transport_kwargs=more, observers=[strict],
    ) as (agent, process):  # fmt: skip
        await soon(agent.initialize(protocol_version=1))
        yield Served(agent, process, editor, home)
    assert strict.lost == []
    assert strict.asked


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One process for the tests of a file; each has sessions of its own in it."""
    async with serving(tmp_path_factory.mktemp("person")) as made:
        yield made


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Served]]:
    """`async with serve() as served`: a process of the test's own."""
    return lambda *words: serving(tmp_path, *words)


def call(tool: str, say: str = "", **arguments: Any) -> dict[str, Any]:
    """A step of a script that calls one tool."""
    return {"say": say, "call": [{"tool": tool, "arguments": arguments}]}


@pytest.fixture
def a_call() -> Callable[..., dict[str, Any]]:
    return call


class Pipe:
    """A named pipe `alive` in a folder that a command says `up` to and holds open: it tells when
    the command is up, and when nothing of it is left.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "alive"
        os.mkfifo(self._path)

    async def up(self) -> None:
        """Wait until the command has begun."""
        self._reader = asyncio.StreamReader()
        # Before anybody writes, opening for reading alone would wait where nothing can end it.
        file = os.fdopen(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
        self._pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._reader), file
        )
        assert await soon(self._reader.readline()) == b"up\n"

    async def gone(self) -> None:
        """Wait until no process holds the other end: neither the command nor what it started."""
        assert await soon(self._reader.read()) == b""
        self._pipe.close()


@pytest.fixture
def pipe_in() -> Callable[[Path], Pipe]:
    return Pipe
