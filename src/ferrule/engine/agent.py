"""`Agent`: a model, tools and what they may do. The public door of the library."""

from __future__ import annotations

import asyncio
import getpass
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from ferrule.core.errors import ConfigError, JournalError
from ferrule.core.events import SessionOpened
from ferrule.core.identity import Identity
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine
from ferrule.guard.approval import Approver, NobodyToAsk
from ferrule.guard.gate import Gate, select_mode
from ferrule.guard.rules import RuleSet
from ferrule.guard.workspace import Workspace
from ferrule.models.registry import resolve
from ferrule.models.wire import Exchange, ModelOptions, ToolSpec, Wire
from ferrule.store.journal import Journal, SqliteJournal
from ferrule.store.paths import journal as journal_file
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Loading, Tool

from .asking import CurrentApprover
from .clock import Clock, SystemClock
from .closing import Closers
from .dispatcher import Dispatcher
from .driver import Driver
from .hooks import Hook
from .live import Live
from .prompt import system_text
from .session import RunResult, Session
from .usable import Usable

if TYPE_CHECKING:
    from ferrule.store.artifacts import Artifacts, ArtifactStore

    from .child import Below
    from .hook_chain import Hooks
    from .hook_events import EventHook
    from .keeping import Keeper
    from .lineage import Lineage
    from .registration import RegistrationLimits
    from .roster import Roster
    from .sub_agent import DelegationLimits, SubAgent


