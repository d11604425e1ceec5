"""Threads: each is a session of the person who asks, found by their identity and the thread's id.

    session id = the first 32 digits of SHA-256 over the JSON of [tenant, user, thread id]

So two people who name the same thread have a session each, and neither can name the other's. A
thread outlives the process: its session is resumed from the journal.

A run waits within its session while a person is asked or the client works on a call of its own; its
stream ends, and the next request goes on with it. What happens meanwhile is kept for that request.

Limits: those of `work_limits` for runs and for open threads (the one idle for longest is closed),
and `IDLE_SECONDS`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal

from ferrule.core.calls import ErrorType, ToolResult, encode_json
from ferrule.core.errors import (
    ConfigError,
    JournalError,
    SessionNotFound,
    ToolDefinitionError,
    ToolFailed,
)
from ferrule.engine.agent import Agent
from ferrule.engine.live_events import Live
from ferrule.engine.session import RunResult, Session
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.runtime.hidden_errors import log_hidden_error
from ferrule.runtime.http.http_security import Visitor
from ferrule.runtime.http.work_limits import IN_ALL, find_refusal
from ferrule.runtime.session_pool import PoolFull, SessionPool
from ferrule.tools.catalog import Catalog
from ferrule.tools.context import Context
from ferrule.tools.define import define_tool
from ferrule.tools.definition import Tool

from .event_writer import AgUiEvent, EventWriter
from .inputs import ClientToolSpec, InputRefused, InterruptAnswer, RunInput
from .interrupts import ANSWER_SECONDS, BY, OpenInterrupt, interrupt_id, read_answer

IDLE_SECONDS = 1800.0
MAX_TOLD = 100_000
"""Most characters of an earlier conversation that a new session is told, the latest ones."""
_MAX_SEEN = 1_000

Leave = Callable[[Session[Any]], Awaitable[None]]
Signal = Literal["paused", "ended"]
_TOLD = (
    "What was said before, as the person's program tells it. It is not about this message but "
    "leads up to the next one.\n\n"
)


class Thread:
    """A thread that is open. As an approver it asks the person through their client."""

    asks_about_unknown = True

    def __init__(self, session: Session[Any], who: Visitor, tools: tuple[ClientToolSpec, ...]):
        self.session = session
        self.tools = tools
        self.outbox: asyncio.Queue[AgUiEvent | Signal] = asyncio.Queue()
        """What a client is to be told, until it is told."""
        self.writer = EventWriter(frozenset(tool.name for tool in tools), self._find_result)
        self.questions: dict[str, OpenInterrupt] = {}
        self.client_calls: dict[str, asyncio.Future[str]] = {}
        """Calls that the client works on, until it sends their results."""
        self.is_read = False
        """Whether a stream is open."""
        self.has_failed = False
        """Whether the last run failed: then its message may be sent again."""
        self.told_context: tuple[tuple[str, str], ...] = ()
        self.run_task: asyncio.Task[RunResult[Any] | None] | None = None
        self._who = who
        self._seen: dict[str, None] = {}
        self._early_results: dict[str, str] = {}
        self._early_answers: dict[str, InterruptAnswer] = {}
        self._loop = asyncio.get_running_loop()
        self._own_thread = threading.get_ident()
        self.leave: Leave = Session.close
        session.approvals.set_approver(self)
        self._stop_observing = session.observe(self._observe)

    @property
    def owner(self) -> tuple[str, str]:
        return (self._who.tenant, self._who.user)

    # ---- what the pool needs

    @property
    def is_busy(self) -> bool:
        """Whether a run is under way, or waits for the client."""
        return self.run_task is not None and not self.run_task.done()

    @property
    def is_waiting(self) -> bool:
        """Whether the run waits for the client."""
        return bool(self.open_questions or self.open_client_calls)

    async def cancel(self) -> None:
        """Cancel the run. Its calls are ended, settled and journaled before this returns."""
        if self.run_task is not None:
            self.run_task.cancel()
            await asyncio.wait([self.run_task])

    async def close(self) -> None:
        """Close the session; the journal keeps everything."""
        self._stop_observing()
        await self.leave(self.session)

    # ---- the run

    def start(self, work: Callable[[], Awaitable[RunResult[Any] | None]]) -> None:
        """Start a run, whose events come to the outbox until the signal `ended`."""
        self._early_results.clear()

        async def run() -> RunResult[Any] | None:
            return await work()

        self.run_task = asyncio.create_task(run(), name=f"ag-ui run {self.session.id}")
        self.run_task.add_done_callback(lambda _: self.outbox.put_nowait("ended"))

    def is_new(self, message_id: str) -> bool:
        """Whether a message of the person was not given to the session yet."""
        return message_id not in self._seen

    def mark_seen(self, message_id: str) -> None:
        """Remember that a message was given to the session."""
        self._seen[message_id] = None
        if len(self._seen) > _MAX_SEEN:
            del self._seen[next(iter(self._seen))]

    def _observe(self, item: Live) -> None:
        if threading.get_ident() == self._own_thread:
            self._write(item)
        else:
            # Progress of tools that run in threads.
            self._loop.call_soon_threadsafe(self._write, item)

    def _find_result(self, call_id: str) -> ToolResult | None:
        slot = self.session.driver.machine.find_slot(call_id)
        return None if slot is None else slot.result

    def _write(self, item: Live) -> None:
        for event in self.writer.write(item):
            self.outbox.put_nowait(event)

    # ---- questions

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Implement `Approver.ask`."""
        if request.risk == "critical" and not self._who.operator:
            note = "a call of critical risk needs an operator of this server"
            return ApprovalAnswer("deny", by=BY, note=note, refused_by="nobody")
        early = self._early_answers.pop(interrupt_id(request), None)
        if early is not None:
            return read_answer(request, early, self._who.user)
        asked = OpenInterrupt.of(request)
        self.questions[asked.id] = asked
        self.outbox.put_nowait("paused")
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await asked.answered
        except TimeoutError:
            note = f"nobody answered within {ANSWER_SECONDS:g} s"
            return ApprovalAnswer("deny", by=BY, note=note, refused_by="nobody")
        finally:
            del self.questions[asked.id]

    def check_answers(self, answers: tuple[InterruptAnswer, ...]) -> None:
        """Refuse answers to questions that nobody asks (any more).

        Raises:
            InputRefused: An answer is to no open question; no answer counts then.
        """
        if not self.is_busy and self.session.has_open_run:
            return
        for one in answers:
            if one.is_resolved and one.interrupt_id not in self.questions:
                raise InputRefused(
                    f"the question `{one.interrupt_id[:200]}` is not open: it was answered, it "
                    "expired, or it is about other arguments",
                    status=409,
                    code="interrupt_gone",
                )

    def give_answers(self, answers: tuple[InterruptAnswer, ...]) -> None:
        """Give answers to the questions they name; those not asked yet wait for theirs."""
        for one in answers:
            asked = self.questions.get(one.interrupt_id)
            if asked is None:
                if one.is_resolved:
                    self._early_answers[one.interrupt_id] = one
            elif not asked.answered.done():
                asked.answered.set_result(read_answer(asked.request, one, self._who.user))

    # ---- calls of the client's tools

    async def ask_client(self, call_id: str) -> str:
        """Wait for the client's result of a call of its own tools.

        Raises:
            ToolFailed: The client went on without one.
        """
        for event in self.writer.announce_client_call(call_id):
            self.outbox.put_nowait(event)
        if call_id in self._early_results:
            return self._early_results.pop(call_id)
        waits: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.client_calls[call_id] = waits
        self.outbox.put_nowait("paused")
        try:
            return await waits
        finally:
            del self.client_calls[call_id]

    def give_results(self, results: dict[str, str]) -> None:
        """Give the client's results to the calls that wait for them, or will."""
        for call_id, text in results.items():
            waits = self.client_calls.get(call_id)
            if waits is None:
                if self.is_busy and call_id not in self.writer.announced:
                    self._early_results[call_id] = text
            elif not waits.done():
                waits.set_result(text)

    def abandon_client_calls(self) -> None:
        """Fail the calls that wait for the client, which has gone on without their results."""
        for waits in list(self.client_calls.values()):
            if not waits.done():
                why = "the client went on without running this tool"
                waits.set_exception(ToolFailed(ErrorType.CANCELLED, why))

    @property
    def open_questions(self) -> list[OpenInterrupt]:
        """The questions that have no answer yet."""
        return [one for one in self.questions.values() if not one.answered.done()]

    @property
    def open_client_calls(self) -> list[str]:
        """The calls that the client has sent no result of yet."""
        return [name for name, waits in self.client_calls.items() if not waits.done()]


