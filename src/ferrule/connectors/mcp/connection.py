"""One live connection to an MCP server. The only module that drives the protocol library.

A task of its own enters the transport and the library's session and stays there until the
connection is closed or ends by itself; requests come from other tasks. The version is found out on
opening: `server/discover` of 2026-07-28 first, and the handshake of 2025-11-25 if that is not
answered as it should be (an old server may also keep silent: ten seconds are given).

Results are taken as JSON and not as the library's values: the library would validate them against
the server's own schema, which may cost without bound (`schemas.py`), and refuse a whole result for
one part that does not have the protocol's form (`raw_results`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, cast

from ferrule._version import __version__
from ferrule.connectors.json_values import mapping_or_empty
from ferrule.core.errors import FerruleError
from ferrule.core.lazy_patterns import compile_lazily

from .definitions import MAX_TOOLS
from .raw_results import collect_results, make_dispatcher
from .spec import Era
from .streams import (
    MALFORMED,
    MAX_UNANSWERED,
    TOO_LARGE,
    CountedAnswers,
    HttpStatus,
    TransportStreams,
    UnansweredRequests,
    collect_errors,
)

if TYPE_CHECKING:
    from mcp.client.session import ClientSession
else:
    ClientSession = Any

TASKS_EXTENSION = "io.modelcontextprotocol/tasks"
MODERN_ERA = "2026-07-28"
AnswerElicitation = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
"""Answers a question of the server: its parameters in, the result (`action`, `content`) out."""


class RequestFailed(Exception):
    """The server refused a request, or could not be asked. Becomes a tool result.

    Args:
        kind: One of `tools.reliability.FAILURE_CLASSES`, or `gone`, `expired` or `malformed`.
        code: The JSON-RPC error code, or 0.
        sent: Whether the request may have reached the server.
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
    """A connection for one event loop: `open` once, `request` concurrently, `close` once."""

    def __init__(
        self,
        name: str,
        transport: AbstractAsyncContextManager[TransportStreams],
        *,
        era: Era = "auto",
        answer_elicitation: AnswerElicitation,
        on_tools_changed: Callable[[], None],
    ) -> None:
        self.name = name
        self._transport = transport
        self._era: Era = era
        self._elicit = answer_elicitation
        self._changed = on_tools_changed
        self._session: ClientSession | None = None
        self._dispatcher: Any = None
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None
        self._end_reason = ""
        self._unanswered = UnansweredRequests(self._end_flood)
        self._users = 0
        self._left = ""
        self.ended = asyncio.Event()
        """Set when no more requests can be made."""

    async def open(self) -> None:
        """Start the transport and agree on a version. If it raises, nothing is left running.

        Raises:
            RequestFailed: The server could not be reached or refused.
            ToolFailed: The server's program could not be started.
            MissingProtections: The sandbox cannot give the required protection.
            ConfigError: The configuration cannot be used.
        """
        self._task = asyncio.create_task(self._run(), name=f"mcp {self.name}")
        try:
            await asyncio.shield(self._ready)
        except BaseException:
            await asyncio.shield(self.close())
            raise

    async def close(self) -> None:
        """End the connection in order. It may still be opening."""
        self._stop.set()
        if self._task is not None:
            if self._session is None:
                self._task.cancel()
            await asyncio.wait([self._task])

    @property
    def end_reason(self) -> str:
        """Why no more requests can be made, once that is so."""
        return self._end_reason

    @contextmanager
    def use(self) -> Generator[None]:
        """Keep the connection from ending by `leave` while a request is under way."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._left and not self._users:
                self.abort(self._left)

    def leave(self, reason: str) -> None:
        """End the connection for this reason as soon as no request is under way."""
        self._left = reason
        if not self._users:
            self.abort(reason)

    def abort(self, reason: str) -> None:
        """End the connection; every waiting request fails with this reason."""
        self._end_reason = self._end_reason or reason
        self._stop.set()

    @property
    def session(self) -> ClientSession:
        if self._session is None or self.ended.is_set():
            raise RequestFailed(
                "gone", self._end_reason or f"server `{self.name}` is not there", sent=False
            )
        return self._session

    @property
    def era(self) -> str:
        """The version of the protocol that is spoken."""
        return self.session.protocol_version or ""

    @property
    def is_modern(self) -> bool:
        return self.era >= MODERN_ERA

    def has_capability(self, capability: str) -> bool:
        """Return whether the server declared a capability, such as `tools` or `prompts`."""
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
        header_parameter: str = "",
        allow_task_result: bool = False,
    ) -> Mapping[str, Any]:
        """Send a request and return its result, as JSON.

        Cancelling it tells the server (`notifications/cancelled`, or the end of the request's own
        stream) and ends the waiting.

        Args:
            method: A method of the protocol, such as `tools/call`.
            params: Its parameters, as JSON.
            progress: Called with each progress message.
            header_parameter: The parameter that HTTP repeats in a header.
            allow_task_result: Accept a result of another form than the method's own (a task of
                2025-11-25).

        Raises:
            RequestFailed: The server refused, or its answer is not valid.
        """
        from mcp.shared.exceptions import MCPError
        from pydantic import TypeAdapter, ValidationError

        session = self.session
        any_object: Any = TypeAdapter(dict[str, Any])
        callback = None if progress is None else _progress_callback(progress)
        transport_errors = collect_errors()
        raw_results = collect_results()
        try:
            if allow_task_result:
                assert self._dispatcher is not None
                result: Any = await self._dispatcher.send_raw_request(
                    method, params, self._headers()
                )
            else:
                request = _make_request(method, dict(params), header_parameter)
                result = await session.send_request(request, any_object, progress_callback=callback)
        except MCPError as error:
            raise await self._failure(error, transport_errors) from error
        except (ValidationError, ValueError, RuntimeError) as error:
            if raw_results.last is None:
                raise RequestFailed(
                    "malformed", f"its answer is not valid: {_first_line(error)}"
                ) from error
            result = raw_results.last
        return mapping_or_empty(result)

    def _headers(self) -> Any:
        """Return what the library adds to requests of the older protocol."""
        return {"headers": {"MCP-Protocol-Version": self.era}}

    async def list_tools(self) -> tuple[list[Mapping[str, Any]], bool]:
        """Return all tools as JSON, and whether there were more pages than are read.

        A tool that does not have the protocol's form says why (`raw_results.LEFT_OUT`).

        Raises:
            RequestFailed: The server refused, or its list is not valid.
        """
        from mcp.shared.exceptions import MCPError
        from mcp_types import PaginatedRequestParams
        from pydantic import ValidationError

        tools: list[Mapping[str, Any]] = []
        transport_errors = collect_errors()
        raw_results = collect_results()
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            try:
                # The library's own method, which remembers which arguments go into headers.
                page = await self.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            except MCPError as error:
                raise await self._failure(error, transport_errors) from error
            except (ValidationError, ValueError, RuntimeError, RecursionError) as error:
                raise RequestFailed(
                    "malformed", f"its list of tools is not valid: {_first_line(error)}"
                ) from error
            tools += [
                tool.model_dump(by_alias=True, mode="json", exclude_none=True)
                for tool in page.tools
            ]
            tools += raw_results.refused or ()
            cursor = page.next_cursor
            if cursor is None or len(tools) > MAX_TOOLS:
                break
        return tools, cursor is not None

    async def _failure(self, error: Any, transport_errors: list[Any]) -> RequestFailed:
        from mcp_types import PARSE_ERROR

        transport_failure = _transport_failure(transport_errors, error)
        if transport_failure is not None:
            return transport_failure
        if _is_closed_error(error):
            # The library may notice the end first: give the transport a moment to say how.
            waiting = asyncio.ensure_future(self.ended.wait())
            await asyncio.wait([waiting], timeout=_END_REASON_SECONDS)
            waiting.cancel()
            return RequestFailed(
                "gone", self._end_reason or "the connection was closed", code=error.code
            )
        kind = "malformed" if error.code in (MALFORMED, TOO_LARGE, PARSE_ERROR) else "permanent"
        if str(error.message).startswith("SSE stream "):
            # How the library says that the stream of this request ended without an answer.
            kind = "transient"
        return RequestFailed(kind, str(error.message)[:2_000], code=error.code, data=error.data)

    async def _run(self) -> None:
        transport_errors = collect_errors()
        try:
            async with self._transport as streams:
                try:
                    await self._run_session(streams)
                finally:
                    if streams.ended.is_set():
                        self._end_reason = await streams.describe_end()
        except asyncio.CancelledError:
            self._fail_opening(
                RequestFailed("gone", self._end_reason or "the connection was closed")
            )
            if not self._stop.is_set():
                raise
        except BaseException as error:  # noqa: BLE001  boundary: whatever ends the connection is its reason, told to whoever asks
            # How the transport ended says more than that the library found it closed.
            if self._end_reason:
                cause: BaseException = RequestFailed("gone", self._end_reason)
            else:
                found = _innermost(error)
                cause = _transport_failure(transport_errors, found) or found
            self._end_reason = self._end_reason or _first_line(cause)
            self._fail_opening(cause)
        finally:
            self.ended.set()
            self._fail_opening(
                RequestFailed("gone", self._end_reason or "the connection was closed")
            )

    async def _run_session(self, streams: TransportStreams) -> None:
        from mcp.client.session import ClientSession
        from mcp_types import Implementation

        answers: Any = CountedAnswers(streams.write, self._unanswered)
        self._dispatcher = make_dispatcher(streams.read, answers)
        session = ClientSession(
            dispatcher=self._dispatcher,
            client_info=Implementation(name="ferrule", version=__version__),
            elicitation_callback=self._answer_elicitation,
            message_handler=self._handle_message,
            extensions={TASKS_EXTENSION: {}},
        )
        async with session:
            await negotiate(session, self._era)
            self._dispatcher.version = session.protocol_version or ""
            self._session = session
            if not self._ready.done():
                self._ready.set_result(None)
            await _wait_for_first(self._stop.wait(), streams.ended.wait())

    def _fail_opening(self, error: BaseException) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # marks it as retrieved: `open` may have stopped waiting

    def _end_flood(self) -> None:
        self.abort(f"it was ended: more than {MAX_UNANSWERED} requests of its own had no answer")

    async def _answer_elicitation(self, context: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        with self._unanswered.count_one():
            answer = await self._elicit(
                params.model_dump(by_alias=True, mode="json", exclude_none=True)
            )
        return ElicitResult.model_validate(answer)

    async def _handle_message(self, message: Any) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._changed()


_END_REASON_SECONDS = 5.0
_MAX_PAGES = 64


async def negotiate(session: ClientSession, era: Era) -> None:
    """Agree on a version. Raises MCPError and what the library raises for invalid answers."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import REQUEST_TIMEOUT, UNSUPPORTED_PROTOCOL_VERSION
    from pydantic import ValidationError

    if era == "2025-11-25":
        await session.initialize()
        return
    try:
        await session.discover()
    except MCPError as error:
        if error.code == REQUEST_TIMEOUT:
            # The library waits ten seconds; a server that is still being downloaded takes longer.
            # Whoever opens it bounds the whole.
            await _negotiate_late(session, era)
            return
        if era != "auto" or _is_closed_error(error):
            raise
        if error.code == UNSUPPORTED_PROTOCOL_VERSION and not _supports_old_version(error.data):
            raise
        await session.initialize()
    except (ValidationError, RuntimeError):
        # Not a valid answer, or one that names old versions only: the server is of the old kind.
        if era != "auto":
            raise
        await session.initialize()


