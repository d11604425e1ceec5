"""A server in a run: started when it is first needed, asked, watched, and started again when it has
died.

    configured   nothing is known of its tools
    known        its tools are known from an earlier listing, and it does not run
    ready        it runs, or is there
    failed       it could not be started, died or keeps silent: the reason is kept, and it is tried again with the next call

Between two failures passes time (`BACKOFF`, doubled each time, `BACKOFF_MAX` at the most), in which
calls are answered with the reason. A call that was under way when it died is an error whose outcome
is unknown; nothing is repeated by itself. A call that ran out of time makes us ask for a sign of
life (`LIFE` seconds); a server that gives none is ended.

Before a tool is called the server is asked again what it offers, if that is older than `FRESH`
seconds or the server said that it changed. A tool that is not as it was approved is not called
(`Changed`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any, Literal

from ferrule.connectors.json_values import list_of
from ferrule.core.calls import ErrorType
from ferrule.core.errors import FerruleError, Signal, ToolFailed
from ferrule.engine.telemetry.telemetry import Telemetry
from ferrule.permissions.approvals import Approver
from ferrule.tools.context import HELD, Context

from .approvals import Approvals
from .connection import Connection, Failure
from .definitions import Definition, Manifest, read_manifest
from .elicitation import Asking
from .http import open_http
from .multi_round_requests import ask
from .oauth import auth_for
from .spec import Filled, McpServer, fill
from .stdio import Ground, open_stdio
from .streams import Ends

State = Literal["configured", "known", "ready", "failed"]
BACKOFF, BACKOFF_MAX = 0.5, 60.0
FRESH = 60.0
LIFE = 5.0
_RESOURCES = (
    "resources",
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
)
_PROMPTS = ("prompts", ("prompts/list", "prompts"))


@dataclass(frozen=True, slots=True)
class Status:
    """How a server stands, for people. `detail` is why it failed, or the version that is spoken."""

    name: str
    state: State
    tools: int
    detail: str = ""


class Live:
    """One server of a run. Used on one event loop at a time; on another one it starts anew."""

    def __init__(
        self, server: McpServer, ground: Ground, approvals: Approvals, manifest: Manifest | None
    ) -> None:
        self.server = server
        self.manifest = manifest
        """What was approved, or what was found where nothing has to be."""
        self._ground = ground
        self._approvals = approvals
        self._asking = Asking(server.name)
        self._connection: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._failures = 0
        self._not_before = 0.0
        self._reason = ""
        self._listed: tuple[float, Manifest] | None = None
        self._extras: tuple[bool, bool] | None = None
        self._checking: set[asyncio.Task[None]] = set()

    def status(self) -> Status:
        """Says how it stands, without asking it."""
        tools = len(self.manifest.tools) if self.manifest else 0
        if self._connection is not None and not self._connection.over.is_set():
            return Status(self.server.name, "ready", tools, self._connection.era)
        reason = self._connection.why if self._connection is not None else self._reason
        if reason:
            return Status(self.server.name, "failed", tools, reason)
        return Status(self.server.name, "known" if self.manifest else "configured", tools)

    async def prepare(self, context: Context) -> None:
        """Have it started, so that the time of a call is the call's own. Raises ToolFailed."""
        await self._connected(context)

    async def list(self, context: Context | None = None) -> Manifest:
        """What it offers now. Raises ToolFailed."""
        connection = await self._connected(context)
        return await self._look(connection)

    async def call(
        self, approved: Definition, arguments: Mapping[str, Any], context: Context
    ) -> Mapping[str, Any]:
        """A `tools/call` result, as JSON. Raises Failure, or ToolFailed where it was not asked."""
        connection = await self._connected(context)
        await self._check(connection, approved)
        params = {"name": approved.name, "arguments": dict(arguments)}
        older = approved.must_be_task and not connection.modern
        with self._asking.within(context):
            return await self._settled(
                ask(
                    connection,
                    self._asking,
                    "tools/call",
                    self._marked(params, context),
                    as_task=older,
                    progress=context.progress,
                ),
                connection,
            )

    async def request(
        self, method: str, params: Mapping[str, Any], context: Context
    ) -> Mapping[str, Any]:
        """Any other request, as JSON. Raises Failure, or ToolFailed where it was not asked."""
        connection = await self._connected(context)
        with self._asking.within(context):
            return await self._settled(
                ask(connection, self._asking, method, self._marked(params, context)), connection
            )

    def silent(self) -> None:
        """A call ran out of time. Finds out in the background whether it is still there."""
        connection = self._connection
        if connection is not None and not self._checking:
            task = asyncio.create_task(
                self._sign_of_life(connection), name=f"mcp {self.server.name} alive"
            )
            self._checking.add(task)
            task.add_done_callback(self._checking.discard)

    async def close(self) -> None:
        """End it. It is started again when it is needed again."""
        for task in list(self._checking):
            task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None and self._loop is asyncio.get_running_loop():
            await connection.close()

    # ---- starting it

    async def _connected(self, context: Context | None) -> Connection:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            # The loop that it belonged to is gone, and with it what kept it: a new one is started.
            self._loop, self._connection, self._opening = loop, None, asyncio.Lock()
            self._checking.clear()
        async with self._opening:
            if self._connection is not None:
                if not self._connection.over.is_set():
                    return self._connection
                await self._lost(self._connection)
            self._patience()
            return await self._start(context)

    def _patience(self) -> None:
        left = self._not_before - time.monotonic()
        if left > 0:
            raise ToolFailed(
                ErrorType.IO_ERROR,
                (
                    f"server `{self.server.name}` is not there: {self._reason}; it is tried "
                    f"again in {left:.0f} s"
                ),
            )

    async def _start(self, context: Context | None) -> Connection:
        connection = None
        try:
            await asyncio.to_thread(_load)
            filled = fill(self.server, allowed=self._ground.allow_env)
            connection = Connection(
                self.server.name,
                self._transport(filled, context),
                era=self.server.era,
                elicit=self._asking.answer,
                changed=self._stale,
            )
            async with asyncio.timeout(self.server.connect_timeout):
                await connection.open()
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError):
                raise
            raise self._failed(_why(error, self.server.connect_timeout)) from error
        self._connection, self._reason, self._listed, self._extras = connection, "", None, None
        return connection

    def _transport(
        self, filled: Filled, context: Context | None
    ) -> AbstractAsyncContextManager[Ends]:
        if self.server.url:
            return open_http(self.server, filled, auth_for(self.server, filled))
        approver: Any = context.resources.get(Approver) if context else None
        identity = context.identity if context else None
        note = partial(context.note, HELD) if context else _unsaid
        return open_stdio(
            self.server, filled, self._ground, approver=approver, identity=identity, note=note
        )

    def _failed(self, reason: str) -> ToolFailed:
        self._reason = reason
        self._not_before = time.monotonic() + min(BACKOFF * 2**self._failures, BACKOFF_MAX)
        self._failures += 1
        return ToolFailed(
            ErrorType.IO_ERROR, f"server `{self.server.name}` could not be started: {reason}"
        )

    async def _lost(self, connection: Connection) -> None:
        """It died since. The first time it is started again at once."""
        self._reason, self._connection = connection.why or "it ended", None
        if self._failures:
            self._not_before = time.monotonic() + min(BACKOFF * 2**self._failures, BACKOFF_MAX)
        self._failures += 1
        await connection.close()

    async def _settled(self, request: Any, connection: Connection) -> Mapping[str, Any]:
        try:
            result = await request
        except Failure as failure:
            if failure.kind == "gone" and self._connection is connection:
                self._reason = failure.message
            raise
        self._failures = 0
        return result

    async def _sign_of_life(self, connection: Connection) -> None:
        try:
            async with asyncio.timeout(LIFE):
                await connection.request("tools/list", {})
        except Failure as failure:
            if failure.kind != "gone":
                return  # it said no, so it is there
        except TimeoutError:
            connection.give_up("it does not answer any more")

    # ---- what it offers

    async def _look(self, connection: Connection) -> Manifest:
        if not connection.offers("tools"):
            listed, more = list[Mapping[str, Any]](), False
        else:
            listed, more = await self._listing(connection)
        if self._extras is None:
            self._extras = (
                await self._has(connection, *_RESOURCES),
                await self._has(connection, *_PROMPTS),
            )
        manifest = read_manifest(
            listed,
            era=connection.era,
            resources=self._extras[0],
            prompts=self._extras[1],
            instructions=connection.instructions,
            more=more,
        )
        self._listed = (time.monotonic(), manifest)
        return manifest

    async def _has(self, connection: Connection, capability: str, *lists: tuple[str, str]) -> bool:
        """Whether there are any: many servers say that they have resources or prompts, and have
        none.
        """
        if not connection.offers(capability):
            return False
        for method, key in lists:
            try:
                async with asyncio.timeout(self.server.connect_timeout):
                    if list_of((await connection.request(method, {})).get(key)):
                        return True
            except (Failure, TimeoutError):
                continue  # a list that cannot be had is as good as none
        return False

    async def _listing(self, connection: Connection) -> tuple[list[Mapping[str, Any]], bool]:
        try:
            async with asyncio.timeout(self.server.connect_timeout):
                return await connection.list_tools()
        except Failure as failure:
            raise ToolFailed(
                ErrorType.IO_ERROR, f"server `{self.server.name}`: {failure.message}"
            ) from failure
        except TimeoutError:
            self.silent()
            said = (
                f"server `{self.server.name}` did not list its tools within "
                f"{self.server.connect_timeout:g} s"
            )
            raise ToolFailed(ErrorType.TIMEOUT, said) from None

    async def _check(self, connection: Connection, approved: Definition) -> None:
        """That a tool is still what was approved. Raises ToolFailed(permission_denied)."""
        if self._listed is None or time.monotonic() - self._listed[0] > FRESH:
            found = await self._look(connection)
            if self.manifest is not None:
                self._approvals.pend(
                    self.server, None if found.digest() == self.manifest.digest() else found
                )
        assert self._listed is not None
        now = self._listed[1].get(approved.name)
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

    def _stale(self) -> None:
        self._listed = None

    def _marked(self, params: Mapping[str, Any], context: Context) -> dict[str, Any]:
        """With what goes along beside the parameters: who the call is for, if the server is told,
        and the trace that it belongs to.
        """
        who, meta = context.identity, dict[str, Any]()
        telemetry: Any = context.resources.get(Telemetry)
        if telemetry is not None:
            # W3C Trace Context, under the bare names that the protocol keeps for it.
            meta |= telemetry.carrier(who, context.call_id)
        if self.server.identity:
            about = {"tenant": who.tenant, "user": who.user, "session": who.session, "run": who.run}
            meta["ferrule/identity"] = about
        return {**params, "_meta": meta} if meta else dict(params)


async def say_hello(server: McpServer, filled: Filled, auth: Any) -> None:
    """Open a connection over HTTP with an authentication, ask for the tools, and close it. Raises
    Failure and what opening raises.
    """
    await asyncio.to_thread(_load)
    opened = open_http(server, filled, auth)
    connection = Connection(
        server.name, opened, era=server.era, elicit=Asking(server.name).answer, changed=_nothing
    )
    await connection.open()
    try:
        if connection.offers("tools"):
            await connection.list_tools()
    finally:
        await connection.close()


def _nothing() -> None:
    """Nobody listens for changes."""


def _unsaid(said: str) -> None:
    """Outside of a run nobody keeps notes; `ferrule mcp test` says what holds a server."""


def _load() -> None:
    """The protocol library, which takes seconds: in a thread, so that nothing else waits for it."""
    for name in ("mcp.client.session", "mcp.client.streamable_http"):
        import_module(name)


def _why(error: BaseException, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {seconds:g} s"
    if isinstance(error, FerruleError):
        return f"{error.detail}; {error.hint}" if error.hint else error.detail
    if isinstance(error, (Failure, Signal)):
        return getattr(error, "message", str(error))
    return f"{type(error).__name__}: {error}"[:500]
