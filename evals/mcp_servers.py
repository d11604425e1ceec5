"""Real MCP servers from npm and PyPI, each from the block of its own README: `make lab NAME=mcp-servers`.

Every server is read as people have it, approved, started confined, listed, and called twice, once in
each version of the protocol: the version is forced by the key `era` of the block. A server that does
not speak one of them says so, and the table too; that is no failure. What it needed beside its block
is in the table. Registries that this machine reaches under a private address
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from ferrule.connectors.mcp import LaunchSettings, ServerApprovals, connect
from ferrule.connectors.mcp.configuration import read_server
from ferrule.connectors.mcp.package_runners import NPM_HOSTS, PYPI_HOSTS, find_runner_needs
from ferrule.connectors.mcp.server_client import ServerClient
from ferrule.core.errors import FerruleError, ToolFailed, ToolSignal
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Permissions
from ferrule.models.scripted import Scripted


@dataclass(frozen=True, slots=True)
class RealServer:
    """A server: the block of its README, and two calls. FOLDER in them is the workspace.

    `opened` are hosts that it needs besides the registry it is started from, and `why`.
    """

    block: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    opened: tuple[str, ...] = ()
    why: str = ""

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
        opened=NPM_HOSTS,
        why=(
            "its library `readabilipy` runs `npm install` in its own package when it extracts its "
            "first page and finds node"
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

ERAS = ("2025-11-25", "2026-07-28")
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


@dataclass(slots=True)
class Outcome:
    """What became of a server in one version of the protocol: a cell of the table."""

    first: float = 0.0
    """Seconds until it was started and listed, downloads included."""
    again: float = 0.0
    tools: int = 0
    answers: list[str] = field(default_factory=list[str])
    """What each call came to, `ok` or why not."""
    refused: str = ""
    """Why it does not speak this version."""

    @property
    def failed(self) -> bool:
        return not self.refused and any(answer != "ok" for answer in self.answers)

    def format(self) -> str:
        """Return the cell."""
        if self.refused:
            return "not spoken"
        said = ", ".join(self.answers) if self.failed else f"{len(self.answers)} calls ok"
        return f"{self.first:.1f} s, {self.again:.1f} s, {self.tools} tools, {said}"


def is_version_refused(message: str) -> bool:
    """Return whether a server answered that it does not know how a version is opened."""
    return "Method not found" in message or "Invalid request parameters" in message


async def try_server(server: RealServer, folder: Path, era: str) -> Outcome:
    """Start, list and call a server in one version of the protocol."""
    name, block = server.entry
    words = (block["command"], *block["args"])
    network = [*block.get("network", ()), *private_addresses(words)]
    if server.opened:
        network += [*server.opened, *private_addresses(("npx", "x"))]
    if name == "fetch":
        network.append(PYPI_HOSTS[0])  # What it is asked to fetch.
    entry = {**block, "network": network, "era": era}
    described = read_server(name, entry, f"`{name}`")
    assert described is not None
    approvals = ServerApprovals()
    launch = LaunchSettings(folder)
    outcome = Outcome()
    began = time.monotonic()
    client = ServerClient(described, launch, approvals, None)
    try:
        manifest = await client.fetch_manifest()
    except ToolFailed as error:
        if not is_version_refused(error.message):
            raise
        return Outcome(refused=error.message)
    finally:
        await client.close()
    outcome.first = time.monotonic() - began
    outcome.tools = len(manifest.tools)
    if manifest.era != era:
        raise FerruleError(f"it was asked for {era} and {manifest.era} was spoken")
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
            message = (result.error_message or "")[:300]
            outcome.answers.append(
                "ok" if result.success else f"{tool} {result.error_type}: {message}"
            )
        await session.close()
        await agent.close()
    outcome.again = time.monotonic() - began
    return outcome


def main(names: list[str]) -> int:
    """Try the servers and print a table. Return the number of those that failed."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="ferrule-mcp-servers-") as scratch:
        for variable in ("FERRULE_STATE", "FERRULE_CONFIG", "FERRULE_CACHE"):
            os.environ[variable] = f"{scratch}/{variable.lower()}"
        for era in ERAS:
            make_workspace(Path(scratch) / era)
        click.echo(
            f"| server | {' | '.join(ERAS)} | opened besides |\n|---|{'---|' * len(ERAS)}---|"
        )
        for server in SERVERS:
            name = server.entry[0]
            if names and name not in names:
                continue
            reason = why_not(server)
            if reason:
                click.echo(f"| {name} | skipped: {reason} |")
                continue
            cells = [try_version(server, Path(scratch) / era, era) for era in ERAS]
            failed += any(cell.failed for cell in cells)
            failed += all(cell.refused for cell in cells)
            opened = f"{', '.join(server.opened)}: {server.why}" if server.opened else ""
            click.echo(f"| {name} | {' | '.join(cell.format() for cell in cells)} | {opened} |")
    return failed


def try_version(server: RealServer, folder: Path, era: str) -> Outcome:
    """Try a server in one version; an error is an outcome that failed."""
    try:
        return asyncio.run(try_server(server, folder, era))
    except (FerruleError, ToolSignal) as error:
        return Outcome(answers=[f"FAILED: {getattr(error, 'message', error)}"[:600]])


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
