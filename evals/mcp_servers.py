"""Real MCP servers from npm and PyPI, each from the block of its own README: `make mcp-servers`.

Every server is read as people have it, approved, started confined, listed, and called twice. What it
needed beside its block is in the table. Registries that this machine reaches under a private address
(a mirror) are opened by that address, as a person there would.

    python evals/mcp_servers.py              all of them
    python evals/mcp_servers.py time git     some
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ferrule.connectors.mcp import LaunchSettings, ServerApprovals, connect
from ferrule.connectors.mcp.configuration import read_server
from ferrule.connectors.mcp.package_runners import NPM_HOSTS, PYPI_HOSTS, find_runner_needs
from ferrule.connectors.mcp.server_client import ServerClient
from ferrule.core.errors import FerruleError, ToolSignal
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions
from ferrule.models.scripted import Scripted


@dataclass(frozen=True, slots=True)
class RealServer:
    """A server: the block of its README, and two calls. FOLDER in them is the workspace."""

    block: str
    calls: tuple[tuple[str, dict[str, Any]], ...]

    @property
    def entry(self) -> tuple[str, dict[str, Any]]:
        """Name and entry of the block."""
        servers: dict[str, Any] = json.loads(self.block)["mcpServers"]
        return next(iter(servers.items()))


def _npx(name: str, package: str, *words: str) -> str:
    return json.dumps({"mcpServers": {name: {"command": "npx", "args": ["-y", package, *words]}}})


def _uvx(name: str, *words: str) -> str:
    return json.dumps({"mcpServers": {name: {"command": "uvx", "args": list(words)}}})


SERVERS = (
    RealServer(
        _uvx("time", "mcp-server-time"),
        (
            ("get_current_time", {"timezone": "UTC"}),
            (
                "convert_time",
                {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            ),
        ),
    ),
    RealServer(
        _uvx("git", "mcp-server-git", "--repository", "."),
        (("git_status", {"repo_path": "."}), ("git_log", {"repo_path": "."})),
    ),
    RealServer(
        _uvx("fetch", "mcp-server-fetch"),
        (
            ("fetch", {"url": f"https://{PYPI_HOSTS[0]}/simple/six/", "max_length": 200}),
            (
                "fetch",
                {"url": f"https://{PYPI_HOSTS[0]}/simple/idna/", "raw": True, "max_length": 200},
            ),
        ),
    ),
    RealServer(
        _uvx("excel", "excel-mcp-server", "stdio"),
        (
            ("create_workbook", {"path": "FOLDER/a.xlsx"}),
            ("create_workbook", {"path": "FOLDER/b.xlsx"}),
        ),
    ),
    RealServer(
        _uvx("calculator", "mcp-server-calculator"),
        (("calculate", {"expression": "6 * 7"}), ("calculate", {"expression": "2 ** 10"})),
    ),
    RealServer(
        _npx("everything", "@modelcontextprotocol/server-everything"),
        (("echo", {"message": "hello"}), ("get-sum", {"a": 2, "b": 3})),
    ),
    RealServer(
        _npx("filesystem", "@modelcontextprotocol/server-filesystem", "."),
        (("list_directory", {"path": "."}), ("read_text_file", {"path": "note.txt"})),
    ),
    RealServer(
        _npx("memory", "@modelcontextprotocol/server-memory"),
        (
            (
                "create_entities",
                {"entities": [{"name": "ada", "entityType": "person", "observations": ["x"]}]},
            ),
            ("read_graph", {}),
        ),
    ),
    RealServer(
        _npx("sequential-thinking", "@modelcontextprotocol/server-sequential-thinking"),
        tuple(
            (
                "sequentialthinking",
                {
                    "thought": "First.",
                    "nextThoughtNeeded": number < 2,
                    "thoughtNumber": number,
                    "totalThoughts": 2,
                },
            )
            for number in (1, 2)
        ),
    ),
    RealServer(
        _npx("git-npm", "@cyanheads/git-mcp-server"),
        (("git_status", {"path": "FOLDER"}), ("git_log", {"path": "FOLDER"})),
    ),
    RealServer(
        _npx("context7", "@upstash/context7-mcp"),
        (
            ("resolve-library-id", {"query": "dates", "libraryName": "six"}),
            ("query-docs", {"libraryId": "/six/six", "query": "moves"}),
        ),
    ),
)
"""The servers, each with the block of its README; a path of the reader's own is `.`."""

