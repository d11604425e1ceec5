"""The transport against servers that behave and servers that do not. The waits are on events, and
bounded.
"""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import ssl
import subprocess
import threading
import zlib
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ferrule.core.errors import ConfigError, ProviderError
from ferrule.models.http.proxies import find_proxy, is_loopback
from ferrule.models.http.retry import parse_retry_after, retry
from ferrule.models.http.transport import Timeouts, Transport
from ferrule.testing.http_double import Handler, HttpDouble, Reply, Request

Story = Callable[[HttpDouble, Transport], Awaitable[Any]]
JSON = {"Content-Type": "application/json"}


def run_story(
    handler: Handler,
    story: Story,
    transport: Transport | None = None,
    tls: ssl.SSLContext | None = None,
) -> Any:
    """Run a story with a server and a transport, bounded in time; what the story returns."""

    async def run() -> Any:
        used = transport or Transport()
        async with asyncio.timeout(20), HttpDouble(handler, tls=tls) as server:
            try:
                return await story(server, used)
            finally:
                await used.close()

    return asyncio.run(run())


def failing(handler: Handler, story: Story, transport: Transport | None = None) -> ProviderError:
    with pytest.raises(ProviderError) as raised:
        run_story(handler, story, transport)
    return raised.value


async def post(server: HttpDouble, transport: Transport) -> Any:
    return await transport.post(f"{server.url}/v1/x?y=1", b'{"a":1}', JSON)


def echo(request: Request) -> Reply:
    return Reply(
        json={"method": request.method, "target": request.target, "body": request.body.decode()}
    )


def test_a_post_carries_its_body_and_brings_the_answer() -> None:
    answer = run_story(echo, post)
    assert answer.body == b'{"method":"POST","target":"/v1/x?y=1","body":"{\\"a\\":1}"}'
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
def test_every_way_to_end_a_body_is_understood(framing: Any) -> None:
    body = run_story(
        lambda _: Reply(
            pieces=[b"ab", b"", b"cd"] if framing != "chunked" else [b"ab", b"cd"], framing=framing
        ),
        post,
    ).body
    assert body == b"abcd"


def test_a_large_body_goes_and_comes_whole() -> None:
    async def story(server: HttpDouble, transport: Transport) -> bytes:
        return (await transport.post(server.url, b"x" * 3_000_000, {})).body

    assert run_story(lambda r: Reply(pieces=[r.body], framing="length"), story) == b"x" * 3_000_000


def test_a_stream_can_be_left_to_wait_without_losing_bytes() -> None:
    async def story(server: HttpDouble, transport: Transport) -> bytes:
        async with transport.stream(server.url, b"", {}) as stream:
            first = await stream.read_chunk()
            await server.request_received.wait()
            return first + await stream.read()

    assert run_story(lambda _: Reply(pieces=[b"y" * 400_000] * 10), story) == b"y" * 4_000_000


def test_one_connection_serves_many_requests_one_after_another() -> None:
    async def story(server: HttpDouble, transport: Transport) -> int:
        for _ in range(5):
            await post(server, transport)
        return server.connection_count

    assert run_story(echo, story) == 1


def test_requests_at_once_get_connections_of_their_own() -> None:
    async def story(server: HttpDouble, transport: Transport) -> int:
        answers = await asyncio.gather(
            *(transport.post(server.url, b"%d" % i, {}) for i in range(20))
        )
        assert [a.body for a in answers] == [b"%d" % i for i in range(20)]
        return server.connection_count

    assert 1 < run_story(lambda r: Reply(pieces=[r.body]), story) <= 20


def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    replies = [Reply(pieces=[b"1"]), Reply(drop_head=True), Reply(pieces=[b"2"])]

    async def story(server: HttpDouble, transport: Transport) -> tuple[bytes, int]:
        await post(server, transport)
        return (await post(server, transport)).body, server.connection_count

    assert run_story(lambda _: replies.pop(0), story) == (b"2", 2)


def test_a_transport_works_in_one_loop_after_another() -> None:
    transport = Transport()
    assert [run_story(echo, post, transport).status for _ in range(2)] == [200, 200]


