"""Signing in to an MCP server. Tokens are stored; only a person at a browser can get new ones.

In a run tokens are used and refreshed. If there are none, or the server wants more, the call fails
and says that somebody has to sign in (`sign_in`, `ferrule mcp login`). Signing in is the
authorization code grant with PKCE as the protocol prescribes it (discovery by RFC 9728 and RFC
8414, registration by RFC 7591, RFC 8707 resources); the protocol library carries it out, with the
bounded client of `http.py`.

Processes that use the same tokens renew them one at a time, and a later sign-in uses the address of
the first, which servers compare.

Tokens are kept in `<state>/mcp-tokens`, one file for each server and address, mode 0600. They are
bound to the address: a server that moves gets none of them.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import json
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, cast
from urllib.parse import SplitResult, parse_qs, urlsplit

from ferrule.connectors.json_values import mapping_or_empty
from ferrule.core.calls import parse_json
from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.invisible_characters import escape_invisible
from ferrule.storage import paths

from .spec import FilledServer, McpServer
from .streams import report_error

SIGN_IN_SECONDS = 300.0
LOCK_SECONDS = 30.0
"""Seconds that a process waits for another one that renews the same tokens."""
ShowSignIn = Callable[[str], Awaitable[None]]
"""Shows a person the address where they sign in, or opens it for them."""
_Redirect = tuple[str, str | None, str | None]
WaitForRedirect = Callable[[], Awaitable[_Redirect]]
"""Waits for what the browser brought back: `(code, state, issuer)`."""
_MAX_REDIRECTS = 8
"""Redirects of a browser that may wait to be read; a server may want more than one sign-in."""


_MAX_REASON = 300
"""Characters of what a server says of a refusal."""


class SignInNeeded(FerruleError):
    """A server wants somebody to sign in, which nobody can do during a run."""

    code = "mcp_sign_in"
    exit_code = 7


class FileTokenStorage:
    """The tokens and the client registration for one address, in one file.

    Implements the library's `TokenStorage`. Of its own the library forgets with each process when a
    token ends and where it is renewed; with the `context` of a provider both are kept too.
    """

    context: Any = None
    """What the library knows of a sign-in: the context of the provider that uses this storage."""

    def __init__(self, server: McpServer, url: str) -> None:
        key = hashlib.sha256(url.encode()).hexdigest()[:16]
        self._file = paths.state() / "mcp-tokens" / f"{server.name}-{key}.json"

    async def get_tokens(self) -> Any:
        from mcp.shared.auth import OAuthMetadata, OAuthToken

        stored = self._load()
        if self.context is not None:
            self.context.token_expiry_time = stored.get("expires_at")
            self.context.oauth_metadata = _validate_stored(OAuthMetadata, stored.get("metadata"))
        return _validate_stored(OAuthToken, stored.get("tokens"))

    async def set_tokens(self, tokens: Any) -> None:
        values = {"tokens": _dump(tokens)}
        if self.context is not None:
            values["expires_at"] = self.context.token_expiry_time
            values["metadata"] = _dump(self.context.oauth_metadata)
        self._store(values)

    async def get_client_info(self) -> Any:
        from mcp.shared.auth import OAuthClientInformationFull

        return _validate_stored(OAuthClientInformationFull, self._load().get("client"))

    async def set_client_info(self, client_info: Any) -> None:
        self._store({"client": _dump(client_info)})

    def redirect_port(self) -> int:
        """Return the port to which the stored client may be sent back; 0 if there is none.

        Many servers compare the address with the registered one exactly.
        """
        client = mapping_or_empty(self._load().get("client"))
        addresses: object = client.get("redirect_uris")
        if not isinstance(addresses, list) or not addresses:
            return 0
        address = urlsplit(str(cast("list[object]", addresses)[0]))
        return address.port or 0

    def forget_client(self) -> None:
        """Forget the registration, so that the next sign-in makes a new one."""
        self._store({"client": None})

    @asynccontextmanager
    async def lock(self) -> AsyncGenerator[None]:
        """Wait until no other process renews these tokens, and keep others waiting meanwhile.

        After `LOCK_SECONDS` it goes on without: somebody who hangs must not stop everybody.
        """
        paths.make_private_folder(self._file.parent)
        lock = self._file.with_name(self._file.name + ".lock")
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            until = time.monotonic() + LOCK_SECONDS
            while not _try_lock(descriptor) and time.monotonic() < until:  # noqa: ASYNC110  another process releases it
                await asyncio.sleep(0.05)
            yield
        finally:
            os.close(descriptor)

    def forget(self) -> bool:
        """Delete what is stored. Return whether there was anything."""
        existed = self._file.exists()
        self._file.unlink(missing_ok=True)
        return existed

    def _load(self) -> dict[str, Any]:
        try:
            stored: Any = parse_json(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"`{self._file}` cannot be read: {error}", hint="remove it and sign in again"
            ) from error
        return dict(mapping_or_empty(stored))

    def _store(self, values: Mapping[str, Any]) -> None:
        stored = {**self._load(), **values}
        paths.write_private(self._file, json.dumps(stored, indent=1, sort_keys=True) + "\n")


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _dump(value: Any) -> Any:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


def _validate_stored(kind: Any, stored: Any) -> Any:
    return None if stored is None else kind.model_validate(stored)


def make_auth(
    server: McpServer,
    filled: FilledServer,
    *,
    show_sign_in: ShowSignIn | None = None,
    wait_for_redirect: WaitForRedirect | None = None,
    redirect_url: str = "http://127.0.0.1:33418/callback",
) -> Any:
    """Return the authentication of requests to a server, or None if it has no `oauth`.

    Args:
        server: The server's description.
        filled: The same with its variables filled in.
        show_sign_in: Shows a person where to sign in; without it nobody can.
        wait_for_redirect: Waits for the browser's redirect.
        redirect_url: The redirect address.
    """
    if server.oauth is None:
        return None
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
    from pydantic import AnyUrl

    async def refuse_sign_in(url: str) -> None:
        error = SignInNeeded(
            f"server `{server.name}` wants somebody to sign in",
            hint=f"`ferrule mcp login {server.name}`",
        )
        report_error(error)
        raise error

    async def wait_for_code() -> AuthorizationCodeResult:
        assert wait_for_redirect is not None
        code, state, issuer = await wait_for_redirect()
        return AuthorizationCodeResult(code=code, state=state, iss=issuer)

    metadata = OAuthClientMetadata(
        client_name="Ferrule",
        redirect_uris=[AnyUrl(redirect_url)],
        scope=server.oauth.scope or None,
    )
    kept = _ClientStorage(server, filled, redirect_url)
    provider = _make_provider_class()(
        filled.url,
        metadata,
        kept,
        redirect_handler=show_sign_in or refuse_sign_in,
        callback_handler=wait_for_code,
        client_metadata_url=server.oauth.metadata_url or None,
    )
    kept.context = provider.context
    return provider


@cache
def _make_provider_class() -> Any:
    """Return the library's provider, but with tokens that processes share (`FileTokenStorage`).

    A token is renewed by one process while others wait and then read what it stored: a renewal with
    a token that was used makes servers revoke all that followed from it.
    """
    from mcp.client.auth import OAuthClientProvider

    class SharingProvider(OAuthClientProvider):
        async def _auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
            storage = self.context.storage
            if not isinstance(storage, FileTokenStorage):
                storage = None
            flow = super()._auth_flow(request)
            try:
                if not self._initialized:
                    await self._initialize()
                is_current = self.context.is_token_valid() or not self.context.can_refresh_token()
                if storage is None or is_current:
                    sent = await anext(flow)
                else:
                    async with storage.lock():
                        await self._initialize()
                        sent = await anext(flow)
                        while sent is not request:
                            sent = await flow.asend((yield sent))
                used = self.context.current_tokens
                response = yield sent
                if storage is not None and response.status_code == 401:
                    stored = await storage.get_tokens()
                    if stored is not None and used is not None and stored != used:
                        # Another process has renewed them since this one read them.
                        self.context.current_tokens = stored
                        self._add_auth_header(request)
                        response = yield request
                while True:
                    response = yield await flow.asend(response)
            except StopAsyncIteration:
                return
            finally:
                await flow.aclose()

    return SharingProvider


class _ClientStorage(FileTokenStorage):
    """Token storage that knows the client that the person registered by hand, if there is one."""

    def __init__(self, server: McpServer, filled: FilledServer, address: str) -> None:
        super().__init__(server, filled.url)
        self._oauth = server.oauth
        self._secret = filled.secret
        self._address = address

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
    server: McpServer,
    filled: FilledServer,
    show_sign_in: ShowSignIn,
    send_request: Callable[[Any], Awaitable[None]],
) -> None:
    """Let a person sign in.

    Listens on an address of this machine until the browser comes back, at most `SIGN_IN_SECONDS`.

    Args:
        server: The server's description.
        filled: The same with its variables filled in.
        show_sign_in: Shows the person where to sign in.
        send_request: Makes one request with the given authentication, which starts the sign-in.

    Raises:
        FerruleError: Nobody signed in, or the server refused.
    """
    redirects = _Redirects()
    refused: list[str] = []
    listener = await _listen(server, filled, redirects)

    async def show_and_remember(url: str) -> None:
        redirects.states.update(parse_qs(urlsplit(url).query).get("state", ()))
        await show_sign_in(url)

    try:
        local_port = listener.sockets[0].getsockname()[1]

        async def await_redirect() -> _Redirect:
            async with asyncio.timeout(SIGN_IN_SECONDS):
                redirect = await redirects.queue.get()
            if isinstance(redirect, str):
                refused.append(redirect)
                raise SignInNeeded(redirect)
            return redirect

        address = f"http://127.0.0.1:{local_port}/callback"
        await send_request(
            make_auth(
                server,
                filled,
                show_sign_in=show_and_remember,
                wait_for_redirect=await_redirect,
                redirect_url=address,
            )
        )
    except FerruleError as error:
        # The protocol library may have put an error of its own around ours.
        if refused:
            raise SignInNeeded(
                f"the sign-in to `{server.name}` was refused: {refused[0]}",
                hint=f"`ferrule mcp login {server.name}` asks again",
            ) from error
        raise
    except TimeoutError as error:
        raise SignInNeeded(
            f"nobody signed in to `{server.name}` in {SIGN_IN_SECONDS:g} s"
        ) from error
    finally:
        listener.close()
        await listener.wait_closed()


async def _listen(server: McpServer, filled: FilledServer, redirects: _Redirects) -> asyncio.Server:
    """Listen for the browser: at the address of the stored registration, if there is one."""

    async def start(port: int) -> asyncio.Server:
        return await asyncio.start_server(
            lambda reader, writer: _serve_redirect(reader, writer, redirects), "127.0.0.1", port
        )

    if server.oauth is not None and server.oauth.port:
        return await start(server.oauth.port)
    storage = FileTokenStorage(server, filled.url)
    try:
        return await start(storage.redirect_port())
    except OSError:
        # Another program has the port: the server gets a new address with a new registration.
        storage.forget_client()
        return await start(0)


class _Redirects:
    """What the browser brought back and nobody has read yet.

    `states` are those of the addresses that the person was shown. `queue` holds redirects with a
    code, and the reason of each refusal as a text.
    """

    def __init__(self) -> None:
        self.states: set[str] = set()
        self.queue: asyncio.Queue[_Redirect | str] = asyncio.Queue(_MAX_REDIRECTS)

    def take(self, target: SplitResult) -> str:
        """Take what a request brings. Return what to tell the person, "" if it is no redirect.

        The library checks the state that comes with a code. A refusal (RFC 6749, 4.1.2.1) has no
        such check behind it: one with another state would let any page end the sign-in.
        """
        query = parse_qs(target.query)
        state = query.get("state", [None])[0]
        found: _Redirect | str
        if target.path != "/callback":
            return ""
        if "code" in query:
            found = (query["code"][0], state, query.get("iss", [None])[0])
            text = "Signed in. You can close this window."
        elif "error" in query and state in self.states:
            found = _describe_refusal(query)
            text = "Not signed in. You can close this window."
        else:
            return ""
        if not self.queue.full():
            self.queue.put_nowait(found)
        return text


def _describe_refusal(query: Mapping[str, list[str]]) -> str:
    """Return why a sign-in was refused: the server's own words, of bounded length and visible."""
    code = query["error"][0]
    if code == "access_denied":
        code = "access was denied in the browser"
    said = query.get("error_description", [""])[0]
    reason = f"{code} ({said})" if said else code
    return escape_invisible(" ".join(reason.split()))[:_MAX_REASON]