REGISTRIES = {"npx": NPM_HOSTS[0], "uvx": PYPI_HOSTS[0]}


def why_not(server: RealServer) -> str:
    """Return why a server cannot be tried here, or ""."""
    program = server.entry[1]["command"]
    if shutil.which(program) is None:
        return f"there is no {program} here"
    host = REGISTRIES[program]
    try:
        socket.create_connection((host, 443), timeout=3).close()
    except OSError as error:
        return f"{host} cannot be reached: {error}"
    return ""


def private_addresses(command: tuple[str, ...]) -> list[str]:
    """Return the private addresses under which this machine reaches a command's registries."""
    found: set[str] = set()
    for host in find_runner_needs("x", command).hosts:
        try:
            answers = socket.getaddrinfo(host, 443, proto=socket.IPPROTO_TCP)
        except OSError:
            continue
        found |= {str(answer[4][0]) for answer in answers}
    return sorted(one for one in found if not ipaddress.ip_address(one).is_global)


def make_workspace(folder: Path) -> None:
    """Make a folder with a file and a repository."""
    folder.mkdir(parents=True)
    (folder / "note.txt").write_text("one\ntwo\n")
    for words in (
        ["init", "-q"],
        ["add", "note.txt"],
        ["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *words], cwd=folder, check=True)


async def try_server(server: RealServer, folder: Path) -> dict[str, Any]:
    """Start, list and call a server. Return a row of the table."""
    name, block = server.entry
    words = (block["command"], *block["args"])
    entry = {**block, "network": [*block.get("network", ()), *private_addresses(words)]}
    if name == "fetch":
        entry["network"].append(PYPI_HOSTS[0])  # What it is asked to fetch.
    described = read_server(name, entry, f"`{name}`")
    assert described is not None
    approvals = ServerApprovals()
    launch = LaunchSettings(folder)
    row: dict[str, Any] = {"server": name, "hosts": sorted(described.network), "calls": []}
    began = time.monotonic()
    client = ServerClient(described, launch, approvals, None)
    try:
        manifest = await client.fetch_manifest()
    finally:
        await client.close()
    row["first"] = round(time.monotonic() - began, 1)
    row["era"], row["tools"] = manifest.era, len(manifest.tools)
    approvals.approve(described, manifest)
    began = time.monotonic()
    async with connect([described], launch=launch, approvals=approvals) as servers:
        agent = Agent(
            Scripted([]),
            servers.tools,
            workspace=folder,
            permissions=Permissions(allow=[f"mcp__{name}"]),
        )
        session = agent.session()
        for tool, arguments in server.calls:
            filled = json.loads(json.dumps(arguments).replace("FOLDER", str(folder)))
            result = await session.call_tool(f"{name}__{tool}", filled)
            answer = (
                "ok"
                if result.success
                else f"{result.error_type}: {(result.error_message or '')[:160]}"
            )
            row["calls"].append((tool, answer))
        await session.close()
        await agent.close()
    row["again"] = round(time.monotonic() - began, 1)
    return row


def main(names: list[str]) -> int:
    """Try the servers and print a table. Return the number of those that failed."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ferrule-mcp-servers-") as scratch:
        for variable in ("FERRULE_STATE", "FERRULE_CONFIG", "FERRULE_CACHE"):
            os.environ[variable] = f"{scratch}/{variable.lower()}"
        make_workspace(Path(scratch) / "work")
        click.echo("server              first   again  tools  protocol    calls")
        for server in SERVERS:
            name = server.entry[0]
            if names and name not in names:
                continue
            reason = why_not(server)
            if reason:
                click.echo(f"{name:19} skipped: {reason}")
                continue
            try:
                row = asyncio.run(try_server(server, Path(scratch) / "work"))
            except (FerruleError, ToolSignal) as error:
                failed += 1
                click.echo(f"{name:19} FAILED: {getattr(error, 'message', error)}"[:600])
                continue
            answers = "; ".join(f"{tool} {answer}" for tool, answer in row["calls"])
            failed += any(answer != "ok" for _, answer in row["calls"])
            click.echo(
                f"{name:19} {row['first']:5.1f}s {row['again']:6.1f}s {row['tools']:6}"
                f"  {row['era']:10}  {answers}"
            )
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
