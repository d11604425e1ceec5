"""`ferrule serve mcp` as clients start it: a process of its own, its standard streams, and its
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_place import NEW, TOKEN, Person, text_of

from ferrule.cli.exit_codes import run
from ferrule.core.calls import ErrorType
from ferrule.core.events import DirectCall, SessionOpened, ToolAnswered
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.paths import default_journal

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


def records() -> list[Any]:
    with SqliteJournal(default_journal()) as store:
        return [record for one in store.sessions() for record in store.records(one.session)]


def events(kind: type) -> list[Any]:
    return [record.event for record in records() if isinstance(record.event, kind)]


def words(*more: str) -> list[str]:
    return ["-c", "from ferrule.cli.entry import main; main()", "serve", "mcp", *more]


async def until(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.05)


@dataclass
class Raw:
    """A server process and its streams, without a client's library."""

    process: asyncio.subprocess.Process
    numbers: int = 0

    @property
    def stdin(self) -> asyncio.StreamWriter:
        assert self.process.stdin is not None
        return self.process.stdin

    async def send(
        self, method: str, params: Any = None, *, answered: bool = True, number: str = ""
    ) -> Any:
        self.numbers += answered
        named = {"id": number or self.numbers} if answered or number else {}
        said = {"jsonrpc": "2.0", "method": method, "params": params or {}, **named}
        self.stdin.write(json.dumps(said).encode() + b"\n")
        await self.stdin.drain()
        assert self.process.stdout is not None
        async with asyncio.timeout(30):
            return json.loads(await self.process.stdout.readline()) if answered else None


@pytest.fixture
async def raw(folder: Path, environment: dict[str, str]) -> AsyncIterator[Raw]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words("--allow", "Bash(*)"),
        cwd=folder, env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    made = Raw(process)
    await made.send("initialize", HELLO)
    await made.send("notifications/initialized", answered=False)
    yield made
    if process.returncode is None:
        process.kill()
    await process.communicate()


async def test_a_client_starts_the_command_and_works_in_the_folder(
    folder: Path, environment: dict[str, str], person: Person
) -> None:
    person.says = ["yes"]
    chosen = words("--deny-tool", "run_command", "--allow", "Read")
    started = StdioServerParameters(
        command=sys.executable, args=chosen, cwd=folder, env=environment
    )
    async with Client(started, elicitation_callback=person) as client:
        assert client.protocol_version == NEW
        assert client.server_info is not None and client.server_info.name == "ferrule"
        assert "the folder `work`" in (client.instructions or "")
        names = {one.name for one in (await client.list_tools()).tools}
        assert {"read_file", "write_file", "artifact_fetch"} <= names and "run_command" not in names
        assert "two" in text_of(await client.call_tool("read_file", {"path": "note.txt"}))
        refused = await client.call_tool("read_file", {"path": "../../etc/passwd"})
        assert refused.is_error
        await client.call_tool("write_file", {"path": "new.txt", "content": "three\n"})
    assert (folder / "new.txt").read_text() == "three\n"
    (asked,) = person.asked
    assert "+three" in asked.message, "the person saw what would change"
    assert {record.user for record in records() if isinstance(record.event, SessionOpened)} == {
        "mcp:mcp"
    }


def sleeping(seconds: str) -> list[int]:
    """The processes that were told to sleep for this long."""
    found: list[int] = []
    for one in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if seconds.encode() in one.read_bytes().split(b"\0"):
                found.append(int(one.parent.name))
    return found


async def test_a_program_that_a_call_started_is_gone_with_the_call_and_with_the_client(
    raw: Raw,
) -> None:
    for seconds, how in ((f"7{os.getpid()}.1", "cancelled"), (f"7{os.getpid()}.2", "closed")):
        # A program that starts another one: the whole of it is to end.
        command = {"command": ["timeout", "100000", "sleep", seconds]}
        await raw.send(
            "tools/call", {"name": "run_command", "arguments": command}, answered=False, number=how
        )
        await until(lambda seconds=seconds: len(sleeping(seconds)) == 2)
        if how == "cancelled":
            await raw.send("notifications/cancelled", {"requestId": how}, answered=False)
            await until(lambda seconds=seconds: not sleeping(seconds))
            # The connection goes on, and the cancelled call is not answered.
            listed = await raw.send("tools/list")
            assert listed["id"] == raw.numbers and listed["result"]["tools"]
            echo = {"name": "run_command", "arguments": {"command": ["echo", "not json"]}}
            assert (
                "not json" in (await raw.send("tools/call", echo))["result"]["content"][0]["text"]
            )
        else:
            raw.stdin.close()
            await until(lambda seconds=seconds: not sleeping(seconds))
    out, _ = await raw.process.communicate()
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
    assert raw.process.returncode == 0
    calls = [event.call.id for event in events(DirectCall)]
    answered = {event.result.call_id: event.result.error_type for event in events(ToolAnswered)}
    assert list(answered) == calls
    assert list(answered.values()) == [ErrorType.CANCELLED, ErrorType.NONE, ErrorType.CANCELLED]


async def test_a_server_that_is_told_to_end_takes_its_programs_along_and_writes_that_down(
    raw: Raw,
) -> None:
    seconds = f"7{os.getpid()}.3"
    command = {"command": ["timeout", "100000", "sleep", seconds]}
    await raw.send(
        "tools/call", {"name": "run_command", "arguments": command}, answered=False, number="told"
    )
    await until(lambda: len(sleeping(seconds)) == 2)
    raw.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(raw.process.wait(), 30) == 143
    assert sleeping(seconds) == []
    (answered,) = events(ToolAnswered)
    assert answered.result.error_type is ErrorType.CANCELLED


async def test_over_http_the_token_comes_out_of_a_file(
    folder: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    secret = tmp_path / "token"
    secret.write_text(f"{TOKEN}\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words("--http", "--port", "0", "--allow", "Read", "--token-file", str(secret)),
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(60):
        line = (await process.stderr.readline()).decode().strip()
    async with httpx2.AsyncClient(headers={"authorization": f"Bearer {TOKEN}"}) as http:
        transport: Any = streamable_http_client(line.removeprefix("serving on "), http_client=http)
        async with Client(transport) as client:
            assert client.protocol_version == NEW
            assert "two" in text_of(await client.call_tool("read_file", {"path": "note.txt"}))
    process.send_signal(signal.SIGINT)
    out, _ = await process.communicate()
    assert (out, process.returncode) == (b"", 130)


def test_mistakes_are_said_before_anything_is_served(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "mcp", "--http", "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "in the clear" in capsys.readouterr().err
    assert run(["serve", "mcp", "--http", "--token-file", str(folder / "none"), "--port", "0"]) == 2
    assert "cannot read the token" in capsys.readouterr().err
    assert run(["serve", "mcp", "--http", "--token-file", str(folder), "--port", "0"]) == 2
    assert "is a directory" in capsys.readouterr().err
    assert run(["serve", "mcp", "--yes-to", "Bash(*)"]) == 2
    assert "--yes-to" in capsys.readouterr().err
    assert run(["serve", "mcp", "--port", "99999"]) == 2
