"""Clients and their sessions: each client has a session of its own.

A client is a connection, or whoever says so with every request. Its session belongs to `mcp:NAME`
or, over HTTP with tokens that stand for people, to that person; it is in the agent's journal like
any other, with its calls, questions, answers and results. Two clients do not see each other's
artifacts, answers or grants. Names are claims: clients that share a token and use the same name are
one.

Limits: `MAX_CLIENTS` at a time (the one idle for longest is closed; its journal stays),
`IDLE_SECONDS` without a request, `CALLS` in progress per client, and as many that wait for their
client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ferrule.core.calls import Call, Result
from ferrule.core.errors import FerruleError
from ferrule.core.events import DirectCall
from ferrule.engine.agent import Agent
from ferrule.engine.live_events import Live, Progress
from ferrule.engine.session import Session
from ferrule.permissions.approvals import AllowThese
from ferrule.runtime.session_pool import PoolFull, SessionPool

from .approvals import CURRENT, ClientApprover, answered
from .client import UNDER_WAY
from .peer import Peer
from .requests import Answers, Request, Suspended

MAX_CLIENTS = 64
IDLE_SECONDS = 1800.0
CALLS = 32
QUESTIONS = 4
"""Times that one request asks a person about its call: each hook that changes the arguments makes
it another question.
"""
BY = "mcp"
"""The caller of a client's call, in the journal."""
_SUBSCRIBED = 256

End = Callable[[Session], Awaitable[None]]


class Full(FerruleError):
    """A limit is reached."""

    code = "mcp_full"


@dataclass(frozen=True, slots=True)
class Who:
    """Which client it is.

    `key` tells it from others, `user` is the owner of its session (under `tenant`, or the agent's).
    With `alone`, nobody else can use this key.
    """

    key: tuple[str, ...]
    user: str
    tenant: str = ""
    alone: bool = True


