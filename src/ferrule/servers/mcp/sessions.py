"""Clients and their sessions: each client has a session of its own.

A client is a connection, or whoever says so with every request. Its session belongs to `mcp:NAME`
or, over HTTP with tokens that stand for people, to that person; it is in the agent's journal like
any other, with its calls, questions, answers and results. Two clients do not see each other's
artifacts, answers or grants. Names are claims: clients that share a token and use the same name are
one.

Limits: `MAX_CLIENTS` at a time (the one idle for longest is closed; its journal stays),
`IDLE_SECONDS` without a request, and per client `MAX_REQUESTS` in progress and `MAX_SUSPENDED` that
wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ferrule.core.calls import ToolResult
from ferrule.core.errors import FerruleError
from ferrule.core.events import DirectCall
from ferrule.core.value_class import frozen
from ferrule.engine.agent import Agent
from ferrule.engine.live_events import Live, Progress
from ferrule.engine.session import Session
from ferrule.permissions.approvals import AllowlistApprover
from ferrule.runtime.http.work_limits import IN_ALL
from ferrule.runtime.session_pool import PoolFull, SessionPool

from .client import CURRENT_REQUESTS
from .client_approvals import CURRENT_REQUEST, ClientApprover, ask_client
from .peer import Peer
from .requests import Answers, ClientRequest, SuspendedRequests

MAX_CLIENTS = IN_ALL
IDLE_SECONDS = 1800.0
MAX_REQUESTS = 256
MAX_SUSPENDED = 32
MAX_QUESTIONS = 4
"""Times that one request asks a person about its call: each hook that changes the arguments makes
it another question.
"""
BY = "mcp"
"""The caller of a client's call, in the journal."""
_SUBSCRIBED = 256

End = Callable[[Session], Awaitable[None]]


class LimitExceeded(FerruleError):
    """A limit is reached."""

    code = "mcp_full"


@frozen
class ClientIdentity:
    """Which client it is.

    `key` tells it from others, `user` is the owner of its session (under `tenant`, or the agent's).
    With `is_exclusive`, nobody else can use this key.
    """

    key: tuple[str, ...]
    user: str
    tenant: str = ""
    is_exclusive: bool = True


