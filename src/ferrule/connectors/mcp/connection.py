"""One live connection to a server: opened, spoken over, closed. The one place where the protocol
library is driven.

A task of its own enters the transport and the library's session and stays there until the
connection is closed or ends by itself; requests come from other tasks. Which version is spoken is
found out on opening: `server/discover` of 2026-07-28 first, and the handshake of 2025-11-25 where
that is not answered as it should (an old server may also keep silent: ten seconds are given).

Results are taken as JSON and not as the library's values: it would validate them against the
server's own schema, which may cost without bound (`schemas.py`). What the protocol says of their
form is still checked by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from ferrule._version import __version__
from ferrule.connectors.json_values import mapping_of
from ferrule.core.errors import FerruleError

from .spec import Era
from .streams import MALFORMED, TOO_LARGE, Ends, listen

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

TASKS = "io.modelcontextprotocol/tasks"
MODERN = "2026-07-28"
Elicit = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""What answers a question of the server: its parameters in, the result (`action`, `content`) out.
"""


class Failure(Exception):
    """The server said no to a request, or could not be asked. `code` is JSON-RPC's (0: none),
    `kind` one of `tools.reliability.CLASSES` or `gone`.

    `sent`: whether the request may have reached it. Not for people: `Live` makes results of it.
    """

    def __init__(
        self, kind: str, message: str, *, code: int = 0, sent: bool = True, data: Any = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.code = code
        self.sent = sent
        self.data = data


class Connection:
    """Made for one event loop. `open` once, `request` often and at the same time, `close` once."""

    def __init__(
        self,
        name: str,
        transport: AbstractAsyncContextManager[Ends],
        *,
        era: Era = "auto",
        elicit: Elicit,
        changed: Callable[[], None],
    ) -> None:
        self.name = name
        self._transport = transport
        self._era: Era = era
        self._elicit = elicit
        self._changed = changed
        self._session: ClientSession | None = None
        self._dispatcher: JSONRPCDispatcher[Any] | None = None
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._why = ""
        self.over = asyncio.Event()
        """Set once nothing can be asked any more."""

    async def open(self) -> None:
        """Start it and agree on a version. Raises Failure, ToolFailed, SandboxGap or ConfigError;
        then nothing is left running.
        """
        self._task = asyncio.create_task(self._live(), name=f"mcp {self.name}")
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await asyncio.shield(self.close())
            raise

    async def close(self) -> None:
        """Say goodbye and end it. Also while it is being opened."""
        self._stop.set()
        if self._task is not None:
            if self._session is None:
                self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def why(self) -> str:
        """Why nothing can be asked any more, once that is so."""
        return self._why

    def give_up(self, why: str) -> None:
        """End it from this side: whoever waits for an answer gets `why`."""
        self._why = self._why or why
        self._stop.set()

    @property
    def session(self) -> ClientSession:
        if self._session is None or self.over.is_set():
            raise Failure("gone", self._why or f"server `{self.name}` is not there", sent=False)
        return self._session

    @property
    def era(self) -> str:
        """The version that is spoken."""
        return self.session.protocol_version or ""

    @property
    def modern(self) -> bool:
        return self.era >= MODERN

    def offers(self, capability: str) -> bool:
        """Whether the server said that it has `tools`, `resources`, `prompts`, …"""
        capabilities = self.session.server_capabilities
        return getattr(capabilities, capability, None) is not None

    @property
    def instructions(self) -> str:
        return self.session.instructions or ""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        progress: Callable[[str], None] | None = None,
        named: str = "",
        unusual: bool = False,
    ) -> Mapping[str, Any]:
        """Ask and wait for the result, as JSON. `named` is the parameter that HTTP repeats in a
        header. Raises Failure.

        `unusual` takes a result of another form than the protocol has for the method (a task, of
        the older kind).

        Cancelling it tells the server so (`notifications/cancelled`, or the end of the request's
        own stream), and ends the waiting.
        """
        from mcp.shared.exceptions import MCPError
        from pydantic import TypeAdapter, ValidationError

        session = self.session
        anything: Any = TypeAdapter(dict[str, Any])
        told = None if progress is None else _progress(progress)
        heard = listen()
        try:
            if unusual:
                assert self._dispatcher is not None
                found: Any = await self._dispatcher.send_raw_request(
                    method, params, self._headers()
                )
            else:
                request = _request(method, dict(params), named)
                found = await session.send_request(request, anything, progress_callback=told)
        except MCPError as error:
            raise await self._failure(error, heard) from error
        except (ValidationError, ValueError, RuntimeError) as error:
            raise Failure("malformed", f"its answer is not valid: {_first_line(error)}") from error
        if not is_finite(found):
            raise Failure("malformed", "its answer is not valid: JSON has no NaN and no Infinity")
        return mapping_of(found)

    def _headers(self) -> Any:
        """What the library adds to requests of the older protocol."""
        return {"headers": {"MCP-Protocol-Version": self.era}}

    async def list_tools(self) -> tuple[list[Mapping[str, Any]], bool]:
        """All tools as JSON, and whether there were more pages than are read. Raises Failure."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import PaginatedRequestParams
        from pydantic import ValidationError

        found: list[Mapping[str, Any]] = []
        heard = listen()
        cursor: str | None = None
        for _ in range(_PAGES):
            try:
                # The library's own: it keeps from it which arguments go into headers.
                page = await self.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                raise await self._failure(error, heard) from error
            except (ValidationError, ValueError, RuntimeError, RecursionError) as error:
                raise Failure(
                    "malformed", f"its list of tools is not valid: {_first_line(error)}"
                ) from error
            found += [
                tool.model_dump(by_alias=True, mode="json", exclude_none=True)
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None or len(found) > _TOOLS:
                break
        return found, cursor is not None

    async def _failure(self, error: Any, heard: list[Any]) -> Failure:
        from mcp_types import PARSE_ERROR

        said = _said_aside(heard)
        if said is not None:
            return said
        if _closed(error):
            # Whoever noticed first: give the owner a moment to say how it ended.
            waiting = asyncio.ensure_future(self.over.wait())
            await asyncio.wait([waiting], timeout=_MOMENT)
            waiting.cancel()
            return Failure("gone", self._why or "the connection was closed", code=error.code)
        kind = "malformed" if error.code in (MALFORMED, TOO_LARGE, PARSE_ERROR) else "permanent"
        if str(error.message).startswith("SSE stream "):
            # The library's words for a stream of this one request that ended without an answer.
            kind = "transient"
        return Failure(kind, str(error.message)[:2_000], code=error.code, data=error.data)

    # ---- the task that owns it

    async def _live(self) -> None:
        heard = listen()
        try:
            async with self._transport as ends:
                try:
                    await self._speak(ends)
                finally:
                    if ends.over.is_set():
                        self._why = await ends.why()
        except asyncio.CancelledError:
            self._fail(Failure("gone", self._why or "the connection was closed"))
            if not self._stop.is_set():
                raise
        except BaseException as error:  # noqa: BLE001  boundary: whatever ends the connection is its reason, told to whoever asks
            # How the transport ended says more than that the library found it closed.
            first = Failure("gone", self._why) if self._why else _said_aside(heard) or _first(error)
            self._why = self._why or _first_line(first)
            self._fail(first)
        finally:
            self.over.set()
            self._fail(Failure("gone", self._why or "the connection was closed"))

    async def _speak(self, ends: Ends) -> None:
        from mcp.client.session import ClientSession
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
        from mcp_types import Implementation

        self._dispatcher = JSONRPCDispatcher(ends.read, ends.write)
        session = ClientSession(
            dispatcher=self._dispatcher,
            client_info=Implementation(name="ferrule", version=__version__),
            elicitation_callback=self._asked,
            message_handler=self._heard,
            extensions={TASKS: {}},
        )
        async with session:
            await negotiate(session, self._era)
            self._session = session
            if not self._ready.done():
                self._ready.set_result(None)
            await _first_of(self._stop.wait(), ends.over.wait())

    def _fail(self, error: BaseException) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # nobody may be waiting any more

    async def _asked(self, context: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        answer = await self._elicit(
            params.model_dump(by_alias=True, mode="json", exclude_none=True)
        )
        return ElicitResult.model_validate(answer)

    async def _heard(self, message: Any) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed()


_MOMENT = 5.0
_PAGES = 64
_TOOLS = 1024


async def negotiate(session: ClientSession, era: Era) -> None:
    """Agree on a version. Raises MCPError and what the library raises for answers that make no
    sense.
    """
    from mcp.shared.exceptions import MCPError
    from mcp_types import UNSUPPORTED_PROTOCOL_VERSION
    from pydantic import ValidationError

    if era == "2025-11-25":
        await session.initialize()
        return
    try:
        await session.discover()
    except MCPError as error:
        if era != "auto" or _closed(error):
            raise
        if error.code == UNSUPPORTED_PROTOCOL_VERSION and not _speaks_old(error.data):
            raise
        await session.initialize()
    except (ValidationError, RuntimeError):
        # An answer that is no answer, or names old versions only: the server does not speak the new
        # one.
        if era != "auto":
            raise
        await session.initialize()


def _said_aside(heard: list[Any]) -> Failure | None:
    """What a transport knows better than the library's error says."""
    for one in heard:
        if isinstance(one, FerruleError):
            return Failure("permanent", f"{one.detail}; {one.hint}" if one.hint else one.detail)
        if isinstance(one, int):
            return Failure("5xx", f"it answered with the status {one}")
    return None