async def _negotiate_late(session: ClientSession, era: Era) -> None:
    """Agree on a version with a server that has not answered the first question in time.

    Old servers may never answer what they do not know, so the old handshake comes next. A modern
    one reads both when it has started: it takes the first for the beginning and refuses the second.
    """
    from mcp.shared.exceptions import MCPError

    if era == "auto":
        try:
            await session.initialize()
            return
        except MCPError as error:
            if _is_closed_error(error):
                raise
    await negotiate(session, "2026-07-28")


def _transport_failure(transport_errors: list[Any], said: Any) -> RequestFailed | None:
    """Return what a transport knows in more detail than the library's error (`said`) says."""
    for error in transport_errors:
        if isinstance(error, FerruleError):
            return RequestFailed(
                "permanent", f"{error.detail}; {error.hint}" if error.hint else error.detail
            )
    # A sign-in answers a status with a request of its own: the last one counts.
    statuses = [error for error in transport_errors if isinstance(error, HttpStatus)]
    return _status_failure(statuses[-1], said) if statuses else None


def _status_failure(status: HttpStatus, said: Any) -> RequestFailed | None:
    """Return what an HTTP status means; None if the error in its body says it."""
    from mcp_types import METHOD_NOT_FOUND

    text = str(getattr(said, "message", ""))
    if status.in_session and status.code == 404 and getattr(said, "code", 0) != METHOD_NOT_FOUND:
        # Streamable HTTP, session management: the request was not handled, a new session is due.
        return RequestFailed("expired", "its session had expired", sent=False)
    if status.in_session and status.code == 400 and _SESSION_GONE.search(text):
        # Not what the protocol says, so whether the request was handled is not certain.
        return RequestFailed("expired", f"its session had expired: {text[:300]}")
    if status.code >= 500:
        return RequestFailed("5xx", f"it answered with the status {status.code}")
    if text != _LIBRARY_TEXT:
        return None
    meaning = _STATUS_MEANINGS.get(status.code, "")
    wait = f"; it asks to wait {status.retry_after} s" if status.retry_after else ""
    kind = "transient" if status.code == 429 else "permanent"
    return RequestFailed(
        kind, f"it answered with the status {status.code}{meaning}{wait}", sent=status.code != 429
    )


