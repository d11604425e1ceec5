"""Build the sessions of an agent out of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Protocol

from ferrule.core.identity import Identity
from ferrule.core.limits import Limits
from ferrule.core.machine import Machine
from ferrule.core.media import MediaOptions
from ferrule.core.value_class import frozen
from ferrule.models.client import Offer, Open
from ferrule.permissions import filesystem
from ferrule.permissions.approvals import Approver
from ferrule.permissions.rule_evaluation import PermissionGate
from ferrule.storage.artifacts.store import ArtifactStore, RunArtifacts
from ferrule.storage.journal.protocols import Journal
from ferrule.tools.catalog import Catalog

from . import delegation, event_bus, hooks, registration, rewind, tool_search
from . import output as typed_output
from .artifacts.large_results import ArtifactIntake
from .cleanup import Cleanup
from .clock import Clock
from .context.options import ContextOptions, WindowSurroundings, measure_window
from .dispatcher import CallSurroundings, Dispatcher
from .driver import Driver, DriverExtension, SessionParts, SessionState
from .hooks.call_hooks import Hook
from .model_layers import Layer, ModelConnection, ModelSession, stack_layers
from .plugins.lifetimes import StartPlugins
from .plugins.plugin_set import PluginSet
from .run_inputs import Dependencies
from .session import RunDefaults, Session
from .session_log import SessionLog
from .visible_tools import VisibleTools
from .write_batching import WriteBatch

if TYPE_CHECKING:
    from .session_media import SessionMedia


class SessionSource(Protocol):
    """What sessions are made of: an agent (`engine.agent.Agent`, which says what each is)."""

    visible_tools: VisibleTools
    connection: ModelConnection
    fallback: bool
    parallel: bool
    limits: Limits
    workspace: filesystem.Workspace | None
    approver: Approver
    resources: dict[type, object]
    hooks: tuple[Hook | hooks.EventHook | hooks.Hooks, ...]
    plugins: PluginSet
    sub_agents: delegation.SubAgentRegistry | None
    lineage: delegation.Lineage | None
    registration: registration.RegistrationLimits | None
    context: ContextOptions
    output: typed_output.AgentOutput | None
    artifacts: RunArtifacts | None
    run_defaults: RunDefaults
    tenant: str
    user: str
    clock: Clock
    interruptible: bool
    hides_errors: bool
    stop_seconds: float
    unclosed: set[Cleanup]
    bus: event_bus.Bus | None

    @property
    def model(self) -> str: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def gate(self) -> PermissionGate: ...

    @property
    def session_gate(self) -> PermissionGate | None: ...

    @property
    def journal(self) -> Journal: ...

    def find_address(self, model: str) -> str: ...

    def share_writes(self) -> WriteBatch: ...

    def find_indexes(self) -> tool_search.Indexes: ...

    def find_media_store(self) -> ArtifactStore: ...

    def open_sub_agent(self, part: delegation.SubAgentParts) -> Session[Any]: ...


def build_session(
    agent: SessionSource,
    session_id: str,
    system: str,
    *,
    earlier: Driver | None = None,
    recorded: int = 0,
) -> Session[Any]:
    """Build a session that is not opened yet.

    Args:
        agent: The agent.
        session_id: Its id.
        system: Its system text.
        earlier: The driver that drove the session until now, if there was one.
        recorded: Number of its events that are in the journal.
    """
    machine = Machine() if earlier is None else earlier.machine
    gate = agent.gate.for_session() if agent.session_gate is None else agent.session_gate
    state, announce = _gather_state(agent, session_id, earlier, recorded)
    search = agent.visible_tools.search
    resources = dict(agent.resources)
    catalog = agent.catalog
    growing = None
    discovery = None
    gains_tools = any(tool.find_more is not None for tool in catalog)
    if agent.registration is not None or search is not None or gains_tools:
        catalog = growing = registration.SessionCatalog(catalog)
        if search is not None:
            discovery = tool_search.ToolDiscovery(
                search,
                growing,
                agent.find_indexes(),
                session_id,
                usable=partial(gate.is_usable, scopes=agent.visible_tools.scopes),
                record=state.log.add,
                max_found=agent.visible_tools.count_free_places(),
            )
            resources[type(discovery)] = discovery
    open_media = cache(partial(_open_media, agent, state.log.identity))
    if MediaOptions in agent.resources:
        media = open_media()
        resources[type(media)] = media
    surroundings = CallSurroundings(
        is_by_model=partial(_is_call_of_model, machine),
        tool_discovery=discovery,
        artifact_intake=_artifact_intake(agent),
        file_copies=_keep_file_copies(agent),
        open_media=open_media,
        enter_scope=None if agent.bus is None else agent.bus.enter_scope,
        parallel=agent.parallel,
        hides_errors=agent.hides_errors,
        stop_seconds=agent.stop_seconds,
    )

    def make_dispatcher(call_hooks: tuple[Hook, ...]) -> Dispatcher:
        return Dispatcher(
            catalog,
            gate,
            hooks=call_hooks,
            scopes=agent.visible_tools.scopes,
            cap=agent.limits.max_output_bytes,
            clock=agent.clock,
            surroundings=surroundings,
        )

    driver = Driver(
        SessionParts(
            machine=machine,
            state=state,
            model=_AgentModel(agent, system, machine, state.log, agent.context, growing),
            make_dispatcher=make_dispatcher,
            extend=partial(_extend, agent),
            announce=announce,
            resources=resources,
            open_media=open_media,
            interruptible=agent.interruptible,
            other_models=tuple(other.name for other in agent.connection.others),
            output=_make_output_check(agent),
        )
    )
    defaults = replace(agent.run_defaults, model=agent.model, limits=agent.limits)
    return Session(session_id, driver, defaults, system)


def _gather_state(
    agent: SessionSource, session_id: str, earlier: Driver | None, recorded: int
) -> tuple[SessionState, Callable[[Approver], Approver]]:
    """Return what the session begins with, and what announces its questions to subscribers."""
    deps_type, make_deps = agent.run_defaults.deps_type, agent.run_defaults.make_deps
    if earlier is not None:
        state = replace(earlier.state, deps=Dependencies(deps_type, make_deps, earlier.deps))
        return state, earlier.announce
    identity = Identity(agent.tenant, agent.user, session_id, "none")
    connect = None
    make_announcing = None
    if agent.bus is not None:
        from .event_bus.attachment import announce_questions, open_feed

        connect = partial(open_feed, agent.bus, recorded, agent.find_address)
        make_announcing = announce_questions
    log = SessionLog(
        agent.journal, identity, agent.share_writes(), connect=connect, recorded=recorded > 0
    )
    announce = _announce_to_nobody if make_announcing is None else partial(make_announcing, log)
    state = SessionState(
        log,
        {},
        Cleanup(log, agent.unclosed),
        Dependencies(deps_type, make_deps),
        announce(agent.approver),
    )
    return state, announce


def _announce_to_nobody(approver: Approver) -> Approver:
    return approver


def _make_output_check(agent: SessionSource) -> typed_output.OutputCheck | None:
    if agent.output is None:
        return None
    return typed_output.OutputCheck(agent.output.type, agent.output.request)


def _keep_file_copies(agent: SessionSource) -> rewind.FileCopies | None:
    """Return what keeps copies of files that calls change; None without a store for them."""
    if agent.artifacts is None or agent.workspace is None:
        return None
    return rewind.FileCopies(agent.artifacts.store, agent.workspace)


@frozen
class _AgentModel:
    """The model of an agent's session (`SessionModel`)."""

    agent: SessionSource
    system: str
    machine: Machine
    log: SessionLog
    context: ContextOptions
    growing: registration.SessionCatalog | None

    @property
    def system_text(self) -> str:
        """The system text, with what functions of the program said for the first run."""
        return "\n\n".join(filter(None, (self.system, self.machine.first_instructions)))

    async def measure_window(self) -> WindowSurroundings:
        """Measure what an exchange takes of the model's context window."""
        model = self.agent.connection
        return await measure_window(
            model.client, model.options, self.system_text, self.agent.visible_tools.specs()
        )

    def make_offer(self) -> Offer:
        """Return what a conversation with the agent's model is opened with."""
        connection = self.agent.connection
        return Offer(
            connection.client, self.system_text, (), connection.options, connection.tool_mode
        )

    def stack(self, dispatcher: Dispatcher, layers: Iterable[Layer]) -> Open:
        """Return what opens a conversation, with the session's layers and these around it."""
        session = ModelSession(
            self.agent,
            self.machine,
            self.growing,
            dispatcher.is_usable,
            dispatcher.tool_discovery,
            dispatcher.artifact_intake,
            self.log.notice,
        )
        return stack_layers(session, layers)


