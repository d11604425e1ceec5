"""Answers that are none: whoever waits for one is told at once what was wrong, and never left to
the end of its time.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from conftest_mcp import Place
from far_server import Server
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError
from mcp_types import REQUEST_TIMEOUT

from ferrule.connectors.mcp import McpServer
from ferrule.connectors.mcp.connection import negotiate
from ferrule.connectors.mcp.spec import Era
from ferrule.connectors.mcp.stdio import LineSplitter
from ferrule.connectors.mcp.streams import Incoming, PendingRequests, accept_line, fail_oversized
from ferrule.core.calls import ErrorType
from ferrule.testing.http_double import HttpDouble, Reply

MAX_LINE = 8 * 1024 * 1024
MALFORMED = -32_098
TOO_LARGE = -32_099

AT_ONCE = 10.0
"""Seconds within which an error must come, far less than a call's own time."""

BROKEN = [
    '{"jsonrpc":"2.0","id":$ID,"result":NaN}',
    '{"jsonrpc":"2.0","id":$ID,"result":null}',
    '{"jsonrpc":"2.0","id":$ID,"result":"done"}',
    '{"jsonrpc":"2.0","id":$ID,"result":[]}',
    '{"jsonrpc":"2.0","id":$ID}',
    '{"jsonrpc":"2.0","result":{}}',
    '{"jsonrpc":"2.0","id":null,"result":{}}',
    '{"jsonrpc":"1.0","id":$ID,"result":{}}',
    '{"id":$ID,"result":{}}',
    '{"jsonrpc":"2.0","id":$ID,"error":"no"}',
    '{"jsonrpc":"2.0","id":$ID,"error":null}',
    '{"jsonrpc":"2.0","id":$ID,"error":{"code":"x"}}',
    '{"jsonrpc":"2.0","id":$ID,"result":{"content":"not a list"',
    '{"jsonrpc":"2.0","id":$ID,"result":{"content":' + "[" * 5_000 + "]" * 5_000 + "}}",
    '{"jsonrpc":"2.0","id":$ID,"result":' + '{"a":' * 100_000,
    '[{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}}]',
    '{"jsonrpc":"2.0","id":$ID,"result":{"content":[]}} trailing',
    "{'jsonrpc': '2.0', 'id': $ID, \"jsonrpc\": 1}",
]
NO_MESSAGES = [
    "",
    "listening on 3000",
    '{"level":"info","msg":"ready"}',
    "[1, 2]",
    "[INFO] started",
    "{broken",
]


class Heard:
    """What the protocol library would be handed of a server's lines, for these requests in
    flight.
    """

    def __init__(self, *numbers: int) -> None:
        self.incoming = Incoming(64 * 1024 * 1024)
        self.pending = PendingRequests()
        for number in numbers:
            self.pending.record_sent(Request(number))
        self.lines = LineSplitter(
            lambda line: accept_line(self.incoming, self.pending, line),
            lambda number: fail_oversized(self.incoming, self.pending, number),
        )

    def messages(self) -> list[Any]:
        async def read() -> list[Any]:
            self.incoming.end()
            return [item.message async for item in self.incoming]

        return asyncio.run(read())


class Request:
    method = "tools/call"

    def __init__(self, number: int) -> None:
        self.id = number


@pytest.mark.parametrize("answer", BROKEN, ids=range(len(BROKEN)))
def test_a_line_that_was_meant_as_an_answer_fails_its_request(answer: str) -> None:
    heard = Heard(7)
    assert heard.lines(answer.replace("$ID", "7").encode() + b"\n")
    (message,) = heard.messages()
    assert (message.id, message.error.code) == (7, MALFORMED)
    assert "not valid" in message.error.message


def test_a_broken_answer_without_an_id_fails_all_it_may_be_for_and_one_with_an_id_only_its_own() -> (
    None
):
    heard = Heard(1, 2)
    heard.lines(b'{"jsonrpc":"2.0","id":2,"result":null}\n')
    heard.lines(b'{"jsonrpc":"2.0","result":null}\n')
    assert [message.id for message in heard.messages()] == [2, 1]


@pytest.mark.parametrize("line", NO_MESSAGES)
def test_lines_that_are_no_messages_are_passed_over(line: str) -> None:
    heard = Heard(7)
    assert heard.lines(line.encode() + b"\n")
    assert heard.messages() == []