@dataclass(slots=True)
class Threads:
    """The threads of one server.

    Attributes:
        agent: Opens the sessions, and stays open for its owner.
        leave: Closes a session.
    """

    agent: Agent[Any, Any]
    leave: Leave = Session.close
    pool: SessionPool[tuple[str, str, str], Thread] = field(
        default_factory=lambda: SessionPool[tuple[str, str, str], Thread](IN_ALL, IDLE_SECONDS)
    )

    async def open(self, who: Visitor, given: RunInput) -> Thread:
        """Return the person's thread, opened if it is not.

        Raises:
            InputRefused: There is no room, a tool cannot be used, or the thread is open elsewhere.
        """
        key = (who.tenant, who.user, given.thread_id)
        await self.pool.wait_closed(key)
        thread = self.pool.use(key)
        if thread is not None and thread.tools != given.tools and not thread.is_busy:
            # A session's tools are those it was opened with.
            await self.pool.close(key)
            thread = None
        if thread is None:
            self._require_room(who)
            thread = self._open(who, given)
            thread.leave = self.leave
            self.pool.add(key, thread)
        if not thread.is_busy:
            self._require_run(who)
        return thread

    async def close(self) -> None:
        """End and journal all runs, and close the sessions. The agent stays open."""
        await self.pool.close_all()

    def _require_room(self, who: Visitor) -> None:
        try:
            self.pool.make_room()
        except PoolFull as full:
            raise InputRefused(f"{full.detail}; {full.hint}", status=503, code=full.code) from full

    def _require_run(self, who: Visitor) -> None:
        mine = sum(one.is_busy and one.owner == (who.tenant, who.user) for one in self.pool)
        refused = find_refusal(mine, self.pool.count_busy())
        if refused is not None:
            raise InputRefused(f"{refused}; finish one first", status=429, code="too_many_runs")

    def _open(self, who: Visitor, given: RunInput) -> Thread:
        opened: list[Thread] = []

        async def ask(call_id: str) -> str:
            return await opened[0].ask_client(call_id)

        base = self.agent
        if who.is_named:
            base = base.copy_for_user(who.user, tenant=who.tenant)
        agent = add_client_tools(base, given.tools, ask)
        session = self._open_session(agent, who, given)
        opened.append(Thread(session, who, given.tools))
        return opened[0]

    def _open_session(self, agent: Agent[Any, Any], who: Visitor, given: RunInput) -> Session[Any]:
        name = session_id((agent.tenant, agent.user), given.thread_id)
        try:
            return agent.resume(name)
        except SessionNotFound:
            session = agent.open_session(name)
        except (ConfigError, JournalError) as error:
            log_hidden_error("ag_ui", error)
            raise InputRefused(
                f"this thread cannot be opened now ({error.code})", status=409, code=error.code
            ) from error
        if given.earlier:
            told = "\n\n".join(f"{role.capitalize()}: {text}" for role, text in given.earlier)
            session.history.add_context(_TOLD + told[-MAX_TOLD:])
        return session