class ClientSession:
    """One client with its session."""

    def __init__(
        self,
        who: ClientIdentity,
        session: Session,
        yes_to: tuple[str, ...],
        end: End,
        used: Callable[[], object],
    ) -> None:
        self.identity = who
        self.session = session
        self._end = end
        self._on_use = used
        self.calls: dict[str, ClientRequest] = {}
        self.suspended = SuspendedRequests(MAX_SUSPENDED)
        self.level = "info"
        self.subscribed: set[str] = set()
        self.listening: Any = None
        """Serves this client's subscriptions, once it has some."""
        self.outlet: Any = None
        """Sends notifications that belong to no request, if the client has a connection."""
        self._requests: set[ClientRequest] = set()
        self._asking = asyncio.Lock()
        session.approvals.set_approver(
            AllowlistApprover(yes_to, ClientApprover()) if yes_to else ClientApprover()
        )
        self._stop_observing = session.observe(self._observe)

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress."""
        return bool(self._requests)

    def start_request(
        self,
        peer: Peer,
        given: Answers,
        work: Callable[[ClientRequest], Coroutine[Any, Any, Any]],
    ) -> ClientRequest:
        """Start the work of a request in this client's session. Raises LimitExceeded."""
        if len(self._requests) >= MAX_REQUESTS:
            raise LimitExceeded(
                f"{MAX_REQUESTS} requests of this client are in progress already",
                code=LimitExceeded.code,
            )
        request = ClientRequest(peer, given, self.level)
        self._requests.add(request)

        def over() -> None:
            self._requests.discard(request)
            for call_id in request.call_ids:
                self.calls.pop(call_id, None)
                # A connection may last for days.
                self.session.history.forget_call(call_id)
            self._on_use()

        request.start(self._work_for(request, work), over)
        return request

    async def call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool for the current request.

        The call is made again if a person was asked in between.
        """
        request = CURRENT_REQUEST.get()
        result = await self._call_tool(tool, arguments)
        for _ in range(MAX_QUESTIONS):
            if request is None or request.wanted_approval is None:
                break
            (digest, asking), request.wanted_approval = request.wanted_approval, None
            request.approvals[digest] = await ask_client(request, digest, asking)
            result = await self._call_tool(tool, arguments)
        return result

    async def _call_tool(self, tool: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool once; if it needs an approval, when it is its turn to ask."""
        give_back = await self._acquire_question(tool, arguments)
        try:
            return await self.session.call_tool(tool, arguments, by=BY)
        finally:
            give_back()

    def subscribe(self, uri: str) -> None:
        """Subscribe the client to a resource. Raises LimitExceeded."""
        if len(self.subscribed) >= _SUBSCRIBED and uri not in self.subscribed:
            raise LimitExceeded(
                f"this client has {_SUBSCRIBED} subscriptions already", code=LimitExceeded.code
            )
        self.subscribed.add(uri)

    async def cancel(self) -> None:
        """End all requests, settled and journaled."""
        for request in list(self._requests):
            await request.stop()

    async def close(self) -> None:
        """Close the session."""
        self._stop_observing()
        await self._end(self.session)

    async def _work_for(
        self, request: ClientRequest, work: Callable[[ClientRequest], Coroutine[Any, Any, Any]]
    ) -> Any:
        """Do the work of a request, which tools and approvers find as the current one."""
        CURRENT_REQUESTS.set(self.calls)
        CURRENT_REQUEST.set(request)
        return await work(request)

    async def _acquire_question(
        self, tool: str, arguments: Mapping[str, Any]
    ) -> Callable[[], None]:
        """Let calls that need approval take turns until they have their answer.

        The engine asks one question at a time, and runs a waiting call within another call, which
        would then have to wait for it in turn.
        """
        if not self.session.approvals.is_needed(tool, arguments):
            return _do_nothing
        await self._asking.acquire()
        held = [self._asking]

        def give_back() -> None:
            if held:
                held.pop().release()

        if (request := CURRENT_REQUEST.get()) is not None:
            request.on_answered = give_back
        return give_back

    def _observe(self, item: Live) -> None:
        """Pass what happens in the session to its request. Progress may come from other threads."""
        if isinstance(item, Progress):
            if (request := self.calls.get(item.call_id)) is not None and not item.is_tail:
                request.peer.progress(item.text)
        elif isinstance(item, DirectCall):
            above = self.calls.get(item.by.removeprefix("call "))
            request = above or (CURRENT_REQUEST.get() if item.by == BY else None)
            if request is not None:
                self.calls[item.call.id] = request
                request.call_ids.add(item.call.id)
                if item.by == BY:
                    request.last_call_id = item.call.id


@dataclass(slots=True)
class ClientSessions:
    """All clients of a server.

    `agent` opens a session for each and stays open for its owner; `end` closes a session.
    """

    agent: Agent[Any, Any]
    yes_to: tuple[str, ...] = ()
    end: End = Session.close
    pool: SessionPool[tuple[str, ...], ClientSession] = field(
        default_factory=lambda: SessionPool[tuple[str, ...], ClientSession](
            MAX_CLIENTS, IDLE_SECONDS
        )
    )

    def __iter__(self) -> Iterator[ClientSession]:
        return iter(self.pool)

    def session_for(self, who: ClientIdentity, about: str) -> ClientSession:
        """Return the session of this client, opened if it is new.

        A new session starts with `about` in its journal. Raises LimitExceeded, JournalError.
        """
        visit = self.pool.use(who.key)
        if visit is not None:
            return visit
        try:
            self.pool.make_room()
        except PoolFull as full:
            raise LimitExceeded(
                f"{MAX_CLIENTS} clients are served already; try again later",
                code=LimitExceeded.code,
            ) from full
        session = self.agent.copy_for_user(who.user, tenant=who.tenant).session()
        session.add_notice("mcp", about)
        visit = ClientSession(who, session, self.yes_to, self.end, lambda: self.pool.use(who.key))
        self.pool.add(who.key, visit)
        return visit

    def close_client(self, key: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Close the sessions of a client that is gone, in the background. Return their keys."""
        closing = [known for known in self.pool.open_keys() if known[: len(key)] == key]
        for known in closing:
            self.pool.close_soon(known)
        return closing

    async def end_client(self, key: tuple[str, ...]) -> None:
        """Close the sessions of a client that is gone, and wait until they are."""
        for known in self.close_client(key):
            await self.pool.wait_closed(known)

    async def close(self) -> None:
        """Close all sessions."""
        await self.pool.close_all()


def _do_nothing() -> None:
    """Do nothing: there is no turn to give back."""
