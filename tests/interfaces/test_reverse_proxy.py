"""The reverse proxies of docs/deploy.md, in front of a server: the page's own text, without TLS."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ferrule import Agent, Scripted, Storage, tool
from ferrule.runtime.http.server import bound_port, listen
from ferrule.servers import AgUiServer
from ferrule.testing import calls, says

PAGE = Path(__file__).parents[2] / "docs" / "deploy.md"
TOKEN = "a-token-of-tests"
PUBLIC = "agents.example.org"
SECONDS = 10.0


def read_block(kind: str, port: int, upstream: int) -> str:
    """Return a block of the page that listens on this machine without TLS."""
    found = re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    text = found[1].replace("127.0.0.1:8330", f"127.0.0.1:{upstream}")
    text = re.sub(r"^ *ssl_.*\n", "", text, flags=re.MULTILINE)
    text = text.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    return re.sub(r"^agents.example.org \{", f"http://{PUBLIC}:{port} {{", text, flags=re.MULTILINE)


@asynccontextmanager
async def run_proxy(kind: str, folder: Path, upstream: int) -> AsyncGenerator[int]:
    """Run the proxy of the page and yield its port."""
    program = shutil.which(kind)
    assert program is not None
    with listen("127.0.0.1", 0) as free:
        port = bound_port(free)
    block = read_block(kind, port, upstream)
    file = folder / "proxy.conf"
    if kind == "nginx":
        places = "".join(
            f"{part}_temp_path {folder}/{part};\n"
            for part in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        file.write_text(
            f"daemon off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{places}{block}}}\n"
        )
        words = [program, "-p", str(folder), "-e", "stderr", "-c", str(file)]
    else:
        file.write_text(f"{{\nadmin off\n}}\n{block}")
        words = [program, "run", "--adapter", "caddyfile", "--config", str(file)]
    process = await asyncio.create_subprocess_exec(*words)
    try:
        async with asyncio.timeout(SECONDS):
            while True:
                assert process.returncode is None, f"`{kind}` did not start"
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                break
        yield port
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("kind", ["nginx", "caddy"])
async def test_a_stream_passes_the_proxy_of_the_page_piece_by_piece(
    kind: str, tmp_path: Path
) -> None:
    if shutil.which(kind) is None:
        pytest.skip(f"{kind} is not installed")
    has_text = asyncio.Event()
    waited: list[str] = []

    @tool(side_effect="none")
    async def wait() -> str:
        """Wait until the client has read the text before this call."""
        async with asyncio.timeout(SECONDS):
            await has_text.wait()
        waited.append("until it was read")
        return "read"

    model = Scripted([calls(("wait", {}), text="Let me look."), says("Done.")])
    agent = Agent(model, [wait], storage=Storage(journal=":memory:"))
    listening = listen("127.0.0.1", 0)
    port = bound_port(listening)
    server = AgUiServer(agent, token=TOKEN, port=port, url=f"https://{PUBLIC}")
    serving = asyncio.create_task(server.run(listening))
    asked: dict[str, Any] = {
        "threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [],
        "forwardedProps": {}, "messages": [{"id": "1", "role": "user", "content": "Look."}],
    }  # fmt: skip
    try:
        async with (
            run_proxy(kind, tmp_path, port) as proxy,
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{proxy}", headers={"host": PUBLIC}, trust_env=False
            ) as client,
        ):
            # A probe without a token, as the page describes it.
            assert (await client.get("/")).status_code == 401
            received = ""
            sent = {"authorization": f"Bearer {TOKEN}", "origin": f"https://{PUBLIC}"}
            async with client.stream("POST", "/run", json=asked, headers=sent) as answer:
                assert answer.status_code == 200
                async for piece in answer.aiter_text():
                    received += piece
                    if "look." in received:
                        has_text.set()
            assert "RUN_FINISHED" in received
            assert waited == ["until it was read"]
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        await agent.close()
