"""`Agent`: a model, tools and what they may do. The public door of the library."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from ferrule.core.errors import ConfigError, JournalError
from ferrule.core.events import Record, SessionOpened
from ferrule.core.limits import Limits
from ferrule.models.registry import resolve

from .agent_tools import Offering

if TYPE_CHECKING:
    from pathlib import Path

    from ferrule.core.machine import Machine
    from ferrule.models.client import Exchange, ModelOptions, ToolSpec, Wire
    from ferrule.permissions.approvals import Approver
    from ferrule.permissions.filesystem.workspace import Workspace
    from ferrule.permissions.gate import Gate
    from ferrule.storage.artifacts.store import Artifacts, ArtifactStore
    from ferrule.storage.journal.sqlite import Journal
    from ferrule.tools.catalog import Catalog, Definable
    from ferrule.tools.search.options import ToolSearch

    from .artifacts.intake import Keeper
    from .cleanup import Closers
    from .clock import Clock
    from .context.options import Around, ContextOptions
    from .delegation.child_session import Below
    from .delegation.lineage import Lineage
    from .delegation.roster import Roster
    from .delegation.sub_agent import DelegationLimits, SubAgent
    from .driver import Driver
    from .event_bus.bus import Bus
    from .hooks.call_hooks import Hook
    from .hooks.chain import Hooks
    from .hooks.events import EventHook
    from .live_events import Live
    from .registration.registration import RegistrationLimits
    from .session import Aims, RunResult, Session
    from .write_batching import Together


class Agent(Offering):
    """What stays the same over many sessions. Cheap to make, no I/O until the first run.

    `model` is `provider:model` or a `Wire`. `tools` are `Tool`s or plain functions. `workspace` is
    the folder that file tools work in. `allow`, `ask` and `deny` are permission rules
    (`"Edit(docs/**)"`, `"Bash(git diff:*)"`, a tool's name); `approver` answers what the rules
    leave open, and without one an *ask* is a *no*. `journal` is a Journal, a file or an address
    (`storage.locations`); by default the person's own, in their state folder. `way` forces a way of
    calling tools (`native`, `constrained`, `text`, `commands`), `fallback=False` keeps the one that
    was chosen; `results="envelope"` shows the model the whole result object always. `hooks` are
    asked around calls, or on events (`engine.hooks.events`). `connect` turns a model's name into a
    wire, when it is first needed. `agents` are those that its sessions may delegate to with the
    tool `delegate`, which is there if this is not None; `delegation` bounds it. `artifacts` keeps
    large results: True in the person's own state folder, a folder, an address or a store there;
    then the model gets stubs, and tools to read parts. By default only what exceeds the output
    limit is kept, where the journal is a file, for its owner. `registration` lets sessions gain
    tools, hooks and agents while they run, so many of each (`engine.registration.registration`),
    and delegate. `join` and `require_successful_tools` hold for its runs unless they say otherwise
    (`session.Aims`); sub-agents' runs have none. `bus` is where others see what happens in its
    sessions (`engine.event_bus.bus`). `context` says how its sessions keep within their model's
    window (`engine.context.options`); by default they are compacted. `tool_search` says how
    deferred tools are found (`tools.search.options`); None: by default where there are any, False:
    they are not deferred.

        agent = Agent("ollama:llama3.2", tools=[get_weather])
        print(agent.run_sync("Is it raining in Ghent?").text)
    """

    def __init__(
        self,
        model: str | Wire,
        tools: Iterable[Definable] | Catalog = (),
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
        bus: Bus | None = None,
        tool_search: ToolSearch | Mapping[str, Any] | str | bool | None = None,
        context: ContextOptions | Mapping[str, Any] | str | None = None,
        **aims: Unpack[Aims],
    ) -> None:
        from . import lazy_parts as parts

        self._model, self._connect = model, connect
        self._aims = parts.parse_aims(aims, caller=type(self).__init__)
        self.catalog = tools if isinstance(tools, parts.Catalog) else parts.Catalog(tools)
        self.limits = limits or Limits()
        self.instructions = instructions
        if workspace is not None and not isinstance(workspace, parts.Workspace):
            workspace = parts.Workspace(workspace)
        self.workspace = workspace
        root = self.workspace.root if self.workspace else None
        rules = parts.RuleSet.of(allow=allow, ask=ask, deny=deny, root=str(root or ""))
        if gate is None:
            parts.check_rule_names(rules, self.catalog)
        self.gate = gate or parts.Gate(rules, mode=parts.select_mode(mode, "flags"), root=root)
        self.approver = approver or parts.NobodyToAsk()
        self._journal_at = journal
        self._hooks = tuple(hooks)
        self._scopes = frozenset(scopes)
        self._way, self._fallback = way, fallback
        if results not in ("value", "envelope"):
            raise ConfigError(f"results = {results!r}", hint="use `value` or `envelope`")
        self._results = results
        self._options = options or parts.ModelOptions()
        self._tenant = tenant
        self._user = user or _person()
        self._clock = clock or parts.SystemClock()
        self._interruptible = interruptible
        self._unclosed: set[Closers] = set()
        self._together: Together | None = None
        self.bus = bus
        self._context = parts.ContextOptions.of(context)
        self._resources: dict[type, object] = {type(item): item for item in resources}
        if self.workspace is not None:
            # Deny rules hold for paths that no argument names, too: a search meets them where it
            # opens files.
            self.workspace = self.workspace.refusing(self.gate.refuses, self.gate.denials)
            self._resources[parts.Workspace] = self.workspace
        self.roster: Roster | None = None
        self._lineage: Lineage | None = None
        self._registration = registration
        if agents is not None or registration is not None:
            self._let_delegate(agents or (), delegation)
        self._search_with(tool_search)
        self._artifacts: Artifacts | None = None
        if artifacts or (artifacts is None and self._journal_is_file):
            self._keep(artifacts)

    @property
    def _journal_is_file(self) -> bool:
        from . import lazy_parts as parts

        where = self._journal_at
        if where is None or isinstance(where, (str, os.PathLike)):
            return str(where) != ":memory:" and "://" not in str(where)
        return isinstance(where, parts.SqliteJournal) and where.path is not None

    def _keep(self, given: Artifacts | ArtifactStore | str | Path | bool | None) -> None:
        from ferrule.storage.artifacts.store import Artifacts

        from .artifacts.intake import join, kept_in

        self._resources[Artifacts] = self._artifacts = kept_in(given, self.limits)
        if self._artifacts.threshold is not None:
            join(self.catalog)

    def _keeper(self) -> Keeper:
        from .artifacts.intake import Keeper

        assert self._artifacts is not None
        reader = self.catalog.get("artifact_read")
        readable = reader is not None and not self.gate.hidden(reader)
        return Keeper(self._artifacts, self.limits.max_output_bytes, readable=readable)

    def _let_delegate(self, agents: Iterable[SubAgent], limits: DelegationLimits | None) -> None:
        from .delegation.roster import Roster
        from .delegation.tool import join

        self.roster = Roster(agents, limits)
        join(self.roster, self.catalog, self.gate)

    @property
    def model(self) -> str:
        """The model's full name, `provider:model`."""
        return self._model if isinstance(self._model, str) else self._model.model

    @property
    def wire(self) -> Wire:
        """The model's wire, made when it is first needed. Raises ConfigError for a name that leads
        nowhere.
        """
        if isinstance(self._model, str):
            self._model = self._connect(self._model)
        return self._model

    def change_model(
        self, model: str | Wire, *, options: ModelOptions | None = None, way: str | None = None
    ) -> None:
        """Let sessions ask another model from their next question on (`Driver.reopen`), with its
        own options and way.
        """
        self._model = model
        self._options = options or self._options
        self._way = way or self._way

    def ask_like(self, other: Agent) -> None:
        """Ask another agent's model, through its connections."""
        self._model = other._model

    async def close(self) -> None:
        """Close what tools left open in any session (`Context.on_close`), then give the model's
        connections back.
        """
        try:
            for closers in [*self._unclosed]:
                await closers.run()
        finally:
            await self.disconnect()

    async def disconnect(self) -> None:
        """Give the model's connections (or its local server) back; sessions can go on with new
        ones.
        """
        if not isinstance(self._model, str):
            await self._model.close()
        if self.roster is not None:
            await self.roster.disconnect()

    @property
    def journal(self) -> Journal:
        """Where this agent's events go. A file is opened with the first event."""
        where = self._journal_at
        if isinstance(where, str) and "://" in where:
            from ferrule.storage.locations import journal_at

            where = self._journal_at = journal_at(where)
        if where is None or isinstance(where, (str, os.PathLike)):
            from . import lazy_parts as parts

            where = self._journal_at = parts.SqliteJournal(where or parts.journal_file())
        return where

    def session(self, *, id: str = "") -> Session:
        """A new session with an empty history; `id`, if given, must be new in the journal."""
        from . import lazy_parts as parts

        system = parts.system_text(self.instructions, tools=len(self.catalog) > 0)
        if (
            self._tool_search
            and (option := self.search) is not None
            and option.include_stub_listing
        ):
            from .tool_search.tools import listing

            system = "\n\n".join(
                filter(None, (system, listing(self.catalog, option, self._usable)))
            )
        session = self._make(id or parts.token_hex(16), system)
        if self.bus is not None:
            from .event_bus.attachment import attach

            attach(self.bus, session.driver)
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

    def take_over(self, session: Session, *, changed: Iterable[str] = ()) -> None:
        """Let another agent's session go on as this one's, from its next message on
        (`engine.agent_reload`). The journal must be the same.

        `changed` names tools that are not what they were: session grants for them end. Raises
        ConfigError while the session works.
        """
        from .agent_reload import renew

        renew(session, self._make, changed=changed)

    def below(self, part: Below) -> Session:
        """The session of a sub-agent (`engine.delegation.delegation`): this agent's in all but what
        `part` says. Raises ConfigError.
        """
        from . import lazy_parts as parts

        assert self.roster is not None
        child = copy(self)
        child.catalog, child.limits, child.instructions = (
            parts.Catalog(part.tools),
            part.limits,
            part.instructions,
        )
        child.gate, child.approver, child._specs = part.gate, part.approver, None
        child._aims = (0, ())
        child._hooks, child._lineage = (*self._hooks, *part.hooks), part.lineage
        child._searches_always = False
        if part.model not in ("", self.model):
            child.change_model(
                self.roster.wire(part.model, self._connect),
                options=parts.ModelOptions(),
                way="auto",
            )
        session = child.session(id=part.session_id)
        session.driver.dispatcher.gate = part.gate
        return session

    def working_for(self, tenant: str, user: str, journal: Journal) -> Agent:
        """A copy of this agent whose sessions belong to somebody else, in another journal."""
        copied = copy(self)
        copied._tenant, copied._user, copied._journal_at, copied._unclosed = (
            tenant,
            user,
            journal,
            set(),
        )
        return copied

    def rehearsing(
        self, model: str | Wire, system: str, answers: Hook | None
    ) -> tuple[Agent, Session]:
        """A copy of this agent and a session of it, in a journal in memory (`engine.replay.rerun`).
        With `answers`, a hook that answers every call, no handler runs and no rule is asked.
        """
        from . import lazy_parts as parts
        from .replay.recording import OpenGate

        copied = copy(self)
        copied.change_model(model, options=parts.ModelOptions() if model != self._model else None)
        copied._journal_at, copied._unclosed = parts.SqliteJournal(":memory:"), set()
        if answers is not None:
            copied._hooks, copied._artifacts, copied.gate = (
                (answers,),
                None,
                OpenGate(root=parts.Path(self.gate.around.root)),
            )
        copied._specs = None
        session = copied._make(parts.token_hex(16), system)
        session.driver.open(SessionOpened(model=copied.model, system=system, results=self._results))
        return copied, session

    def resume(self, session_id: str) -> Session:
        """A session from the journal, by its id or the beginning of it; `Session.resume` finishes
        what was left open.

        Raises SessionNotFound, and JournalError if it is damaged or another process is driving it.
        """
        found = self.journal.find(session_id, tenant=self._tenant, user=self._user)
        # Before it is read: what somebody else still writes would be missed.
        self.journal.lease(found.session)
        try:
            return self._resumed(found.session, list(self.journal.records(found.session)))
        except BaseException:  # the lease is nobody's then, also after Ctrl-C
            self.journal.release(found.session)
            raise

    def _resumed(self, name: str, records: list[Record]) -> Session:
        from . import lazy_parts as parts

        opened = records[0].event
        if not isinstance(opened, SessionOpened):
            raise JournalError(
                f"session {name} does not begin with its opening", code="journal_corrupt"
            )
        session = self._make(name, opened.system)
        session.driver.recall([record.event for record in records])
        if session.driver.machine.active:
            session.driver.log.identity = session.driver.log.identity.for_run(records[-1].run)
            session.driver.elapsed = parts.seconds_used(records)
        if (keeper := session.driver.dispatcher.keeper) is not None:
            keeper.settled = len(session.driver.machine.history)
        if (searching := session.driver.dispatcher.searching) is not None:
            searching.recall(record.event for record in records)
        if self.bus is not None:
            from .event_bus.attachment import attach

            attach(self.bus, session.driver, records[-1].seq)
        session.driver.open(None)
        return session

    async def run(self, text: str, **aims: Unpack[Aims]) -> RunResult:
        """One message in a session of its own, worked to its end. See `Session.run` for what it
        raises.
        """
        session = self.session()
        try:
            return await session.run(text, **aims)
        finally:
            await session.close()

    def run_sync(self, text: str, **aims: Unpack[Aims]) -> RunResult:
        """`run` for programs without an event loop; inside one, it uses a thread of its own."""
        from .session import waited

        return waited(lambda: self._run_and_close(text, aims))

    async def _run_and_close(self, text: str, aims: Aims) -> RunResult:
        try:
            return await self.run(text, **aims)
        finally:
            # Connections belong to the event loop that ends here; other sessions may go on
            # elsewhere.
            await self.disconnect()

    async def stream(self, text: str, **aims: Unpack[Aims]) -> AsyncIterator[Live]:
        """`run`, event by event."""
        session = self.session()
        try:
            async for item in session.stream(text, **aims):
                yield item
        finally:
            await session.close()

    def _make(self, session_id: str, system: str, machine: Machine | None = None) -> Session:
        from . import lazy_parts as parts

        identity = parts.Identity(self._tenant, self._user, session_id, "none")
        make: Callable[..., Driver] = parts.Driver
        around_calls: tuple[Hook, ...] = ()
        if self._hooks or self.roster is not None:
            make, around_calls = self._hooked()
        catalog, option, resources = self.catalog, self.search, self._resources
        if self._registration is not None or option is not None:
            from .registration.session_catalog import SessionCatalog

            catalog = SessionCatalog(catalog)
        searching = None
        if option is not None:
            searching = self._searching(option, catalog, session_id)
            resources = {**resources, type(searching): searching}

        async def exchange(added: tuple[ToolSpec, ...] = (), way: str = "") -> Exchange:
            return await self._exchange(system, driver, added, way)

        async def around() -> Around:
            return await parts.look_around(self.wire, self._options, system, self.specs())

        def by_model(call_id: str) -> bool:
            slot = driver.machine.slot(call_id)
            return slot is not None and not slot.direct

        opened: Callable[[], Awaitable[Exchange]] = exchange
        if catalog is not self.catalog:
            opened = self._growing(exchange, catalog, lambda: driver)
        if self._together is None or self._together.journal is not self.journal:
            self._together = parts.Together(self.journal)
        driver = make(
            machine or parts.Machine(),
            parts.Dispatcher(
                catalog,
                self.gate.for_session(),
                hooks=around_calls,
                scopes=self._scopes,
                cap=self.limits.max_output_bytes,
                clock=self._clock,
                keeper=self._keeper() if self._artifacts is not None else None,
                by_model=by_model,
                searching=searching,
            ),
            self.journal,
            identity,
            exchange=opened,
            approver=self.approver,
            resources={
                **resources,
                parts.Approver: parts.CurrentApprover(lambda: driver.approver, lambda: driver.log),
                parts.Usable: parts.Usable(lambda: driver.dispatcher),
            },
            interruptible=self._interruptible,
            unclosed=self._unclosed,
            context=self._context,
            look_around=around,
            together=self._together,
        )
        if searching is not None:
            searching.usable, searching.record = driver.dispatcher.usable, driver.log.add
        if self._artifacts is not None and self.workspace is not None:
            from .rewind.file_copies import Copies

            driver.dispatcher.copies = Copies(self._artifacts.store, self.workspace)
        return parts.Session(session_id, driver, self.model, self.limits, *self._aims, system)

    def _hooked(self) -> tuple[Callable[..., Driver], tuple[Hook, ...]]:
        from .hooks.driver import HookedDriver, session_hooks

        workspace = str(self.workspace.root) if self.workspace else ""
        hooks, around_calls = session_hooks(
            self._hooks, workspace=workspace, mode=str(self.gate.mode)
        )
        if self.roster is None:
            return partial(HookedDriver, hooks=hooks), around_calls
        from .delegation.driver import DelegatingDriver

        family = {"home": self, "roster": self.roster, "lineage": self._lineage}
        if self._registration is None:
            return partial(DelegatingDriver, hooks=hooks, **family), around_calls
        from .registration.driver import GrowingDriver

        return partial(
            GrowingDriver, hooks=hooks, registration=self._registration, **family
        ), around_calls

    async def _exchange(
        self, system: str, driver: Driver, added: tuple[ToolSpec, ...] = (), way: str = ""
    ) -> Exchange:
        """A conversation. `added` are tools that a session has besides, `way` is how tools are
        called if not as the agent says.
        """
        from ferrule.models.tool_modes.selection import choose, open_exchange

        way, options, searching = way or self._way, self._options, driver.dispatcher.searching
        if searching is None:
            specs = (*self.specs(), *added) if added else self.specs()
        else:
            mode = await searching.choose(self.wire, way)
            specs, options = searching.offered(self.specs(mode), added, options)
        if way == "auto" and not self._fallback and specs:
            way = choose(await self.wire.capabilities())
        exchange, _ = await open_exchange(
            self.wire,
            way,
            system,
            specs,
            options,
            driver.log.notice,
            native_fallback="allow" if self._fallback else "reject",
        )
        if (keeper := driver.dispatcher.keeper) is not None:
            from .artifacts.intake import guarded

            exchange = guarded(exchange, keeper, self.catalog, driver.log.notice)
        return exchange


def _person() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
