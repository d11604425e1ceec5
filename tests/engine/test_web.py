"""`http.get` and `http.post`: which hosts a script reaches, on every hop, and what comes back."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ConfigError, ToolFailed
from ferrule.engine.web.domains import AllowedDomains, parse_url
from ferrule.engine.web.fetch import WebClient
from ferrule.testing.http_double import HttpDouble, Reply, Request

BODY_LIMIT = 1024 * 1024

ACCEPTANCE = ("example.com", "*.api.test")


def allowed(url: str, *entries: str) -> bool:
    try:
        return AllowedDomains.parse(entries).refusal_reason(parse_url(url).host) is None
    except ToolFailed:
        return False


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://example.com", True),
        ("https://a.example.com/x", True),
        ("https://EXAMPLE.com.:8443/x", True),
        ("https://api.test", False),
        ("https://x.api.test", True),
        ("https://notexample.com", False),
        ("https://example.com.evil.test", False),
        ("ftp://example.com", False),
        ("file:///etc/passwd", False),
        ("https://93.184.216.34", False),
        ("https://[2606:2800:220:1::1]/", False),
        ("https://2130706433/", False),
        ("https://0x7f.1/", False),
        ("https://localhost/", False),
        ("https://example.com@evil.test/", False),
        ("https://evil.test\\@example.com/", False),
        ("https://user:pass@example.com/", False),
        ("https://exämple.com/", False),
        ("https:///path", False),
        ("https://example.com:99999/", False),
        ("example.com", False),
    ],
)
def test_the_allowed_domains_of_the_requirement(url: str, expected: bool) -> None:
    assert allowed(url, *ACCEPTANCE) is expected


def test_no_entries_are_the_open_internet_by_name_only() -> None:
    assert allowed("https://anything.test")
    assert not allowed("https://93.184.216.34")
    assert not allowed("http://127.0.0.1")
    assert not allowed("http://localhost")


def test_a_star_is_every_host_and_an_address_only_itself() -> None:
    assert allowed("https://93.184.216.34", "*")
    assert allowed("https://anything.test", "*")
    assert allowed("http://127.0.0.1:8080", "127.0.0.1")
    assert not allowed("http://127.0.0.2", "127.0.0.1")
    for host in ("1.127.0.0.1.example", "1.127.0.0.1", "127.0.0.1.", "[::127.0.0.1]"):
        assert allowed(f"http://{host}", "127.0.0.1") is (host == "127.0.0.1.")
    for entry in ("0.1", "1", "*.0.1", "*.127.0.0.1", ":1"):
        with pytest.raises(ConfigError):
            AllowedDomains.parse((entry,))


@pytest.mark.parametrize(
    "entry", ["", "https://example.com", "*.com*", "*.", "*.127.0.0.1", "a b", "*.localhost"]
)
def test_an_entry_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ConfigError, match="allowed_domains"):
        AllowedDomains.parse([entry])


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "192.168.0.1",
        "169.254.169.254",
        "::1",
        "fd00::1",
        "::ffff:10.0.0.1",
        "0.0.0.0",
    ],
)
def test_a_name_never_opens_an_address_that_is_not_the_internet(address: str) -> None:
    for entries in ((), ("*",), ("example.com",)):
        assert (
            AllowedDomains.parse(entries).address_refusal_reason("example.com", address) is not None
        )
    assert (
        AllowedDomains.parse(["example.com"]).address_refusal_reason("example.com", "93.184.216.34")
        is None
    )


LABEL = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=5)
NAME = st.lists(LABEL.map(lambda text: "a" + text), min_size=2, max_size=4).map(".".join)


@given(NAME, st.lists(NAME, min_size=1, max_size=4), st.lists(NAME, max_size=3))
def test_a_further_list_never_allows_more(host: str, entries: list[str], more: list[str]) -> None:
    wide, narrow = AllowedDomains.parse(entries), AllowedDomains.parse(more)
    if wide.refusal_reason(host) is not None:
        assert wide.intersect(narrow).refusal_reason(host) is not None
    if host in entries:
        assert wide.refusal_reason(host) is None


# ---- requests


def web(*entries: str, **options: Any) -> WebClient:
    return WebClient(AllowedDomains.parse(entries), environment={}, **options)


async def test_an_answer_is_status_body_and_headers() -> None:
    def answer(request: Request) -> Reply:
        assert request.headers["x-mine"] == "1"
        return Reply(status=201, pieces=[b"h\xc3\xa4"], headers={"X-Theirs": "2"})

    async with HttpDouble(answer) as server:
        got = await web("localhost").fetch(
            "GET", f"http://localhost:{server.port}/a?b=c", {"X-Mine": "1"}, None, 10
        )
    assert server.requests[0].target == "/a?b=c"
    assert (got["status"], got["ok"], got["body"], got["truncated"]) == (201, True, "hä", False)
    assert got["headers"]["x-theirs"] == "2"
    assert got["url"] == f"http://localhost:{server.port}/a?b=c"


async def test_a_long_body_is_cut_and_says_so() -> None:
    async with HttpDouble(lambda request: Reply(pieces=[b"a" * 65_536] * 40)) as server:
        got = await web("localhost").fetch("GET", f"http://localhost:{server.port}/", {}, None, 30)
    assert (len(got["body"]), got["truncated"]) == (BODY_LIMIT, True)


async def denied(ours: WebClient, url: str, headers: dict[str, str] | None = None) -> ToolFailed:
    with pytest.raises(ToolFailed) as caught:
        await ours.fetch("GET", url, headers or {}, None, 10)
    return caught.value


async def test_a_redirect_from_an_allowed_host_to_another_is_denied() -> None:
    async with HttpDouble(
        lambda request: Reply(status=302, headers={"Location": "http://evil.test/"})
    ) as server:
        failed = await denied(web("localhost"), f"http://localhost:{server.port}/")
    assert failed.error_type is ErrorType.PERMISSION_DENIED
    assert "network sandbox" in failed.message
    assert "evil.test" in failed.message


async def test_a_redirect_to_an_address_of_this_machine_is_denied() -> None:
    async with HttpDouble(
        lambda request: Reply(status=307, headers={"Location": "http://169.254.169.254/"})
    ) as server:
        failed = await denied(web("localhost", "example.com"), f"http://localhost:{server.port}/")
    assert failed.error_type is ErrorType.PERMISSION_DENIED


async def test_redirects_within_what_is_allowed_are_followed_and_counted() -> None:
    def answer(request: Request) -> Reply:
        number = int(request.target.removeprefix("/"))
        return (
            Reply(pieces=[b"there"])
            if number == 0
            else Reply(status=302, headers={"Location": f"/{number - 1}"})
        )

    async with HttpDouble(answer) as server:
        ours = web("localhost")
        assert (await ours.fetch("GET", f"http://localhost:{server.port}/5", {}, None, 10))[
            "body"
        ] == "there"
        assert (
            await denied(ours, f"http://localhost:{server.port}/6")
        ).error_type is ErrorType.LIMIT


async def test_what_identifies_a_script_does_not_follow_to_another_origin() -> None:
    seen: list[Request] = []

    async def serve(request: Request) -> Reply:
        seen.append(request)
        return Reply(pieces=[b"ok"])

    async with HttpDouble(serve) as other:
        there = f"http://localhost:{other.port}/"
        async with HttpDouble(
            lambda request: Reply(status=302, headers={"Location": there})
        ) as server:
            headers = {
                "Authorization": "Bearer x",
                "Cookie": "a=b",
                "X-Api-Key": "1",
                "Accept": "text/plain",
            }
            await web("localhost").fetch(
                "GET", f"http://localhost:{server.port}/", headers, None, 10
            )
    assert "authorization" not in seen[0].headers
    assert "cookie" not in seen[0].headers
    assert "x-api-key" not in seen[0].headers
    assert seen[0].headers["accept"] == "text/plain"


async def test_a_post_that_is_redirected_keeps_its_body_only_where_it_must() -> None:
    for status, method, body in ((303, "GET", b""), (307, "POST", b"data")):

        def answer(request: Request, status: int = status) -> Reply:
            return (
                Reply(pieces=[b"ok"])
                if request.target == "/b"
                else Reply(status=status, headers={"Location": "/b"})
            )

        async with HttpDouble(answer) as server:
            await web("localhost").fetch(
                "POST", f"http://localhost:{server.port}/a", {}, b"data", 10
            )
        assert (server.requests[1].method, server.requests[1].body) == (method, body)


async def test_a_name_that_leads_to_this_machine_is_not_connected_to() -> None:
    async def lookup(host: str) -> Sequence[str]:
        return ["127.0.0.1"]

    async with HttpDouble(lambda request: Reply(pieces=[b"secret"])) as server:
        for entries in ((), ("*",), ("rebound.test",)):
            failed = await denied(
                web(*entries, lookup=lookup), f"http://rebound.test:{server.port}/"
            )
            assert failed.error_type is ErrorType.PERMISSION_DENIED
        assert server.connection_count == 0


async def test_a_denied_host_is_not_even_looked_up() -> None:
    asked: list[str] = []

    async def lookup(host: str) -> Sequence[str]:
        asked.append(host)
        return ["93.184.216.34"]

    failed = await denied(web("example.com", lookup=lookup), "https://data-in-a-name.evil.test/")
    assert failed.error_type is ErrorType.PERMISSION_DENIED
    assert asked == []


async def test_what_cannot_be_reached_or_does_not_answer_is_an_error_with_its_type() -> None:
    async with HttpDouble(lambda request: Reply(hold_head=True)) as server:
        with pytest.raises(ToolFailed) as caught:
            await web("localhost").fetch("GET", f"http://localhost:{server.port}/", {}, None, 0.05)
    assert caught.value.error_type is ErrorType.TIMEOUT
    assert (
        await denied(web("localhost"), f"http://localhost:{server.port}/")
    ).error_type is ErrorType.IO_ERROR
    async with HttpDouble(lambda request: Reply(drop_head=True)) as server:
        failed = await denied(web("localhost"), f"http://localhost:{server.port}/")
    assert failed.error_type is ErrorType.IO_ERROR


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.test"}, {"content-length": "5"}, {"X": "a\r\nEvil: 1"}, {"Tränen": "1"}],
)
async def test_headers_that_would_change_the_request_are_refused(headers: dict[str, str]) -> None:
    async with HttpDouble(lambda request: Reply(pieces=[b"ok"])) as server:
        failed = await denied(web("localhost"), f"http://localhost:{server.port}/", headers)
    assert failed.error_type is ErrorType.VALIDATION_FAILED
    assert server.requests == []


async def test_a_proxy_of_the_environment_is_used_and_the_domains_still_hold() -> None:
    async with HttpDouble(lambda request: Reply(pieces=[b"through"])) as proxy:
        ours = WebClient(
            AllowedDomains.parse(["example.com"]),
            environment={"http_proxy": f"http://127.0.0.1:{proxy.port}"},
        )
        got = await ours.fetch("GET", "http://example.com/x", {}, None, 10)
        assert (got["body"], proxy.requests[0].target) == ("through", "http://example.com/x")
        assert (await denied(ours, "http://evil.test/")).error_type is ErrorType.PERMISSION_DENIED
        assert len(proxy.requests) == 1


# ---- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost and its key, in one file."""
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
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    made += ["-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    subprocess.run(made, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "cert").read_bytes() + (folder / "key").read_bytes())
    return both


async def test_a_certificate_is_checked_against_the_name(certificate: Path) -> None:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate)
    trusting = web(
        "localhost", "other.localhost", tls=lambda: ssl.create_default_context(cafile=certificate)
    )
    async with HttpDouble(lambda request: Reply(pieces=[b"safe"]), tls=server_side) as server:
        got = await trusting.fetch("GET", f"https://localhost:{server.port}/", {}, None, 10)
        assert got["body"] == "safe"
        failed = await denied(trusting, f"https://other.localhost:{server.port}/")
        assert (failed.error_type, "trusted" in failed.message) == (ErrorType.IO_ERROR, True)
        failed = await denied(web("localhost"), f"https://localhost:{server.port}/")
        assert (failed.error_type, "trusted" in failed.message) == (ErrorType.IO_ERROR, True)
        assert len(server.requests) == 1


async def test_a_redirect_from_https_to_http_is_denied(certificate: Path) -> None:
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(certificate)
    trusting = web("localhost", tls=lambda: ssl.create_default_context(cafile=certificate))
    answer = Reply(status=302, headers={"Location": "http://localhost/"})
    async with HttpDouble(lambda request: answer, tls=server_side) as server:
        failed = await denied(trusting, f"https://localhost:{server.port}/")
    assert failed.error_type is ErrorType.PERMISSION_DENIED
    assert "from https to http" in failed.message