class Agent:
    """What stays the same over many sessions. Cheap to make, no I/O until the first run.

    `model` is `provider:model` or a `Wire`. `tools` are `Tool`s or plain functions. `workspace` is the
    folder that file tools work in. `allow`, `ask` and `deny` are permission rules (`"Edit(docs/**)"`,
    `"Bash(git diff:*)"`, a tool's name); `approver` answers what the rules leave open, and without one an
    *ask* is a *no*. `journal` is a Journal or a file; by default the person's own, in their state folder.
    `way` forces a way of calling tools (`native`, `constrained`, `text`, `commands`), `fallback=False` keeps the one that was chosen; `results="envelope"`
    shows the model the whole result object always. `hooks` are asked around calls, or on events (`hook_events`). `connect` turns a model's name into a wire, when it is first needed.
    `agents` are those that its sessions may delegate to with the tool `delegate`, which is there if this is not None; `delegation`
    bounds it. `artifacts` keeps large results: True in the person's own state folder, a folder or a store there; then the model gets
    stubs, and tools to read parts. By default only what exceeds the output limit is kept, where the journal is a file, for its owner.
    `registration` lets sessions gain tools, hooks and agents while they run, so many of each (`engine.registration`), and delegate.

        agent = Agent("ollama:llama3.2", tools=[get_weather])
        print(agent.run_sync("Is it raining in Ghent?").text)
    """

    def __init__(
        self,
        model: str | Wire,
        tools: Iterable[Tool | Callable[..., Any]] | Catalog = (),
        *,
        instructions: str = "",
        workspace: str | Path | Workspace | None = None,
        limits: Limits | None = None,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        mode: str = "default",
        gate: Gate | None = None,
        approver: Approver | None = None,
        journal: Journal | str | Path | None = None,
        hooks: Sequence[Hook | EventHook | Hooks] = (),
        scopes: Iterable[str] = (),
        way: str = "auto",
        fallback: bool = True,
        results: str = "value",
        options: ModelOptions | None = None,
        tenant: str = "local",
        user: str = "",
        resources: Iterable[object] = (),
        clock: Clock | None = None,
        interruptible: bool = False,
        connect: Callable[[str], Wire] = resolve,
        agents: Iterable[SubAgent] | None = None,
        delegation: DelegationLimits | None = None,
        registration: RegistrationLimits | None = None,
        artifacts: Artifacts | ArtifactStore | str | Path | bool | None = None,
    ) -> None:
        self._model = model
        self._connect = connect
        self.catalog = tools if isinstance(tools, Catalog) else Catalog(tools)
        self.limits = limits or Limits()
        self.instructions = instructions
        self.workspace = (
            workspace if isinstance(workspace, Workspace) or workspace is None else Workspace(workspace)
        )
        root = self.workspace.root if self.workspace else None
        rules = RuleSet.of(allow=allow, ask=ask, deny=deny, root=str(root or ""))
        self.gate = gate or Gate(rules, mode=select_mode(mode, "flags"), root=root)
        self.approver = approver or NobodyToAsk()
        self._journal_at = journal
        self._hooks = tuple(hooks)
        self._scopes = frozenset(scopes)
        self._way = way
        self._fallback = fallback
        if results not in ("value", "envelope"):
            raise ConfigError(f"results = {results!r}", hint="use `value` or `envelope`")
        self._results = results
        self._options = options or ModelOptions()
        self._tenant = tenant
        self._user = user or _person()
        self._clock = clock or SystemClock()
        self._interruptible = interruptible
        self._unclosed: set[Closers] = set()
        self._specs: tuple[Gate, int, tuple[ToolSpec, ...]] | None = None
        self._resources: dict[type, object] = {type(item): item for item in resources}
        if self.workspace is not None:
            # Deny rules hold for paths that no argument names, too: a search meets them where it opens files.
            self.workspace = self.workspace.refusing(self.gate.refuses)
            self._resources[Workspace] = self.workspace
        self.roster: Roster | None = None
        self._lineage: Lineage | None = None
        self._registration = registration
        if agents is not None or registration is not None:
            self._let_delegate(agents or (), delegation)
        self._artifacts: Artifacts | None = None
        if artifacts or (artifacts is None and self._journal_is_file):
            self._keep(artifacts)

    @property
    def _journal_is_file(self) -> bool:
        where = self._journal_at
        if where is None or isinstance(where, (str, Path)):
            return str(where) != ":memory:"
        return isinstance(where, SqliteJournal) and where.path is not None

    def _keep(self, given: Artifacts | ArtifactStore | str | Path | bool | None) -> None:
        from ferrule.store.artifacts import Artifacts

        from .keeping import join, kept_in

        self._resources[Artifacts] = self._artifacts = kept_in(given, self.limits)
        if self._artifacts.threshold is not None:
            join(self.catalog)

    def _keeper(self) -> Keeper:
        from .keeping import Keeper

        assert self._artifacts is not None
        reader = self.catalog.get("artifact_read")
        readable = reader is not None and not self.gate.hidden(reader)
        return Keeper(self._artifacts, self.limits.max_output_bytes, readable=readable)

    def _let_delegate(self, agents: Iterable[SubAgent], limits: DelegationLimits | None) -> None:
        from .delegate_tool import join
        from .roster import Roster

        self.roster = Roster(agents, limits)
        join(self.roster, self.catalog, self.gate)

    @property
    def model(self) -> str:
        """The model's full name, `provider:model`."""
        return self._model if isinstance(self._model, str) else self._model.model

    @property
    def wire(self) -> Wire:
        """The model's wire, made when it is first needed. Raises ConfigError for a name that leads nowhere."""
        if isinstance(self._model, str):
            self._model = self._connect(self._model)
        return self._model

    def change_model(
        self, model: str | Wire, *, options: ModelOptions | None = None, way: str | None = None
    ) -> None:
        """Let sessions ask another model from their next question on (`Driver.reopen`), with its own options and way."""
        self._model = model
        self._options = options or self._options
        self._way = way or self._way

    async def close(self) -> None:
        """Close what tools left open in any session (`Context.on_close`), then give the model's connections back."""
        try:
            for closers in [*self._unclosed]:
                await closers.run()
        finally:
            await self.disconnect()

    async def disconnect(self) -> None:
        """Give the model's connections (or its local server) back; sessions can go on with new ones."""
        if not isinstance(self._model, str):
            await self._model.close()
        if self.roster is not None:
            await self.roster.disconnect()

    @property
    def journal(self) -> Journal:
        """Where this agent's events go. A file is opened with the first event."""
        where = self._journal_at
        if where is None or isinstance(where, (str, Path)):
            where = self._journal_at = SqliteJournal(where or journal_file())
        return where

    def session(self, *, id: str = "") -> Session:
        """A new session with an empty history; `id`, if given, must be new in the journal."""
        system = system_text(self.instructions, tools=len(self.catalog) > 0)
        session = self._make(id or uuid4().hex, system)
        opened = SessionOpened(
            model=self.model,
            workspace=str(self.workspace.root) if self.workspace else "",
            mode=str(self.gate.mode),
            system=system,
            tools=tuple(tool.full_name for tool in self.catalog),
            results=self._results,
        )
        session.driver.open(opened)
        return session

    def below(self, part: Below) -> Session:
        """The session of a sub-agent (`engine.delegation`): this agent's in all but what `part` says. Raises ConfigError."""
        assert self.roster is not None
        child = copy(self)
        child.catalog, child.limits, child.instructions = Catalog(part.tools), part.limits, part.instructions
        child.gate, child.approver, child._specs = part.gate, part.approver, None
        child._hooks, child._lineage = (*self._hooks, *part.hooks), part.lineage
        if part.model not in ("", self.model):
            child.change_model(
                self.roster.wire(part.model, self._connect), options=ModelOptions(), way="auto"
            )
        session = child.session(id=part.session_id)
        session.driver.dispatcher.gate = part.gate
        return session

    def resume(self, session_id: str) -> Session:
        """A session from the journal, by its id or the beginning of it; `Session.resume` finishes what was left open.

        or another process is driving it.
        """
        found = self.journal.find(session_id, tenant=self._tenant, user=self._user)
        records = list(self.journal.records(found.session))
        opened = records[0].event
        if not isinstance(opened, SessionOpened):
            raise JournalError(
                f"session {found.session} does not begin with its opening", code="journal_corrupt"
            )
        session = self._make(found.session, opened.system)
        session.driver.recall([record.event for record in records])
        if (keeper := session.driver.dispatcher.keeper) is not None:
            keeper.settled = len(session.driver.machine.history)
        session.driver.open(None)
        return session

    async def run(self, text: str) -> RunResult:
        """One message in a session of its own, worked to its end. See `Session.run` for what it raises."""
        session = self.session()
        try:
            return await session.run(text)
        finally:
            await session.close()

    def run_sync(self, text: str) -> RunResult:
        """`run` for programs without an event loop; inside one, it uses a thread of its own."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(self._run_and_close(text))
        return _in_thread(lambda: asyncio.run(self._run_and_close(text)))

    async def _run_and_close(self, text: str) -> RunResult:
        try:
            return await self.run(text)
        finally:
            # Connections belong to the event loop that ends here; other sessions may go on elsewhere.
            await self.disconnect()

    async def stream(self, text: str) -> AsyncIterator[Live]:
        """`run`, event by event."""
        session = self.session()
        try:
            async for item in session.stream(text):
                yield item
        finally:
            await session.close()

    def _make(self, session_id: str, system: str) -> Session:
        identity = Identity(self._tenant, self._user, session_id, "none")
        make: Callable[..., Driver] = Driver
        around_calls: tuple[Hook, ...] = ()
        if self._hooks or self.roster is not None:
            make, around_calls = self._hooked()
        catalog = self.catalog
        if self._registration is not None:
            from .session_catalog import SessionCatalog

            catalog = SessionCatalog(catalog)

        async def exchange(added: tuple[ToolSpec, ...] = (), way: str = "") -> Exchange:
            return await self._exchange(system, driver, added, way)

        driver = make(
            Machine(),
            Dispatcher(
                catalog,
                self.gate.for_session(),
                hooks=around_calls,
                scopes=self._scopes,
                cap=self.limits.max_output_bytes,
                clock=self._clock,
                keeper=self._keeper() if self._artifacts is not None else None,
            ),
            self.journal,
            identity,
            exchange=exchange,
            approver=self.approver,
            resources={
                **self._resources,
                Approver: CurrentApprover(lambda: driver.approver, lambda: driver.log),
                Usable: Usable(lambda: driver.dispatcher),
            },
            interruptible=self._interruptible,
            unclosed=self._unclosed,
        )
        return Session(session_id, driver, self.model, self.limits)

    def _hooked(self) -> tuple[Callable[..., Driver], tuple[Hook, ...]]:
        from .hooked import HookedDriver, session_hooks

        workspace = str(self.workspace.root) if self.workspace else ""
        hooks, around_calls = session_hooks(self._hooks, workspace=workspace, mode=str(self.gate.mode))
        if self.roster is None:
            return partial(HookedDriver, hooks=hooks), around_calls
        from .delegating import DelegatingDriver

        family = {"home": self, "roster": self.roster, "lineage": self._lineage}
        if self._registration is None:
            return partial(DelegatingDriver, hooks=hooks, **family), around_calls
        from .growing import GrowingDriver

        return partial(GrowingDriver, hooks=hooks, registration=self._registration, **family), around_calls

    async def _exchange(
        self, system: str, driver: Driver, added: tuple[ToolSpec, ...] = (), way: str = ""
    ) -> Exchange:
        """A conversation. `added` are tools that a session has besides, `way` is how tools are called if not as the agent says."""
        from ferrule.models.ways.ladder import choose, open_exchange

        way, specs = way or self._way, (*self.specs(), *added)
        if way == "auto" and not self._fallback and specs:
            way = choose(await self.wire.capabilities())
        exchange, _ = await open_exchange(
            self.wire,
            way,
            system,
            specs,
            self._options,
            driver.log.notice,
            native_fallback="allow" if self._fallback else "reject",
        )
        if (keeper := driver.dispatcher.keeper) is not None:
            from .keeping import guarded

            exchange = guarded(exchange, keeper, self.catalog, driver.log.notice)
        return exchange

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as the model gets them: sorted, hidden ones left out. The same value while nothing changes."""
        gate, version = self.gate, self.catalog.version
        if self._specs is None or self._specs[0] is not gate or self._specs[1] != version:
            names = self.catalog.wire_table()
            specs = tuple(
                ToolSpec(
                    tool.full_name, names[tool.full_name], tool.description, tool.schema_json(), tool.examples
                )
                for tool in self.catalog
                if tool.loading is Loading.ALWAYS and tool.scopes <= self._scopes and not gate.hidden(tool)
            )
            self._specs = (gate, version, specs)
        return self._specs[2]


def _person() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"


def _in_thread(work: Callable[[], RunResult]) -> RunResult:
    outcome: list[RunResult | BaseException] = []

    def target() -> None:
        try:
            outcome.append(work())
        except BaseException as error:  # noqa: BLE001  carried to the caller's thread, where it is raised
            outcome.append(error)

    thread = threading.Thread(target=target, name="ferrule-run-sync")
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
