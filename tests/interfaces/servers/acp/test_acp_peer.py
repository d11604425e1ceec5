"""The connection and a conversation in this process: answers by id, defects, and whoever speaks
from a thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.calls import ToolCall
from ferrule.core.events import CallEvaluated, CallStarted, ModelAnswered, RunStarted, SessionOpened
from ferrule.core.identity import Identity
from ferrule.engine.live_events import Progress
from ferrule.runtime.assemble import current_user, open_journal
from ferrule.servers.acp.conversation import open_conversation
from ferrule.servers.acp.peer import Peer, PeerError, RequestRefused
from ferrule.servers.acp.session_sources import SettingsSource

PATIENCE = 30


class Line:
    """Streams of which a test writes one end and reads the other."""

    def __init__(self) -> None:
        self.arriving: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def receive(self) -> dict[str, Any] | None:
        return await self.arriving.get()

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.put_nowait(message)

    async def close(self) -> None:
        """Nothing is held."""

    async def next(self) -> dict[str, Any]:
        return await asyncio.wait_for(self.sent.get(), PATIENCE)


async def handle(method: str, params: Any) -> Any:
    if method == "refuse":
        raise RequestRefused(-32602, "no", {"hint": "x"})
    if method == "break":
        raise LookupError("a table is gone")
    return {"said": params}


async def test_a_defect_costs_its_request_and_not_the_connection(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = Line()
    peer = Peer(line, handle)  # type: ignore[arg-type]
    listening = asyncio.ensure_future(peer.listen())
    for number, method in enumerate(("break", "refuse", "echo")):
        line.arriving.put_nowait({"id": number, "method": method, "params": 1})
    line.arriving.put_nowait({"method": "break"})
    answers = {answer["id"]: answer for answer in [await line.next() for _ in range(3)]}
    assert answers[0]["error"] == {
        "code": -32603,
        "message": "a defect in Ferrule: LookupError: a table is gone",
    }
    assert answers[1]["error"] == {"code": -32602, "message": "no", "data": {"hint": "x"}}
    assert answers[2]["result"] == {"said": 1}
    line.arriving.put_nowait(None)
    await listening
    await peer.close()
    assert "a table is gone" in capsys.readouterr().err
    assert line.sent.empty()


async def test_questions_get_their_answer_an_error_or_the_end() -> None:
    line = Line()
    peer = Peer(line, handle)  # type: ignore[arg-type]
    listening = asyncio.ensure_future(peer.listen())
    asked = [asyncio.ensure_future(peer.request("which", {"n": n})) for n in range(3)]
    ids = [(await line.next())["id"] for _ in asked]
    for junk in ({"id": "1", "result": 1}, {"id": 99, "result": 1}, {"id": True, "result": 1}):
        line.arriving.put_nowait(junk)
    line.arriving.put_nowait({"id": ids[1], "error": {"code": 1, "message": "not now"}})
    line.arriving.put_nowait({"id": ids[0], "result": "first"})
    line.arriving.put_nowait({"id": ids[0], "result": "late"})
    assert await asked[0] == "first"
    with pytest.raises(PeerError, match="not now"):
        await asked[1]
    line.arriving.put_nowait(None)
    with pytest.raises(ConnectionError):
        await asked[2]
    await listening
    for lost in (peer.request("which", {}), peer.notify("this", {})):
        with pytest.raises(ConnectionError):
            await lost
    await peer.close()


class Editor:
    """Keeps what it is told; its answer to a question is an error."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()

    async def update(self, session: str, update: dict[str, Any]) -> None:
        self.told.append(update)

    async def request(self, method: str, params: Mapping[str, Any]) -> Any:
        self.asked.set()
        await self.answers.wait()
        raise PeerError("the editor answered with an error: no window")


async def test_lines_of_a_tool_are_shown_from_any_thread_and_an_editor_that_fails_has_not_said_yes(
    tmp_path: Path, script: Any, a_call: Any
) -> None:
    (tmp_path / "work").mkdir()
    model, editor = (
        script(a_call("write_file", path="a", content="b"), {"say": "Not then."}),
        Editor(),
    )
    talk = await open_conversation(
        SettingsSource({"model": model}), editor, folder=str(tmp_path / "work"), servers={}
    )
    turn = asyncio.ensure_future(talk.prompt("go"))
    await asyncio.wait_for(editor.asked.wait(), PATIENCE)
    (call,) = (one for one in editor.told if one["sessionUpdate"] == "tool_call")
    line = Progress(call["toolCallId"], "half ``` way")
    await asyncio.to_thread(talk.session.driver.log.show, line)
    await asyncio.sleep(0)
    await talk.outbox.drain()
    assert "half ``` way" in editor.told[-1]["content"][0]["content"]["text"]
    editor.answers.set()
    assert (await turn)["stopReason"] == "end_turn"
    ended = next(one for one in editor.told if one.get("status") == "failed")
    assert "no window" in json.dumps(ended) and not (tmp_path / "work" / "a").exists()
    await talk.close()


async def test_a_session_whose_process_was_killed_is_loaded_with_its_calls_ended_and_goes_on(
    tmp_path: Path, script: Any
) -> None:
    call = ToolCall("c1", "write_file", '{"path": "a", "content": "b"}')
    left = [
        SessionOpened(workspace=str(tmp_path)), RunStarted("go"), ModelAnswered("", (call,)),
        CallEvaluated("c1", "allow", digest="d"), CallStarted("c1", "d"),
    ]  # fmt: skip
    with open_journal() as store:
        store.append("s1", "r1", left, identity=Identity("local", current_user(), "s1", "r1"))
    editor = Editor()
    options = {"model": script({"say": "Going on."})}
    talk = await open_conversation(
        SettingsSource(options), editor, folder=str(tmp_path), servers={}, session_id="s1"
    )
    await talk.replay()
    assert (editor.told[-1]["toolCallId"], editor.told[-1]["status"]) == ("c1", "failed")
    assert "is unknown" in editor.told[-1]["content"][0]["content"]["text"]
    assert (await talk.prompt("and now?"))["stopReason"] == "end_turn"
    assert editor.told[-1]["content"]["text"] == "Going on."
    assert not (tmp_path / "a").exists()
    await talk.close()