def test_the_end_of_a_loop_closes_connections_that_nobody_closed() -> None:
    """One that is left to the collector warns when it is found, and a warning is an error here."""
    transport = Transport()
    server_loop = asyncio.new_event_loop()
    serving = threading.Thread(target=server_loop.run_forever)
    serving.start()

    def in_server_loop(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, server_loop).result(20)

    server = HttpDouble(echo)
    in_server_loop(server.__aenter__())
    try:
        for _ in range(2):
            assert asyncio.run(post(server, transport)).status == 200
        del transport
        gc.collect()
    finally:
        in_server_loop(server.__aexit__(None, None, None))
        server_loop.call_soon_threadsafe(server_loop.stop)
        serving.join()
        server_loop.close()


# ---- cancelling


def cancelled(reply: Reply, streamed: bool) -> None:
    async def story(server: HttpDouble, transport: Transport) -> None:
        async def read() -> None:
            if streamed:
                async with transport.stream(server.url, b"", {}) as stream:
                    await stream.read()
            else:
                await post(server, transport)

        task = asyncio.create_task(read())
        await server.request_received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.client_left.wait()

    run_story(lambda _: reply, story)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    "reply", [Reply(hold_head=True), Reply(pieces=[b"begun"], then="hold")], ids=["head", "body"]
)
def test_cancelling_closes_the_connection(reply: Reply, streamed: bool) -> None:
    cancelled(reply, streamed)


