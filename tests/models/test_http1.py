"""The parser of responses: the same answer however the bytes are cut, and no answer from what is
none.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.models.http.http1 import MalformedResponse, ResponseParser, encode_request_head

HEAD_LIMIT = 64 * 1024

OK = b"HTTP/1.1 200 OK\r\n"


def parsed(*pieces: bytes, eof: bool = False) -> tuple[ResponseParser, bytes]:
    parser = ResponseParser()
    body = b"".join(parser.feed(piece) for piece in pieces)
    if eof:
        parser.feed_eof()
    return parser, body


def chunked(*chunks: bytes, end: bytes = b"0\r\n\r\n") -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return OK + b"Transfer-Encoding: chunked\r\n\r\n" + body + end


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.data())
def test_the_body_does_not_depend_on_how_the_bytes_are_cut(
    chunks: list[bytes], data: st.DataObject
) -> None:
    answer = b"HTTP/1.1 100 Continue\r\n\r\n" + chunked(*chunks, end=b"0;x=y\r\nTrailer: t\r\n\r\n")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=12)))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    parser, body = parsed(*pieces)
    assert body == b"".join(chunks)
    assert (parser.status, parser.done, parser.reusable) == (200, True, True)


def test_a_body_of_known_length_ends_by_itself() -> None:
    for pieces in (
        [OK + b"Content-Length: 3\r\n\r\nabc"],
        [OK + b"content-length:3\r\n", b"\r\na", b"bc"],
    ):
        parser, body = parsed(*pieces)
        assert (body, parser.done, parser.reusable) == (b"abc", True, True)


def test_a_body_without_length_ends_with_the_connection() -> None:
    parser, body = parsed(OK + b"\r\nab", b"c", eof=True)
    assert (body, parser.done, parser.reusable) == (b"abc", True, False)


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_some_answers_have_no_body(status: bytes) -> None:
    assert parsed(b"HTTP/1.1 " + status + b"\r\n\r\n")[0].done


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 200 OK\r\nconnection: x, Close",
    ],
)
def test_a_connection_that_will_be_closed_is_not_used_again(head: bytes) -> None:
    parser, _ = parsed(head + b"\r\nContent-Length: 0\r\n\r\n")
    assert (parser.done, parser.reusable) == (True, False)


def test_two_ways_to_say_the_length_make_the_connection_suspect() -> None:
    parser, body = parsed(
        OK + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    )
    assert (body, parser.done, parser.reusable) == (b"a", True, False)


def test_bytes_after_the_answer_make_the_connection_suspect() -> None:
    parser, body = parsed(OK + b"Content-Length: 1\r\n\r\naHTTP/1.1 200 OK")
    assert (body, parser.reusable) == (b"a", False)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        OK + b"no colon\r\n\r\n",
        OK + b"Bad Name: x\r\n\r\n",
        OK + b" folded: x\r\n\r\n",
        OK + b"Content-Length: -1\r\n\r\n",
        OK + b"Content-Length: +1\r\n\r\n",
        OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\na\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 " + b"x" * (HEAD_LIMIT + 10),
    ],
)
def test_what_is_no_answer_is_refused_whole_and_bytewise(answer: bytes) -> None:
    with pytest.raises(MalformedResponse):
        parsed(answer)
    with pytest.raises(MalformedResponse):
        parsed(*(answer[i : i + 1] for i in range(len(answer))))


@pytest.mark.parametrize(
    "answer", [b"", OK, OK + b"Content-Length: 2\r\n\r\na", chunked(b"abc", end=b"")]
)
def test_an_answer_that_stops_in_the_middle_is_refused(answer: bytes) -> None:
    with pytest.raises(MalformedResponse):
        parsed(answer, eof=True)


def test_a_request_head_is_what_the_standard_says() -> None:
    head = encode_request_head("POST", "/v1/x?y=1", "host:80", {"Authorization": "Bearer k"}, 5)
    assert head == (
        b"POST /v1/x?y=1 HTTP/1.1\r\nHost: host:80\r\nAuthorization: Bearer "
        b"k\r\nContent-Length: 5\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("name", "value", "target"),
    [
        ("X-\udc80", "a", "/"),
        ("X", "a\r\nY: b", "/"),
        ("X\r\nY", "a", "/"),
        ("X", "a\0", "/"),
        ("X", "☃", "/"),
        ("X", "a", "/ HTTP/1.1\r\nY: b"),
    ],
)
def test_nothing_can_be_smuggled_into_a_request(name: str, value: str, target: str) -> None:
    with pytest.raises(ValueError, match="HTTP does not allow") as raised:
        encode_request_head("GET", target, "host", {name: value}, None)
    assert "Y: b" not in str(raised.value)
