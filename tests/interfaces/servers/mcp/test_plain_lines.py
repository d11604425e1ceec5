"""Calls over standard streams that end without the library, and those that it must see after all."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

from ferrule.core.calls import ErrorType
from ferrule.core.events import DirectCall, ToolAnswered
from ferrule.storage.journal.sqlite import SqliteJournal

SERVER = Path(__file__).with_name("lines_server.py")
SECONDS = 20
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "raw", "version": "1"},
}


@dataclass
class LinesClient:
    """A client of the raw protocol that the library has served one call."""

    process: subprocess.Popen[bytes]
    journal: Path
    lines: SimpleQueue[bytes] = field(default_factory=SimpleQueue[bytes])
    """What the server wrote, and an empty line for its end."""
    first: dict[str, Any] = field(default_factory=dict[str, Any])
    """The answer to its first call, which the library gave."""

    def send(self, method: str, params: Any = None, number: int | str | None = None) -> None:
        named = {} if number is None else {"id": number}
        self.write({"jsonrpc": "2.0", "method": method, "params": params or {}, **named})

    def write(self, *messages: Mapping[str, Any]) -> None:
        """Write messages at once."""
        assert self.process.stdin is not None
        lines = "".join(f"{json.dumps(one)}\n" for one in messages)
        self.process.stdin.write(lines.encode())
        self.process.stdin.flush()

    def call(self, name: str, number: int | str, **arguments: Any) -> None:
        self.send("tools/call", {"name": name, "arguments": arguments}, number)

    def receive(self) -> Any:
        line = self.lines.get(timeout=SECONDS)
        assert line.endswith(b"\n"), "the server is gone"
        return json.loads(line)

    def receive_text(self) -> str:
        return str(self.receive()["result"]["content"][0]["text"])

    def end(self) -> list[bytes]:
        """Close the stream, and return what came after that."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return list(iter(lambda: self.lines.get(timeout=SECONDS), b""))

    def events(self, kind: type) -> list[Any]:
        with SqliteJournal(self.journal) as journal:
            (session,) = journal.sessions()
            events = [record.event for record in journal.records(session.session)]
        return [event for event in events if isinstance(event, kind)]


def read_lines(client: LinesClient) -> None:
    assert client.process.stdout is not None
    for line in client.process.stdout:
        client.lines.put(line)
    client.lines.put(b"")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[LinesClient]:
    journal = tmp_path / "journal.db"
    command = [sys.executable, str(SERVER), str(journal)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        made = LinesClient(process, journal)
        reading = threading.Thread(target=read_lines, args=(made,))
        reading.start()
        try:
            made.send("initialize", HELLO, 0)
            assert made.receive()["result"]["serverInfo"]["name"] == "lines"
            made.send("notifications/initialized")
            made.call("repeat", 1, word="ä")
            made.first = made.receive()
            yield made
        finally:
            process.kill()
            reading.join()


def test_calls_are_answered_without_the_library_in_its_words_and_each_by_its_own_result(
    client: LinesClient,
) -> None:
    client.call("way", 2)
    assert client.receive_text() == "PlainPeer"
    client.call("repeat", "three", word="ä")
    assert client.receive() == {**client.first, "id": "three"}
    client.call("repeat", 4, word=7)
    assert client.receive()["result"]["isError"] is True
    # What the library must see: metadata, a tool that is not served, an id that is in use.
    client.send("tools/call", {"name": "way", "_meta": {"progressToken": 1}}, 5)
    assert client.receive_text() == "RequestPeer"
    client.call("nothing", 6)
    assert "Unknown tool" in client.receive()["error"]["message"]
    client.call("repeat", 7, word="a")
    client.call("repeat", 7, word="b")
    assert sorted([client.receive_text(), client.receive_text()]) == ["a", "b"]
    # Many at once, of which long ones are written in pieces by a thread.
    sizes = {10: 1, 11: 200_000, 12: 2, 13: 300_000, 14: 3}
    calls = [
        {"name": "repeat", "arguments": {"word": "x", "times": size}} for size in sizes.values()
    ]
    client.write(
        *(
            {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            for number, call in zip(sizes, calls, strict=True)
        )
    )
    answers = [client.receive() for _ in sizes]
    texts = {answer["id"]: answer["result"]["content"][0]["text"] for answer in answers}
    assert texts.keys() == sizes.keys()
    assert [texts[10], texts[12], texts[14]] == ["x", "xx", "xxx"]
    assert client.end() == []
    assert len(client.events(DirectCall)) == 12


def test_a_call_that_says_or_asks_something_first_goes_to_the_library_and_is_made_once(
    client: LinesClient,
) -> None:
    client.call("note", 2, times=3)
    said = [client.receive() for _ in range(4)]
    assert [one["params"]["data"] for one in said[:3]] == ["line 0", "line 1", "line 2"]
    assert said[3]["id"] == 2 and said[3]["result"]["content"][0]["text"] == "noted"
    client.call("shelve", 3, book="Walden")
    asked = client.receive()
    assert asked["method"] == "elicitation/create"
    answer = {"action": "accept", "content": {"run": True}}
    client.write({"jsonrpc": "2.0", "id": asked["id"], "result": answer})
    assert client.receive_text() == "Walden is on its shelf"
    assert client.end() == []
    assert [event.call.tool for event in client.events(DirectCall)] == ["repeat", "note", "shelve"]


def test_a_call_that_is_cancelled_ends_unanswered_and_one_that_is_left_ends_with_the_client(
    client: LinesClient,
) -> None:
    assert client.process.stderr is not None
    client.call("wait", "cancelled")
    assert client.process.stderr.readline() == b"waits\n"
    client.send("notifications/cancelled", {"requestId": "cancelled"})
    client.call("repeat", 3, word="after")
    assert client.receive()["id"] == 3, "the cancelled call is not answered"
    client.call("wait", "left")
    assert client.process.stderr.readline() == b"waits\n"
    (left,) = client.end()
    assert json.loads(left)["id"] == "left" and "closed" in json.loads(left)["error"]["message"]
    ends = [event.result.error_type for event in client.events(ToolAnswered)]
    assert sorted(ends) == sorted(
        [ErrorType.NONE, ErrorType.CANCELLED, ErrorType.NONE, ErrorType.CANCELLED]
    )


def test_a_server_that_is_told_to_end_stops_the_call_and_writes_that_down(
    client: LinesClient,
) -> None:
    assert client.process.stderr is not None
    client.call("wait", 2)
    assert client.process.stderr.readline() == b"waits\n"
    client.process.terminate()
    # Who closes the stream meanwhile does not wait for an answer.
    assert client.process.wait(SECONDS) == 143
    (told,) = client.end()
    assert json.loads(told)["id"] == 2 and "closed" in json.loads(told)["error"]["message"]
    (ended,) = [event for event in client.events(ToolAnswered) if event.result.tool == "wait"]
    assert ended.result.error_type is ErrorType.CANCELLED
