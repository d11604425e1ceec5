"""A person signs in to a server once; runs use what was kept, and nobody else does."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from conftest_mcp import Place
from far_server import Server

from ferrule.connectors.mcp import McpServer, OAuth
from ferrule.connectors.mcp.oauth import FileTokenStorage, SignInNeeded, make_auth, sign_in
from ferrule.connectors.mcp.server_client import probe_server
from ferrule.connectors.mcp.spec import fill_variables
from ferrule.testing.http_double import HttpDouble, Reply, Request


class GuardedServer:
    """An MCP server that answers who brings its token, and signs people in."""

    def __init__(self) -> None:
        self.url = ""
        self.registered: list[str] = []
        self.granted: list[str] = []
        """The tokens that were given, oldest first; the last one is valid."""
        self.forms: list[dict[str, list[str]]] = []
        self.rotates = False
        """Whether a token renews once, and a second time revokes all."""
        self._serve = Server()

    def __call__(self, request: Request) -> Reply:
        path = urlsplit(request.target).path
        if path.startswith("/.well-known/oauth-protected-resource"):
            named = {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
            return Reply(json=named)
        if path.startswith("/.well-known/"):
            return Reply(json=self._describe())
        if path == "/register":
            return self._register(request)
        if path == "/renew":
            return self._grant(request)
        valid = f"Bearer {self.granted[-1]}" if self.granted else "nobody"
        if request.headers.get("authorization") != valid:
            return Reply(status=401, headers={"www-authenticate": "Bearer"})
        return self._serve(request)

    def _describe(self) -> dict[str, object]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/renew",
            "registration_endpoint": f"{self.url}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }

    def _register(self, request: Request) -> Reply:
        wanted = request.json()
        self.registered.append(f"client-{len(self.registered) + 1}")
        return Reply(status=201, json={**wanted, "client_id": self.registered[-1]})

    def _grant(self, request: Request) -> Reply:
        self.forms.append(parse_qs(request.body.decode()))
        used = self.forms[-1].get("refresh_token", [""])[0]
        if self.rotates and used and used != f"again-{len(self.granted)}":
            self.granted.append("revoked")
            return Reply(status=400, json={"error": "invalid_grant"})
        self.granted.append(f"granted-{len(self.granted) + 1}")
        again = f"again-{len(self.granted)}" if self.rotates else "again"
        token = {"access_token": self.granted[-1], "refresh_token": again, "expires_in": 3600}
        return Reply(json={**token, "token_type": "Bearer"})


async def follow(url: str, **answered: str) -> str:
    """Do what a browser does whose person agrees, or what the server answered instead.

    Return what the last page says.
    """
    asked = parse_qs(urlsplit(url).query)
    back = urlsplit(asked["redirect_uri"][0])
    answer = urlencode({"state": asked["state"][0], **(answered or {"code": "c-1"})})
    head = f"GET {back.path}?{answer} HTTP/1.1\r\nHost: {back.netloc}\r\n\r\n"
    return await send_to_page(url, head.encode())


async def send_to_page(url: str, data: bytes) -> str:
    """Send bytes to the page that a sign-in at `url` leads back to. Return what it answers."""
    back = urlsplit(parse_qs(urlsplit(url).query)["redirect_uri"][0])
    reader, writer = await asyncio.open_connection(back.hostname, back.port)
    writer.write(data)
    writer.write_eof()
    page = await reader.read()
    writer.close()
    return page.decode()


async def sign_in_to(server: McpServer) -> list[str]:
    """Sign in as `ferrule mcp login` does. Return the pages that the person saw."""
    pages: list[str] = []

    async def browse(url: str) -> None:
        pages.append(await follow(url))

    filled = fill_variables(server)
    await sign_in(server, filled, browse, lambda auth: probe_server(server, filled, auth))
    return pages


def list_kept(place: Place) -> list[Path]:
    return sorted((place.state / "mcp-tokens").glob("*"))


async def test_who_signed_in_once_is_known_in_later_runs_and_at_no_other_address(
    place: Place,
) -> None:
    guarded = GuardedServer()
    async with HttpDouble(guarded) as double:
        guarded.url = double.url
        server = McpServer("docs", url=f"{double.url}/mcp", oauth=OAuth(scope="read"))
        (page,) = await sign_in_to(server)
        assert "Signed in" in page
        (kept,) = list_kept(place)
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert guarded.forms[0]["code"] == ["c-1"]
        assert guarded.forms[0]["resource"] == [f"{double.url}/mcp"]

        result = await place.call(server, "echo", text="x")
        assert (result.data, guarded.registered) == ("hello", ["client-1"])
        assert double.requests[-1].headers["authorization"] == "Bearer granted-1"

        moved = McpServer("docs", url=f"{double.url}/mcp?moved", oauth=OAuth())
        assert await FileTokenStorage(moved, moved.url).get_tokens() is None
        await place.close()


@pytest.mark.parametrize(
    ("known", "client"),
    [(OAuth(client_id="me"), "me"), (OAuth(scope="read"), "client-1")],
    ids=["named", "registered"],
)
async def test_a_token_that_has_ended_is_renewed_in_a_later_run_without_a_person(
    place: Place, known: OAuth, client: str
) -> None:
    guarded = GuardedServer()
    async with HttpDouble(guarded) as double:
        guarded.url = double.url
        server = McpServer("docs", url=f"{double.url}/mcp", oauth=known)
        await sign_in_to(server)
        (kept,) = list_kept(place)
        stored = json.loads(kept.read_text())
        assert 3500 < stored["expires_at"] - time.time() <= 3600
        stored["expires_at"] = time.time() - 1
        kept.write_text(json.dumps(stored))
        guarded.granted.append("somebody else's")
        assert (await place.call(server, "echo", text="x")).data == "hello"
        assert guarded.forms[-1]["grant_type"] == ["refresh_token"]
        assert guarded.forms[-1]["refresh_token"] == ["again"]
        assert guarded.forms[-1]["client_id"] == [client]
        await place.close()


async def test_who_signs_out_leaves_nothing_and_has_to_sign_in_again(place: Place) -> None:
    guarded = GuardedServer()
    async with HttpDouble(guarded) as double:
        guarded.url = double.url
        server = McpServer("docs", url=f"{double.url}/mcp", oauth=OAuth(client_id="me"))
        await sign_in_to(server)
        kept = FileTokenStorage(server, server.url)
        assert (kept.forget(), kept.forget(), list_kept(place)) == (True, False, [])
        servers = await place.servers(server)
        await place.close()
    assert any("ferrule mcp login docs" in one for one in servers.notices)


async def test_what_else_asks_the_page_of_a_sign_in_does_not_end_it(place: Place) -> None:
    guarded = GuardedServer()
    pages: list[str] = []

    async def browse(url: str) -> None:
        for data in (
            b"GET /favicon.ico HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /callback?error=denied HTTP/1.1\r\nHost: x\r\n\r\n",
            b"GET /callback?error=access_denied&state=guessed HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00 no HTTP\r\n\r\n",
            b"GET /callback?code=stolen HTTP/1.1\r\nHo",
            b"",
        ):
            pages.append(await send_to_page(url, data))
        pages.append(await follow(url))

    async with HttpDouble(guarded) as double:
        guarded.url = double.url
        server = McpServer("docs", url=f"{double.url}/mcp", oauth=OAuth(client_id="me"))
        filled = fill_variables(server)
        await sign_in(server, filled, browse, lambda auth: probe_server(server, filled, auth))
    assert [page.split("\r\n")[0] for page in pages] == [
        "HTTP/1.1 404 ",
        "HTTP/1.1 404 ",
        "HTTP/1.1 404 ",
        "",
        "",
        "",
        "HTTP/1.1 200 ",
    ]
    assert [form["code"] for form in guarded.forms] == [["c-1"]]


async def test_who_refuses_in_the_browser_is_told_so_at_once(place: Place) -> None:
    guarded = GuardedServer()
    pages: list[str] = []

    async def refuse(url: str) -> None:
        why = "the owner said\u202e no\n\n" + "x" * 1000
        pages.append(await follow(url, error="access_denied", error_description=why))

    async with HttpDouble(guarded) as double:
        guarded.url = double.url
        server = McpServer("docs", url=f"{double.url}/mcp", oauth=OAuth(client_id="me"))
        filled = fill_variables(server)
        with pytest.raises(SignInNeeded) as refused:
            async with asyncio.timeout(30):
                await sign_in(
                    server, filled, refuse, lambda auth: probe_server(server, filled, auth)
                )
    said = "the sign-in to `docs` was refused: access was denied in the browser (the owner said"
    assert refused.value.detail.startswith(said)
    assert "\u202e" not in refused.value.detail
    assert len(refused.value.detail) < 400
    assert "Not signed in" in pages[0]
    assert (guarded.granted, list_kept(place)) == ([], [])


async def test_nobody_at_the_browser_is_an_error_after_five_minutes(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    from ferrule.connectors.mcp import oauth

    assert oauth.SIGN_IN_SECONDS == 300
    monkeypatch.setattr(oauth, "SIGN_IN_SECONDS", 0.2)
    guarded = GuardedServer()

    async def look_away(url: str) -> None:
        return None

    async with HttpDouble(guarded) as double:
        guarded.url = double.url
        server = McpServer("docs", url=f"{double.url}/mcp", oauth=OAuth(client_id="me"))
        filled = fill_variables(server)
        with pytest.raises(SignInNeeded, match="nobody signed in to `docs`"):
            await sign_in(
                server, filled, look_away, lambda auth: probe_server(server, filled, auth)
            )
    assert list_kept(place) == []


def end_token(place: Place) -> None:
    kept = next(file for file in list_kept(place) if file.suffix == ".json")
    stored = json.loads(kept.read_text())
    stored["expires_at"] = time.time() - 1
    kept.write_text(json.dumps(stored))


async def test_of_many_that_find_an_ended_token_one_renews_it(place: Place) -> None:
    guarded = GuardedServer()
    guarded.rotates = True
    async with HttpDouble(guarded) as double:
        guarded.url = double.url
        server = McpServer("docs", url=f"{double.url}/mcp", oauth=OAuth())
        await sign_in_to(server)
        end_token(place)
        filled = fill_variables(server)
        # Each has its own idea of the tokens, as processes have.
        auths = [make_auth(server, filled) for _ in range(4)]
        await asyncio.gather(*(probe_server(server, filled, auth) for auth in auths))
        assert guarded.granted == ["granted-1", "granted-2"]


async def test_a_token_that_another_process_renewed_is_read_again(place: Place) -> None:
    guarded = GuardedServer()
    guarded.rotates = True
    async with HttpDouble(guarded) as double:
        guarded.url = double.url
        server = McpServer("docs", url=f"{double.url}/mcp", oauth=OAuth())
        await sign_in_to(server)
        filled = fill_variables(server)
        early = make_auth(server, filled)
        await probe_server(server, filled, early)
        end_token(place)
        await probe_server(server, filled, make_auth(server, filled))
        await probe_server(server, filled, early)
        assert guarded.granted == ["granted-1", "granted-2"]


async def test_a_second_sign_in_comes_back_to_the_address_that_was_registered(
    place: Place,
) -> None:
    guarded = GuardedServer()
    async with HttpDouble(guarded) as double:
        guarded.url = double.url
        server = McpServer("docs", url=f"{double.url}/mcp", oauth=OAuth())
        await sign_in_to(server)
        port = FileTokenStorage(server, server.url).redirect_port()
        guarded.granted.append("all earlier ones are revoked")
        await sign_in_to(server)
        assert guarded.registered == ["client-1"]
        assert guarded.forms[0]["redirect_uri"] == guarded.forms[1]["redirect_uri"]

        guarded.granted.append("again")
        blocker = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", port)
        async with blocker:
            await sign_in_to(server)
        assert guarded.registered == ["client-1", "client-2"]
        assert FileTokenStorage(server, server.url).redirect_port() != port
