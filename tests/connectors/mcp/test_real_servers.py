"""Servers that other people wrote, from their registries, held by the sandbox: listed, called,
cancelled, crashed and started again.

Those of PyPI must be installed in the environment of the tests; those of npm are taken with `npm`
into a cache of their own and skipped where there is none or the registry cannot be reached.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conftest_mcp import Place

from ferrule.connectors.mcp import McpServer
from ferrule.core.calls import ErrorType

BIN = Path(sys.prefix) / "bin"
PACKAGES = (
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
)


def python_server(name: str, *args: str, **more: Any) -> McpServer:
    program = BIN / f"mcp-server-{name}"
    if not program.exists():
        pytest.skip(f"mcp-server-{name} is not installed: pip install mcp-server-{name}")
    return McpServer(name, command=(str(program), *args), readable=(sys.prefix,), **more)


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The npm servers, kept between runs in a cache folder outside of the repository."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("there is no Node with npm here")
    default = Path.home() / ".cache" / "ferrule-tests" / "npm"
    folder = Path(os.environ.get("FERRULE_TEST_NPM", default))
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules/@modelcontextprotocol/server-everything").exists():
        words = [
            npm,
            "install",
            "--no-audit",
            "--no-fund",
            "--silent",
            "--ignore-scripts",
            *PACKAGES,
        ]
        ran = subprocess.run(
            words, cwd=folder, capture_output=True, text=True, timeout=400, check=False
        )
        if ran.returncode:
            pytest.skip(f"npm could not install the servers: {ran.stderr.strip()[-300:]}")
    return folder / "node_modules"


def node_server(modules: Path, name: str, *args: str, **more: Any) -> McpServer:
    script = modules / f"@modelcontextprotocol/server-{name}/dist/index.js"
    node = shutil.which("node") or "node"
    return McpServer(
        name, command=(node, str(script), *args), readable=(str(modules.parent),), **more
    )


@pytest.fixture
def repository(place: Place) -> Path:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (
        ("init", "-q"),
        ("add", "plain_server.py"),
        (*who, "commit", "-qm", "the first one"),
    ):
        subprocess.run(["git", *words], cwd=place.root, check=True, env=environment)
    return place.root


@pytest.mark.parametrize("era", ["auto", "2025-11-25"])
async def test_the_time_server_converts_times_in_both_eras(place: Place, era: Any) -> None:
    spec = python_server("time", "--local-timezone", "UTC", era=era)
    servers = await place.servers(spec)
    assert [tool.name for tool in servers.tools] == ["time__convert_time", "time__get_current_time"]
    assert servers.status()[0].detail == ("2025-11-25" if era == "2025-11-25" else "2026-07-28")
    session = place.session(servers)
    given = {"source_timezone": "Asia/Tokyo", "time": "09:00", "target_timezone": "UTC"}
    result = await session.call("time__convert_time", **given)
    assert result.success and "T00:00:00+00:00" in result.to_text()
    wrong = await session.call("time__convert_time", **{**given, "source_timezone": "Nowhere/Land"})
    assert wrong.error_type is ErrorType.TOOL_ERROR and "Nowhere/Land" in (
        wrong.error_message or ""
    )


async def test_the_git_server_reads_the_history_of_the_workspace(
    place: Place, repository: Path
) -> None:
    servers = await place.servers(python_server("git", "--repository", str(repository)))
    assert {"git__git_log", "git__git_status", "git__git_commit"} <= {
        tool.name for tool in servers.tools
    }
    session = place.session(servers)
    result = await session.call("git__git_log", repo_path=str(repository))
    assert result.success and "the first one" in result.to_text()
    outside = await session.call("git__git_log", repo_path="/root")
    assert not outside.success


async def test_a_real_server_that_is_killed_is_an_error_and_is_started_again(place: Place) -> None:
    spec = python_server("time", "--local-timezone", "UTC")
    servers = await place.servers(spec)
    session = place.session(servers)
    assert (await session.call("time__get_current_time", timezone="UTC")).success
    pids = [
        int(one)
        for one in os.listdir("/proc")
        if one.isdigit() and _runs(int(one), "mcp-server-time")
    ]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(20):
        while servers.status()[0].state == "ready":
            await asyncio.sleep(0.02)
    assert (await session.call("time__get_current_time", timezone="UTC")).success


def _runs(pid: int, name: str) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        return name in words and os.stat(f"/proc/{pid}").st_uid == os.getuid() and _below_us(pid)
    except OSError:
        return False


def _below_us(pid: int) -> bool:
    """Only processes of this test run: others may run the same server."""
    while pid > 1:
        if pid == os.getpid():
            return True
        stat = Path(f"/proc/{pid}/stat").read_text()
        pid = int(stat.rpartition(")")[2].split()[1])
    return False


async def test_the_filesystem_server_writes_in_the_workspace_and_sees_no_secrets(
    place: Place, node_modules: Path
) -> None:
    (place.root / "a.txt").write_text("hello\n")
    (place.root / ".env").write_text("TOKEN=1\n")
    servers = await place.servers(node_server(node_modules, "filesystem", str(place.root)))
    session = place.session(servers)
    read = await session.call("filesystem__read_text_file", path=str(place.root / "a.txt"))
    assert read.success and "hello" in read.to_text()
    written = await session.call(
        "filesystem__write_file", path=str(place.root / "b.txt"), content="new"
    )
    assert written.success and (place.root / "b.txt").read_text() == "new"
    assert (
        "TOKEN"
        not in (
            await session.call("filesystem__read_text_file", path=str(place.root / ".env"))
        ).to_text()
    )
    refused = await session.call("filesystem__read_text_file", path="/etc/hostname")
    assert not refused.success


async def test_the_everything_server_shows_every_kind_of_content(
    place: Place, node_modules: Path
) -> None:
    servers = await place.servers(node_server(node_modules, "everything", "stdio"))
    await everything(place, servers, "2025-11-25")


async def everything(place: Place, servers: Any, era: str) -> None:
    assert servers.notices == ()
    session = place.session(servers)
    assert (await session.call("everything__echo", message="hi")).data == "Echo: hi"
    structured = await session.call("everything__get-structured-content", location="Chicago")
    assert structured.success and isinstance(structured.data, dict)
    image = await session.call("everything__get-tiny-image")
    assert "[image: image/png, 20x20" in image.to_text()
    assert [medium.mime for medium in image.media] == ["image/png"]
    links = await session.call("everything__get-resource-links", count=2)
    assert [part["type"] for part in links.data["parts"]].count("resource_link") == 2
    listed = await session.call("everything__resources")
    assert listed.data["resources"]
    read = await session.call("everything__resources", uri=listed.data["resources"][0]["uri"])
    assert read.success
    prompts = await session.call("everything__prompts")
    assert "simple-prompt" in [one["name"] for one in prompts.data["prompts"]]
    prompt = await session.call("everything__prompts", name="simple-prompt")
    assert prompt.data["messages"][0]["role"] == "user"
    assert servers.status()[0].detail == era


async def test_a_long_call_to_a_real_server_is_cancelled_and_the_server_goes_on(
    place: Place, node_modules: Path
) -> None:
    servers = await place.servers(node_server(node_modules, "everything", "stdio"))
    session = place.session(servers)
    call = asyncio.create_task(
        session.call("everything__trigger-long-running-operation", duration=600, steps=600)
    )
    await asyncio.wait([call], timeout=1.0)
    call.cancel()
    await asyncio.wait([call])
    assert (
        await session.call("everything__echo", message="still there")
    ).data == "Echo: still there"


async def test_a_tool_that_runs_only_as_a_task_is_followed_to_its_end(
    place: Place, node_modules: Path
) -> None:
    servers = await place.servers(node_server(node_modules, "everything", "stdio"))
    session = place.session(servers)
    result = await session.call(
        "everything__simulate-research-query", topic="ferrules", ambiguous=False
    )
    assert result.success and "ferrules" in result.to_text()


@pytest.fixture
async def everything_over_http(node_modules: Path) -> AsyncIterator[str]:
    """The address of a server that was started by hand, as a person would."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = node_modules / "@modelcontextprotocol/server-everything/dist/index.js"
    process = await asyncio.create_subprocess_exec(
        shutil.which("node") or "node", str(script), "streamableHttp",
        env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(60):
            while not _listens(port):
                await asyncio.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_the_everything_server_is_the_same_over_http(
    place: Place, everything_over_http: str
) -> None:
    servers = await place.servers(McpServer("everything", url=everything_over_http))
    await everything(place, servers, "2025-11-25")
