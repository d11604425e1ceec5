"""Attacks on every server there is, over real sockets: each is refused, by each of them, and
nothing was done.

An attack is made of the request that would do something (`Face.deed`): a control shows that it
does, once it is sent as it should be.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import (
    CANARY,
    TOKEN,
    Interface,
    all_interfaces,
    end,
    exchanged,
    found,
    got,
    running,
    spelled,
    start,
)

from ferrule.core.errors import ConfigError
from ferrule.runtime.http import server
from ferrule.runtime.http.http_security import HEADERS, HttpGuard, Principal
from ferrule.runtime.http.sign_in import BrowserSignIn

NAMES = ("console", "a2a", "ag-ui", "openai", "mcp")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Interface]]:
    """All that can be had here."""
    with running(all_interfaces(), tmp_path_factory.mktemp) as interfaces:
        yield interfaces


@pytest.fixture(params=NAMES)
def interface(request: pytest.FixtureRequest, servers: dict[str, Interface]) -> Interface:
    if request.param not in servers:
        pytest.skip(f"what `serve {request.param}` needs is not installed here")
    return servers[request.param]


# ---- the table

ATTACKS: dict[str, tuple[int, Callable[[Interface], dict[str, Any]]]] = {
    "no token": (401, lambda _: {"authorization": None}),
    "another token": (401, lambda _: {"authorization": "Bearer the-token-of-the-ownex"}),
    "the beginning of the token": (401, lambda _: {"authorization": f"Bearer {TOKEN[:-1]}"}),
    "the token and more": (401, lambda _: {"authorization": f"Bearer {TOKEN} " + "x"}),
    "the token without its scheme": (401, lambda _: {"authorization": TOKEN}),
    "the token by another scheme": (401, lambda _: {"authorization": f"Basic {TOKEN}"}),
    "a wrong token and the right one": (
        401,
        lambda _: {"authorization": ["Bearer wrong", f"Bearer {TOKEN}"]},
    ),
    "the token in a cookie": (
        401,
        lambda interface: {"authorization": None, "cookie": f"ferrule-{interface.port}={TOKEN}"},
    ),
    "a cookie that nobody was given": (
        401,
        lambda interface: {
            "authorization": None,
            "cookie": f"ferrule-{interface.port}=" + "a" * 43,
        },
    ),
    "a page of another site": (403, lambda _: {"origin": "https://evil.example"}),
    "a page of no site": (403, lambda _: {"origin": "null"}),
    "a page on another port of this machine": (403, lambda _: {"origin": "http://127.0.0.1:1"}),
    "a page of ours and another one": (
        403,
        lambda interface: {"origin": [f"http://{interface.host}", "https://evil.example"]},
    ),
    "a link of another site": (403, lambda _: {"sec_fetch_site": "cross-site"}),
    "a link on another port of this machine": (403, lambda _: {"sec_fetch_site": "same-site"}),
    "a rebound name": (421, lambda interface: {"host": f"evil.example:{interface.port}"}),
    "a name under ours": (
        421,
        lambda interface: {"host": f"127.0.0.1.evil.example:{interface.port}"},
    ),
    "our name with a dot": (421, lambda interface: {"host": f"localhost.:{interface.port}"}),
    "our name without a port": (421, lambda _: {"host": "127.0.0.1"}),
    "our name on another port": (421, lambda _: {"host": "127.0.0.1:1"}),
    "all addresses as a name": (421, lambda interface: {"host": f"0.0.0.0:{interface.port}"}),
    "an empty name": (421, lambda _: {"host": ""}),
    "two names": (400, lambda interface: {"host": [interface.host, "evil.example"]}),
    "no name": (400, lambda _: {"host": None}),
    "a length that is none": (400, lambda _: {"content_length": "-1"}),
    "two lengths": (400, lambda _: {"content_length": ["3", "4"]}),
    "a head without end": (400, lambda _: {"x_long": "x" * 200_000}),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_it_is_refused_and_nothing_was_done(interface: Interface, attack: str) -> None:
    status, change = ATTACKS[attack]
    before = interface.sessions()
    answer = exchanged(interface, spelled(interface, interface.deed(), **change(interface)))
    assert answer is not None and answer.status == status
    assert interface.sessions() == before
    assert CANARY not in answer.body and TOKEN not in answer.body


def test_what_the_attacks_are_made_of_works_when_it_is_sent_as_it_should_be(
    interface: Interface,
) -> None:
    before = interface.sessions()
    looked = exchanged(interface, spelled(interface, interface.look(), connection="close"))
    assert looked is not None and looked.status == 200 and interface.sessions() == before
    done = exchanged(interface, spelled(interface, interface.deed(), connection="close"))
    assert done is not None and done.status in (200, 303), done
    assert interface.sessions() > before


def test_a_token_in_the_address_is_no_token(interface: Interface) -> None:
    sent = interface.deed()
    sent["path"] += f"?token={TOKEN}&access_token={TOKEN}"
    before = interface.sessions()
    answer = exchanged(interface, spelled(interface, sent, authorization=None))
    assert answer is not None and answer.status == 401 and interface.sessions() == before


def test_a_body_that_is_declared_too_large_is_refused_before_anything_of_it_is_sent(
    interface: Interface,
) -> None:
    before = interface.sessions()
    sent = {**interface.deed(), "body": b""}
    for declared in (interface.most + 1, 10**12):
        answer = exchanged(interface, spelled(interface, sent, content_length=str(declared)))
        assert answer is not None and answer.status == 413
    assert interface.sessions() == before


def test_a_body_without_end_is_broken_off_at_the_bound(interface: Interface) -> None:
    before = interface.sessions()
    sent = {**interface.deed(), "body": b""}
    head = spelled(interface, sent, content_length=None, transfer_encoding="chunked")
    piece = 65_536
    pieces = [b"%x\r\n%s\r\n" % (piece, b"x" * piece)] * (interface.most // piece)
    # The byte that is too much is the last that we send: with more on its way, the connection
    # would be reset and the answer lost.
    answer = exchanged(interface, head, *pieces, b"1\r\nx")
    assert answer is not None and answer.status == 413
    assert interface.sessions() == before


def test_a_request_with_two_ends_is_refused_and_what_hides_behind_it_is_not_read(
    interface: Interface,
) -> None:
    before = interface.sessions()
    hidden = spelled(interface, interface.deed())
    sent = {**interface.look(), "body": b"0\r\n\r\n"}
    head = spelled(
        interface, sent, transfer_encoding="chunked", content_length=str(5 + len(hidden))
    )
    answer = exchanged(interface, head + hidden)
    assert answer is not None and answer.status == 400 and answer.headers["connection"] == "close"
    assert interface.sessions() == before


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00" * 100 + b"\r\n\r\n",
        b"{}\r\n\r\n",
    ],
)
def test_what_is_not_http_is_not_answered_as_if_it_were(interface: Interface, noise: bytes) -> None:
    answer = exchanged(interface, noise + b"\r\n\r\n")
    assert answer is None or answer.status in (400, 421)


def test_there_are_no_web_sockets(interface: Interface) -> None:
    upgrade = {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec_websocket_version": "13",
        "sec_websocket_key": "a" * 24,
    }
    for path in ("/", "/stream", interface.deed()["path"]):
        answer = exchanged(interface, spelled(interface, got(path), **upgrade, authorization=None))
        assert answer is not None and answer.status in (401, 303, 404)


@pytest.mark.parametrize(
    "method", ["PUT", "DELETE", "PATCH", "TRACE", "OPTIONS", "CONNECT", "GET", "HEAD", "post"]
)
def test_another_method_does_not_do_it(interface: Interface, method: str) -> None:
    before = interface.sessions()
    sent = {**interface.deed(), "method": method}
    for more in ({}, {"x_http_method_override": "POST"}):
        answer = exchanged(interface, spelled(interface, sent, connection="close", **more))
        assert answer is None or answer.status < 500
    assert interface.sessions() == before


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/%00",
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static/..%5capp.py",
        "/static//etc/passwd",
        "/static/%2fetc%2fpasswd",
        "/static/../runs",
        "/static/",
        "/.well-known/../runs",
        "/.well-known/agent-card.json/../../runs",
        "/runs;.css",
        "http://evil.example/runs",
        "/%72uns/x",
        "*",
    ],
)
def test_a_path_leads_nowhere_but_to_what_there_is(interface: Interface, path: str) -> None:
    for more in ({}, {"authorization": None}):
        answer = exchanged(interface, spelled(interface, got(path), connection="close", **more))
        assert (
            answer is None
            or (
                answer.status in (303, 307, 400, 401, 404, 405, 406)
                and "location" not in answer.headers
            )
            or (answer.headers.get("location", "").startswith(("/login", "/")))
        )
        assert answer is None or not re.search(
            f"root:x:|def make_app|{CANARY}|{TOKEN}", answer.body
        )


def test_clients_that_never_finish_are_given_up_and_others_are_served_meanwhile(
    servers: dict[str, Interface],
) -> None:
    held: list[socket.socket] = []
    for interface in servers.values():
        whole = spelled(interface, interface.deed())
        nearly = whole[: -len(interface.deed()["body"]) - 2 or None]
        for piece in (b"", whole[:20], nearly, whole[:-1]):
            speaking = socket.create_connection(("127.0.0.1", interface.port), timeout=60)
            speaking.sendall(piece)
            held.append(speaking)
    for interface in servers.values():
        answer = exchanged(interface, spelled(interface, interface.look(), connection="close"))
        assert answer is not None and answer.status == 200
    for speaking in held:
        with speaking:
            said = b""
            with contextlib.suppress(ConnectionError):
                while piece := speaking.recv(65_536):
                    said += piece
            assert said == b"" or b" 408 " in said.partition(b"\r\n")[0]


def test_a_byte_now_and_then_does_not_keep_a_connection(interface: Interface) -> None:
    with socket.create_connection(("127.0.0.1", interface.port), timeout=0.2) as speaking:
        speaking.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(300):
            # Each wait for an answer is a wait between two bytes, too.
            try:
                speaking.sendall(b"x: y\r\n")
                assert speaking.recv(10) == b""
                return
            except TimeoutError:
                continue
            except ConnectionError:
                return
    raise AssertionError("it was kept for a minute")


def test_every_answer_says_that_nothing_of_others_may_run_in_it(interface: Interface) -> None:
    changes: list[dict[str, Any]] = [
        {},
        {"authorization": None},
        {"origin": "null"},
        {"host": "evil.example"},
    ]
    for sent in (interface.look(), got("/nothing-here"), got("/.well-known/agent-card.json")):
        for change in changes:
            answer = exchanged(interface, spelled(interface, sent, connection="close", **change))
            assert answer is not None
            for name, value in HEADERS:
                assert value.decode() in answer.headers[name.decode()]
            assert answer.headers["cache-control"] and "server" not in answer.headers


# ---- serving itself


async def _open(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


@contextlib.asynccontextmanager
async def served(**more: Any) -> Any:
    """An application that answers without end, behind an HTTP guard; its port, and the task that
    serves.
    """
    with server.listen("127.0.0.1", 0) as listening:
        port = server.bound_port(listening)
        hosts = server.accepted_hosts("127.0.0.1", port)
        signing = BrowserSignIn(server.accepted_origins("127.0.0.1", port))
        http_guard = HttpGuard(
            _open, token={TOKEN: Principal("ada")}, hosts=hosts, browsers=signing
        )
        task = asyncio.create_task(
            server.serve(http_guard, "127.0.0.1", port, listening=listening, **more)
        )
        try:
            yield port, task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def _ask(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"GET / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {TOKEN}\r\n\r\n".encode()
    )
    return reader, writer


async def test_connections_are_bounded_and_those_that_end_make_room() -> None:
    async with served(connections=3) as (port, _), asyncio.timeout(30):
        kept = [await _ask(port) for _ in range(2)]
        for reader, _ in kept:
            assert b" 200 " in await reader.readline()
        more = [await _ask(port) for _ in range(3)]
        assert any([b" 503 " in await reader.readline() for reader, _ in more])
        for _, writer in (*kept, *more):
            writer.close()
            await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])
        while True:
            reader, writer = await _ask(port)
            fine = b" 200 " in await reader.readline()
            writer.close()
            await writer.wait_closed()
            if fine:
                return


async def test_a_reader_that_does_not_read_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STALLED_SECONDS", 0.2)
    left = asyncio.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.ensure_future(receive())
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            await asyncio.sleep(0)
        left.set()

    with server.listen("127.0.0.1", 0) as listening:
        port = server.bound_port(listening)
        task = asyncio.create_task(server.serve(endless, "127.0.0.1", port, listening=listening))
        with socket.create_connection(("127.0.0.1", port)) as speaking:
            speaking.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            async with asyncio.timeout(30):
                await left.wait()
        task.cancel()
        await asyncio.wait([task])


def test_a_server_that_is_told_to_end_ends_its_streams_and_goes(tmp_path: Path) -> None:
    (interface,) = (one for one in all_interfaces() if one.name == "console")
    if not importlib.util.find_spec(interface.needs):
        pytest.skip("what `serve console` needs is not installed here")
    start(interface, tmp_path)
    found(interface)
    try:
        with socket.create_connection(("127.0.0.1", interface.port), timeout=60) as watching:
            watching.sendall(spelled(interface, got("/stream")))
            assert b" 200 " in watching.recv(4096)
            assert interface.process is not None
            interface.process.send_signal(signal.SIGTERM)
            while watching.recv(65_536):
                pass
    finally:
        code = end(interface)
    assert code == 143 and "Traceback" not in "".join(interface.said)


def test_an_address_that_is_taken_is_an_error_that_says_so() -> None:
    with server.listen("127.0.0.1", 0) as listening:
        port = server.bound_port(listening)
        with pytest.raises(ConfigError, match="cannot serve on") as taken:
            server.listen("127.0.0.1", port)
    assert "port" in taken.value.hint
    with pytest.raises(ConfigError, match="this machine has no such address"):
        server.listen("192.0.2.1", 0)
    if socket.has_dualstack_ipv6():
        with server.listen("::1", 0) as listening:
            assert listening.getsockname()[0] == "::1"
    assert server.accepted_hosts("::1", 80) == {"[::1]:80", "localhost:80", "[::1]", "localhost"}
    assert server.accepted_origins("127.0.0.1", 8000, "https://a.example/x") == {
        "http://127.0.0.1:8000", "http://localhost:8000", "https://a.example",
    }  # fmt: skip