def test_a_line_that_does_not_end_fails_its_request_when_it_is_too_long_not_when_it_ends() -> None:
    heard = Heard(7, 8)
    heard.lines(b'{"jsonrpc":"2.0","id":8,"result":{"content":"')
    for _ in range(MAX_LINE // 1_000_000 + 1):
        assert heard.lines(b"y" * 1_000_000)
    heard.lines(b'"}}\n{"jsonrpc":"2.0","id":7,"result":{}}\n')
    first, second = heard.messages()
    assert (first.id, first.error.code) == (8, TOO_LARGE)
    assert (second.id, second.result) == (7, {})


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An answer with some of its bytes removed, doubled or replaced, or with one of its values of
    another kind.
    """
    value: dict[str, Any] = {
        "jsonrpc": "2.0",
        "id": 7,
        "result": {"content": [{"type": "text", "text": "ok"}]},
    }
    if draw(st.booleans()):
        name = draw(st.sampled_from(["jsonrpc", "result", "id"]))
        odd = (
            st.none()
            | st.booleans()
            | st.floats()
            | st.text(max_size=3)
            | st.lists(st.none(), max_size=2)
        )
        if draw(st.booleans()):
            value[name] = draw(odd)
        else:
            del value[name]
    raw = json.dumps(value).encode()
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(raw)))
        size = draw(st.integers(0, 4))
        raw = raw[:at] + draw(st.binary(max_size=3)).replace(b"\n", b" ") + raw[at + size :]
    return raw


@given(damaged())
def test_no_damage_to_an_answer_is_silence_while_its_beginning_can_be_read(raw: bytes) -> None:
    heard = Heard(7)
    heard.lines(raw + b"\n")
    messages = heard.messages()
    named = raw.lstrip()[:1] == b"{" and b'"jsonrpc"' in raw and b'"method"' not in raw
    if named:
        assert [str(message.id) for message in messages] != []
    assert len(messages) <= 1


@pytest.mark.parametrize("answer", [BROKEN[1], BROKEN[4]])
async def test_a_server_that_answers_nonsense_is_said_at_once(place: Place, answer: str) -> None:
    servers = await place.servers(place.plain())
    session = place.session(servers)
    (place.root / "malformed.bin").write_text(answer)
    place.behave("malformed")
    async with asyncio.timeout(AT_ONCE):
        result = await session.call("plain__echo", text="x")
    assert result.error_type is ErrorType.PARSE_ERROR
    assert "not valid" in (result.error_message or "")
    place.behave("good")
    assert (await session.call("plain__echo", text="after")).data == "echo: after"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ('"content":[{"type":"text","text":"{\\"a\\":1e999}"}]', {"a": "Infinity"}),
        ('"content":[],"structuredContent":{"a":-1e999}', {"a": "-Infinity"}),
        ('"content":[],"structuredContent":{"a":NaN}', {"a": "NaN"}),
        ('"content":[{"type":"text","text":"{\\"a\\":NaN}"}]', '{"a":NaN}'),
    ],
)
async def test_a_number_that_json_lacks_is_given_as_text(
    place: Place, content: str, value: object
) -> None:
    session = place.session(await place.servers(place.plain()))
    answer = '{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"complete",' + content + "}}"
    (place.root / "malformed.bin").write_text(answer)
    place.behave("malformed")
    result = await session.call("plain__echo", text="x")
    assert (result.error_message, result.data) == (None, value)


async def test_a_server_that_never_ends_its_line_is_said_before_it_does(place: Place) -> None:
    servers = await place.servers(place.plain())
    session = place.session(servers)
    place.behave("endless")
    async with asyncio.timeout(AT_ONCE):
        result = await session.call("plain__echo", text="x")
    assert result.error_type is ErrorType.PARSE_ERROR
    assert "too large" in (result.error_message or "")


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_nonsense_over_http_is_said_at_once(place: Place, kind: str) -> None:
    other = '{"jsonrpc":"2.0","id":999,"result":{"content":[]}}' if kind.endswith("json") else "[]"
    answers = [*BROKEN, other, "", "<html>", "null", "\x00"]
    left = list(answers)

    def answer(message: dict[str, Any]) -> Reply:
        said = left.pop(0).replace("$ID", str(message["id"]))
        data = said.encode() if kind.endswith("json") else b"data: " + said.encode() + b"\n\n"
        return Reply(pieces=[data], headers={"content-type": kind})

    async with HttpDouble(Server(answer)) as double:
        servers = await place.servers(McpServer("far", url=f"{double.url}/mcp"))
        session = place.session(servers)
        for said in answers:
            async with asyncio.timeout(AT_ONCE):
                result = await session.call("far__echo", text="x")
            assert result.error_type in (ErrorType.PARSE_ERROR, ErrorType.IO_ERROR), (
                said[:80],
                result,
            )


class SlowServer:
    """A session of the library whose server answers nothing before it is asked a third time."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def discover(self) -> None:
        self.asked.append("discover")
        if len(self.asked) < 3:
            raise MCPError(code=REQUEST_TIMEOUT, message="timed out")

    async def initialize(self) -> None:
        self.asked.append("initialize")


@pytest.mark.parametrize(
    ("era", "asked"),
    [("2026-07-28", ["discover"] * 3), ("auto", ["discover", "initialize"])],
)
async def test_a_server_that_is_still_being_downloaded_is_asked_again(
    era: Era, asked: list[str]
) -> None:
    server: Any = SlowServer()
    await negotiate(server, era)
    assert server.asked == asked
