"""The command line of the MCP Inspector, as people use it, against `ferrule serve mcp`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from mcp_place import TOKEN, Place
from npm import node, script

SERVE = (
    sys.executable,
    "-c",
    "from ferrule.cli.entry import main; main()",
    "serve",
    "mcp",
    "--allow",
    "Read",
)


@pytest.fixture(scope="module")
def inspector() -> list[str]:
    """The words that start it."""
    launcher = "clients/launcher/build/index.js"
    return [node(), script("@modelcontextprotocol/inspector", "2.12.0", launcher), "--cli"]


async def inspect(
    inspector: list[str], environment: dict[str, str], folder: Path, *words: str
) -> tuple[int, Any]:
    process = await asyncio.create_subprocess_exec(
        *inspector, "--format", "json", "--connect-timeout", "60000", *words,
        cwd=folder, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(120):
        out, err = await process.communicate()
    assert out, err.decode()
    return process.returncode or 0, json.loads(out)["result"]


async def test_the_inspector_starts_the_command_and_finds_no_fault_with_the_tools_that_ship(
    inspector: list[str], environment: dict[str, str], folder: Path
) -> None:
    kept = [f"{name}={environment[name]}" for name in ("FERRULE_STATE", "FERRULE_CONFIG")]
    given = [part for one in kept for part in ("-e", one)]
    # What starts the server stands last: its own options would be taken for the inspector's.
    words = ["--protocol-era", "legacy", "--method", "tools/list", "--strict", *given, "--", *SERVE]
    code, listed = await inspect(inspector, environment, folder, *words)
    assert code == 0, "a schema is not portable"
    assert {"read_file", "run_command"} <= {one["name"] for one in listed["tools"]}


async def test_the_inspector_calls_a_tool_over_http_in_the_newer_version(
    inspector: list[str], environment: dict[str, str], folder: Path, place: Place
) -> None:
    async with place.http(place.server()) as url:
        code, called = await inspect(
            inspector,
            environment,
            folder,
            "--server-url",
            url,
            "--header",
            f"Authorization: Bearer {TOKEN}",
            "--protocol-era",
            "modern",
            "--method",
            "tools/call",
            "--tool-name",
            "look",
            "--tool-arg",
            "shelf=7",
        )
    assert code == 0 and called["structuredContent"] == {
        "shelf": 7,
        "books": ["Moby Dick", "Walden"],
    }