_SESSION_GONE = compile_lazily(
    r"(?i)\b(no valid|unknown|invalid|expired) session|session\b.*\b(not found|expired|invalid)"
)
_LIBRARY_TEXT = "Server returned an error response"
"""What the library says of every status that it does not know."""
_STATUS_MEANINGS = {
    400: " (the request is not valid for it)",
    401: " (it wants a sign-in)",
    403: " (it refuses access)",
    404: " (nothing is at this address)",
    429: " (too many requests)",
}


def _is_closed_error(error: Any) -> bool:
    """Return whether the library says that the connection is closed.

    Servers use its code for errors of their own, too.
    """
    from mcp_types import CONNECTION_CLOSED

    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


def _supports_old_version(data: Any) -> bool:
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    supported = mapping_or_empty(data).get("supported")
    if not isinstance(supported, list):
        return True
    versions = cast("list[Any]", supported)
    return any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in versions)


def _make_request(method: str, params: dict[str, Any], named: str) -> Any:
    from mcp_types import Request

    kind: Any = Request[dict[str, Any], str]
    if named:
        kind = type("NamedRequest", (kind,), {"name_param": named})
    return kind(method=method, params=params)


def _progress_callback(notify: Callable[[str], None]) -> Any:
    async def report(progress: float, total: float | None, message: str | None) -> None:
        text = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        if message:
            text = f"{text}: {message}"[:200]
        notify(text)

    return report


async def _wait_for_first(*awaitables: Any) -> None:
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _innermost(error: BaseException) -> BaseException:
    """Return the first error inside the nested groups that task groups raise."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    return first[:500]
