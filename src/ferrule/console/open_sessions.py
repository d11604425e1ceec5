"""The session pool of the console: the sessions this server runs, and what people do with them.

A run belongs to the server and not to a page. It continues when the browser is closed, and everyone
who may see the session sees the same. A session stays open between messages, so that processes its
commands started keep running. It is released after `IDLE_SECONDS`, or when too many are open. What
a session runs with (`SessionSetup`) is fixed when it is opened here; each combination of model,
mode and folder has its own assembly.

Everything here runs in one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ferrule.core.errors import (
    ConfigError,
    FerruleError,
    JournalError,
    LimitReached,
    ProviderError,
    RunCancelled,
)
from ferrule.core.events import RunStarted
from ferrule.core.identity import Identity
from ferrule.core.media import Content, Media
from ferrule.engine.agent import Agent
from ferrule.engine.rewind.rewind import fork
from ferrule.engine.session import Session
from ferrule.engine.threads import run_blocking
from ferrule.permissions.approvals import ApprovalAnswer, ApprovalRequest
from ferrule.runtime.assemble import Assembly
from ferrule.runtime.http.work_limits import IN_ALL, find_refusal
from ferrule.runtime.session_pool import PoolFull, SessionPool
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sessions import SessionInfo
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.journal.sqlite_database import open_leases
from ferrule.storage.journal.sqlite_lease import FileLeases
from ferrule.storage.locations import create_artifact_store

from .assemblies import Assemblies, SessionSetup
from .questions import OpenQuestions, Question
from .viewer import Viewer

IDLE_SECONDS = 1800.0
"""How long a session without a run stays open."""
TRIAL_CALLER = "a person trying a tool"
"""The caller of a tool that is tried out, as the journal names it."""
KEPT_MODES = ("plan", "dontAsk")
"""Modes that a session keeps when it is reopened, because they are stricter than others. Otherwise
the server's mode applies.
"""


class SessionActionError(FerruleError):
    """An action that is not possible on a session now.

    Codes: `session_busy`, `session_idle`, `server_busy`, `not_allowed`, `message_empty`.
    """

    code = "session_busy"


class ConsoleSession:
    """A session that this server runs. As an approver it asks whoever looks at its page."""

    asks_about_unknown = True

    def __init__(
        self, session: Session, assembly: Assembly, setup: SessionSetup, questions: OpenQuestions
    ) -> None:
        self.session = session
        self.assembly = assembly
        self.setup = setup
        self.failed = ""
        """Why the last run failed, when its journal cannot say so."""
        self.run_task: asyncio.Task[None] | None = None
        self._questions = questions

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def identity(self) -> Identity:
        return self.session.identity

    @property
    def is_busy(self) -> bool:
        """Whether a run is in progress."""
        return self.run_task is not None and not self.run_task.done()

    async def cancel(self) -> None:
        """Cancel the run. Its calls are ended, settled and journaled before this returns."""
        if self.run_task is not None:
            self.run_task.cancel()
            await asyncio.wait([self.run_task])

    async def close(self) -> None:
        """Close the session: what it left running is ended, and other processes may open it."""
        if self.assembly.reloader is not None:
            self.assembly.reloader.forget_session(self.session)
        await self.assembly.close_session(self.session)

    async def ask(self, request: ApprovalRequest) -> ApprovalAnswer:
        """Ask whoever may answer at the session's page (`Approver.ask`)."""
        return await self._questions.ask(self.identity.tenant, self.identity.user, self.id, request)


