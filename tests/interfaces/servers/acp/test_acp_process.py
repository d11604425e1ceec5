"""The process that an editor starts: how it ends, what it does with bytes that are no messages, and
a real model in it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from ferrule.storage.journal.sqlite import SqliteJournal

MAX_LINE = 16 * 1024 * 1024

COMMAND = "exec 3>alive; echo up >&3; sleep 600"
MAIN = ("-c", "import sys; from ferrule.cli.entry import main; sys.argv[0] = 'ferrule'; main()")
PATIENCE = 60


async def at_work(served: Any, a_call: Any, pipe_in: Any) -> tuple[Any, Any, asyncio.Future[str]]:
    """A session whose command runs."""
    talk = await served.talk(a_call("run_command", command=COMMAND), {"say": "Never said."})
    pipe = pipe_in(talk.folder)
    served.editor.says = lambda question: "once"
    turn = asyncio.ensure_future(talk.prompt())
    await pipe.up()
    return talk, pipe, turn


async def test_when_the_editor_goes_nothing_is_left_running_nobody_said_yes_and_sessions_can_be_loaded(
    serve: Any, a_call: Any, pipe_in: Any
) -> None:
    async with serve() as served:
        asks = await served.talk(
            a_call("write_file", path="a", content="b"), {"say": "Never said."}
        )
        asking = asyncio.ensure_future(asks.prompt())
        question = await served.editor.question()
        runs, pipe, running = await at_work(served, a_call, pipe_in)
        served.process.stdin.close()
        await pipe.gone()
        assert await asyncio.wait_for(served.process.wait(), PATIENCE) == 0
        question.answer.cancel()
        for turn in (asking, running):
            turn.cancel()
        # The connection is gone, or the turn was stopped before that was seen.
        await asyncio.gather(asking, running, return_exceptions=True)
    journal = SqliteJournal(served.home / "state" / "journal.db")
    asked, ran = ([record.event for record in journal.records(one.id)] for one in (asks, runs))
    journal.close()
    kinds = [event.kind for event in asked]
    assert "person.answered" not in kinds and kinds.count("model.answered") == 1
    assert not (asks.folder / "a").exists()
    (answered,) = (event.result for event in ran if event.kind == "call.answered")
    assert (answered.success, str(answered.error_type)) == (False, "cancelled")
    assert [(events[-1].kind, events[-1].stop) for events in (asked, ran)] == [
        ("run.finished", "cancelled")
    ] * 2
    async with serve() as again:
        await again.agent.load_session(cwd=str(runs.folder), session_id=runs.id, mcp_servers=[])
        told = again.editor.told[runs.id]
        assert told[0]["content"]["text"] == "go"
        assert told[-1]["status"] == "failed"


async def test_a_signal_ends_everything_and_the_prompt_is_answered_cancelled(
    serve: Any, a_call: Any, pipe_in: Any
) -> None:
    async with serve() as served:
        _, pipe, turn = await at_work(served, a_call, pipe_in)
        served.process.send_signal(signal.SIGTERM)
        await pipe.gone()
        assert await asyncio.wait_for(served.process.wait(), PATIENCE) == 143
        assert await turn == "cancelled"


class Raw:
    """The process as an editor that speaks no protocol sees it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        await self._process.stdin.drain()

    async def answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(await asyncio.wait_for(self._process.stdout.readline(), PATIENCE))

    async def ask(self, method: str, params: Any = None, **more: Any) -> Any:
        await self.send(
            json.dumps(
                {"jsonrpc": "2.0", "id": 7, "method": method, "params": params, **more}
            ).encode()
        )
        return await self.answer()  # fmt: skip


