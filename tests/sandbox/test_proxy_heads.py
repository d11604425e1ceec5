"""Heads of requests and answers: what can be read in two ways is not passed on, and what passes is
written anew.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.sandbox.network.allowed_hosts import InvalidHost
from ferrule.sandbox.network.http_heads import (
    BodyEnd,
    MalformedMessage,
    parse_request,
    parse_response,
)

FIELDS_LIMIT = 256

GET = b"GET http://example.com/a?b=c HTTP/1.1"


def lines(first: bytes, *fields: bytes) -> list[bytes]:
    return [first, *fields]


def test_a_request_is_written_anew_for_its_server() -> None:
    asked = parse_request(
        lines(
            b"POST http://EXAMPLE.com:8080/a?b=c#d HTTP/1.1",
            b"Host: elsewhere.test",
            b"Accept: a",
            b"accept: b",
            b"Proxy-Authorization: Basic secret",
            b"Proxy-Connection: keep-alive",
            b"Connection: keep-alive, X-Mine",
            b"X-Mine: 1",
            b"Keep-Alive: timeout=5",
            b"TE: trailers",
            b"Upgrade: h2c",
            b"Content-Length: 3",
            b"Via: 1.0 before",
        )
    )
    assert (asked.host, asked.port, asked.framing) == ("example.com", 8080, 3)
    assert asked.encode() == (
        b"POST /a?b=c HTTP/1.1\r\nHost: example.com:8080\r\nAccept: a\r\naccept: b\r\nVia: "
        b"1.0 before\r\n"
        b"Content-Length: 3\r\nConnection: close\r\n\r\n"
    )


def test_for_another_proxy_the_target_stays_absolute() -> None:
    asked = parse_request(lines(GET, b"Host: x"))
    assert asked.encode("Basic abc") == (
        b"GET http://example.com/a?b=c HTTP/1.1\r\nHost: example.com\r\nProxy-Authorization: "
        b"Basic abc\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"http://example.com", "/"),
        (b"http://example.com?x", "/?x"),
        (b"HTTP://example.com/", "/"),
        (b"http://example.com:/y", "/y"),
    ],
)
def test_an_absolute_target_always_has_a_path(target: bytes, path: str) -> None:
    assert parse_request(lines(b"GET " + target + b" HTTP/1.1")).path == path


SMUGGLED = [
    lines(GET, b"Content-Length: 3", b"Content-Length: 3"),
    lines(GET, b"Content-Length: 3", b"content-length: 4"),
    lines(GET, b"Content-Length: 3, 3"),
    lines(GET, b"Content-Length: +3"),
    lines(GET, b"Content-Length: -3"),
    lines(GET, b"Content-Length: 0x3"),
    lines(GET, b"Content-Length: 3 4"),
    lines(GET, b"Content-Length:"),
    lines(GET, b"Content-Length: " + b"9" * 30),
    lines(GET, b"Content-Length: 3", b"Transfer-Encoding: chunked"),
    lines(GET, b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
    lines(GET, b"Transfer-Encoding: identity"),
    lines(GET, b"Transfer-Encoding: gzip, chunked"),
    lines(GET, b"Transfer-Encoding: chunked, identity"),
    lines(GET, b"Transfer-Encoding: \x0bchunked"),
    lines(GET, b"Transfer-Encoding : chunked"),
    lines(GET, b" Transfer-Encoding: chunked"),
    lines(GET, b"X: a", b"\tfolded"),
    lines(GET, b"X: a", b" folded: b"),
    lines(GET, b"X"),
    lines(GET, b": value"),
    lines(GET, b"X: a\x00b"),
    lines(GET, b"X: a\x7fb"),
    lines(GET, b"X\xc3\xa9: a"),
    lines(GET, b"Host: a", b"Host: b"),
    lines(b"GET http://example.com/ HTTP/1.0", b"Transfer-Encoding: chunked"),
    lines(b"GET  http://example.com/ HTTP/1.1"),
    lines(b"GET http://example.com/ HTTP/1.1 "),
    lines(b"GET\thttp://example.com/ HTTP/1.1"),
    lines(b"GET http://example.com/ HTTP/2.0"),
    lines(b"GET http://example.com/ HTTP/1.1 HTTP/1.1"),
    lines(b"GET http://example.com/"),
    lines(b"GET http://example.com/\xc3\xa9 HTTP/1.1"),
    lines(b"G(T http://example.com/ HTTP/1.1"),
    lines(b"GET /origin HTTP/1.1", b"Host: example.com"),
    lines(b"GET https://example.com/ HTTP/1.1"),
    lines(b"GET ftp://example.com/ HTTP/1.1"),
    lines(b"GET http:///path HTTP/1.1"),
    lines(b"GET http://user@example.com/ HTTP/1.1"),
    lines(b"GET http://example.com@evil.test/ HTTP/1.1"),
    lines(b"GET http://example.com\\@evil.test/ HTTP/1.1"),
    lines(b"OPTIONS * HTTP/1.1", b"Host: example.com"),
    lines(b"CONNECT example.com HTTP/1.1"),
    lines(b"CONNECT example.com: HTTP/1.1"),
    lines(b"CONNECT example.com:443/x HTTP/1.1"),
    lines(b"CONNECT http://example.com:443 HTTP/1.1"),
    lines(b"CONNECT user@example.com:443 HTTP/1.1"),
    lines(b"CONNECT example.com:443 HTTP/1.1", b"Content-Length: 5"),
    lines(b"CONNECT example.com:99999 HTTP/1.1"),
    lines(b"CONNECT [::1%25lo]:443 HTTP/1.1"),
    lines(GET, *[b"X: y"] * (FIELDS_LIMIT + 1)),
    lines(b"PRI * HTTP/2.0"),
    lines(b"\x16\x03\x01\x02\x00"),
]


@pytest.mark.parametrize("head", SMUGGLED)
def test_a_request_that_can_be_read_in_two_ways_is_not_passed_on(head: list[bytes]) -> None:
    with pytest.raises((MalformedMessage, InvalidHost)):
        parse_request(head)


@pytest.mark.parametrize(
    ("first", "fields", "method", "framing"),
    [
        (b"HTTP/1.1 200 OK", [b"Content-Length: 5"], "GET", 5),
        (b"HTTP/1.1 200 OK", [b"Transfer-Encoding: Chunked"], "GET", BodyEnd.CHUNKED),
        (b"HTTP/1.0 200", [], "GET", BodyEnd.CLOSE),
        (b"HTTP/1.1 200 OK", [b"Content-Length: 5"], "HEAD", 0),
        (b"HTTP/1.1 304 Not Modified", [b"Content-Length: 5"], "GET", 0),
        (b"HTTP/1.1 204 No Content", [], "GET", 0),
    ],
)
def test_where_an_answer_ends(
    first: bytes, fields: list[bytes], method: str, framing: int | BodyEnd
) -> None:
    assert parse_response([first, *fields], method).framing == framing


@pytest.mark.parametrize(
    "head",
    [
        lines(b"HTTP/1.1 101 Switching Protocols", b"Upgrade: h2c"),
        lines(b"HTTP/1.1 200 OK", b"Content-Length: 5", b"Transfer-Encoding: chunked"),
        lines(b"HTTP/1.1 200 OK", b"Content-Length: 5", b"Content-Length: 6"),
        lines(b"HTTP/2 200 OK"),
        lines(b"ICY 200 OK"),
        lines(b"SSH-2.0-OpenSSH_9.6"),
    ],
)
def test_an_answer_that_can_be_read_in_two_ways_is_not_passed_on(head: list[bytes]) -> None:
    with pytest.raises(MalformedMessage):
        parse_response(head, "GET")


def test_an_answer_keeps_its_fields_in_order_and_its_repeated_ones_apart() -> None:
    answer = parse_response(
        lines(
            b"HTTP/1.1 200 Fine",
            b"Set-Cookie: a=1",
            b"Set-Cookie: b=2",
            b"Connection: x-hop",
            b"X-Hop: 1",
            b"Transfer-Encoding: chunked",
        ),
        "GET",
    )
    assert answer.encode(chunks=True, keep=True) == (
        b"HTTP/1.1 200 Fine\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nTransfer-Encoding: "
        b"chunked\r\n\r\n"
    )
    assert answer.encode(chunks=False, keep=False).endswith(b"b=2\r\nConnection: close\r\n\r\n")


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6))
def test_whatever_comes_is_passed_on_as_one_head_or_refused(head: list[bytes]) -> None:
    try:
        asked = parse_request([GET, *head])
    except (MalformedMessage, InvalidHost):
        return
    written = asked.encode()
    assert written.count(b"\r\n\r\n") == 1 and written.endswith(b"\r\n\r\n")
    assert written.lower().count(b"\r\nhost:") == 1
    again = parse_request(
        [
            written.split(b"\r\n")[0].replace(b" /", b" http://example.com/"),
            *written.split(b"\r\n")[1:-2],
        ]
    )
    assert again.framing == asked.framing
