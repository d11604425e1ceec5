"""The server scenarios of `@modelcontextprotocol/conformance`, all of them, in both versions of the
protocol.

One server, one run of the suite for each version. Every check must pass; a warning is a check that
did not. What is not run is listed with its reason.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from npm import node, script

FIXTURE = Path(__file__).parent / "fixture_server.py"
CHECKS = {"2025-11-25": 84, "2026-07-28": 152}
"""Checks of each version that pass: as many as the official Python server passes."""
NOT_RUN = {
    **dict.fromkeys(
        (
            "tasks-lifecycle",
            "tasks-capability-negotiation",
            "tasks-wire-fields",
            "tasks-request-state-removal",
            "tasks-mrtr-input",
            "tasks-request-headers",
            "tasks-dispatch-and-envelope",
            "tasks-status-notifications",
            "tasks-required-task-error",
            "tasks-mrtr-composition",
        ),
        (
            "an extension that is not offered: a call that takes long is one call, with progress "
            "and cancellation"
        ),
    ),
    **dict.fromkeys(
        ("sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"),
        (
            "an extension that is not offered: skills are read with a tool, which is served like "
            "the others"
        ),
    ),
}


@pytest.fixture(scope="module")
def suite() -> list[str]:
    """The words that start the suite."""
    return [node(), script("@modelcontextprotocol/conformance", "0.2.0-alpha.12", "dist/index.js")]


@asynccontextmanager
async def fixture_server(folder: Path) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(FIXTURE),
        str(folder),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


async def ran(words: list[str], folder: Path) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *words, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(180):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, said.decode()


def checks(folder: Path) -> list[dict[str, Any]]:
    """All checks of a run."""
    return [
        one for file in sorted(folder.glob("*/checks.json")) for one in json.loads(file.read_text())
    ]


async def test_every_server_scenario_passes_in_both_versions(
    suite: list[str], tmp_path: Path
) -> None:
    async with fixture_server(tmp_path) as url:
        for version, count in CHECKS.items():
            out = tmp_path / version
            words = [
                *suite,
                "server",
                "--url",
                url,
                "--spec-version",
                version,
                "--suite",
                "all",
                "-o",
                str(out),
            ]
            code, said = await ran(words, tmp_path)
            found = checks(out)
            wrong = [one for one in found if one["status"] not in ("SUCCESS", "INFO")]
            assert (code, wrong) == (0, []), said[-3_000:]
            assert Counter(one["status"] for one in found)["SUCCESS"] == count


async def test_what_of_the_suite_is_not_run_is_listed_with_its_reason(
    suite: list[str], tmp_path: Path
) -> None:
    _, said = await ran([*suite, "list"], tmp_path)
    listed = said.split("Server scenarios", 1)[1].split("Client scenarios", 1)[0]
    left = set[str]()
    for line in listed.splitlines():
        if line.startswith("  - "):
            _, name, versions = line.split(maxsplit=2)
            if not any(version in versions for version in CHECKS):
                left.add(name)
    assert left == NOT_RUN.keys()