def _is_call_of_model(machine: Machine, call_id: str) -> bool:
    """Whether a model made the call, and not a person or a program."""
    slot = machine.find_slot(call_id)
    return slot is not None and not slot.direct


def _open_media(agent: SessionSource, identity: Identity) -> SessionMedia:
    """Return what keeps a session's media: in the agent's store, or in memory without one."""
    from .session_media import SessionMedia

    options = agent.resources.get(MediaOptions)
    assert options is None or isinstance(options, MediaOptions)
    capabilities = agent.connection.client.capabilities if options and options.ocr else None
    return SessionMedia(agent.find_media_store(), identity, agent.workspace, options, capabilities)


def _artifact_intake(agent: SessionSource) -> ArtifactIntake | None:
    """Return what keeps a session's large results as artifacts; None without a store."""
    if agent.artifacts is None:
        return None
    reader = agent.catalog.get("artifact_read")
    readable = reader is not None and not agent.gate.is_hidden(reader)
    return ArtifactIntake(agent.artifacts, agent.limits.max_output_bytes, readable=readable)


def _extend(agent: SessionSource, driver: Driver) -> Sequence[DriverExtension]:
    """Return what is added to a session, plugins first."""
    extensions = _extend_by_parts(agent, driver)
    if agent.plugins.extensions and agent.lineage is None:
        made = tuple(make(driver) for make in agent.plugins.extensions)
        extensions = (*made, *extensions)
    if not agent.plugins.lifetimes:
        return extensions
    return (StartPlugins(driver, agent.plugins.lifetimes), *extensions)


def _extend_by_parts(agent: SessionSource, driver: Driver) -> Sequence[DriverExtension]:
    """Return what hooks, delegation and registration add to a session."""
    if not agent.hooks and agent.sub_agents is None:
        return ()
    from .hooks.chain import HookPlace

    log = driver.log
    place = HookPlace(
        notice=log.notice,
        identity=lambda: log.identity,
        workspace=str(agent.workspace.root) if agent.workspace else "",
        mode=agent.gate.mode,
    )
    if agent.sub_agents is None:
        return (hooks.SessionHooks(driver, agent.hooks, place),)
    from .delegation.session_delegation import SessionDelegation, delegate_for_hook

    lineage = agent.lineage
    place = replace(
        place,
        delegate=partial(delegate_for_hook, driver),
        agent="" if lineage is None else lineage.agent,
    )
    session_hooks = hooks.SessionHooks(driver, agent.hooks, place)
    delegating = SessionDelegation(driver, agent, agent.sub_agents, lineage, session_hooks.hooks)
    if agent.registration is None:
        return (session_hooks, delegating)
    from .registration.registration import SessionRegistration

    registering = SessionRegistration(
        driver, agent.registration, session_hooks, delegating.delegation
    )
    return (session_hooks, delegating, registering)
