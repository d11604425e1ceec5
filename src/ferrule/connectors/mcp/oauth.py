"""Signing in to a server: tokens are kept in the person's state folder, and only a person at a
browser can get new ones.

In a run tokens are used and refreshed. Where there are none, or the server wants more, the call
fails and says that somebody has to sign in (`sign_in`, `ferrule mcp login`). Signing in is the
authorization code grant with PKCE as the protocol prescribes it (discovery by RFC 9728 and RFC
8414, registration by RFC 7591, RFC 8707 resources); the protocol library carries it out, over the
bounded client of `http.py`.

Tokens lie in `<state>/mcp-tokens`, one file for each server and address, mode 0600. They are bound
to the address: a server that moves gets none of them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ferrule.connectors.json_values import mapping_of
from ferrule.core.errors import ConfigError, FerruleError
from ferrule.storage import paths

from .spec import Filled, McpServer
from .streams import leave_aside

SIGN_IN_SECONDS = 300.0
Browse = Callable[[str], Awaitable[None]]
"""Shows a person the address where they sign in, or opens it for them."""
_Came = tuple[str, str | None, str | None]
Returned = Callable[[], Awaitable[_Came]]
"""Waits for what the browser brought back: `(code, state, issuer)`."""
_BROWSERS = 8
"""Visits of a browser that may wait to be looked at; a server can want more than one sign-in."""


class SignInNeeded(FerruleError):
    """A server wants somebody to sign in, and nobody can in the middle of a run."""

    code = "mcp_sign_in"
    exit_code = 7


class FileTokens:
    """Tokens and the registration for one address, in one file. Fulfils the library's
    `TokenStorage`.
    """

    def __init__(self, server: McpServer, url: str, folder: Path | None = None) -> None:
        key = hashlib.sha256(url.encode()).hexdigest()[:16]
        self._file = (folder or paths.state() / "mcp-tokens") / f"{server.name}-{key}.json"

    async def get_tokens(self) -> Any:
        from mcp.shared.auth import OAuthToken

        return _model(OAuthToken, self._load().get("tokens"))

    async def set_tokens(self, tokens: Any) -> None:
        self._store("tokens", tokens)

    async def get_client_info(self) -> Any:
        from mcp.shared.auth import OAuthClientInformationFull

        return _model(OAuthClientInformationFull, self._load().get("client"))

    async def set_client_info(self, client_info: Any) -> None:
        self._store("client", client_info)

    def forget(self) -> bool:
        """Sign out here; whether there was anything to forget."""
        found = self._file.exists()
        self._file.unlink(missing_ok=True)
        return found

    def _load(self) -> dict[str, Any]:
        try:
            kept: Any = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"`{self._file}` cannot be read: {error}", hint="remove it, and sign in again"
            ) from error
        return dict(mapping_of(kept))

    def _store(self, key: str, value: Any) -> None:
        kept = {**self._load(), key: value.model_dump(mode="json", exclude_none=True)}
        paths.write_private(self._file, json.dumps(kept, indent=1, sort_keys=True) + "\n")


def _model(kind: Any, kept: Any) -> Any:
    return None if kept is None else kind.model_validate(kept)


def auth_for(
    server: McpServer,
    filled: Filled,
    *,
    browse: Browse | None = None,
    returned: Returned | None = None,
    address: str = "http://127.0.0.1:33418/callback",
    storage: Any = None,
) -> Any:
    """What authenticates requests to a server, or None where it has no `oauth`. Without `browse`
    nobody can sign in.
    """
    if server.oauth is None:
        return None
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
    from pydantic import AnyUrl

    async def refuse(url: str) -> None:
        needed = SignInNeeded(
            f"server `{server.name}` wants somebody to sign in",
            hint=f"`ferrule mcp login {server.name}`",
        )
        leave_aside(needed)
        raise needed

    async def back() -> AuthorizationCodeResult:
        assert returned is not None
        code, state, issuer = await returned()
        return AuthorizationCodeResult(code=code, state=state, iss=issuer)

    metadata = OAuthClientMetadata(
        client_name="Ferrule", redirect_uris=[AnyUrl(address)], scope=server.oauth.scope or None
    )
    return OAuthClientProvider(
        filled.url,
        metadata,
        storage or _Registered(server, filled, address),
        redirect_handler=browse or refuse,
        callback_handler=back,
        client_metadata_url=server.oauth.metadata_url or None,
    )


class _Registered(FileTokens):
    """Knows the client that the person registered by hand, where there is one."""

    def __init__(self, server: McpServer, filled: Filled, address: str) -> None:
        super().__init__(server, filled.url)
        self._oauth, self._secret, self._address = server.oauth, filled.secret, address

    async def get_client_info(self) -> Any:
        if self._oauth is None or not self._oauth.client_id:
            return await super().get_client_info()
        from mcp.shared.auth import OAuthClientInformationFull
        from pydantic import AnyUrl

        return OAuthClientInformationFull(
            client_id=self._oauth.client_id,
            client_secret=self._secret or None,
            redirect_uris=[AnyUrl(self._address)],
            token_endpoint_auth_method="client_secret_basic" if self._secret else "none",
        )


async def sign_in(
    server: McpServer, filled: Filled, browse: Browse, ask: Callable[[Any], Awaitable[None]]
) -> None:
    """Let a person sign in: `ask` makes one request with the authentication it is given, which
    brings the rest about.

    An address on this machine waits for the browser to come back, at most `SIGN_IN_SECONDS`. Raises
    FerruleError.
    """
    came: asyncio.Queue[_Came] = asyncio.Queue(_BROWSERS)
    port = server.oauth.port if server.oauth else 0
    listener = await asyncio.start_server(lambda r, w: _answer(r, w, came), "127.0.0.1", port)
    try:
        number = listener.sockets[0].getsockname()[1]

        async def returned() -> _Came:
            async with asyncio.timeout(SIGN_IN_SECONDS):
                return await came.get()

        address = f"http://127.0.0.1:{number}/callback"
        await ask(auth_for(server, filled, browse=browse, returned=returned, address=address))
    except TimeoutError as error:
        raise SignInNeeded(
            f"nobody signed in to `{server.name}` in {SIGN_IN_SECONDS:g} s"
        ) from error
    finally:
        listener.close()
        await listener.wait_closed()


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    came: asyncio.Queue[_Came],
) -> None:
    """One request of the browser. Only the path that was registered counts; what it brings is
    checked by the library.
    """
    try:
        async with asyncio.timeout(10):
            line = (await reader.readline()).decode("latin-1")
        words = line.split(" ")
        target = urlsplit(words[1] if len(words) > 1 else "")
        query = parse_qs(target.query)
        found = target.path == "/callback" and "code" in query
        said = "Signed in. You can close this window." if found else "There is nothing here."
        body = said.encode()
        head = f"HTTP/1.1 {'200 OK' if found else '404 Not Found'}\r\nContent-Type: text/plain\r\n"
        writer.write(
            f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
        )
        await writer.drain()
        if found and not came.full():
            came.put_nowait(
                (query["code"][0], query.get("state", [None])[0], query.get("iss", [None])[0])
            )
    except (TimeoutError, ConnectionError, ValueError):
        return  # a browser that went away; the next request counts
    finally:
        writer.close()