@dataclass(slots=True)
class OpenSessions:
    """The sessions open in this server, over `journal`.

    `owner` is the user whose sessions the assemblies open by default.
    """

    assemblies: Assemblies
    journal: Journal
    owner: str
    questions: OpenQuestions = field(default_factory=OpenQuestions)
    change_count: int = 0
    """Counts runs that started or ended here."""
    pool: SessionPool[str, ConsoleSession] = field(
        default_factory=lambda: SessionPool[str, ConsoleSession](IN_ALL, IDLE_SECONDS)
    )
    _locks: FileLeases | None = None

    # ---- looking

    def find(self, session: str) -> ConsoleSession | None:
        """Return a session if it is open here."""
        return self.pool.find(session)

    def list_questions(self, viewer: Viewer) -> list[Question]:
        """Return the questions that wait for this viewer."""
        return self.questions.visible_to(viewer)

    def session_state(self, info: SessionInfo) -> str:
        """Return the state of a session.

        * `running`: a run is in progress here.
        * `waiting`: that run waits for an answer.
        * `elsewhere`: another process, or a run above it, runs the session.
        * `interrupted`: a run is open and no process runs it.
        * `idle`: there was no run yet.
        * Otherwise, how its last run ended.
        """
        live = self.pool.find(info.session)
        if live is not None and live.is_busy:
            return "waiting" if self.questions.of_session(info.session) else "running"
        if info.state != "open":
            return info.state
        if live is None and self._is_leased(info.session):
            return "elsewhere"
        if live is not None and info.runs and not live.session.has_open_run:
            # The run ended after `info` was read.
            return "running"
        return "interrupted" if info.runs else "idle"

    def _is_leased(self, session: str) -> bool:
        # Uses a lock of our own: the journal's would count a lease held elsewhere in this process
        # as free.
        if self._locks is None:
            if not isinstance(self.journal, SqliteJournal) or self.journal.path is None:
                return False
            self._locks = open_leases(self.journal.path)
        try:
            self._locks.take(session)
        except JournalError:
            return True
        self._locks.release(session)
        return False

    # ---- working

    async def start(
        self, viewer: Viewer, message: Content, setup: SessionSetup | None = None
    ) -> ConsoleSession:
        """Open a session for this viewer with a first message, journaled on return.

        Raises:
            ConfigError: the setup cannot be used, for example an unknown model.
            SessionActionError: too many runs or sessions.
            JournalError: the journal cannot be written.
        """
        live = self._open(viewer.tenant, viewer.user, setup or SessionSetup(), None)
        try:
            await self.start_run(live, message)
        except BaseException:
            await self.release(live.id)
            raise
        return live

    async def send_message(
        self, viewer: Viewer, info: SessionInfo, message: Content
    ) -> ConsoleSession:
        """Send another message to a session, or to its run if one is in progress.

        Raises:
            ConfigError, SessionActionError: as `start`.
            JournalError: as `start`, and `journal_leased` if another process runs the session.
        """
        live = await self._take_session(viewer, info)
        if live.is_busy:
            live.session.tell(_require_text(message))
            return live
        if live.session.has_open_run:
            raise SessionActionError(
                "the last run of this session is still open", hint="resume it first"
            )
        await self.start_run(live, message)
        return live

    async def start_run(self, live: ConsoleSession, message: Content) -> None:
        """Start a run with this message."""
        if isinstance(message, str):
            message = _require_text(message)
        await self._start_work(live, lambda: live.session.run(message))

    async def try_tool(self, viewer: Viewer, tool: str, values: dict[str, Any]) -> ConsoleSession:
        """Open a session with a single call that no model made.

        The call passes the gate and asks for approval like any other. Raises as `start`.
        """
        live = self._open(viewer.tenant, viewer.user, SessionSetup(), None)
        try:
            await self._start_work(
                live, lambda: live.session.call_tool(tool, values, by=TRIAL_CALLER)
            )
        except BaseException:
            await self.release(live.id)
            raise
        return live

    async def resume_run(self, viewer: Viewer, info: SessionInfo) -> ConsoleSession:
        """Resume a run that no process drives any more. Raises like `send_message`."""
        live = await self._take_session(viewer, info)
        if live.is_busy:
            raise SessionActionError("a run of this session is in progress", code="session_busy")
        if not live.session.has_open_run:
            raise SessionActionError(
                "this session has no interrupted run to resume", code="session_idle"
            )
        await self._start_work(live, lambda: live.session.resume("the process that ran this ended"))
        return live

    def stop_call(self, session: str, call: str) -> None:
        """Stop one call; the run continues.

        Raises:
            SessionActionError: the call is not running.
        """
        if not self._find_running(session).session.stop_call(call):
            raise SessionActionError("this call is not running", code="session_idle")

    async def stop_run(self, session: str) -> None:
        """Stop the run. Its calls are ended, settled and journaled before this returns.

        Raises:
            SessionActionError: no run is in progress here.
        """
        await self._find_running(session).cancel()

    async def fork(self, info: SessionInfo, runs: int) -> str:
        """Create a session with the history of this one up to the end of run number `runs`.

        Returns:
            The id of the new session.

        Raises:
            ConfigError: there is no such run.
        """
        settings = self.assemblies.server.settings
        store = create_artifact_store(
            settings["artifacts.store"],
            max_bytes=settings["artifacts.max_bytes"],
            days=settings["artifacts.days"],
        )
        return await run_blocking(lambda: fork(self.journal, info.session, runs, store))

    async def retry(self, viewer: Viewer, info: SessionInfo, run: int) -> ConsoleSession:
        """Start a session that has this one's history before run number `run`, and its message.

        Raises:
            ConfigError: there is no such run.
            SessionActionError, JournalError: as `send_message`.
        """
        begun = (record.event for record in self.journal.records(info.session))
        messages = [event for event in begun if isinstance(event, RunStarted)]
        if not 0 < run <= len(messages):
            raise ConfigError(f"there is no run {run}: the session has {len(messages)}")
        name = await self.fork(info, run - 1)
        forked = await run_blocking(lambda: self.journal.find(name))
        live = await self._take_session(viewer, forked)
        await self.start_run(live, _restore_content(messages[run - 1]))
        return live

    async def release(self, session: str) -> None:
        """Release a session: what it left running is ended, and other processes may open it.

        Does nothing if the session is not open or a run is in progress.
        """
        live = self.pool.find(session)
        if live is not None and not live.is_busy:
            await self.pool.close(session)

    async def close(self) -> None:
        """End every run, settled and journaled, and close the sessions and their assemblies.

        The journal and the server's own assembly stay open.
        """
        await self.pool.close_all()
        await self.assemblies.close()
        if self._locks is not None:
            self._locks.close()

    # ---- opening

    async def _take_session(self, viewer: Viewer, info: SessionInfo) -> ConsoleSession:
        await self.pool.wait_closed(info.session)
        live = self.pool.use(info.session)
        if live is not None:
            return live
        root = str(self.assemblies.server.settings.workspace)
        if info.workspace and Path(info.workspace) != Path(root) and not viewer.operator:
            raise SessionActionError(
                "this session belongs to another folder than the server's", code="not_allowed"
            )
        mode = self._find_mode(info)
        folder = "" if not info.workspace or Path(info.workspace) == Path(root) else info.workspace
        return self._open(
            info.tenant, info.user, SessionSetup(info.model, mode, folder), info.session
        )

    def _find_mode(self, info: SessionInfo) -> str:
        first = next(iter(self.journal.records(info.session)))
        mode = str(getattr(first.event, "mode", ""))
        now = str(self.assemblies.server.agent.gate.mode)
        return mode if mode in KEPT_MODES and now != "plan" else ""

    def _open(
        self, tenant: str, user: str, setup: SessionSetup, session: str | None
    ) -> ConsoleSession:
        try:
            self.pool.make_room()
        except PoolFull as full:
            raise SessionActionError(full.detail, code="server_busy", hint=full.hint) from full
        assembly = self.assemblies.assembly_for(setup, {id(live.assembly) for live in self.pool})
        # Create the model client now: an unknown model is then an error before anything is
        # journaled, and every session of this assembly shares the client.
        _ = assembly.agent.model_client
        agent = self._agent_for(assembly, tenant, user)
        made = agent.resume(session) if session else agent.session()
        live = ConsoleSession(made, assembly, setup, self.questions)
        self.pool.add(made.id, live)
        made.approvals.set_approver(live)
        return live

    def _agent_for(self, assembly: Assembly, tenant: str, user: str) -> Agent:
        if (tenant, user) == ("local", self.owner):
            return assembly.agent
        return assembly.agent.copy_for_user(user, tenant=tenant, journal=self.journal)

    async def _start_work(
        self, live: ConsoleSession, action: Callable[[], Awaitable[object]]
    ) -> None:
        if not live.is_busy:
            # Done first, because nothing below may wait between the checks and the start.
            await self._reload_configuration(live)
        if live.is_busy:
            raise SessionActionError(
                "a run of this session is in progress", hint="stop it, or send it a message"
            )
        owner = (live.identity.tenant, live.identity.user)
        mine = sum(
            one.is_busy and (one.identity.tenant, one.identity.user) == owner for one in self.pool
        )
        refused = find_refusal(mine, self.pool.count_busy())
        if refused is not None:
            raise SessionActionError(refused, code="server_busy", hint="stop one")
        live.failed = ""
        begun = asyncio.Event()
        # Observed to its end: a model that is asked before a page looks is asked to stream as well.
        stop_observing = live.session.observe(lambda _: begun.set())
        self.change_count += 1
        live.run_task = asyncio.create_task(self._run(live, action), name=f"console run {live.id}")
        live.run_task.add_done_callback(lambda _: stop_observing())
        waits = asyncio.create_task(begun.wait())
        await asyncio.wait([live.run_task, waits], return_when=asyncio.FIRST_COMPLETED)
        waits.cancel()
        live.session.flush()

    async def _reload_configuration(self, live: ConsoleSession) -> None:
        """Reload what configuration files say before a message is worked on (`runtime.hot_reload`).

        A trusted folder that changed loses its trust until a person trusts it again. Sessions with
        a run in progress continue unchanged. Raises ConfigError if the previous configuration must
        not stay in effect.
        """
        reloading = live.assembly.reloader
        if reloading is None:
            return
        await reloading.reload(*(one.session for one in self.pool if one.assembly is live.assembly))
        await reloading.update_session(live.session)

    async def _run(self, live: ConsoleSession, action: Callable[[], Awaitable[object]]) -> None:
        """Do a session's work to its end, and keep for its page why it failed."""
        try:
            await action()
        except (asyncio.CancelledError, RunCancelled):
            # Settled and journaled already. The caller that stopped it waits for this task only.
            pass
        except (LimitReached, ProviderError):
            # The journal says how it ended.
            pass
        except FerruleError as error:
            live.failed = " ".join(filter(None, (error.detail, error.hint)))
        except Exception as error:  # noqa: BLE001  boundary: a failing run must not stop the server; its page shows the error
            live.failed = f"the run failed: {type(error).__name__}"
            live.assembly.notice(f"run in {live.id}: {type(error).__name__}: {error}")
        finally:
            self.change_count += 1
            self.pool.use(live.id)

    def _find_running(self, session: str) -> ConsoleSession:
        live = self.pool.find(session)
        if live is None or not live.is_busy:
            raise SessionActionError(
                "no run of this session is in progress here", code="session_idle"
            )
        return live


def _require_text(message: Content) -> str:
    if not isinstance(message, str):
        raise SessionActionError(
            "a model that works takes no files", hint="send them when its run has ended"
        )
    text = message.strip()
    if not text:
        raise SessionActionError("the message is empty", code="message_empty", hint="write one")
    return text


def _restore_content(message: RunStarted) -> Content:
    """Return a journaled message as it was sent; its media are artifacts of the session."""
    if not message.media:
        return message.text
    parts: list[str | Media] = []
    begin = 0
    for medium in message.media:
        parts.append(message.text[begin : medium.at])
        parts.append(Media(artifact=medium.reference, name=medium.name))
        begin = medium.at
    return [part for part in (*parts, message.text[begin:]) if part]
