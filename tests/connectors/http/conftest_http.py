"""A service in this process, manifests for it, and sessions whose calls go through the whole
pipeline.
"""

from __future__ import annotations

import textwrap
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ferrule.connectors.http import Secrets, Sender, make_tools, parse_manifest
from ferrule.connectors.http.spec import Manifest
from ferrule.core.calls import ToolResult
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.permissions.approvals import AllowlistApprover, Approver
from ferrule.testing.fakes import FakeClock
from ferrule.testing.http_double import HttpDouble, Reply, Request
from ferrule.tools.definition import Tool
from grouped_options import grouped

SECRET = "tk-5bd1/e9+Zq=="
"""Holds characters that URLs, JSON and base64 write in other ways."""
SECRETS = Secrets({"API_TOKEN": SECRET})
AUTH = 'auth: {token: {kind: bearer, secret: "${API_TOKEN}"}}'


def read(text: str, file: str = "api.yaml", **more: Any) -> Manifest:
    more.setdefault("secrets", SECRETS)
    return parse_manifest(textwrap.dedent(text).encode(), file, **more)


def tools_of(text: str, *, sender: Callable[..., Sender] = Sender, **more: Any) -> tuple[Tool, ...]:
    return make_tools(read(text, **more), SECRETS, sender=sender)


def one_tool(url: str, *lines: str, method: str = "GET", top: str = "", **more: Any) -> Tool:
    """A manifest with one tool called `it`; each line is a key of it, `top` what stands above the
    tools.
    """
    keys = "\n".join(f"    {line}" for line in lines)
    text = (
        f"{top}\ntools:\n  - name: it\n    description: Asks the service.\n    method: "
        f"{method}\n    url_template: '{url}'\n{keys}\n"
    )
    (tool,) = make_tools(
        parse_manifest(
            text.encode(), "api.yaml", secrets=SECRETS, opened_hosts=more.pop("opened", ())
        ),
        SECRETS,
        **more,
    )
    return tool


@dataclass
class Service:
    """A server that answers with `reply`, or as `answer` says; it opens itself as a person
    would.
    """

    server: HttpDouble
    replies: list[Reply] = field(default_factory=list[Reply])
    folder: Path = Path()
    clock: FakeClock = field(default_factory=FakeClock)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def requests(self) -> list[Request]:
        return self.server.requests

    def opens(self, *names: str) -> list[str]:
        """This server's address, and further names with its port."""
        return [f"{name}:{self.server.port}" for name in ("127.0.0.1", *names)]

    def tool(self, path: str = "/x", *lines: str, names: tuple[str, ...] = (), **more: Any) -> Tool:
        return one_tool(self.url + path, *lines, opened=self.opens(*names), **more)

    def session(self, *tools: Tool, approver: Approver | None = None, **more: Any) -> Session:
        agent = Agent(
            "scripted:x",
            tools,
            **grouped(
                workspace=self.folder,
                approver=approver or AllowlistApprover(["*"]),
                clock=self.clock,
                journal=self.folder / "journal.db",
                **more,
            ),
        )
        session = agent.session()
        self._stack.push_async_callback(session.close)
        return session

    async def call(
        self, tool: Tool, arguments: Mapping[str, Any] | None = None, **more: Any
    ) -> ToolResult:
        """One call through the pipeline, by a person who says yes."""
        return await self.session(tool, **more).call(tool.full_name, **(arguments or {}))

    async def close(self) -> None:
        await self._stack.aclose()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """Answers `{}` until `replies` says otherwise: the first of them, the last one again and
    again.
    """
    made: list[Service] = []

    def answer(request: Request) -> Reply:
        replies = made[0].replies
        if not replies:
            return Reply(json={})
        return replies.pop(0) if len(replies) > 1 else replies[0]

    async with HttpDouble(answer) as server:
        made.append(Service(server, folder=tmp_path))
        yield made[0]
        await made[0].close()