class Visit:
    """One client with its session."""

    def __init__(
        self,
        who: Who,
        session: Session,
        yes_to: tuple[str, ...],
        end: End,
        used: Callable[[], object],
    ) -> None:
        self.who = who
        self.session = session
        self._end = end
        self._used = used
        self.calls: dict[str, Request] = {}
        self.suspended = Suspended(CALLS)
        self.level = "info"
        self.subscribed: set[str] = set()
        self.listening: Any = None
        """Serves this client's subscriptions, once it has some."""
        self.outlet: Any = None
        """Sends notifications that belong to no request, if the client has a connection."""
        self._at_work: set[Request] = set()
        self._asking = asyncio.Lock()
        session.set_approver(AllowThese(yes_to, ClientApprover()) if yes_to else ClientApprover())
        self._stop_observing = session.observe(self._observe)

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress."""
        return bool(self._at_work)

    def begin(
        self, peer: Peer, given: Answers, work: Callable[[Request], Coroutine[Any, Any, Any]]
    ) -> Request:
        """Accept a request. Raises Full."""
        if len(self._at_work) >= CALLS:
            raise Full(f"{CALLS} requests of this client are in progress already", code=Full.code)
        request = Request(peer, given, self.level)
        self._at_work.add(request)

        def over() -> None:
            self._at_work.discard(request)
            for call_id in request.calls:
                self.calls.pop(call_id, None)
                self._lighten(call_id)
            self._used()

        request.start(self._within(request, work), over)
        return request

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        """Call a tool for the current request.

        The call is made again if a person was asked in between.
        """
        request = CURRENT.get()
        result = await self._call(tool, arguments)
        for _ in range(QUESTIONS):
            if request is None or request.wanted is None:
                break
            (digest, asking), request.wanted = request.wanted, None
            request.said[digest] = await answered(request, digest, asking)
            result = await self._call(tool, arguments)
        return result

    async def _call(self, tool: str, arguments: Mapping[str, Any]) -> Result:
        give_back = await self._turn_to_ask(tool, arguments)
        try:
            return await self.session.call_tool(tool, arguments, by=BY)
        finally:
            give_back()

    def subscribe(self, uri: str) -> None:
        """Subscribe the client to a resource. Raises Full."""
        if len(self.subscribed) >= _SUBSCRIBED and uri not in self.subscribed:
            raise Full(f"this client has {_SUBSCRIBED} subscriptions already", code=Full.code)
        self.subscribed.add(uri)

    async def cancel(self) -> None:
        """End all requests, settled and journaled."""
        for request in list(self._at_work):
            await request.stop()

    async def close(self) -> None:
        """Close the session."""
        self._stop_observing()
        await self._end(self.session)

    async def _within(
        self, request: Request, work: Callable[[Request], Coroutine[Any, Any, Any]]
    ) -> Any:
        UNDER_WAY.set(self.calls)
        CURRENT.set(request)
        return await work(request)

    async def _turn_to_ask(self, tool: str, arguments: Mapping[str, Any]) -> Callable[[], None]:
        """Let calls that need approval take turns until they have their answer.

        The engine asks one question at a time, and runs a waiting call within another call, which
        would then have to wait for it in turn.
        """
        if not self.session.needs_approval(tool, arguments):
            return _nothing
        await self._asking.acquire()
        held = [self._asking]

        def give_back() -> None:
            if held:
                held.pop().release()

        if (request := CURRENT.get()) is not None:
            request.answered = give_back
        return give_back

    def _lighten(self, call_id: str) -> None:
        """Drop the arguments and result of a call, which the journal has.

        A connection may last for days, and a session keeps both in memory.
        """
        slot = self.session.driver.machine.slot(call_id)
        if slot is not None and slot.result is not None:
            slot.call = Call(slot.call.id, slot.call.tool)
            slot.result = replace(slot.result, data=None, notes=())

    def _observe(self, item: Live) -> None:
        """Pass what happens in the session to its request. Progress may come from other threads."""
        if isinstance(item, Progress):
            if (request := self.calls.get(item.call_id)) is not None:
                request.peer.progress(item.text)
        elif isinstance(item, DirectCall):
            above = self.calls.get(item.by.removeprefix("call "))
            request = above or (CURRENT.get() if item.by == BY else None)
            if request is not None:
                self.calls[item.call.id] = request
                request.calls.add(item.call.id)
                if item.by == BY:
                    request.call = item.call.id


@dataclass(slots=True)
class Visits:
    """All clients of a server.

    `agent` opens a session for each and stays open for its owner; `end` closes a session.
    """

    agent: Agent
    yes_to: tuple[str, ...] = ()
    end: End = Session.close
    pool: SessionPool[tuple[str, ...], Visit] = field(
        default_factory=lambda: SessionPool[tuple[str, ...], Visit](MAX_CLIENTS, IDLE_SECONDS)
    )

    def __iter__(self) -> Iterator[Visit]:
        return iter(self.pool)

    def of(self, who: Who, about: str) -> Visit:
        """Return the session of this client, opened if it is new.

        A new session starts with `about` in its journal. Raises Full, JournalError.
        """
        visit = self.pool.use(who.key)
        if visit is not None:
            return visit
        try:
            self.pool.make_room()
        except PoolFull as full:
            raise Full(
                f"{MAX_CLIENTS} clients are served already; try again later", code=Full.code
            ) from full
        session = self.agent.working_for(who.user, tenant=who.tenant).session()
        session.add_notice("mcp", about)
        visit = Visit(who, session, self.yes_to, self.end, lambda: self.pool.use(who.key))
        self.pool.add(who.key, visit)
        return visit

    def leave(self, key: tuple[str, ...]) -> None:
        """Close the sessions of a client that is gone, in the background."""
        for known in self.pool.open_keys():
            if known[: len(key)] == key:
                self.pool.close_soon(known)

    async def close(self) -> None:
        """Close all sessions."""
        await self.pool.close_all()


def _nothing() -> None:
    """Do nothing: there is no turn to give back."""
