"""What is no message of the protocol is answered with an error, over both transports."""

from __future__ import annotations

import json
import os
import select
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra `mcp` is not installed here")

import httpx2
from mcp_place import TOKEN, Place

from ferrule.servers.mcp.messages import InvalidMessage, read_message
from ferrule.servers.mcp.plain_calls import find_cancelled
from ferrule.servers.mcp.plain_lines import PlainLines
from ferrule.servers.mcp.stdio import LineReader, LineWriter

HEADERS = {
    "accept": "application/json, text/event-stream",
    "content-type": "application/json",
    "authorization": f"Bearer {TOKEN}",
}


def request(**changed: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 7, "method": "ping", **changed}).encode()


NO_JSON = [
    b"{",
    b"\xff\xfe",
    request() + b"garbage",
    b"\xef\xbb\xbf" + request(),
    b'{"jsonrpc":"2.0","id":7,"method":"ping","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"jsonrpc":"2.0","id":' + b"9" * 5_000 + b',"method":"ping"}',
]
NO_MESSAGE: list[tuple[bytes, int | str | None]] = [
    (b"null", None),
    (b"[]", None),
    (b"[" + request() + b"]", None),
    *((request(id=one), None) for one in (None, True, 1.5, [1], {"a": 1})),
    (request(params={"a": "\ud800"}), 7),
    (request(id="\ud800"), "\ud800"),
    (request(params=[]), 7),
    (request(params=5), 7),
    (request(params="x"), 7),
    (request(jsonrpc="1.0"), 7),
    (request(jsonrpc="1.0", id="x"), "x"),
    (b'{"id":7,"method":"ping"}', 7),
    (request(method=5), 7),
    (b'{"jsonrpc":"2.0","id":7}', None),
    (b'{"jsonrpc":"2.0","id":7,"result":5}', None),
    (b'{"jsonrpc":"2.0","id":true,"result":{}}', None),
    (b'{"jsonrpc":"2.0","id":7,"error":{"code":"x","message":"y"}}', None),
]
MESSAGES = [
    *(request(id=one) for one in (-1, 0, 10**30, "", "x" * 2_000)),
    request(params=None),
    request(params={}),
    b'{"jsonrpc":"2.0","method":"notifications/initialized"}',
    b'{"jsonrpc":"2.0","id":7,"result":{}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no"}}',
]


def answer_to(text: bytes) -> tuple[int, Any]:
    message = read_message(text)
    assert isinstance(message, InvalidMessage)
    answer = json.loads(message.encode_answer())
    return answer["error"]["code"], answer["id"]


def test_each_text_is_a_message_or_has_the_error_of_the_standard() -> None:
    assert [answer_to(text) for text in NO_JSON] == [(-32700, None)] * len(NO_JSON)
    assert [answer_to(text) for text, _ in NO_MESSAGE] == [(-32600, id) for _, id in NO_MESSAGE]
    assert [read_message(text) for text in MESSAGES] == [json.loads(text) for text in MESSAGES]


def test_our_error_is_a_message_so_that_two_of_us_do_not_answer_each_other_for_ever() -> None:
    for text in [*NO_JSON, *(text for text, id in NO_MESSAGE if id != "\ud800")]:
        message = read_message(text)
        assert isinstance(message, InvalidMessage)
        assert isinstance(read_message(message.encode_answer()), dict)


async def test_http_answers_what_is_no_message_with_400(place: Place) -> None:
    async with place.http(place.server()) as url, httpx2.AsyncClient() as http:
        for text, id in [(NO_JSON[0], None), *NO_MESSAGE[2:6]]:
            answer = await http.post(url, content=text, headers=HEADERS)
            assert (answer.status_code, answer.json()["id"]) == (400, id)
            assert answer.json()["error"]["code"] == (-32700 if text == b"{" else -32600)


async def test_standard_streams_answer_what_is_no_message(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    service: Any = place.server()._service  # pyright: ignore[reportPrivateUsage]
    reader = LineReader()
    writer = LineWriter(writing)
    PlainLines(service, ("stdio", "x"), reader, writer)
    reader.data_received(b'\n{\n{"jsonrpc":"2.0","id":true,"method":"tools/call"}\n')
    reader.data_received(request() + b"\n")
    for _ in range(5):
        reader.data_received(b"x" * 4 * 1024**2)
    reader.data_received(b"\n" + request(id=8) + b"\n")
    assert (select.select([reading], [], [], 10))[0]
    answers = [json.loads(line) for line in os.read(reading, 10_000).splitlines()]
    os.close(reading)
    os.close(writing)
    found = [(answer["error"]["code"], answer["id"]) for answer in answers]
    assert found == [(-32700, None), (-32600, None), (-32600, None)]
    assert "more than 16 MiB" in answers[2]["error"]["message"]
    assert "a line of more than 16 MiB is skipped" in capsys.readouterr().err
    assert [json.loads(await anext(reader))["id"] for _ in range(2)] == [7, 8]


def test_true_cancels_no_call() -> None:
    for given, found in ((1, 1), ("a", "a"), (True, ""), (1.0, ""), ([1], "")):
        message = {"method": "notifications/cancelled", "params": {"requestId": given}}
        assert find_cancelled(message) == found
        assert type(find_cancelled(message)) is type(found)
