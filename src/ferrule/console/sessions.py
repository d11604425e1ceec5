"""The desk of the console: the sessions that this server drives, and what people do with them.

A run belongs to the server and not to a page: it goes on when the browser is closed, and everybody
who may see the session sees the same. A session stays open between its messages, so that what its
commands started goes on running, and is let go after `IDLE_SECONDS`, or when there are too many.
What a session is driven with (`Setup`) is fixed when it is opened here; each model, mode and folder
has its own assembly.

Everything here runs in one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ferrule.core.errors import (
    FerruleError,
    JournalError,
    LimitReached,
    ProviderError,
    RunCancelled,
)
from ferrule.core.identity import Identity
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.engine.threads import run_blocking
from ferrule.permissions.approvals import Answer, ApprovalRequest
from ferrule.runtime.session_pool import PoolFull, SessionPool
from ferrule.storage.journal.lease import Leases
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.journal.sqlite_database import make_lock

from .assemblies import Benches, Setup
from .questions import Question, Questions
from .viewer import Viewer

if TYPE_CHECKING:
    from ferrule.runtime.assemble import Assembly

MAX_RUNS = 32
"""Runs at a time."""
MAX_OPEN = 64
"""Sessions that are open at a time."""
IDLE_SECONDS = 1800.0
"""How long a session without a run stays open."""
TRYING = "a person trying a tool"
"""Who calls a tool that is tried, for the journal."""
KEPT_MODES = ("plan", "dontAsk")
"""Modes that a session has again when it is taken up, since they are tighter than others; else the
server's mode holds.
"""


class DeskError(FerruleError):
    """Something that cannot be done with a session now (`session_busy`, `session_idle`,
    `server_busy`, `not_allowed`).
    """

    code = "session_busy"


class Live:
    """A session that this server drives. As an approver it asks whoever looks at its page."""

    asks_about_unknown = True

    def __init__(
        self, session: Session, assembly: Assembly, setup: Setup, questions: Questions
    ) -> None:
        self.session = session
        self.assembly = assembly
        self.setup = setup
        self.failed = ""
        """Why the last run broke off, where its journal cannot say it."""
        self.work: asyncio.Task[None] | None = None
        self._questions = questions

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def identity(self) -> Identity:
        return self.session.identity

    @property
    def is_busy(self) -> bool:
        """Whether a run is under way."""
        return self.work is not None and not self.work.done()

    async def cancel(self) -> None:
        """End the run: its calls are ended, answered and journaled before this returns."""
        if self.work is not None:
            self.work.cancel()
            await asyncio.wait([self.work])

    async def close(self) -> None:
        """Give the session back: what it left open is ended and others may drive it."""
        if self.assembly.reloading is not None:
            self.assembly.reloading.forget(self.session)
        await self.assembly.leave(self.session)

    async def ask(self, request: ApprovalRequest) -> Answer:
        """`Approver.ask`."""
        return await self._questions.ask(self.identity.tenant, self.identity.user, self.id, request)


@dataclass(slots=True)
class Desk:
    """What is driven here, over `journal`. `owner` is whose sessions the assemblies make by
    themselves.
    """

    benches: Benches
    journal: Journal
    owner: str
    questions: Questions = field(default_factory=Questions)
    changes: int = 0
    """Counts what began and ended here."""
    pool: SessionPool[str, Live] = field(
        default_factory=lambda: SessionPool[str, Live](MAX_OPEN, IDLE_SECONDS)
    )
    _locks: Leases | None = None

    # ---- looking

    def find(self, session: str) -> Live | None:
        """The session, if it is open here."""
        return self.pool.find(session)

    def waiting(self, viewer: Viewer) -> list[Question]:
        """Questions that wait for this person."""
        return self.questions.seen_by(viewer)

    def standing(self, info: SessionInfo) -> str:
        """How a session stands: `running` here, `waiting` for an answer, `elsewhere` (another
        process, or a run above it, drives it), `interrupted` (its run is open and nobody drives
        it), `idle` (no run yet), or how its last run ended.
        """
        live = self.pool.find(info.session)
        if live is not None and live.is_busy:
            return "waiting" if self.questions.of_session(info.session) else "running"
        if info.state != "open":
            return info.state
        if live is None and self._leased(info.session):
            return "elsewhere"
        if live is not None and info.runs and not live.session.has_open_run:
            # It ended after this was read of it.
            return "running"
        return "interrupted" if info.runs else "idle"

    def _leased(self, session: str) -> bool:
        # Through a lock file of our own: the journal's would take for free what another part of
        # this process holds.
        if self._locks is None:
            if not isinstance(self.journal, SqliteJournal) or self.journal.path is None:
                return False
            self._locks = make_lock(self.journal.path)
        try:
            self._locks.take(session)
        except JournalError:
            return True
        self._locks.release(session)
        return False

    # ---- working

    async def start(self, viewer: Viewer, text: str, setup: Setup | None = None) -> Live:
        """A new session of this person with its first message; it is in the journal when this
        returns.

        Raises ConfigError (also for a model that leads nowhere), DeskError, JournalError.
        """
        live = self._open(viewer.tenant, viewer.user, setup or Setup(), None)
        try:
            await self.say(live, text)
        except BaseException:
            await self.leave(live.id)
            raise
        return live

    async def go_on(self, viewer: Viewer, info: SessionInfo, text: str) -> Live:
        """Another message for a session; while a run is under way, words for it. Raises as `start`,
        and JournalError (`journal_leased`).
        """
        live = await self._taken(viewer, info)
        if live.is_busy:
            live.session.tell(_words(text))
            return live
        if live.session.has_open_run:
            raise DeskError("its last run is still open", hint="resume it first")
        await self.say(live, text)
        return live

    async def say(self, live: Live, text: str) -> None:
        """Begin a run with this message."""
        text = _words(text)
        await self._begin(live, lambda: live.session.run(text))

    async def try_tool(self, viewer: Viewer, tool: str, values: dict[str, Any]) -> Live:
        """A session of its own with one call in it, which no model made: through the gate, and
        asking as any other. Raises as `start`.
        """
        live = self._open(viewer.tenant, viewer.user, Setup(), None)
        try:
            await self._begin(live, lambda: live.session.call_tool(tool, values, by=TRYING))
        except BaseException:
            await self.leave(live.id)
            raise
        return live

    async def resume(self, viewer: Viewer, info: SessionInfo) -> Live:
        """Take up a run that nobody drives any more. Raises as `go_on`."""
        live = await self._taken(viewer, info)
        if live.is_busy:
            raise DeskError("it is running", code="session_busy")
        if not live.session.has_open_run:
            raise DeskError("nothing was left open", code="session_idle")
        await self._begin(live, lambda: live.session.resume("the process that ran this ended"))
        return live

    def steer(self, session: str, text: str) -> None:
        """Words for a run on its way; the model reads them before its next answer. Raises
        DeskError.
        """
        self._working(session).session.tell(_words(text))

    def stop_call(self, session: str, call: str) -> None:
        """End one call; the run goes on. Raises DeskError."""
        if not self._working(session).session.stop_call(call):
            raise DeskError("that call is not running", code="session_idle")

    async def stop(self, session: str) -> None:
        """End the run: its calls are ended, answered and journaled before this returns. Raises
        DeskError.
        """
        await self._working(session).cancel()

    async def fork(self, info: SessionInfo, runs: int) -> str:
        """A new session with the history of this one up to the end of run number `runs`; its id.
        Raises ConfigError.
        """
        from ferrule.engine.rewind.rewind import fork
        from ferrule.storage.locations import artifacts_at

        settings = self.benches.server.settings
        store = artifacts_at(
            settings["artifacts.store"],
            max_bytes=settings["artifacts.max_bytes"],
            days=settings["artifacts.days"],
        )
        return await run_blocking(lambda: fork(self.journal, info.session, runs, store))

    async def leave(self, session: str) -> None:
        """Let a session go: what it left open is ended and others may drive it. Nothing happens
        where it is not open or at work.
        """
        live = self.pool.find(session)
        if live is not None and not live.is_busy:
            await self.pool.close(session)

    async def close(self) -> None:
        """End every run, settled and journaled, and give all back but the journal and the server's
        own assembly.
        """
        await self.pool.close_all()
        await self.benches.close()
        if self._locks is not None:
            self._locks.close()

    # ---- opening

    async def _taken(self, viewer: Viewer, info: SessionInfo) -> Live:
        await self.pool.wait_closed(info.session)
        live = self.pool.use(info.session)
        if live is not None:
            return live
        root = str(self.benches.server.settings.workspace)
        if info.workspace and Path(info.workspace) != Path(root) and not viewer.operator:
            raise DeskError(
                "this session works in another folder than the server", code="not_allowed"
            )
        mode = self._mode_of(info)
        folder = "" if not info.workspace or Path(info.workspace) == Path(root) else info.workspace
        return self._open(info.tenant, info.user, Setup(info.model, mode, folder), info.session)

    def _mode_of(self, info: SessionInfo) -> str:
        first = next(iter(self.journal.records(info.session)))
        mode, now = str(getattr(first.event, "mode", "")), str(self.benches.server.agent.gate.mode)
        return mode if mode in KEPT_MODES and now != "plan" else ""

    def _open(self, tenant: str, user: str, setup: Setup, session: str | None) -> Live:
        try:
            self.pool.make_room()
        except PoolFull as full:
            raise DeskError(full.detail, code="server_busy", hint=full.hint) from full
        assembly = self.benches.of(setup, {id(live.assembly) for live in self.pool})
        # Now: a model that leads nowhere is an error before anything is journaled, and all who work
        #     with it share one wire.
        _ = assembly.agent.wire
        agent = self._agent(assembly, tenant, user)
        made = agent.resume(session) if session else agent.session()
        live = Live(made, assembly, setup, self.questions)
        self.pool.add(made.id, live)
        made.set_approver(live)
        return live

    def _agent(self, assembly: Assembly, tenant: str, user: str) -> Agent:
        if (tenant, user) == ("local", self.owner):
            return assembly.agent
        return assembly.agent.working_for(user, tenant=tenant, journal=self.journal)

    async def _begin(self, live: Live, doing: Callable[[], Awaitable[object]]) -> None:
        if not live.is_busy:
            # Before what follows: nothing of it may wait between looking and beginning.
            await self._fresh(live)
        if live.is_busy:
            raise DeskError("it is running", hint="stop it, or tell it what you want")
        if self.pool.count_busy() >= MAX_RUNS:
            raise DeskError(
                f"{MAX_RUNS} runs are at work already", code="server_busy", hint="stop one"
            )
        live.failed = ""
        begun = asyncio.Event()
        stop_observing = live.session.observe(lambda _: begun.set())
        self.changes += 1
        live.work = asyncio.create_task(self._work(live, doing), name=f"console run {live.id}")
        waits = asyncio.create_task(begun.wait())
        await asyncio.wait([live.work, waits], return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        stop_observing()
        live.session.flush()

    async def _fresh(self, live: Live) -> None:
        """Let a message be worked with what files say now (`runtime.hot_reload`). A folder that was
        trusted and changed is withdrawn until a person trusts it again; sessions that are at work
        go on as they are. Raises ConfigError where what there was must not stay.
        """
        reloading = live.assembly.reloading
        if reloading is None:
            return
        await reloading.reload(*(one.session for one in self.pool if one.assembly is live.assembly))
        await reloading.renew(live.session)

    async def _work(self, live: Live, doing: Callable[[], Awaitable[object]]) -> None:
        try:
            await doing()
        except (asyncio.CancelledError, RunCancelled):
            # Settled and journaled already; whoever stopped it waits for this task and not for its
            # outcome.
            pass
        except (LimitReached, ProviderError):
            # How it ended is in the journal.
            pass
        except FerruleError as error:
            live.failed = " ".join(filter(None, (error.detail, error.hint)))
        except Exception as error:  # noqa: BLE001  boundary: a run that breaks must not take the server along; its page says so
            live.failed = f"the run broke: {type(error).__name__}"
            live.assembly.notice(f"run in {live.id}: {type(error).__name__}: {error}")
        finally:
            self.changes += 1
            self.pool.use(live.id)

    def _working(self, session: str) -> Live:
        live = self.pool.find(session)
        if live is None or not live.is_busy:
            raise DeskError("it is not running here", code="session_idle")
        return live


def _words(text: str) -> str:
    text = text.strip()
    if not text:
        raise DeskError("there is no message", code="message_empty", hint="write one")
    return text
