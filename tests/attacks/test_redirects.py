"""Requests of scripts and of HTTP tools, led on by a server: what says who asks, and what was sent,
stays with its own origin.

Both senders are driven against two real servers, with headers of any name. One that follows by
rules of its own fails here.
"""

from __future__ import annotations

import random
import string
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any

import pytest

from ferrule.connectors.http.auth import RequestAuth
from ferrule.connectors.http.hosts import ReachableHosts
from ferrule.connectors.http.requests import PreparedRequest
from ferrule.connectors.http.sender import NoResponse, Sender
from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.engine.web.domains import AllowedDomains
from ferrule.engine.web.fetch import WebClient
from ferrule.testing.http_double import HttpDouble, Reply, Request

KNOWN = (
    "Authorization",
    "Cookie",
    "X-Api-Key",
    "Private-Token",
    "X-Auth-Token",
    "X-Amz-Security-Token",
    "Api-Key",
    "Apikey",
    "Token",
    "X-Goog-Api-Key",
    "Ocp-Apim-Subscription-Key",
    "X-Vault-Token",
    "DPoP",
    "X-CSRF-Token",
    "X-Forwarded-User",
    "Referer",
    "Origin",
    "From",
    "X-GitHub-Token",
    "JOB-TOKEN",
    "X-Shopify-Access-Token",
    "X-Figma-Token",
    "X-Session",
    "User-Agent",
    "Signature",
)
HARMLESS = {"Accept": "text/plain", "Accept-Language": "de", "Content-Type": "text/plain"}
SECRET = "hunter2"
BODY = b"what was sent"
ROUNDS = 2


class _Everything(ReachableHosts):
    """As if a file had named every host: what an address is then decides alone."""

    def refuse_host(self, secure: bool, host: str, port: int) -> str | None:
        return None


class _Open(_Everything):
    """As if the person had opened every address as well."""

    def refuse_address(self, host: str, port: int, address: str) -> str | None:
        return None


Fetch = Callable[[str, str, dict[str, str], bytes | None], Awaitable[object]]


def by_script(
    method: str, url: str, headers: dict[str, str], body: bytes | None
) -> Awaitable[object]:
    web = WebClient(AllowedDomains.parse(["localhost", "127.0.0.1"]), environment={})
    return web.fetch(method, url, headers, body, 10)


def by_tool(
    method: str, url: str, headers: dict[str, str], body: bytes | None
) -> Awaitable[object]:
    sender = Sender(_Open(), environment={})
    return sender.send(PreparedRequest(method, url, headers, (), body), RequestAuth(), 10_000)


def names(seed: int) -> list[str]:
    chosen = random.Random(seed)
    made = [
        "".join(
            chosen.choices(string.ascii_letters + string.digits + "-_", k=chosen.randint(1, 20))
        )
        for _ in range(12)
    ]
    ours = {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "upgrade",
        "accept-encoding",
        *map(str.lower, HARMLESS),
    }
    return [
        name
        for name in dict.fromkeys((*KNOWN, *(f"X-{one}" for one in made)))
        if name.lower() not in ours
    ]


