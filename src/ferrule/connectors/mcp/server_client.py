"""The client of one MCP server in a run: starts it when needed, watches it, restarts it.

    configured  nothing is known of its tools
    known       its tools are known from an earlier listing, and it does not run
    ready       it runs, or can be reached
    failed      it could not be started, died or keeps silent: the reason is kept, and the next
                call tries again

Between two failures some time must pass (`BACKOFF`, doubled each time, at most `BACKOFF_MAX`), in
which calls are answered with the reason. A call that was running when the server died is an error
whose outcome is unknown; nothing is repeated automatically. After a call that timed out, the server
is asked for a sign of life (`LIVENESS_SECONDS`); one that gives none is ended.

Before a tool is called the server is asked again what it offers, if the last answer is older than
`LISTING_LIFETIME` (seconds) or the server said that it changed. A tool that is not as it was
approved is not called.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from importlib import import_module
from typing import Any, Literal, TypeVar

from ferrule.connectors.json_values import list_or_empty
from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, ToolFailed, ToolSignal
from ferrule.core.extras import name_missing_extra
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.engine.telemetry.telemetry import Telemetry
from ferrule.permissions.approvals import Approver
from ferrule.sandbox.network.proxy import ConnectionAttempt
from ferrule.sandbox.running_command import ProgramUnseen
from ferrule.sandbox.unseen_programs import folders_of, name_unseen
from ferrule.tools.context import SANDBOX_TOPIC, Context

from .connection import Connection, RequestFailed
from .definitions import Manifest, ToolDefinition, read_manifest
from .elicitation import ElicitationRouter
from .http import open_http
from .multi_round_requests import send_request
from .oauth import make_auth
from .server_approvals import ServerApprovals
from .spec import FilledServer, McpServer, fill_variables
from .stdio import LaunchSettings, open_stdio
from .streams import TransportStreams

T = TypeVar("T")
State = Literal["configured", "known", "ready", "failed"]
BACKOFF = 0.5
BACKOFF_MAX = 60.0
LISTING_LIFETIME = 60.0
LIVENESS_SECONDS = 5.0
_DISCOVERY_COMPLAINT = compile_lazily(r"server/discover|Failed to validate request")
_COMPLAINT_SECONDS = 0.5
"""Seconds in which further lines belong to a complaint."""
_WORDS_SHOWN = 400
_RESOURCE_LISTS = (
    "resources",
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
)
_PROMPT_LISTS = ("prompts", ("prompts/list", "prompts"))


_MOST_MISSED_CHANGES = 3
"""Attempts to list the tools after one announcement."""
_MAX_REFUSED_HOSTS = 5
"""Refused hosts that an error of a server names."""


@frozen
class ServerStatus:
    """The state of a server, for people.

    `detail` is why it failed, or the version that is spoken.
    """

    name: str
    state: State
    tools: int
    detail: str = ""


class ServerClient:
    """The client of one server. Used on one event loop at a time; on another one it starts anew."""

    def __init__(
        self,
        server: McpServer,
        launch: LaunchSettings,
        approvals: ServerApprovals,
        manifest: Manifest | None,
    ) -> None:
        self.server = server
        self.manifest = manifest
        """What was approved, or what was listed if no approval is needed."""
        self._ground = launch
        self._approvals = approvals
        self._elicitation = ElicitationRouter(server.name)
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._failures = 0
        self._last_words = ""
        self._quiet_until = 0.0
        self._refused_hosts: dict[str, None] = {}
        self._not_before = 0.0
        self._reason = ""
        self._listed: tuple[float, Manifest] | None = None
        self._extras: tuple[bool, bool] | None = None
        self._has_changed = False
        """Whether the server announced a change that `fetch_change` has not returned."""
        self._missed_changes = 0
        """How often in a row `fetch_change` failed since the last announcement."""
        self._liveness_checks: set[asyncio.Task[None]] = set()

    def status(self) -> ServerStatus:
        """Return the state of the server, without asking it."""
        tools = len(self.manifest.tools) if self.manifest else 0
        if self._connection is not None and not self._connection.ended.is_set():
            return ServerStatus(self.server.name, "ready", tools, self._connection.era)
        reason = self._connection.end_reason if self._connection is not None else self._reason
        if reason:
            return ServerStatus(self.server.name, "failed", tools, reason)
        return ServerStatus(self.server.name, "known" if self.manifest else "configured", tools)

    async def ensure_started(self, context: Context) -> None:
        """Start the server if it does not run, so that this does not count as time of a call.

        Raises:
            ToolFailed: The server could not be started.
        """
        await self._connect(context)

    async def fetch_manifest(self) -> Manifest:
        """Return what the server offers now. Raises ToolFailed."""
        return await self._in_session(None, self._fetch_manifest)

    async def fetch_change(self) -> Manifest | None:
        """Return what the server offers now, if it announced a change since this was asked last."""
        if not self._has_changed:
            return None
        self._has_changed = False
        try:
            manifest = await self.fetch_manifest()
        except (ToolFailed, RequestFailed):
            # Asked again with the next turn; a server that goes on failing is not asked for ever.
            self._missed_changes += 1
            self._has_changed = self._missed_changes < _MOST_MISSED_CHANGES
            return None
        self._missed_changes = 0
        return manifest

    async def call(
        self, approved: ToolDefinition, arguments: Mapping[str, Any], context: Context
    ) -> Mapping[str, Any]:
        """Return a `tools/call` result, as JSON.

        Raises:
            RequestFailed: The server refused or gave no valid answer.
            ToolFailed: The server was not asked.
        """
        params = {"name": approved.name, "arguments": dict(arguments)}

        async def attempt(connection: Connection) -> Mapping[str, Any]:
            await self._check_unchanged(connection, approved)
            return await self._finish(
                send_request(
                    connection,
                    self._elicitation,
                    "tools/call",
                    self._with_metadata(params, context),
                    as_task=approved.requires_task and not connection.is_modern,
                    progress=context.progress,
                ),
                connection,
            )

        with self._elicitation.bind_call(context):
            return await self._in_session(context, attempt)

    async def request(
        self, method: str, params: Mapping[str, Any], context: Context
    ) -> Mapping[str, Any]:
        """Return the result of any other request, as JSON. Raises like `call`."""

        async def attempt(connection: Connection) -> Mapping[str, Any]:
            return await self._finish(
                send_request(
                    connection, self._elicitation, method, self._with_metadata(params, context)
                ),
                connection,
            )

        with self._elicitation.bind_call(context):
            return await self._in_session(context, attempt)

    async def _in_session(
        self, context: Context | None, attempt: Callable[[Connection], Awaitable[T]]
    ) -> T:
        """Make an attempt; a second one in a new session if the server had forgotten the first.

        Only a request that was certainly not handled is sent again.
        """
        connection = await self._connect(context)
        try:
            with connection.use():
                return await attempt(connection)
        except RequestFailed as failure:
            if failure.kind != "expired":
                raise
            self._leave(connection, failure.message)
            if failure.sent:
                raise
        connection = await self._connect(context)
        try:
            with connection.use():
                return await attempt(connection)
        except RequestFailed as failure:
            if failure.kind == "expired":
                message = f"server `{self.server.name}`: {failure.message}, twice in a row"
                raise ToolFailed(ErrorType.IO_ERROR, message) from failure
            raise

    def _leave(self, connection: Connection, reason: str) -> None:
        """End a connection whose session is over, in the background. The next one starts anew."""
        connection.leave(reason)
        if self._connection is connection:
            self._connection = None

    def start_liveness_check(self) -> None:
        """Check in the background whether the server still answers, after a call timed out."""
        connection = self._connection
        if connection is not None and not self._liveness_checks:
            task = asyncio.create_task(
                self._check_liveness(connection), name=f"mcp {self.server.name} alive"
            )
            self._liveness_checks.add(task)
            task.add_done_callback(self._liveness_checks.discard)

    async def close(self) -> None:
        """Stop the server. It is started again when it is needed again."""
        for task in list(self._liveness_checks):
            task.cancel()
        connection = self._connection
        self._connection = None
        if connection is not None and self._loop is asyncio.get_running_loop():
            await connection.close()

    # ---- connecting

    async def _connect(self, context: Context | None) -> Connection:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The connection's event loop is gone, and the connection with it.
            self._loop = loop
            self._connection = None
            self._opening = asyncio.Lock()
            self._liveness_checks.clear()
        async with self._opening:
            if self._connection is not None:
                if not self._connection.ended.is_set():
                    return self._connection
                await self._discard(self._connection)
            self._check_backoff()
            return await self._start(context)

    def _check_backoff(self) -> None:
        seconds_left = self._not_before - time.monotonic()
        if seconds_left > 0:
            message = (
                f"server `{self.server.name}` is not there: {self._reason}; it is tried "
                f"again in {seconds_left:.0f} s"
            )
            raise ToolFailed(ErrorType.IO_ERROR, message)

    async def _start(self, context: Context | None) -> Connection:
        connection = None
        self._last_words = ""
        self._refused_hosts.clear()
        if context is not None and self.server.command:
            context.progress(f"starting server `{self.server.name}`")
        try:
            await asyncio.to_thread(_import_library)
            filled = fill_variables(self.server, allowed=self._ground.allow_env)
            connection = Connection(
                self.server.name,
                self._transport(filled, context),
                era=self.server.era,
                answer_elicitation=self._elicitation.answer,
                on_tools_changed=self._forget_listing,
            )
            async with asyncio.timeout(self.server.connect_timeout):
                await connection.open()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                raise
            reason = _describe_error(error, self.server)
            if isinstance(error, TimeoutError) and self._last_words:
                reason += f"; it said last: {self._last_words[-_WORDS_SHOWN:]}"
            refused = self.take_refusals()
            if refused:
                reason += f"; {refused}"
            raise self._record_failure(reason) from error
        self._connection = connection
        self._reason = ""
        self._listed = None
        self._extras = None
        return connection

    def _transport(
        self, filled: FilledServer, context: Context | None
    ) -> AbstractAsyncContextManager[TransportStreams]:
        if self.server.url:
            return open_http(self.server, filled, make_auth(self.server, filled))
        approver: Any = context.resources.get(Approver) if context else None
        identity = context.identity if context else None
        note = partial(context.note, SANDBOX_TOPIC) if context else _ignore_note
        return open_stdio(
            self.server,
            filled,
            self._ground,
            approver=approver,
            identity=identity,
            note=note,
            words=partial(self._hear, context),
            contact=self._note_contact,
        )

    def _note_contact(self, attempt: ConnectionAttempt) -> None:
        if attempt.unnamed and attempt.port and len(self._refused_hosts) < _MAX_REFUSED_HOSTS:
            host = f"[{attempt.host}]" if ":" in attempt.host else attempt.host
            self._refused_hosts[f"{host}:{attempt.port}"] = None

    def take_refusals(self) -> str:
        """Return which hosts the sandbox refused the server since this was asked last, or ""."""
        hosts = list(self._refused_hosts)
        self._refused_hosts.clear()
        if not hosts:
            return ""
        named = ", ".join(f"`{host}`" for host in hosts)
        return (
            f"the sandbox refused it a connection to {named}; a person opens that by "
            f"`network: {json.dumps(hosts)}` in the entry of server `{self.server.name}`"
        )

    def _hear(self, context: Context | None, data: bytes) -> None:
        """Keep the last words of the server, and show them while it starts."""
        text = data.decode("utf-8", "replace")
        self._last_words = (self._last_words + text)[-4 * _WORDS_SHOWN :]
        if self._connection is not None:
            return
        for line in filter(None, (line.strip() for line in text.splitlines())):
            if self._is_about_discovery(line):
                continue
            if self._ground.listener is not None:
                self._ground.listener(self.server.name, line)
            if context is not None:
                context.progress(f"{self.server.name}: {line[:_WORDS_SHOWN]}")

    def _is_about_discovery(self, line: str) -> bool:
        """Whether a line complains of the first question, which only newer servers know.

        Servers on older versions of the Python library print a hundred lines about it at each start
        and then work. If the start fails, the error has what was printed last all the same.
        """
        now = time.monotonic()
        if _DISCOVERY_COMPLAINT.search(line):
            self._quiet_until = now + _COMPLAINT_SECONDS
        return now < self._quiet_until

    def _record_failure(self, reason: str) -> ToolFailed:
        self._reason = reason
        self._delay_next_start()
        self._failures += 1
        return ToolFailed(
            ErrorType.IO_ERROR, f"server `{self.server.name}` could not be started: {reason}"
        )

    async def _discard(self, connection: Connection) -> None:
        """Forget a connection that has ended. After the first end the server restarts at once."""
        self._reason = connection.end_reason or "it ended"
        self._connection = None
        if self._failures:
            self._delay_next_start()
        self._failures += 1
        await connection.close()

    def _delay_next_start(self) -> None:
        delay = min(BACKOFF * 2**self._failures, BACKOFF_MAX)
        self._not_before = time.monotonic() + delay

    async def _finish(self, request: Any, connection: Connection) -> Mapping[str, Any]:
        try:
            result = await request
        except RequestFailed as failure:
            if failure.kind == "gone" and self._connection is connection:
                self._reason = failure.message
            raise
        self._failures = 0
        return result

    async def _check_liveness(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(LIVENESS_SECONDS):
                await connection.request("tools/list", {})
        except RequestFailed as failure:
            if failure.kind != "gone":
                return  # it refused, so it is alive
        except TimeoutError:
            connection.abort("it does not answer any more")

    # ---- what it offers

    async def _fetch_manifest(self, connection: Connection) -> Manifest:
        listed: list[Mapping[str, Any]] = []
        more = False
        if connection.has_capability("tools"):
            listed, more = await self._fetch_tools(connection)
        if self._extras is None:
            self._extras = (
                await self._has_any(connection, *_RESOURCE_LISTS),
                await self._has_any(connection, *_PROMPT_LISTS),
            )
        manifest = read_manifest(
            listed,
            era=connection.era,
            resources=self._extras[0],
            prompts=self._extras[1],
            instructions=connection.instructions,
            has_more_pages=more,
        )
        self._listed = (time.monotonic(), manifest)
        return manifest

    async def _has_any(
        self, connection: Connection, capability: str, *lists: tuple[str, str]
    ) -> bool:
        """Return whether there are any: many servers declare resources or prompts and have none."""
        if not connection.has_capability(capability):
            return False
        for method, key in lists:
            try:
                async with asyncio.timeout(self.server.connect_timeout):
                    if list_or_empty((await connection.request(method, {})).get(key)):
                        return True
            except (RequestFailed, TimeoutError):
                continue  # a list that fails counts as empty
        return False

    async def _fetch_tools(self, connection: Connection) -> tuple[list[Mapping[str, Any]], bool]:
        try:
            async with asyncio.timeout(self.server.connect_timeout):
                return await connection.list_tools()
        except RequestFailed as failure:
            if failure.kind == "expired":
                raise
            raise ToolFailed(
                ErrorType.IO_ERROR, f"server `{self.server.name}`: {failure.message}"
            ) from failure
        except TimeoutError:
            self.start_liveness_check()
            message = (
                f"server `{self.server.name}` did not list its tools within "
                f"{self.server.connect_timeout:g} s"
            )
            raise ToolFailed(ErrorType.TIMEOUT, message) from None

    async def _check_unchanged(self, connection: Connection, approved: ToolDefinition) -> None:
        """Check that a tool is still what was approved. Raises ToolFailed (`permission_denied`)."""
        if self._listed is None or time.monotonic() - self._listed[0] > LISTING_LIFETIME:
            manifest = await self._fetch_manifest(connection)
            if self.manifest is not None:
                is_same = manifest.digest() == self.manifest.digest()
                self._approvals.set_pending(self.server, None if is_same else manifest)
        assert self._listed is not None
        now = self._listed[1].get_tool(approved.name)
        name = f"`{approved.name}` of server `{self.server.name}`"
        if now is None:
            raise ToolFailed(
                ErrorType.NOT_FOUND, f"{name} was not called: the server does not offer it any more"
            )
        if now.hash != approved.hash:
            step = f"a person can look at the change with `ferrule mcp approve {self.server.name}`"
            raise ToolFailed(
                ErrorType.PERMISSION_DENIED,
                f"{name} was not called: it changed since it was approved; {step}",
            )

    def _forget_listing(self) -> None:
        self._listed = None
        self._has_changed = True
        self._missed_changes = 0

    def _with_metadata(self, params: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """Add metadata: the identity of the call, if the server gets it, and the trace."""
        identity = context.identity
        meta: dict[str, Any] = {}
        telemetry: Any = context.resources.get(Telemetry)
        if telemetry is not None:
            # W3C Trace Context, under the bare names that the protocol reserves for it.
            meta |= telemetry.carrier(identity, context.call_id)
        if self.server.identity:
            meta["ferrule/identity"] = {
                "tenant": identity.tenant,
                "user": identity.user,
                "session": identity.session,
                "run": identity.run,
            }
        return {**params, "_meta": meta} if meta else dict(params)


async def probe_server(server: McpServer, filled: FilledServer, auth: Any) -> None:
    """Open a connection over HTTP with an authentication, list the tools, and close it.

    Raises:
        RequestFailed: The server refused. Opening raises more, see `Connection.open`.
    """
    await asyncio.to_thread(_import_library)
    transport = open_http(server, filled, auth)
    connection = Connection(
        server.name,
        transport,
        era=server.era,
        answer_elicitation=ElicitationRouter(server.name).answer,
        on_tools_changed=_ignore_change,
    )
    await connection.open()
    try:
        if connection.has_capability("tools"):
            await connection.list_tools()
    finally:
        await connection.close()


def _ignore_change() -> None:
    pass


def _ignore_note(sentence: str) -> None:
    """Ignore a note: outside a run nobody keeps them. `ferrule mcp test` says what holds it."""


def _import_library() -> None:
    """Import the protocol library, which takes seconds: in a thread, so that nothing else waits."""
    with name_missing_extra():
        for name in ("mcp.client.session", "mcp.client.streamable_http"):
            import_module(name)


def _describe_error(error: BaseException, server: McpServer) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {server.connect_timeout:g} s"
    if isinstance(error, ProgramUnseen):
        # Opened for this server alone, and not for every command.
        folders = json.dumps(folders_of(error.program), ensure_ascii=False)
        return (
            f"{name_unseen(error.program)} outside of what it sees; a person can open the folders "
            f'by `"readable": {folders}` in the entry of server `{server.name}`'
        )
    if isinstance(error, FerruleError):
        return f"{error.detail}; {error.hint}" if error.hint else error.detail
    if isinstance(error, (RequestFailed, ToolSignal)):
        return getattr(error, "message", str(error))
    return f"{type(error).__name__}: {error}"[:500]