def session_id(who: tuple[str, str], thread_id: str) -> str:
    """Return the id of the session of a person's thread."""
    return sha256(encode_json([*who, thread_id]).encode("utf-8", "replace")).hexdigest()[:32]


SOURCE = "ag-ui client"
"""Where these tools come from, as errors and pages name it."""
_CONTEXT = "ferrule_context"
"""The handler's own parameter; no tool of a client may have one of this name."""

AskClient = Callable[[str], Awaitable[str]]
"""Waits for the client's result of a call, by the call's id. Raises ToolFailed."""


def add_client_tools(
    agent: Agent[Any, Any], specs: Iterable[ClientToolSpec], ask: AskClient
) -> Agent[Any, Any]:
    """Return a copy of an agent that has the client's tools too.

    Raises:
        InputRefused: A tool cannot be used, or has the name of one of the agent's own.
    """
    specs = list(specs)
    if not specs:
        return agent
    copied = agent.copy()
    try:
        copied.catalog = Catalog([*agent.catalog, *(_make_tool(spec, ask) for spec in specs)])
    except ToolDefinitionError as error:
        raise InputRefused(f"`tools`: {error.detail}", code="invalid_tool") from error
    return copied


def _make_tool(spec: ClientToolSpec, ask: AskClient) -> Tool:
    properties = spec.parameters.get("properties")
    if isinstance(properties, dict) and _CONTEXT in properties:
        raise InputRefused(
            f"`tools`: `{spec.name}` has a parameter `{_CONTEXT}`, which is taken",
            code="invalid_tool",
        )

    async def call_client(**given: Any) -> str:
        context: Context = given[_CONTEXT]
        return await ask(context.call_id)

    made = define_tool(
        spec.name,
        spec.description,
        parameters={**spec.parameters, "type": "object"},
        handler=call_client,
        timeout=ANSWER_SECONDS,
    )
    return replace(made, context_parameter=_CONTEXT, source=SOURCE)
