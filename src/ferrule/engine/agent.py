"""`Agent`: a model, tools and what they may do. Where the library begins."""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from types import UnionType
from typing import Any, Generic, Never, Self, TypeVar, Unpack, overload

from ferrule.core.errors import ConfigError, JournalError, SessionNotFound
from ferrule.core.events import HistoryGiven, JournalRecord, SessionOpened
from ferrule.core.limits import Limits
from ferrule.core.media import Content
from ferrule.core.vocabulary import ResultForm
from ferrule.models.client import ModelClient, ModelOptions, OutputModeOption, ToolModeOption
from ferrule.models.registry import find_tool_bounds
from ferrule.permissions import filesystem
from ferrule.permissions.approvals import Approver, DenyingApprover
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.storage.artifacts.store import ArtifactStore, RunArtifacts
from ferrule.storage.journal.protocols import Journal
from ferrule.tools.catalog import Catalog, ToolLike

from . import delegation, hooks, tool_search
from . import output as typed_output
from .agent_options import Host, Permissions, Storage, ToolCalling
from .agent_parts import (
    AgentJournal,
    build_system_text,
    create_agent_output,
    create_gate,
    find_user_name,
    parse_gate,
)
from .artifacts.large_results import resolve_artifacts
from .cleanup import Cleanup
from .clock import SystemClock
from .closed_by_with import ClosedByWith, run_in_new_loop
from .context.options import Compact, ContextOptions
from .driver import Driver
from .hooks.call_hooks import Hook
from .live_events import Live, PartialOutput
from .message_history import History, MessageHistory
from .model_fallbacks import AgentModel, split_models
from .model_layers import ModelConnection
from .plugins.plugin_set import PluginSet, add_plugins, setup_for_program
from .plugins.protocol import Parts, Plugin
from .rule_names import check_rule_names
from .run_inputs import (
    UNSET,
    Instructions,
    Unset,
    check_deps,
    check_tools,
    check_wanted_deps,
    parse_instructions,
)
from .session import (
    RunDefaults,
    RunOptions,
    RunResult,
    Session,
    parse_run_options,
)
from .session_builder import build_session
from .stopping import require_asyncio
from .type_variables import DepsT, OutputT
from .unknown_options import explain_agent_options
from .visible_tools import VisibleTools
from .write_batching import WriteBatch

T = TypeVar("T")