def _closed(error: Any) -> bool:
    """Whether the library says that the connection is gone. Servers use its code for errors of
    their own, too.
    """
    from mcp_types import CONNECTION_CLOSED

    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def _speaks_old(data: Any) -> bool:
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    named = mapping_of(data).get("supported")
    return not isinstance(named, list) or any(
        one in HANDSHAKE_PROTOCOL_VERSIONS for one in cast("list[Any]", named)
    )


def is_finite(value: object) -> bool:
    """Whether every number in a value is one. Readers of JSON take others, which nothing after them
    can write.
    """
    left: list[Any] = [value]
    while left:
        one = left.pop()
        if isinstance(one, float):
            if not isfinite(one):
                return False
        elif isinstance(one, dict):
            left.extend(cast("dict[str, Any]", one).values())
        elif isinstance(one, list):
            left.extend(cast("list[Any]", one))
    return True


def _request(method: str, params: dict[str, Any], named: str) -> Any:
    from mcp_types import Request

    kind: Any = Request[dict[str, Any], str]
    if named:
        kind = type("NamedRequest", (kind,), {"name_param": named})
    return kind(method=method, params=params)


def _progress(tell: Callable[[str], None]) -> Any:
    async def told(progress: float, total: float | None, message: str | None) -> None:
        part = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        tell(f"{part}: {message}"[:200] if message else part)

    return told


async def _first_of(*waits: Any) -> None:
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _first(error: BaseException) -> BaseException:
    """What went wrong first, out of the groups that task groups make."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:500]