@pytest.mark.proves("http.redirects")
@pytest.mark.parametrize("fetch", [by_script, by_tool])
async def test_nothing_that_may_be_personal_follows_to_another_origin(fetch: Fetch) -> None:
    followed = 0
    async with HttpDouble(lambda request: Reply(pieces=[b"there"])) as other:
        leads: dict[str, Any] = {"status": 302, "place": ""}

        def lead(request: Request) -> Reply:
            if request.target == "/end":
                return Reply(pieces=[b"here"])
            return Reply(status=leads["status"], headers={"Location": leads["place"]})

        async with HttpDouble(lead) as server:
            here = f"http://localhost:{server.port}"
            places = {
                f"http://localhost:{other.port}/end": other,
                f"http://127.0.0.1:{other.port}/end": other,
                # another host on the same machine is another origin
                f"//127.0.0.1:{server.port}/end": server,
                "/end": server,
                f"{here}/end#x": server,
            }
            for seed, status, method, place in product(
                range(ROUNDS), (301, 302, 303, 307, 308), ("GET", "POST"), places
            ):
                leads.update(status=status, place=place)
                given = dict.fromkeys(names(seed), SECRET)
                body = BODY if method == "POST" else None
                there = places[place]
                there.requests.clear()
                same = place in ("/end", f"{here}/end#x")
                try:
                    await fetch(method, f"{here}/begin", {**given, **HARMLESS}, body)
                except (ToolFailed, NoResponse) as failed:
                    # A request with an effect that is not simply repeated is not followed, and it
                    # says so.
                    assert (
                        method == "POST" and status != 303 and not (same and status in (307, 308))
                    ), failed
                    assert (
                        isinstance(failed, ToolFailed) and failed.error_type is ErrorType.IO_ERROR
                    )
                    assert not any(one.target == "/end" for one in there.requests)
                    continue
                arrived = [one for one in there.requests if one.target == "/end"]
                assert len(arrived) == 1
                followed += 1
                sent = f"{arrived[0].headers}"
                if same:
                    assert sent.count(SECRET) == len(given)
                    assert arrived[0].body == (BODY if status in (307, 308) and body else b"")
                else:
                    assert SECRET not in sent
                    assert arrived[0].body == b""
                    assert arrived[0].headers["accept"] == "text/plain"
    assert followed >= ROUNDS * 30


# ---- literal addresses, and a proxy that would reach them

INSIDE = (
    "169.254.169.254",
    "169.254.169.254.",
    "169.254.170.2",
    "168.63.129.16",
    "100.100.100.200",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.0.1",
    "127.0.0.1",
    "127.1",
    "0.0.0.0",
    "0",
    "2852039166",
    "0xa9fea9fe",
    "0XA9FEA9FE",
    "0xa9.0xfe.0xa9.0xfe",
    "0251.0376.0251.0376",
    "025177524776",
    "169.254.43518",
    "169.16689662",
    "0xa9.254.0251.254",
    "169.254.169.0xfe",
    "0169.254.169.254",
    "169.254.169.254..",
    "%31%36%39.254.169.254",
    "169%2e254%2e169%2e254",
    "169.254.169.254%00",
    "169.254.169.254%20",
    "１６９.254.169.254",
    "169。254。169。254",
    "①⑥⑨.254.169.254",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[0:0:0:0:0:ffff:a9fe:a9fe]",
    "[::a9fe:a9fe]",
    "[::169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]",
    "[64:ff9b:1::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "[2001:0:a9fe:a9fe::1]",
    "[fe80::1]",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[FE80::A9FE:A9FE]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:0:169.254.169.254]",
    "[ff02::1]",
    "[fec0::1]",
    "[100::1]",
    "[2001:db8::1]",
    "[::ffff:10.0.0.1]",
    "[::ffff:169.254.169.254]:80",
    "169.254.169.254:80",
    "169.254.169.254:",
    "x@169.254.169.254",
    "x:y@169.254.169.254",
    "224.0.0.1",
    "255.255.255.255",
    "198.18.0.1",
    "192.0.0.192",
    "metadata@[fd00:ec2::254]",
    "[169.254.169.254]",
    "169.254.169.254\\@example.com",
)


@pytest.mark.parametrize("by", ["script", "tool"])
async def test_no_spelling_of_an_address_inside_reaches_a_proxy(by: str) -> None:
    assert len(INSIDE) >= 60
    async with HttpDouble(lambda request: Reply(pieces=[b"through"])) as proxy:
        environment = {
            "http_proxy": f"http://127.0.0.1:{proxy.port}",
            "https_proxy": f"http://127.0.0.1:{proxy.port}",
        }
        web = WebClient(AllowedDomains.parse(["*"]), environment=environment)
        sender = Sender(_Everything(), environment=environment)

        async def ask(url: str) -> None:
            if by == "script":
                await web.fetch("GET", url, {}, None, 5)
            else:
                await sender.send(PreparedRequest("GET", url, {}), RequestAuth(), 1000)

        for scheme, host in product(("http", "https"), INSIDE):
            with pytest.raises((ToolFailed, NoResponse)):
                await ask(f"{scheme}://{host}/latest/meta-data/")
            assert proxy.connection_count == 0, f"{scheme}://{host}"
        await ask("http://example.com/x")
        assert proxy.connection_count == 1