class Agent(ClosedByWith, Generic[DepsT, OutputT]):
    """What stays the same over many sessions. Cheap to make, no I/O until the first run.

        agent = Agent("ollama:llama3.2", tools=[get_weather])
        print(agent.run_sync("Is it raining in Ghent?").text)

    Args:
        model: `provider:model`, or a model client; or several, of which the next is asked if one
            fails (`engine.model_fallbacks`).
        tools: Tools, plain functions, or a catalog.
        plugins: What else is added: tools, hooks, sub-agents, resources, instructions and the like
            (`ferrule.plugins`), in order, each a plugin, the name of one that ships or is
            installed, or `Parts` of the program's own; or a set of plugins that were set up, whose
            tools are among `tools`.
        instructions: What the model is told before the first message: a text, a function that
            returns one and is asked once for each run (it may be async, and take the `Context`), or
            several of both.
        workspace: The folder that file tools work in.
        permissions: Rules, mode and approver for tool calls.
        limits: The bounds of each run.
        storage: Where sessions and large results are kept, and in whose name.
        tool_calling: How the model calls tools; a tool mode is short for
            `ToolCalling(mode=...)`.
        model_options: Options of requests, such as the temperature.
        context: How sessions keep within the model's context window (`engine.context.options`). By
            default they are compacted.
        run_options: What runs have unless they say otherwise (`RunOptions`); not those of
            sub-agents.
        host: Services that the embedding program provides.
        output_type: What runs end with instead of text: a type, several, a function that takes the
            value (its return is the output; `RetryCall` sends the value back) or a JSON Schema.
        output_mode: How the model is held to it: `auto` chooses by what the model can do;
            `schema`, `tool`, `grammar` and `prompt` force a mode (`models.output_modes`).
        output_retries: How often an answer that does not fit goes back to the model.
        deps_type: The type of what runs are given as `deps`: tools, instructions and output
            functions find it as `Context.deps`. A tool that asks for another type
            (`Context[Shop]`) is refused here.
    """

    @overload
    def __init__(
        self,
        model: AgentModel,
        tools: Iterable[ToolLike] | Catalog = ...,
        *,
        plugins: Sequence[Plugin | Parts | str] | PluginSet = ...,
        instructions: Instructions = ...,
        workspace: str | Path | filesystem.Workspace | None = ...,
        permissions: Permissions | None = ...,
        limits: Limits | None = ...,
        storage: Storage | None = ...,
        tool_calling: ToolCalling | ToolModeOption | None = ...,
        model_options: ModelOptions | None = ...,
        context: ContextOptions | Mapping[str, Any] | Compact | None = ...,
        run_options: RunOptions | None = ...,
        host: Host | None = ...,
        output_type: type[OutputT]
        | Callable[..., Awaitable[OutputT]]
        | Callable[..., OutputT]
        | Sequence[
            type[OutputT] | Callable[..., Awaitable[OutputT]] | Callable[..., OutputT]
        ] = ...,
        output_mode: OutputModeOption = ...,
        output_retries: int = ...,
        deps_type: type[DepsT] = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[T, Any],
        model: str | ModelClient,
        tools: Iterable[ToolLike] | Catalog = ...,
        *,
        output_type: UnionType | Mapping[str, Any],
        deps_type: type[T],
        **options: Any,
    ) -> None: ...

    @overload
    def __init__(
        self: Agent[None, Any],
        model: AgentModel,
        tools: Iterable[ToolLike] | Catalog = ...,
        *,
        output_type: UnionType | Mapping[str, Any],
        **options: Any,
    ) -> None:
        # A checker knows no type for these; `agent: Agent[None, Cat | Dog] = Agent(...)` names it.
        ...

    def __init__(  # noqa: PLR0913  public: each option of an agent by its name
        self,
        model: AgentModel,
        tools: Iterable[ToolLike] | Catalog = (),
        *,
        plugins: Sequence[Plugin | Parts | str] | PluginSet = (),
        instructions: Instructions = "",
        workspace: str | Path | filesystem.Workspace | None = None,
        permissions: Permissions | None = None,
        limits: Limits | None = None,
        storage: Storage | None = None,
        tool_calling: ToolCalling | ToolModeOption | None = None,
        model_options: ModelOptions | None = None,
        context: ContextOptions | Mapping[str, Any] | Compact | None = None,
        run_options: RunOptions | None = None,
        host: Host | None = None,
        output_type: object = str,
        output_mode: OutputModeOption = "auto",
        output_retries: int = 2,
        deps_type: Any = None,
        **unknown: Never,
    ) -> None:
        if unknown:
            raise TypeError(explain_agent_options(unknown, type(self).__init__))
        permissions = permissions or Permissions()
        storage = storage or Storage()
        host = host or Host()
        tool_calling = ToolCalling.parse(tool_calling)
        self.instructions, functions = parse_instructions(instructions, deps_type)
        join, require = parse_run_options(run_options or {})
        self.run_defaults = RunDefaults(
            join=join,
            require=require,
            deps_type=deps_type,
            instructions=functions,
            make_deps=host.make_deps,
        )
        self.limits = limits or Limits()
        self._use_tool_calling(tool_calling)
        first, fallbacks = split_models(model)
        self.connection = ModelConnection(
            first, host.connect, model_options or ModelOptions(), tool_calling.mode, fallbacks
        )
        catalog = tools if isinstance(tools, Catalog) else Catalog(tools)
        gate, self.workspace = create_gate(permissions, workspace)
        setup = setup_for_program(self.model, self.workspace, host.connect, gate)
        self.plugins, catalog = add_plugins(plugins, setup, catalog)
        self.resources: dict[type, object] = {type(item): item for item in self.plugins.resources}
        if self.workspace is not None:
            self.resources[filesystem.Workspace] = self.workspace
        gate = gate.in_run(self.resources)
        check_tools(catalog, deps_type)
        if permissions.gate is None:
            check_rule_names(gate.rules, catalog)
        self.visible_tools = VisibleTools(
            catalog,
            gate,
            frozenset(permissions.scopes),
            tool_calling.search,
            lambda: find_tool_bounds(self.connection.model).tools,
        )
        self.approver: Approver = permissions.approver or DenyingApprover()
        self.hooks = self.plugins.hooks
        self.clock = host.clock or SystemClock()
        self.interruptible = host.interruptible
        self.stop_seconds = host.stop_seconds
        self.bus = self.plugins.watch(host.bus)
        self._is_watched = True
        """Whether the observers of plugins are attached to the bus."""
        self.name = host.name
        self.context = ContextOptions.parse(context)
        self.output = self._make_output(output_type, output_mode, output_retries)
        """What runs must end with; None for text."""
        self.registration = self.plugins.registration
        self.sub_agents: delegation.SubAgentRegistry | None = None
        self.lineage: delegation.Lineage | None = None
        """Where this agent's sessions stand in a tree of delegations; None at its root."""
        added = self.plugins
        if added.agents or added.delegation is not None or added.registration is not None:
            from .delegation.delegate_tool import add_delegate_tool

            self.sub_agents = delegation.SubAgentRegistry(added.agents, added.delegation)
            add_delegate_tool(self.sub_agents, catalog, gate)
        self._override_deps: DepsT | Unset = UNSET
        self._owns_journal = True
        self._use_storage(storage, catalog)
        self.unclosed: set[Cleanup] = set()
        """Sessions with something to close (`Context.on_close`)."""
        self.session_gate: PermissionGate | None = None
        """The gate of a sub-agent's session, with what was granted to the delegating one."""
        self._indexes: tool_search.Indexes | None = None

    def _use_tool_calling(self, tool_calling: ToolCalling) -> None:
        self.results: ResultForm = tool_calling.results
        self.fallback = tool_calling.fallback
        self.parallel = tool_calling.parallel
        self.hides_errors = tool_calling.errors == "name"

    def _use_storage(self, storage: Storage, catalog: Catalog) -> None:
        """Keep sessions there. Tools that read artifacts are added to the catalog."""
        self.tenant = storage.tenant
        self.user = storage.user or find_user_name()
        self._journal = AgentJournal(storage.journal)
        self._write_batch: WriteBatch | None = None
        self._media_store: ArtifactStore | None = None
        self.artifacts: RunArtifacts | None = None
        artifacts = storage.artifacts
        if artifacts or (artifacts is None and self._journal.is_file):
            self.artifacts = resolve_artifacts(artifacts, self.limits, catalog)
            self.resources = {**self.resources, type(self.artifacts): self.artifacts}

    def _make_output(
        self, output_type: object, mode: OutputModeOption, retries: int
    ) -> typed_output.AgentOutput | None:
        output = create_agent_output(output_type, mode, retries)
        if output is not None:
            for name, wanted in output.type.list_wanted_deps():
                owner = f"the output function `{name}`"
                check_wanted_deps(owner, wanted, self.run_defaults.deps_type)
        return output

    @property
    def catalog(self) -> Catalog:
        """The tools that sessions begin with."""
        return self.visible_tools.catalog

    @catalog.setter
    def catalog(self, catalog: Catalog) -> None:
        self.visible_tools = self.visible_tools.copy(catalog=catalog)

    @property
    def gate(self) -> PermissionGate:
        """The gate that decides about calls. Each session has a copy, with its own grants."""
        return self.visible_tools.gate

    @property
    def model(self) -> str:
        """The model's full name, `provider:model`."""
        return self.connection.name

    @property
    def model_client(self) -> ModelClient:
        """The model's client, made when it is first needed.

        Raises ConfigError for a name that leads nowhere.
        """
        return self.connection.client

    def find_address(self, model: str) -> str:
        return self.connection.find_address(model)

    def change_model(
        self,
        model: str | ModelClient,
        *,
        options: ModelOptions | None = None,
        tool_mode: str | None = None,
    ) -> None:
        """Let sessions ask another model from their next request on."""
        self.connection = self.connection.with_model(model, options=options, tool_mode=tool_mode)

    def share_model(self, other: Agent[Any, Any]) -> None:
        """Ask another agent's model, through its connections."""
        self.connection = self.connection.share_client_of(other.connection)

    @property
    def journal(self) -> Journal:
        """The journal of this agent's events. A file is opened with the first event.

        It is in memory unless the program named one. One that the program named, and did not make
        itself, is closed by `close`; later sessions open it again.
        """
        return self._journal.open()

    def share_writes(self) -> WriteBatch:
        """Return what shares journal writes among sessions; made with the first one."""
        journal = self.journal
        if self._write_batch is None or self._write_batch.journal is not journal:
            self._write_batch = WriteBatch.of(journal)
        return self._write_batch

    def find_indexes(self) -> tool_search.Indexes:
        """Return what tools are found with; made with the first session that needs it."""
        if self._indexes is None:
            self._indexes = tool_search.Indexes()
        return self._indexes

    def find_media_store(self) -> ArtifactStore:
        """Return where pictures and the like are kept: in memory, if large results are not kept."""
        if self.artifacts is not None:
            return self.artifacts.store
        if self._media_store is None:
            from ferrule.storage.artifacts.memory import MemoryArtifactStore

            self._media_store = MemoryArtifactStore()
        return self._media_store

    # ---- sessions

    def session(
        self,
        *,
        id: str = "",
        resume: bool = False,
        deps: DepsT | Unset = UNSET,
        history: History = (),
    ) -> Session[OutputT]:
        """Return a new session, or with `resume` the one that has this id.

        Args:
            id: Its id; by default a random one.
            resume: Continue the session with this id if this user has one in the journal. Without
                it, an id that is taken is an error.
            deps: The dependencies of its runs; a run may be given others.
            history: The messages that a new session begins with (`RunResult.messages`, their JSON
                text, or `MessageHistory.from_openai`); by default none. Its media are copied.

        Raises:
            ConfigError: The id is taken (`session_exists`), the dependencies are of another type,
                or the history is not valid.
            JournalError: The session to continue is damaged, or another process is driving it.
        """
        if id and self._has_session(id):
            if not resume:
                raise ConfigError(
                    f"there is a session `{id}` already",
                    code="session_exists",
                    hint="`agent.session(id=..., resume=True)` continues it",
                )
            return self.resume(id, deps=deps)
        return self.open_session(id or token_hex(16), deps=deps, history=history)

    def _has_session(self, session_id: str) -> bool:
        try:
            found = self.journal.find(session_id, tenant=self.tenant, user=self.user)
        except SessionNotFound:
            return False
        return found.session == session_id  # `find` also takes the beginning of an id

    def open_session(
        self, session_id: str, *, deps: DepsT | Unset = UNSET, history: History = ()
    ) -> Session[OutputT]:
        """Return a session whose id is known to be new: the journal is not asked.

        Args and errors are those of `session`.
        """
        earlier = MessageHistory.parse(history)
        earlier = MessageHistory.parse(history)
        if self._override_deps is not UNSET:
            deps = self._override_deps
        instructions = "\n\n".join(
            filter(None, (self.instructions.strip(), self.plugins.make_text(self.catalog)))
        )
        system = build_system_text(instructions, tools=len(self.catalog) > 0)
        search = self.visible_tools.search
        if search is not None and search.include_stub_listing:
            listed = tool_search.list_deferred_tools(
                self.catalog, search, self.visible_tools.is_usable
            )
            system = "\n\n".join(part for part in (system, listed) if part)
        session = self._build_session(session_id, system)
        opened = SessionOpened(
            model=self.model,
            workspace=str(self.workspace.root) if self.workspace else "",
            mode=self.gate.mode,
            system=system,
            tools=tuple(tool.full_name for tool in self.catalog),
            results=self.results,
            agent=self.name,
        )
        if deps is not UNSET:
            session.set_deps(deps)
        session.driver.open(opened)
        if earlier:
            if any(earlier.list_media()):
                session.history.copy_media(earlier)
            session.driver.feed(HistoryGiven(earlier.to_json()))
        return session

    def resume(self, session_id: str, *, deps: DepsT | Unset = UNSET) -> Session[OutputT]:
        """Return a session from the journal; `Session.resume` finishes what was left open.

        Args:
            session_id: Its id, or the beginning of it.
            deps: The dependencies of its runs.

        Raises:
            SessionNotFound: This user has no session with this id.
            JournalError: It is damaged, or another process is driving it.
            ConfigError: The dependencies are of another type.
        """
        if deps is not UNSET:
            check_deps(deps, self.run_defaults.deps_type)
        found = self.journal.find(session_id, tenant=self.tenant, user=self.user)
        # Before it is read: what somebody else still writes would be missed.
        self.journal.lease(found.session)
        try:
            session = self._rebuild(found.session, list(self.journal.records(found.session)))
            if deps is not UNSET:
                session.set_deps(deps)
            return session
        except BaseException:  # the lease is nobody's then, also after Ctrl-C
            self.journal.release(found.session)
            raise

    def _rebuild(self, name: str, records: list[JournalRecord]) -> Session[OutputT]:
        opened = records[0].event
        if not isinstance(opened, SessionOpened):
            raise JournalError(
                f"session {name} does not begin with its opening", code="journal_corrupt"
            )
        session = self._build_session(name, opened.system, recorded=records[-1].seq)
        session.driver.rebuild(records)
        session.driver.open(None)
        return session

    def take_over(self, session: Session[Any], *, changed: Iterable[str] = ()) -> None:
        """Let another agent's session continue as this one's, from its next message on.

        The journal must be the same (`engine.agent_reload`).

        Args:
            session: The session of the other agent.
            changed: Names of tools that have changed: session grants for them end.

        Raises:
            ConfigError: The session is busy.
        """
        from .agent_reload import take_over_session

        def build(name: str, system: str, earlier: Driver) -> Session[OutputT]:
            return self._build_session(name, system, earlier=earlier)

        take_over_session(session, build, changed=changed)

    # ---- other agents like this one

    def open_sub_agent(self, part: delegation.SubAgentParts) -> Session[Any]:
        """Return the session of a sub-agent (`engine.delegation.delegation`).

        It is like this agent's in everything but `part`. Raises ConfigError.
        """
        assert self.sub_agents is not None
        child = self._copy()
        child.visible_tools = self.visible_tools.copy(
            catalog=Catalog(part.tools), gate=part.gate, searched=False
        )
        child.limits = part.limits
        child.instructions = part.instructions
        child.approver = part.approver
        child.run_defaults = RunDefaults(deps_type=self.run_defaults.deps_type)
        child.hooks = (*self.hooks, *part.hooks)
        child.lineage = part.lineage
        child.session_gate = part.gate
        child.output = create_agent_output(part.output_type)
        if part.model not in ("", self.model):
            child.change_model(
                self.sub_agents.model_client(part.model, self.connection.connect),
                options=ModelOptions(),
                tool_mode="auto",
            )
        if part.is_interrupted:
            session = child.resume(part.session_id)
        else:
            session = child.open_session(part.session_id)
        session.set_deps(part.deps)
        return session

    def copy_for_user(
        self,
        user: str,
        *,
        tenant: str = "",
        journal: Journal | None = None,
        limits: Limits | None = None,
    ) -> Agent[DepsT, OutputT]:
        """Return a copy of this agent whose sessions belong to somebody else.

        Args:
            user: Whose sessions they are.
            tenant: By default this agent's.
            journal: Where they are kept; by default this agent's journal.
            limits: Limits of their own; by default this agent's.
        """
        copied = self._copy()
        copied.limits = limits or self.limits
        copied.tenant = tenant or self.tenant
        copied.user = user
        copied._journal = AgentJournal(journal or self.journal)
        copied.unclosed = set()
        return copied

    def copy(self, *, instructions: str | None = None) -> Agent[DepsT, OutputT]:
        """Return a copy of this agent, with other instructions if they are given."""
        copied = self._copy()
        if instructions is not None:
            copied.instructions = instructions
        return copied

    def copy_for_output(
        self, output_type: object, *, mode: OutputModeOption = "auto", retries: int = 2
    ) -> Agent[DepsT, Any]:
        """Return a copy of this agent whose runs end with a value; see `output_type` of `Agent`.

        Raises ConfigError.
        """
        copied = self._copy()
        copied.output = create_agent_output(output_type, mode, retries)
        return copied

    @contextmanager
    def override(  # noqa: PLR0913  public: each option of an agent by its name
        self,
        *,
        model: str | ModelClient | None = None,
        tools: Iterable[ToolLike] | Catalog | None = None,
        deps: DepsT | Unset = UNSET,
        instructions: str | None = None,
        permissions: Permissions | None = None,
        limits: Limits | None = None,
        hooks: Sequence[Hook | hooks.EventHook | hooks.Hooks] | None = None,
        model_options: ModelOptions | None = None,
        storage: Storage | None = None,
        tool_calling: ToolCalling | ToolModeOption | None = None,
        context: ContextOptions | Mapping[str, Any] | Compact | None = None,
        run_options: RunOptions | None = None,
        output_type: object = UNSET,
        output_mode: OutputModeOption = "auto",
        output_retries: int = 2,
    ) -> Generator[None]:
        """Replace parts of this agent while a `with` block runs, for tests.

        It holds for sessions that are opened meanwhile, by whomever: the agent itself is changed,
        and changed back. What is left out stays as it is.

        Args:
            model: Another model, such as `ferrule.testing`'s.
            tools: Other tools, under the same permissions.
            deps: Dependencies, also for runs that are given others.
            instructions: A text, in place of texts and functions.
            permissions: Other permissions, replacing all of the agent's.
            limits: Other limits.
            hooks: Other hooks.
            model_options: Other options of the model; of another `model` the defaults otherwise.
            storage: Another place for sessions and large results. What it opened is closed again.
            tool_calling: Other ways to call tools.
            context: Another way to keep within the context window.
            run_options: Other options of runs.
            output_type: What runs end with; `str` for text.
            output_mode: How the model is held to that `output_type`.
            output_retries: How often an answer that does not fit it goes back.

        What an agent is made of stays: `plugins`, `workspace`, `host` and `deps_type`.

        Raises:
            ConfigError: Dependencies, tools or an output function do not fit `deps_type`, or an
                option is not valid.
        """
        before = dict(vars(self))
        try:
            self._replace_tools(tools, permissions)
            self._replace_model(model, model_options)
            if deps is not UNSET:
                check_deps(deps, self.run_defaults.deps_type)
                self._override_deps = deps
            if limits is not None:
                self.limits = limits
            if hooks is not None:
                self.hooks = tuple(hooks)
            if instructions is not None:
                self.instructions = instructions
                self.run_defaults = replace(self.run_defaults, instructions=None)
            self._replace_options(tool_calling, context, run_options)
            if output_type is not UNSET:
                self.output = self._make_output(output_type, output_mode, output_retries)
            if storage is not None:
                self.catalog = Catalog(self.catalog)
                self._use_storage(storage, self.catalog)
        except BaseException:
            vars(self).update(before)
            raise
        replaced = {name for name, value in vars(self).items() if before[name] is not value}
        if storage is not None:
            replaced |= {"_media_store", "_write_batch"}
        try:
            yield
        finally:
            if storage is not None:
                self._journal.close()
            vars(self).update({name: before[name] for name in replaced})

    def _replace_model(self, model: str | ModelClient | None, options: ModelOptions | None) -> None:
        if model is not None or options is not None:
            another = self.connection.model if model is None else model
            self.change_model(another, options=options or ModelOptions())

    def _replace_options(
        self,
        tool_calling: ToolCalling | ToolModeOption | None,
        context: ContextOptions | Mapping[str, Any] | Compact | None,
        run_options: RunOptions | None,
    ) -> None:
        if context is not None:
            self.context = ContextOptions.parse(context)
        if run_options is not None:
            join, require = parse_run_options(run_options)
            self.run_defaults = replace(self.run_defaults, join=join, require=require)
        if tool_calling is not None:
            calling = ToolCalling.parse(tool_calling)
            self._use_tool_calling(calling)
            self.visible_tools = self.visible_tools.copy(search=calling.search)
            self.change_model(self.connection.model, tool_mode=calling.mode)

    def _replace_tools(
        self, tools: Iterable[ToolLike] | Catalog | None, permissions: Permissions | None
    ) -> None:
        if tools is not None:
            catalog = tools if isinstance(tools, Catalog) else Catalog(tools)
            check_tools(catalog, self.run_defaults.deps_type)
            self.catalog = catalog
        if permissions is None:
            return
        gate = permissions.gate
        if gate is None:
            gate = parse_gate(permissions, self.workspace and self.workspace.root)
            check_rule_names(gate.rules, self.catalog)
        self.visible_tools = self.visible_tools.copy(
            gate=gate.in_run(self.resources), scopes=frozenset(permissions.scopes)
        )
        self.approver = permissions.approver or DenyingApprover()

    def open_rehearsal(
        self,
        model: str | ModelClient,
        answers: Hook | None,
        *,
        system: str,
        history: str = "",
        deps: object = UNSET,
    ) -> tuple[Agent[DepsT, OutputT], Session[OutputT]]:
        """Return a copy of this agent and a session of it, with a journal in memory.

        It is used by `engine.replay.rerun`. With `answers`, a hook that answers every call, no
        handler runs, no rule applies and no dependencies are needed.

        Args:
            model: The model.
            answers: The hook.
            system: The system text.
            history: The messages that it begins with, as JSON; "" if none.
            deps: The dependencies of calls that run.
        """
        copied = self._copy()
        other = model != self.connection.model
        copied.change_model(model, options=ModelOptions() if other else None)
        copied._journal = AgentJournal(None)
        copied.unclosed = set()
        copied.bus = None
        if answers is not None:
            from .replay.recording import OpenGate

            copied.hooks = (answers,)
            copied.plugins = PluginSet()
            copied.artifacts = None
            gate = OpenGate(root=Path(self.gate.context.root))
            copied.visible_tools = self.visible_tools.copy(gate=gate)
            copied.run_defaults = replace(copied.run_defaults, deps_type=Any, make_deps=None)
        session = copied._build_session(token_hex(16), system)
        if deps is not UNSET:
            session.set_deps(deps)
        session.driver.open(SessionOpened(model=copied.model, system=system, results=self.results))
        if history:
            session.driver.feed(HistoryGiven(history))
        return copied, session

    # ---- runs in a session of their own

    async def run(
        self,
        text: Content,
        *,
        deps: DepsT | Unset = UNSET,
        history: History = (),
        key: str = "",
        **options: Unpack[RunOptions],
    ) -> RunResult[OutputT]:
        """Work one message to its end, in a session of its own.

        The message is text, or a list of texts, `Image`, `Audio` and `Document`. Raises as
        `Session.run`; `deps` and `history` are as in `session`. With a `key` the run is worked once
        in this journal, whatever process asks: its result is returned again, and what was left open
        is continued (`keyed_runs.run_keyed`).
        """
        require_asyncio()
        if key:
            from .keyed_runs import run_keyed

            return await run_keyed(self, key, text, deps=deps, history=history, **options)
        session = self.session(deps=deps, history=history)
        try:
            return await session.run(text, **options)
        finally:
            await session.close()

    def run_sync(
        self,
        text: Content,
        *,
        deps: DepsT | Unset = UNSET,
        history: History = (),
        key: str = "",
        **options: Unpack[RunOptions],
    ) -> RunResult[OutputT]:
        """`run` for programs without an event loop; inside one, it uses a thread of its own."""
        return run_in_new_loop(
            lambda: self._disconnect_after(
                self.run(text, deps=deps, history=history, key=key, **options)
            )
        )

    async def _disconnect_after(self, run: Coroutine[Any, Any, T]) -> T:
        # Connections belong to the event loop that ends here; other sessions may go on elsewhere.
        try:
            result = await run
        except BaseException as error:
            try:
                await self.disconnect()
            except Exception as later:  # noqa: BLE001  boundary: what ended the run is what went wrong
                error.add_note(f"then, on disconnecting: {later}")
            raise
        await self.disconnect()
        return result

    async def stream(
        self,
        text: Content,
        *,
        deps: DepsT | Unset = UNSET,
        history: History = (),
        **options: Unpack[RunOptions],
    ) -> AsyncIterator[Live | PartialOutput[OutputT]]:
        """`run`, event by event as it happens; see `Session.stream`."""
        require_asyncio()
        session = self.session(deps=deps, history=history)
        try:
            async for item in session.stream(text, **options):
                yield item
        finally:
            await session.close()

    async def close(self) -> None:
        """Close what tools left open (`Context.on_close`) and plugins keep open, and disconnect.

        The journal is closed last, if this agent opened it from a path or an address: sessions
        that are still open can no longer be recorded. Copies of an agent leave it open.

        `async with agent:` and, for `run_sync`, `with agent:` do it. A program need not: what an
        agent owns ends with it, or with the process.
        """
        try:
            for closers in [*self.unclosed]:
                await closers.run()
        finally:
            try:
                await self.close_plugins()
            finally:
                try:
                    await self.connection.close()
                    if self.sub_agents is not None:
                        await self.sub_agents.disconnect()
                finally:
                    if self._owns_journal:
                        self._journal.close()

    async def close_plugins(self) -> None:
        """Leave what plugins keep open. A session that continues enters it again.

        A copy of an agent leaves it alone.
        """
        if not self._owns_journal:
            return
        if self._is_watched:
            self._is_watched = False
            self.plugins.unwatch(self.bus)
        await self.plugins.lifetimes.close()

    async def disconnect(self) -> None:
        """Close the model's connections or local server; sessions can continue with new ones."""
        await self.connection.disconnect()
        if self.sub_agents is not None:
            await self.sub_agents.disconnect()

    def _copy(self) -> Self:
        copied = copy(self)
        copied._owns_journal = False
        return copied

    def _build_session(
        self, session_id: str, system: str, *, earlier: Driver | None = None, recorded: int = 0
    ) -> Session[OutputT]:
        if not self._is_watched:
            # The agent was closed, and is used again.
            self.plugins.watch(self.bus)
            self._is_watched = True
        return build_session(self, session_id, system, earlier=earlier, recorded=recorded)