async def _serve_redirect(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    redirects: _Redirects,
) -> None:
    """Serve one request of the browser. Only the registered path counts."""
    import h11

    connection = h11.Connection(h11.SERVER)
    try:
        async with asyncio.timeout(10):
            target = await _read_target(connection, reader)
        if target is None:
            return
        text = redirects.take(target)
        body = text or "There is nothing here."
        writer.write(_encode_answer(connection, 200 if text else 404, body.encode()))
        await writer.drain()
    except (TimeoutError, ConnectionError, ValueError, h11.RemoteProtocolError):
        return  # a browser that went away, or something else; the next request counts
    finally:
        writer.close()


async def _read_target(connection: Any, reader: asyncio.StreamReader) -> SplitResult | None:
    """Read the head of a request. Return its target; None if there is no request."""
    import h11

    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(4096))
    if not isinstance(event, h11.Request):
        return None
    return urlsplit(event.target.decode("latin-1"))


def _encode_answer(connection: Any, status: int, body: bytes) -> bytes:
    import h11

    headers = [
        ("Content-Type", "text/plain"),
        ("Content-Length", str(len(body))),
        ("Connection", "close"),
    ]
    head = connection.send(h11.Response(status_code=status, headers=headers))
    return head + connection.send(h11.Data(data=body))