JUNK = [
    (b"not json", -32700),
    (b"\xff\xfe{}", -32700),
    (b"[" * 100_000, -32700),
    (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', -32600),
    (b"5", -32600),
    (b'{"id":1,"method":["initialize"]}', -32600),
    (b'{"id":{"a":1},"method":"initialize"}', -32600),
    (b'{"id":1,"method":"' + b"x" * (MAX_LINE + 10) + b'"}', -32600),
    (b'{"id":1,"method":"no/such"}', -32601),
    (b'{"id":1,"method":"session/new","params":{"cwd":"/"}}', -32600),
    (b'{"id":1,"method":"initialize","params":[1]}', -32602),
    (b'{"id":1,"method":"initialize","params":{}}', -32602),
    (b'{"id":1,"method":"initialize","params":{"protocolVersion":"1"}}', -32602),
]


async def test_junk_is_answered_with_an_error_and_the_next_message_is_read(
    environment: dict[str, str], tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *MAIN,
        "serve",
        "acp",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environment,
        limit=1 << 20,
    )
    raw = Raw(process)
    for line, code in JUNK:
        await raw.send(line)
        assert (await raw.answer())["error"]["code"] == code, line[:80]
    await raw.send(b"")
    await raw.send(b'{"method":"no/such/notification"}')
    await raw.send(b'{"id":99,"result":{}}')
    hello = await raw.ask("initialize", {"protocolVersion": 65535, "clientCapabilities": {"x": 1}})
    assert hello["result"]["protocolVersion"] == 1
    assert hello["result"]["authMethods"] == []
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for cwd in (
        None,
        3,
        "",
        "relative",
        "./x",
        "~",
        "file:///tmp",
        "/no/such/folder",
        str(tmp_path / "file"),
        f"{tmp_path}\0",
        str(tmp_path / "loop"),
        "/" + "x" * 5000,
    ):
        refused = await raw.ask("session/new", {"cwd": cwd, "mcpServers": []})
        assert refused["error"]["code"] == -32602 and "`cwd`" in refused["error"]["message"], cwd
    for more in (
        {"mcpServers": "x"},
        {"mcpServers": [3]},
        {"mcpServers": [{"name": "a", "type": "acp"}]},
        {"mcpServers": [{"name": "a", "command": "x", "env": [{"name": "A", "value": "${HOME}"}]}]},
        {"additionalDirectories": ["/"]},
    ):
        assert (await raw.ask("session/new", {"cwd": str(tmp_path), **more}))["error"][
            "code"
        ] == -32602
    for method in ("load", "resume", "prompt", "close", "delete", "set_mode", "set_config_option"):
        params = {
            "cwd": str(tmp_path),
            "sessionId": "f" * 32,
            "mcpServers": [],
            "prompt": [{"type": "text", "text": "x"}],
            "modeId": "plan",
            "configId": "mode",
            "value": "plan",
        }
        assert (await raw.ask(f"session/{method}", params))["error"]["code"] == -32002, method
    assert process.stdin is not None
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), PATIENCE) == 0


async def test_what_else_prints_does_not_reach_the_editor_and_nobody_else_reads_it() -> None:
    program = (
        "import os, subprocess, sys\n"
        "from ferrule.servers.acp.streams import claim_standard_streams\n"
        "with claim_standard_streams() as (reading, writing):\n"
        "    print('from a library')\n"
        "    subprocess.run(['sh', '-c', 'echo from a program; cat'], check=True)\n"
        "    os.write(writing, b'message ' + os.read(reading, 100))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    out, err = await asyncio.wait_for(process.communicate(b"to the agent"), PATIENCE)
    assert out == b"message to the agent"
    assert b"from a library" in err and b"from a program" in err


@pytest.mark.model
async def test_a_real_model_reads_a_file_for_an_editor(serve: Any) -> None:
    running: AbstractAsyncContextManager[Any] = serve("-m", "local:smollm2")
    async with running as served:
        talk = await served.talk()
        assert await talk.prompt("Read the file note.txt.") in ("end_turn", "max_turn_requests")
        read = talk.call()
        assert (read["title"], read["kind"], read["status"]) == (
            "read_file `note.txt`",
            "read",
            "completed",
        )
        assert "two" in read["content"][0]["content"]["text"]
        assert not served.editor.asked, "reads of the workspace ask nothing in an editor"