@pytest.mark.skipif(
    not Path("/proc/self/fd").is_dir(), reason="open files can be counted on Linux only"
)
def test_when_the_cancellation_goes_on_the_socket_is_already_closed() -> None:
    async def story(server: HttpDouble, transport: Transport) -> int:
        task = asyncio.create_task(post(server, transport))
        await server.request_received.wait()
        before = len(os.listdir("/proc/self/fd"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return before - len(os.listdir("/proc/self/fd"))

    assert run_story(lambda _: Reply(hold_head=True), story) == 1


def test_leaving_a_stream_early_closes_its_connection_and_spares_the_others() -> None:
    replies = [Reply(pieces=[b"begun"], then="hold"), Reply(pieces=[b"next"])]

    async def story(server: HttpDouble, transport: Transport) -> bytes:
        async with transport.stream(server.url, b"", {}) as stream:
            assert await stream.read_chunk() == b"begun"
        await server.client_left.wait()
        return (await post(server, transport)).body

    assert run_story(lambda _: replies.pop(0), story) == b"next"


# ---- errors


def test_a_dead_server_is_unreachable_and_worth_another_try() -> None:
    error = failing(echo, lambda s, t: t.post("http://127.0.0.1:1/x", b"", {}))
    assert (error.code, error.retryable) == ("unreachable", True)
    assert "http://127.0.0.1:1" in error.detail


def test_a_server_that_hangs_up_at_once_is_unreachable() -> None:
    error = failing(lambda _: Reply(drop_head=True), post)
    assert (error.code, error.retryable) == ("unreachable", True)


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_an_answer_that_breaks_off_is_interrupted_and_not_repeated(framing: Any) -> None:
    def short(request: Request) -> Reply:
        headers = {"content-length": "9"} if framing == "length" else {}
        return Reply(
            pieces=[b"abc"], framing="close" if headers else "chunked", headers=headers, then="drop"
        )

    error = failing(short, post)
    assert (error.code, error.retryable) == ("interrupted", False)


@pytest.mark.parametrize(
    "reply", [Reply(hold_head=True), Reply(pieces=[b"begun"], then="hold")], ids=["head", "body"]
)
@pytest.mark.parametrize(
    "timeouts", [Timeouts(total=0.05), Timeouts(idle=0.05, total=None)], ids=["total", "idle"]
)
def test_a_silent_server_runs_into_the_timeout(reply: Reply, timeouts: Timeouts) -> None:
    async def story(server: HttpDouble, transport: Transport) -> Any:
        try:
            return await post(server, transport)
        finally:
            await server.client_left.wait()

    error = failing(lambda _: reply, story, Transport(timeouts=timeouts))
    assert (error.code, error.retryable) == ("timeout", False)


def pack(data: bytes, wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(("coding", "wbits"), [("gzip", 31), ("deflate", 15), ("deflate", -15)])
@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_a_compressed_answer_is_read_although_none_was_asked_for(
    coding: str, wbits: int, cut: int
) -> None:
    asked: list[str] = []
    body = b"an answer " * 300
    packed = pack(body, wbits)
    pieces = [packed[at : at + cut] for at in range(0, len(packed), cut)]

    def compress(request: Request) -> Reply:
        asked.append(request.headers["accept-encoding"])
        return Reply(pieces=pieces, headers={"content-encoding": coding})

    assert run_story(compress, post).body == body
    assert asked == ["identity"]


@pytest.mark.parametrize(
    ("coding", "body"),
    [("br", b"x"), ("gzip", b"not packed"), ("gzip", pack(b"x" * 5000, 31)[:-9])],
)
def test_a_body_that_cannot_be_unpacked_is_refused_and_not_retried(
    coding: str, body: bytes
) -> None:
    reply = Reply(pieces=[body], headers={"content-encoding": coding})
    error = failing(lambda _: reply, post)
    assert (error.code, error.retryable) == ("not_understood", False)
    assert coding in error.detail
    plain = Reply(pieces=[b"ab"], headers={"content-encoding": "Identity"})
    assert run_story(lambda _: plain, post).body == b"ab"


def test_a_small_body_cannot_fill_the_memory() -> None:
    bomb = pack(bytes(300 << 20), 31)
    error = failing(lambda _: Reply(pieces=[bomb], headers={"content-encoding": "gzip"}), post)
    assert error.code in ("too_large", "not_understood")


@pytest.mark.parametrize(("scheme", "code"), [("http", "not_http"), ("https", "tls")])
def test_a_server_of_another_kind_is_told_apart(scheme: str, code: str) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-x\r\n\r\n")
        await writer.drain()
        writer.close()

    async def story(server: HttpDouble, transport: Transport) -> Any:
        other = await asyncio.start_server(greet, "127.0.0.1", 0)
        try:
            return await transport.get(f"{scheme}://127.0.0.1:{other.sockets[0].getsockname()[1]}/")
        finally:
            other.close()

    error = failing(echo, story)
    assert (error.code, error.retryable) == (code, False)


def test_a_length_that_no_file_has_is_no_http() -> None:
    error = failing(lambda _: Reply(headers={"content-length": "9" * 5_000}, framing="close"), post)
    assert (error.code, error.retryable) == ("not_http", False)


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def story(server: HttpDouble, transport: Transport) -> tuple[int, int]:
        answer = await transport.post(server.url, b"", {"Authorization": "Bearer k"})
        return answer.status, len(server.requests)

    assert run_story(lambda _: Reply(307, headers={"Location": "http://127.0.0.1:1/"}), story) == (
        307,
        1,
    )


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://x/", "http://", "http://me:pw@host/", "http://host:99999/"]
)
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url: str) -> None:
    with pytest.raises(ConfigError):
        run_story(echo, lambda s, t: t.get(url))


def test_a_key_with_a_line_break_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as raised:
        run_story(echo, lambda s, t: t.post(s.url, b"", {"Authorization": "Bearer secret\r\nX: y"}))
    assert "secret" not in str(raised.value)


# ---- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 and model.test, and its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not here: no certificate can be made")
    folder = tmp_path_factory.mktemp("tls")
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    made += [
        "-subj",
        "/CN=model.test",
        "-addext",
        "subjectAltName=IP:127.0.0.1,DNS:model.test",
        "-days",
        "2",
    ]
    made += ["-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run(made, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "cert").read_bytes() + (folder / "key").read_bytes())
    return both


def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.mark.proves("http.tls-verified")
def test_a_certificate_nobody_vouches_for_is_refused(certificate: Path) -> None:
    with pytest.raises(ProviderError) as raised:
        run_story(echo, post, tls=server_tls(certificate))
    assert (raised.value.code, raised.value.retryable) == ("tls", False)
    assert "SSL_CERT_FILE" in raised.value.hint


@pytest.mark.proves("http.tls-verified")
def test_a_bundle_that_is_named_is_trusted(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        run_story(echo, post, Transport(ca_file=certificate), server_tls(certificate)).status == 200
    )
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert run_story(echo, post, tls=server_tls(certificate)).status == 200


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        run_story(
            echo,
            lambda s, t: t.get("https://127.0.0.1:1/"),
            Transport(ca_file=tmp_path / "nowhere"),
        )


def test_cancelling_closes_a_tls_connection_too(certificate: Path) -> None:
    async def story(server: HttpDouble, transport: Transport) -> None:
        task = asyncio.create_task(post(server, transport))
        await server.request_received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.client_left.wait()

    run_story(
        lambda _: Reply(hold_head=True),
        story,
        Transport(ca_file=certificate),
        server_tls(certificate),
    )


# ---- proxies


def test_a_proxy_gets_the_whole_address_and_its_own_credentials() -> None:
    async def story(server: HttpDouble, transport: Transport) -> Request:
        proxied = Transport(proxy=f"http://me:p%40ss@127.0.0.1:{server.port}")
        try:
            assert (await proxied.post("http://model.test/v1?x", b"b", {})).status == 200
        finally:
            await proxied.close()
        return server.requests[0]

    request = run_story(echo, story)
    assert (request.target, request.headers["host"]) == ("http://model.test/v1?x", "model.test")
    assert request.headers["proxy-authorization"] == "Basic bWU6cEBzcw=="


class Tunnel:
    """A proxy that knows CONNECT and leads every host to one port here."""

    def __init__(
        self, port: int, answer: bytes = b"HTTP/1.1 200 Connection established\r\n\r\n"
    ) -> None:
        self.port = port
        self.answer = answer
        self.head = b""
        self.pumps: list[asyncio.Task[None]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.head = await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        if b" 200 " not in self.answer:
            writer.close()
            return
        back, forth = await asyncio.open_connection("127.0.0.1", self.port)
        self.pumps = [
            asyncio.create_task(self.pump(a, b)) for a, b in ((reader, forth), (back, writer))
        ]

    async def pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
        target.close()


def tunnelled(certificate: Path, tunnel: Tunnel | None = None) -> tuple[Any, bytes]:
    async def story(server: HttpDouble, transport: Transport) -> tuple[Any, bytes]:
        way = tunnel or Tunnel(server.port)
        proxy = await asyncio.start_server(way.serve, "127.0.0.1", 0)
        address = f"http://u:p@127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        proxied = Transport(proxy=address, ca_file=certificate)
        try:
            return await proxied.post(
                "https://model.test/v1", b"b", {"Authorization": "Bearer k"}
            ), way.head
        finally:
            await proxied.close()
            proxy.close()
            await asyncio.gather(*way.pumps)

    return run_story(echo, story, tls=server_tls(certificate))


def test_https_goes_through_a_tunnel_and_the_proxy_sees_no_key(certificate: Path) -> None:
    answer, head = tunnelled(certificate)
    assert answer.body.startswith(b'{"method":"POST","target":"/v1"')
    assert head.startswith(b"CONNECT model.test:443 HTTP/1.1\r\nHost: model.test:443\r\n")
    assert b"Proxy-Authorization: Basic dTpw" in head
    assert b"Bearer" not in head


def test_a_proxy_that_says_no_is_named(certificate: Path) -> None:
    with pytest.raises(ProviderError, match="407"):
        tunnelled(
            certificate,
            Tunnel(0, b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"),
        )


@pytest.mark.parametrize(
    ("secure", "host", "env", "expected"),
    [
        (True, "api.x", {"HTTPS_PROXY": "http://p:1"}, ("p", 1, "")),
        (True, "api.x", {"https_proxy": "p:1", "HTTPS_PROXY": "q:2"}, ("p", 1, "")),
        (True, "api.x", {"ALL_PROXY": "http://p"}, ("p", 80, "")),
        (True, "api.x", {"HTTP_PROXY": "p:1"}, None),
        (False, "api.x", {"HTTP_PROXY": "p:1"}, ("p", 1, "")),
        (False, "api.x", {"HTTP_PROXY": "p:1", "REQUEST_METHOD": "GET"}, None),
        (False, "127.0.0.1", {"HTTP_PROXY": "p:1"}, None),
        (False, "localhost", {"HTTP_PROXY": "p:1"}, None),
        (False, "::1", {"HTTP_PROXY": "p:1"}, None),
        (True, "api.x", {"HTTPS_PROXY": "p:1", "NO_PROXY": "*"}, None),
        (True, "api.x", {"HTTPS_PROXY": "p:1", "NO_PROXY": "y, X"}, None),
        (True, "api.x", {"HTTPS_PROXY": "p:1", "NO_PROXY": ".x"}, None),
        (True, "notx", {"HTTPS_PROXY": "p:1", "NO_PROXY": "x"}, ("p", 1, "")),
        (True, "api.x", {"HTTPS_PROXY": "p:1", "NO_PROXY": "api.x:443"}, None),
        (True, "api.x", {"HTTPS_PROXY": "p:1", "NO_PROXY": "api.x:80"}, ("p", 1, "")),
        (False, "10.1.2.3", {"HTTP_PROXY": "p:1", "NO_PROXY": "10.0.0.0/8"}, None),
        (False, "11.1.2.3", {"HTTP_PROXY": "p:1", "NO_PROXY": "10.0.0.0/8"}, ("p", 1, "")),
        (True, "api.x", {}, None),
    ],
)
def test_the_environment_names_the_proxy(
    secure: bool, host: str, env: dict[str, str], expected: Any
) -> None:
    assert find_proxy(secure, host, 443 if secure else 80, None, env) == expected


def test_an_explicit_proxy_wins_and_an_empty_one_means_none() -> None:
    env = {"https_proxy": "p:1"}
    assert find_proxy(True, "api.x", 443, "http://q:2", env) == ("q", 2, "")
    assert find_proxy(True, "api.x", 443, "", env) is None


@pytest.mark.parametrize("url", ["socks5://p:1", "https://p:1", "http://"])
def test_a_proxy_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        find_proxy(True, "api.x", 443, url, {})


def test_names_that_look_like_loopback_are_not() -> None:
    assert not any(
        map(is_loopback, ("localhost.evil.example", "127.evil.example", "mylocalhost", "128.0.0.1"))
    )


# ---- trying again


def attempts(*outcomes: ProviderError | str) -> tuple[list[float], list[str], ProviderError | str]:
    """The waits, the topics of the notices, and what came of it."""
    left, waits, notices = list(outcomes), list[float](), list[str]()

    async def attempt() -> str:
        outcome = left.pop(0)
        if isinstance(outcome, ProviderError):
            raise outcome
        return outcome

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def run() -> ProviderError | str:
        try:
            return await retry(
                attempt,
                notice=lambda t, _: notices.append(t),
                sleep=sleep,
                random_fraction=lambda: 0.5,
            )
        except ProviderError as error:
            return error

    return waits, notices, asyncio.run(run())


def busy(retry_after: float | None = None) -> ProviderError:
    return ProviderError("busy", code="rate_limited", retryable=True, retry_after=retry_after)


def test_waits_grow_and_each_is_announced() -> None:
    assert attempts(busy(), busy(), busy(), "fine") == ([0.25, 0.5, 1.0], ["retry"] * 3, "fine")


def test_after_four_attempts_the_error_stands() -> None:
    waits, _, outcome = attempts(busy(), busy(), busy(), busy(), "never")
    assert (len(waits), getattr(outcome, "code", "")) == (3, "rate_limited")


def test_the_server_is_given_the_time_it_asks_for() -> None:
    assert attempts(busy(7), busy(0.01), "fine")[0] == [7, 0.5]


def test_a_server_that_asks_for_too_much_time_is_not_waited_for() -> None:
    waits, _, outcome = attempts(busy(3600), "never")
    assert waits == []
    assert "3600 s" in getattr(outcome, "hint", "")


def test_what_is_not_worth_it_is_not_tried_again() -> None:
    assert attempts(ProviderError("no", retryable=False), "never")[0] == []
    assert attempts(ProviderError("perhaps"), "never")[0] == []


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("-1", 0),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0),
        ("soon", None),
        ("Mon, 01 Jan 2024 00:00:00 +999999999999999", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, now=10) == seconds
