"""The sandbox's proxy: named hosts and nothing else, on every request, at every address, and
bounded.
"""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from proxied import LONG, WHO, Proxied, Talker, http, text

from ferrule.sandbox.network import listener
from ferrule.sandbox.network.allowed_hosts import AllowedHosts
from ferrule.sandbox.network.proxy import ConnectionAttempt, Proxy, ProxyLimits
from ferrule.testing.http_double import HttpDouble, Reply, Request

HEAD_LIMIT = 64 * 1024

HERE = [["127.0.0.1"]]


def echo(request: Request) -> Reply:
    return Reply(
        json={
            "target": request.target,
            "host": request.headers.get("host"),
            "body": request.body.decode(),
        }
    )


async def echoing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back what comes; after its end, the number of bytes."""
    count = 0
    while data := await reader.read(65_536):
        count += len(data)
        writer.write(data)
        await writer.drain()
    writer.write(b"|%d" % count)
    await writer.drain()


def opened(port: int, name: str = "site.example") -> tuple[str, str]:
    """Entries that name a test's server on this machine: by name, and its address."""
    return f"{name}:{port}", f"127.0.0.1:{port}"


# ---- what passes


async def test_a_request_reaches_a_named_host_and_is_recorded_for_the_run() -> None:
    async with (
        HttpDouble(echo) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        url = f"http://Site.Example:{site.port}/a?b=c".encode()
        answer = await proxied.ask(
            b"GET " + url + b" HTTP/1.1\r\nHost: other.test\r\nConnection: close\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 200")
        assert f'"host":"site.example:{site.port}"' in text(answer)
        assert site.requests[0].target == "/a?b=c"
        (contact,) = await proxied.contacted(1)
    assert contact.identity == WHO
    assert (contact.host, contact.port, contact.method) == ("site.example", site.port, "GET")
    assert (contact.allowed, contact.reason, contact.address) == (True, "", "127.0.0.1")
    assert contact.sent > 0 and contact.received > 0


async def test_a_tunnel_carries_bytes_both_ways_and_each_end_by_itself() -> None:
    async with (
        Talker(echoing) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        reader, writer = await proxied.open()
        writer.write(f"CONNECT site.example:{site.port} HTTP/1.1\r\nHost: x\r\n\r\nearly".encode())
        assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        payload = os.urandom(3_000_000)
        writer.write(payload)
        writer.write_eof()  # Half closed: the answer still has to come.
        got = await asyncio.wait_for(reader.read(), LONG)
        writer.close()
        (contact,) = await proxied.contacted(1)
    assert got == b"early" + payload + b"|%d" % (len(payload) + 5)
    assert (contact.sent, contact.received) == (len(payload) + 5, len(got))


async def test_bodies_with_a_length_and_in_chunks_arrive_whole() -> None:
    heard: list[bytes] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readuntil(b"\r\n\r\n"))
        end = b"0\r\n\r\n" if b"chunked" in heard[-1] else b"hello world"
        heard.append(await reader.readuntil(end))
        writer.write(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n"
        )

    async with (
        Talker(talk) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        url = f"http://site.example:{site.port}/"
        first = await proxied.ask(
            (
                f"POST {url} HTTP/1.1\r\nConnection: close\r\nContent-Length: 11\r\n\r\nhello world"
            ).encode()
        )
        second = await proxied.ask(
            (
                f"POST {url} HTTP/1.1\r\nConnection: close\r\nTransfer-Encoding: "
                "chunked\r\n\r\n5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX: y\r\n\r\n"
            ).encode()
        )
        old = await proxied.ask(
            f"POST {url} HTTP/1.0\r\nContent-Length: 11\r\n\r\nhello world".encode()
        )
    assert heard[1] == b"hello world"
    assert heard[3] == b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"
    assert first.endswith(b"\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")
    assert second == first
    assert old.endswith(b"\r\n\r\nabcde") and b"chunked" not in old


async def test_an_answer_before_the_answer_is_passed_on() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await reader.readexactly(4)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n" + body)

    async with (
        Talker(talk) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        reader, writer = await proxied.open()
        writer.write(
            (
                f"PUT http://site.example:{site.port}/ HTTP/1.1\r\nExpect: "
                "100-continue\r\nContent-Length: 4\r\n\r\n"
            ).encode()
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"body")
        assert await reader.readuntil(b"body")
        writer.close()


# ---- what does not


async def test_a_host_that_was_not_named_is_refused_with_its_name_and_the_setting() -> None:
    async with Proxied("site.example") as proxied:
        answer = await proxied.ask(
            b"GET http://evil.test/?secret HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
        tunnel = await proxied.ask(b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(
        b"HTTP/1.1 403 `evil.test` is not one of the hosts in the `network` setting\r\n"
    )
    assert text(answer) == (
        "Ferrule's sandbox did not pass on `evil.test:80`: `evil.test` is not one of the "
        "hosts in the `network` setting.\n"
        "hint: commands reach only what a person lists in the `sandbox.network` setting\n"
    )
    assert "`evil.test:443`" in text(tunnel)
    assert proxied.looked_up == []
    reason = "`evil.test` is not one of the hosts in the `network` setting"
    assert proxied.contacts == [
        ConnectionAttempt(WHO, "evil.test", 80, "GET", False, reason, unnamed=True),
        ConnectionAttempt(WHO, "evil.test", 443, "CONNECT", False, reason, unnamed=True),
    ]


@pytest.mark.proves("sandbox.network.only-named")
async def test_another_port_of_a_named_host_is_refused() -> None:
    async with Talker(echoing) as site:
        async with Proxied(
            "site.example:443", f"127.0.0.1:{site.port}", names={"site.example": HERE}
        ) as proxied:
            for port in (22, site.port):
                assert b" 403 " in await proxied.ask(
                    f"CONNECT site.example:{port} HTTP/1.1\r\n\r\n".encode()
                )
        assert site.connections == 0


SPELLINGS = [
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "0x7f000001",
    "2130706433",
    "0177.0.0.1",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "0",
    "0.0.0.0",
    "127.0.0.1.",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "[::1%25lo]",
    "[::1%1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "%31%32%37.0.0.1",
    "site.example@127.0.0.1",
    "127.0.0.1%00.site.example",
    "127.0.0.1#.site.example",
    "127.0.0.1\\.site.example",
    "127。0。0。1",
    "app.localhost",
    "127.0.0.1:80@site.example",
]


@pytest.mark.proves("sandbox.network.only-named")
@pytest.mark.parametrize("host", SPELLINGS)
async def test_this_machine_is_not_reached_by_any_spelling(host: str) -> None:
    async with Talker(echoing) as inside:
        async with Proxied(
            f"site.example:{inside.port}", names={"site.example": [["93.184.215.14"]]}
        ) as proxied:
            for line in (
                f"CONNECT {host}:{inside.port} HTTP/1.1",
                f"GET http://{host}:{inside.port}/ HTTP/1.1",
            ):
                answer = await proxied.ask(line.encode() + b"\r\nConnection: close\r\n\r\n")
                assert answer[:13] in (b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")
        assert inside.connections == 0
        assert not any(contact.allowed for contact in proxied.contacts)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "169.254.169.254",
        "10.0.0.1",
        "64:ff9b::7f00:1",
        "fe80::1%lo",
    ],
)
async def test_a_named_host_that_leads_inside_is_refused(address: str) -> None:
    async with Proxied("site.example", names={"site.example": [[address]]}) as proxied:
        answer = await proxied.ask(b"CONNECT site.example:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert "`site.example`" in proxied.contacts[0].reason or "resolve" in proxied.contacts[0].reason
    assert not proxied.contacts[0].allowed


@pytest.mark.proves("sandbox.network.pinned")
async def test_a_name_that_changes_its_answer_is_checked_each_time_and_connected_to_what_was_checked() -> (
    None
):
    async with Talker(http("200 OK", b"outside"), "127.0.0.2") as outside:
        answers = [["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]]
        entries = (f"site.example:{outside.port}", f"127.0.0.2:{outside.port}")
        async with Proxied(*entries, names={"site.example": answers}) as proxied:
            request = f"GET http://site.example:{outside.port}/ HTTP/1.1\r\nConnection: close\r\n\r\n".encode()
            first, second, third = [await proxied.ask(request) for _ in range(3)]
            assert text(first) == "outside"
            assert len(proxied.looked_up) == 3
            assert second.startswith(
                b"HTTP/1.1 403 "
            ) and "leads to 127.0.0.1, this machine" in text(second)
            assert text(third) == "outside"  # Of several addresses only the good one is used.
            assert [contact.address for contact in await proxied.contacted(3)] == [
                "127.0.0.2",
                "",
                "127.0.0.2",
            ]


async def test_each_request_of_a_kept_connection_is_checked_by_itself() -> None:
    async with (
        HttpDouble(echo) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        good = f"GET http://site.example:{site.port}/%d HTTP/1.1\r\n\r\n"
        last = good.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
        answer = await proxied.ask(
            (good % 1).encode()
            + b"GET http://evil.test/ HTTP/1.1\r\nHost: site.example\r\n\r\n"
            + (last % 2).encode()
        )
        decided = [(contact.host, contact.allowed) for contact in await proxied.contacted(3)]
    assert [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/")][1].startswith(
        b"HTTP/1.1 403 "
    )
    assert decided == [("site.example", True), ("evil.test", False), ("site.example", True)]
    assert [request.target for request in site.requests] == ["/1", "/2"]


async def test_a_request_hidden_in_a_body_stays_a_body() -> None:
    hidden = b"GET http://evil.test/ HTTP/1.1\r\n\r\n"
    async with (
        HttpDouble(echo) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        head = (
            f"POST http://site.example:{site.port}/ HTTP/1.1\r\nConnection: "
            f"close\r\nContent-Length: {len(hidden)}\r\n\r\n"
        )
        await proxied.ask(head.encode() + hidden + b"GET http://evil.test/2 HTTP/1.1\r\n\r\n")
        contacts = await proxied.contacted(1)
    assert [request.body for request in site.requests] == [hidden]
    assert site.connection_count == 1
    assert (
        [contact.host for contact in contacts]
        == [contact.host for contact in proxied.contacts]
        == ["site.example"]
    )


async def test_nothing_beyond_a_body_reaches_its_server() -> None:
    came = asyncio.Event()
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        came.set()
        heard.append(await reader.readexactly(4))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        heard.append(await reader.read())

    async with (
        Talker(listen) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        reader, writer = await proxied.open()
        writer.write(
            f"POST http://site.example:{site.port}/ HTTP/1.1\r\nContent-Length: 4\r\n\r\n".encode()
        )
        await asyncio.wait_for(came.wait(), LONG)
        writer.write(b"bodyGET http://evil.test/ HTTP/1.1\r\nConnection: close\r\n\r\n")
        answers = await asyncio.wait_for(reader.read(), LONG)
        writer.close()
        assert [contact.host for contact in proxied.contacts] == ["site.example", "evil.test"]
    assert heard == [b"body", b""]
    assert answers.startswith(b"HTTP/1.1 200 ") and b"\r\nHTTP/1.1 403 " in answers


@pytest.mark.parametrize(
    "head",
    [
        (
            b"POST http://site.example/ HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: "
            b"chunked\r\n\r\n0\r\n\r\n"
        ),
        b"POST http://site.example/ HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"GET http://site.example/ HTTP/1.1\nHost: a\n\n",
        b"GET http://site.example/ HTTP/1.1\r\nX: a\n\r\n\r\n",
        b"GET http://site.example/ HTTP/1.1\r\nX: a\rY: b\r\n\r\n",
        b"GET http://site.example/ HTTP/1.1\r\nX: a\r\n folded\r\n\r\n",
        b"GET http://site.example/ HTTP/1.1\r\nX: \0\r\n\r\n",
        b"\r\nGET http://site.example/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n",
        b"\x05\x01\x00\n",
    ],
)
async def test_a_head_with_two_readings_ends_the_connection_and_nothing_is_looked_up(
    head: bytes,
) -> None:
    async with Proxied("site.example", names={"site.example": HERE}) as proxied:
        answer = await proxied.ask(head)
    assert answer.startswith(b"HTTP/1.1 400 ") and answer.count(b"HTTP/1.1 400") == 1
    assert b"Connection: close" in answer
    assert proxied.looked_up == []
    assert [contact.allowed for contact in proxied.contacts] == [False]


async def test_a_body_in_broken_chunks_is_not_finished_for_the_server() -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read())

    async with (
        Talker(listen) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        head = (
            f"POST http://site.example:{site.port}/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        broken = (
            b"3\r\nabcXY",
            b"zz\r\n",
            b"3\nabc\r\n",
            b"-1\r\n",
            b"3\r\nabc\r\n0;\n\r\n",
            b"1" * 5000,
        )
        for body in broken:
            answer = await proxied.ask(head.encode() + body)
            assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 431 "))
    assert len(heard) == len(broken)
    assert not any(b"0\r\n\r\n" in request.partition(b"\r\n\r\n")[2] for request in heard)


# ---- bounds


async def test_a_huge_head_is_refused_before_it_has_arrived() -> None:
    async with Proxied("site.example") as proxied:
        for filler in (
            b"X: " + b"a" * 3 * HEAD_LIMIT,
            b"X: y\r\n" * HEAD_LIMIT,
            b"X: y\r\n" * 300 + b"\r\n",
        ):
            answer = await proxied.ask(b"GET http://site.example/ HTTP/1.1\r\n" + filler)
            assert answer.startswith(b"HTTP/1.1 431 ")
    assert proxied.looked_up == []


async def test_a_head_that_does_not_come_to_its_end_is_given_up() -> None:
    async with Proxied("site.example", patience=ProxyLimits(head=0.05)) as proxied:
        answer = await proxied.ask(b"GET http://site.exam")
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_silent_client_and_a_silent_tunnel_are_closed() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with Talker(silent) as site:
        names = {"site.example": HERE}
        async with Proxied(
            *opened(site.port), names=names, patience=ProxyLimits(idle=0.3)
        ) as proxied:
            assert await proxied.ask(b"") == b""
            answer = await proxied.ask(
                f"CONNECT site.example:{site.port} HTTP/1.1\r\n\r\n".encode()
            )
            assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"
            late = await proxied.ask(
                f"GET http://site.example:{site.port}/ HTTP/1.1\r\n\r\n".encode()
            )
            assert late.startswith(b"HTTP/1.1 504 ")


async def test_only_so_many_connections_are_served_at_once_and_the_others_wait() -> None:
    go = asyncio.Event()

    async def held(request: Request) -> Reply:
        await go.wait()
        return echo(request)

    async with (
        HttpDouble(held) as site,
        Proxied(
            *opened(site.port), names={"site.example": HERE}, patience=ProxyLimits(per_command=2)
        ) as proxied,
    ):
        request = (
            f"GET http://site.example:{site.port}/ HTTP/1.1\r\nConnection: close\r\n\r\n".encode()
        )
        asking = [asyncio.create_task(proxied.ask(request)) for _ in range(5)]
        while site.connection_count < 2:
            await asyncio.sleep(0)
        # The others are connected, by the kernel, but nothing they send is looked at.
        assert len(proxied.looked_up) == 2
        go.set()
        answers = await asyncio.gather(*asking)
    assert all(b"HTTP/1.1 200" in answer for answer in answers)


async def test_a_connection_that_is_silent_makes_room_for_one_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "SPARE_SECONDS", 0.0)
    async with (
        Talker(echoing) as site,
        Proxied(
            *opened(site.port), names={"site.example": HERE}, patience=ProxyLimits(per_command=1)
        ) as proxied,
    ):
        connect = f"CONNECT site.example:{site.port} HTTP/1.1\r\n\r\n".encode()
        reader, writer = await proxied.open()
        writer.write(connect)
        await reader.readuntil(b"\r\n\r\n")
        second, other = await proxied.open()
        other.write(connect)
        assert b" 200 " in await asyncio.wait_for(second.readuntil(b"\r\n\r\n"), LONG)
        assert await reader.read() in (b"", b"|0")
        writer.close()
        other.close()


async def test_no_more_is_read_than_the_other_side_takes() -> None:
    taken = asyncio.Event()

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await taken.wait()
        while await reader.read(65_536):
            pass

    async with (
        Talker(slow) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", proxied.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(
                client, f"CONNECT site.example:{site.port} HTTP/1.1\r\n\r\n".encode()
            )
            await loop.sock_recv(client, 1000)
            sent, stuck = 0, 0
            # Until the queues of the kernel are full: the proxy itself keeps next to nothing.
            while stuck < 50 and sent < 64 << 20:
                try:
                    sent += client.send(bytes(65_536))
                    stuck = 0
                except BlockingIOError:
                    stuck += 1
                    await asyncio.sleep(0)
            assert sent < 64 << 20
            taken.set()


async def test_closing_ends_both_sides_of_every_connection() -> None:
    gone = asyncio.Event()

    async def waiting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        gone.set()

    async with Talker(waiting) as site:
        before = len(os.listdir("/proc/self/fd"))
        proxied = Proxied(*opened(site.port), names={"site.example": HERE})
        async with proxied:
            reader, writer = await proxied.open()
            writer.write(f"CONNECT site.example:{site.port} HTTP/1.1\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            await proxied.listening.close()
            await asyncio.wait_for(gone.wait(), LONG)
            assert await asyncio.wait_for(reader.read(), LONG) == b""
            writer.close()
            await writer.wait_closed()
            with pytest.raises(OSError):
                await proxied.open()
    assert [contact.allowed for contact in proxied.contacts] == [True]
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_single_connection_can_be_served_and_cancelled() -> None:
    async with Talker(echoing) as site:
        proxy = Proxy(AllowedHosts.parse(opened(site.port)))
        ours, theirs = socket.socketpair()
        with ours:
            ours.setblocking(False)
            loop = asyncio.get_running_loop()
            serving = asyncio.create_task(proxy.serve_connection(theirs, WHO))
            await loop.sock_sendall(
                ours, f"CONNECT 127.0.0.1:{site.port} HTTP/1.1\r\n\r\n".encode()
            )
            assert b" 200 " in await loop.sock_recv(ours, 1000)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            assert await loop.sock_recv(ours, 10) == b""


# ---- servers that fail


async def test_an_answer_that_is_cut_off_is_not_taken_for_a_whole_one() -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        framing = b"Content-Length: 100" if b"/length" in head else b"Transfer-Encoding: chunked"
        writer.write(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n32\r\nabc")
        await writer.drain()

    async with (
        Talker(cut) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        for path in ("length", "chunked"):
            with pytest.raises(ConnectionError):
                await proxied.ask(
                    f"GET http://site.example:{site.port}/{path} HTTP/1.0\r\n\r\n".encode()
                )


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.1 101 Upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * HEAD_LIMIT,
    ],
)
async def test_a_server_that_does_not_answer_in_http_is_a_bad_gateway(answer: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async with (
        Talker(talk) as site,
        Proxied(*opened(site.port), names={"site.example": HERE}) as proxied,
    ):
        got = await proxied.ask(f"GET http://site.example:{site.port}/ HTTP/1.1\r\n\r\n".encode())
    assert got.startswith(b"HTTP/1.1 502 ")
    assert proxied.contacts[0].allowed and proxied.contacts[0].reason


async def test_a_host_that_cannot_be_resolved_or_reached_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    async with Proxied(
        "site.example", *opened(port, "off.example"), names={"off.example": HERE}
    ) as proxied:
        missing = await proxied.ask(
            b"GET http://site.example/ HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
        refused = await proxied.ask(f"CONNECT off.example:{port} HTTP/1.1\r\n\r\n".encode())
    assert "could not be resolved: no such name" in text(missing)
    assert f"(127.0.0.1), port {port}" in text(refused)
    assert [contact.allowed for contact in proxied.contacts] == [True, True]
    assert all(contact.reason for contact in proxied.contacts)


# ---- through a proxy of the person's environment


async def test_named_hosts_are_reached_through_the_environments_proxy_and_others_not() -> None:
    """The outer proxy is one of ours: it resolves, and the inner one decides."""
    async with HttpDouble(echo) as site, Talker(echoing) as tunnelled:
        entries = (*opened(site.port), *opened(tunnelled.port))
        async with (
            Proxied(*entries, names={"site.example": HERE}) as outer,
            Proxied(
                *(f"site.example:{p}" for p in (site.port, tunnelled.port)),
                upstream=lambda s, h, p: ("127.0.0.1", outer.port, "Basic abc"),
            ) as inner,
        ):
            answer = await inner.ask(
                f"GET http://site.example:{site.port}/x HTTP/1.1\r\nConnection: close\r\n\r\n".encode()
            )
            assert '"target":"/x"' in text(answer)
            reader, writer = await inner.open()
            writer.write(f"CONNECT site.example:{tunnelled.port} HTTP/1.1\r\n\r\nabc".encode())
            writer.write_eof()
            assert (await asyncio.wait_for(reader.read(), LONG)).endswith(b"\r\n\r\nabc|3")
            writer.close()
            for host in ("evil.test", "127.0.0.1"):
                assert b" 403 " in await inner.ask(
                    f"CONNECT {host}:{site.port} HTTP/1.1\r\n\r\n".encode()
                )
            assert [contact.address for contact in inner.contacts[:2]] == [
                f"proxy 127.0.0.1:{outer.port}"
            ] * 2
            assert {contact.host for contact in outer.contacts} == {"site.example"}
            assert inner.looked_up == []


async def test_a_proxy_of_the_environment_that_says_no_is_said() -> None:
    async with (
        Talker(http("407 Who are you", b"")) as outer,
        Proxied("site.example", upstream=lambda s, h, p: ("127.0.0.1", outer.port, "")) as inner,
    ):
        answer = await inner.ask(b"CONNECT site.example:443 HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert f"proxy 127.0.0.1:{outer.port} answered 407" in text(answer)
