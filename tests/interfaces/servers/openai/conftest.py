"""The endpoint in this process, with a scripted model behind it and the official client before
it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

try:
    import openai
    import uvicorn as _  # noqa: F401  what serves
except ImportError as error:
    pytest.skip(
        f"the endpoint's server or client is not installed here: {error}", allow_module_level=True
    )

from ferrule.core.events import JournalRecord
from ferrule.models.client import Capabilities
from ferrule.models.scripted import Scripted
from ferrule.runtime.assemble import Assembly, assemble
from ferrule.runtime.http.server import bound_port, listen, serve
from ferrule.servers.openai.server import OpenAiServer

TOKEN = "a-token-that-is-long-enough"


@dataclass
class Place:
    """A folder that is served, and what came of it."""

    folder: Path
    notices: list[str] = field(default_factory=list[str])
    stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    assembly: Assembly | None = None
    server: OpenAiServer | None = None

    async def serve(
        self,
        *steps: Any,
        capabilities: Capabilities | None = None,
        token: Any = TOKEN,
        options: dict[str, Any] | None = None,
        **more: Any,
    ) -> OpenAiServer:
        """An assembly whose model says these steps, on a free port."""
        given = {"model": "scripted:test", "workspace": str(self.folder), **(options or {})}
        self.assembly = made = assemble(given, notice=self.notices.append)
        made.agent.change_model(Scripted(list(steps), capabilities=capabilities))
        listening = listen("127.0.0.1", 0)
        self.server = OpenAiServer(made, token=token, port=bound_port(listening), **more)
        serving = asyncio.create_task(
            serve(self.server.app, "127.0.0.1", bound_port(listening), listening=listening)
        )

        async def stop() -> None:
            serving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await serving
            assert self.server is not None
            await self.server.close()
            await made.close(strict=False)

        self.stack.push_async_callback(stop)
        return self.server

    async def serve_alone(self, *steps: Any, **more: Any) -> OpenAiServer:
        """The same, with the model also without the agent."""
        return await self.serve(*steps, direct=["scripted:test"], **more)

    async def client(self, token: str = TOKEN) -> openai.AsyncOpenAI:
        """The official client, which does not try again by itself."""
        assert self.server is not None
        made = openai.AsyncOpenAI(base_url=f"{self.server.url}/v1", api_key=token, max_retries=0)
        self.stack.push_async_callback(made.close)
        return made

    def events(self) -> list[list[JournalRecord]]:
        """What the journal holds, by session, the oldest first."""
        assert self.assembly is not None
        journal = self.assembly.agent.journal
        found = [list(journal.records(one.session)) for one in journal.sessions()]
        return sorted(found, key=lambda records: records[0].time)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "plan.txt").write_text("sow the beans in May\n")
    made = Place(folder)
    yield made
    await made.stack.aclose()


def said(*texts: str) -> list[dict[str, Any]]:
    """A conversation in turns, the user's first."""
    return [
        {"role": ("user", "assistant")[place % 2], "content": text}
        for place, text in enumerate(texts)
    ]


@pytest.fixture
def turns() -> Any:
    return said


WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Name of the city"}},
            "required": ["city"],
        },
    },
}


@pytest.fixture
def weather() -> dict[str, Any]:
    return WEATHER
