"""Assemble an agent from settings and options: the one place where interfaces meet the engine."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.media import MediaOptions
from ferrule.core.similar_names import suggest_names
from ferrule.core.vocabulary import ResultForm
from ferrule.engine import event_bus
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Host, Permissions, Storage, ToolCalling
from ferrule.engine.artifacts.tools import TOOLS as ARTIFACT_TOOLS
from ferrule.engine.model_fallbacks import AgentModel
from ferrule.engine.plugins.plugin_set import find_state_folder
from ferrule.engine.plugins.protocol import Setup, SetupInternals
from ferrule.engine.rule_names import check_rule_names, find_tool_problem
from ferrule.engine.session import Session
from ferrule.engine.telemetry.names import find_model_address
from ferrule.models.client import ToolModeOption
from ferrule.models.registry import find_provider
from ferrule.permissions.approvals import Approver, DenyingApprover
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.grants import Grants
from ferrule.permissions.protected_names import ProtectedNames
from ferrule.permissions.rule_evaluation import PermissionGate, select_mode
from ferrule.permissions.safe_mode import SafeMode
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage import journal, paths
from ferrule.storage.artifacts.store import RunArtifacts
from ferrule.storage.audit.checkpoints import checkpoints_path_of, sign_heads
from ferrule.storage.audit.signing import Signer, default_key_path
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.locations import create_artifact_store, create_journal
from ferrule.storage.settings.settings import (
    ModelSettings,
    Settings,
    load_settings,
)
from ferrule.storage.trust import TrustStore
from ferrule.toolkits.commands import CommandPolicy
from ferrule.toolkits.files.rereading import ShortRereading
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Loading, Tool
from ferrule.tools.reliability import read_policies
from ferrule.tools.toolset import apply_policies

from .chosen_plugins import (
    Fields,
    choose_plugins,
    list_protected_names,
    list_withheld,
    set_up_chosen,
)
from .deferred_tools import FINDERS, configured_tool_names, set_loading_modes, tool_search_option
from .model_clients import (
    check_provider_names,
    create_client,
    list_approval_tools,
    read_model_options,
)
from .sandbox_findings import apply_sandbox_findings
from .sandbox_policy import (
    find_opened_folders,
    list_own_folders,
    list_own_names,
    make_mode_writer,
    make_opening_writer,
    make_sandbox_policy,
)
from .shared_options import SETTING_OPTIONS
from .system_text import INTRODUCTION, Surroundings, make_system_text
from .tool_profiles import apply_profile, choose_profile, list_known_names, list_named_tools

Notice = Callable[[str], None]
"""Tells the person one sentence."""


class Reloader(Protocol):
    """Reloads an assembly when files change. `runtime.hot_reload.HotReloader` has the contract."""

    async def reload(self, *sessions: Session) -> object: ...
    async def update_session(self, session: Session) -> None: ...
    def forget_session(self, session: Session) -> None: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class Assembly:
    """An agent, the settings it was made from, and what must be closed with it.

    `notice` is called with sentences that the person should read.
    """

    agent: Agent
    settings: Settings
    notice: Notice
    signer: Signer | None = None
    owns_journal: bool = True
    """Whether `close` closes the journal; not if the caller passed it to `assemble`."""
    reloader: Reloader | None = None
    """Hot reload, if the interface uses it."""
    make_instructions: Callable[[], str] | None = None
    """Makes the system text of a session that begins now."""

    def open_session(self, session: str | None) -> Session:
        """Open a new session, or the one with this id or beginning of an id."""
        if session:
            resumed = self.agent.resume(session)
            self._note_other_folder(resumed.id)
            return resumed
        if self.make_instructions is not None:
            self.agent.instructions = self.make_instructions()
        return self.agent.session()

    def _note_other_folder(self, session: str) -> None:
        """Say where a conversation worked that goes on in another folder."""
        before = self.agent.journal.find(session).workspace
        now = str(self.settings.workspace)
        if before and before != now:
            self.notice(
                f"this conversation worked in `{before}` and goes on in `{now}`; with "
                f"`-C {before}` it goes on there"
            )

    async def change_model(self, name: str, session: Session) -> None:
        """Change the model of a session. The history stays; the new model's settings apply.

        Raises:
            ConfigError: The model is unknown or its settings are wrong; nothing has changed.
            ProviderError: The model cannot be reached; nothing has changed.
        """
        for_model = self.settings.for_model(name)
        options = read_model_options(self.settings, name)
        client = create_client(self.settings, name)
        try:
            await client.capabilities()
        except FerruleError:
            await client.close()
            raise
        try:
            await self.agent.disconnect()
        finally:
            self.agent.change_model(client, options=options, tool_mode=_tool_mode(for_model))
            session.reset_model()
            session.change(limits=for_model.limits, model=name)

    async def close_session(self, session: Session, *, strict: bool = True) -> None:
        """Close one session, and sign it if the settings ask for it. The assembly stays open.

        Args:
            session: The session.
            strict: Raise errors; otherwise only report them. A server's client, for example, is
                not to blame if its session cannot be signed.
        """
        try:
            await session.close()
            self._sign(session)
        except FerruleError as error:
            if strict:
                raise
            self.notice(error.detail)

    async def close(self, session: Session | None = None, *, strict: bool = True) -> None:
        """Close everything.

        Args:
            session: A session to close and sign first.
            strict: Raise errors; otherwise only report them, because another one is being raised.
        """
        if session is not None:
            await session.close()
        try:
            await self.agent.close()
            self._sign(session)
        except FerruleError as error:
            if strict:
                raise
            self.notice(error.detail)
        finally:
            await self.close_sources()
            if self.reloader is not None:
                await self.reloader.close()
            if self.owns_journal:
                self.agent.journal.close()

    async def close_sources(self) -> None:
        """Close what plugins keep open."""
        await self.agent.close_plugins()

    def _sign(self, session: Session | None) -> None:
        if self.signer is None or session is None or not session.is_recorded:
            return

        journal = self.agent.journal
        now = int(time.time() * 1000)
        sign_heads(journal, checkpoints_path_of(journal), self.signer, [session.id], now=now)


def assemble(  # noqa: PLR0913  what interfaces differ in, each by name
    options: dict[str, Any],
    *,
    notice: Notice,
    approver: Approver | None = None,
    journal: Journal | None = None,
    bus: event_bus.Bus | None = None,
    interruptible: bool = False,
    plugin_fields: Fields | None = None,
    needs_model: bool = True,
    trust: TrustStore | None = None,
) -> Assembly:
    """Read the settings and build an agent.

    Nothing is sent over the network, unless no model is named: then a running Ollama is asked for
    its models (`model_choice`).

    Args:
        options: `workspace`, and values that override settings (the setting's key with `__` for
            the dot).
        notice: Called with sentences that the person should read.
        approver: Who is asked for approvals; by default nobody.
        journal: Used instead of the journal that the settings name; the caller closes it.
        bus: Where the agent publishes events.
        interruptible: Whether single tool calls can be stopped.
        plugin_fields: Fields of plugins that the interface knows; it wants these plugins.
        needs_model: Whether a model will be asked. If not, none is searched for.
        trust: What the person trusts; by default their own store.

    Raises:
        ConfigError: A setting is wrong; the error names it and where it is written.
    """
    settings = load_settings(
        workspace=options.get("workspace"), flags=_collect_settings(options), trust=trust
    )
    signer = _load_signer(settings)
    for text in settings.notices:
        notice(text)
    check_provider_names(settings)
    asked_for = settings.model
    settings = _name_model(settings, notice, is_needed=needs_model)
    profile = choose_profile(settings, settings.model if needs_model else asked_for)
    settings = replace(settings, values={**settings.values, "tools.profile": profile})
    for_model = settings.for_model(settings.model)
    for text in list_withheld(settings):
        notice(text)
    chosen = choose_plugins(settings, notice, plugin_fields or {})
    protected = list_protected_names(chosen, settings.workspace)
    loaded_names = settings.names.extend(protected=protected)
    names = loaded_names.extend(reserved=list_own_names(settings.workspace))
    workspace = Workspace(settings.workspace, names=names)
    gate = _make_gate(settings, workspace, names, notice)
    readable = workspace.restrict(gate.find_refusal, gate.path_denials, lists=gate.only_lists)
    apply_sandbox_findings()
    confine = make_sandbox_policy(settings, workspace.root, readable.names_for_commands())
    command_policy = _command_policy(settings, for_model, confine)
    setup = Setup(
        settings.model,
        readable,
        state=find_state_folder,
        notice=notice,
        environment=os.environ,
        confine=confine,
        connect=lambda name: create_client(settings, name),
        internals=SetupInternals(
            find_address=partial(_find_address, settings),
            rules=gate,
            remark=(lambda text: None) if options.get("quiet") else notice,
            is_named=list_named_tools(settings).__contains__,
            settings_folder=paths.config(),
            repository=settings.repository,
            names=loaded_names,
        ),
    )
    provider = find_provider(settings.model)
    is_small = provider is not None and provider.is_small
    core_tools = [*ARTIFACT_TOOLS, *list_approval_tools(settings)]
    resources = [
        command_policy,
        ShortRereading(_gives_short_rereadings(settings, is_small=is_small)),
        *_media_options(settings),
    ]
    plugins = set_up_chosen(settings, chosen, setup, core_tools, resources)
    is_named = plugins.make_name_check(setup.internals.is_named)
    tools = apply_profile(plugins, profile, is_named)
    catalog, unknown = _make_catalog(settings, for_model, tools)
    can_grow = bool(settings["tools.register"])
    check_rule_names(gate.rules, catalog, list_known_names, can_grow=can_grow)
    for problem in (*gate.grants.problems, *unknown):
        notice(str(problem))
    around = _describe_surroundings(settings, gate, approver)

    def make_instructions() -> str:
        offered = [tool.full_name for tool in catalog if tool.loading is not Loading.INTERNAL]
        return INTRODUCTION if is_small else make_system_text(around, offered)

    opened_journal = journal or create_journal(
        settings.journal, durability=settings["journal.durability"]
    )
    agent = Agent(
        _choose_models(settings),
        catalog,
        plugins=plugins,
        instructions=make_instructions(),
        workspace=workspace,
        limits=for_model.limits,
        permissions=Permissions(gate=gate, approver=approver or DenyingApprover()),
        storage=Storage(
            journal=opened_journal,
            user=current_user(),
            artifacts=_make_artifacts(settings, catalog),
        ),
        host=Host(
            bus=bus, interruptible=interruptible, connect=lambda name: create_client(settings, name)
        ),
        tool_calling=ToolCalling(
            mode=_tool_mode(for_model),
            fallback=settings["tools.fallback"],
            results=cast("ResultForm", for_model.results),
            parallel=settings["tools.parallel"],
            search=tool_search_option(settings),
            errors=settings["tools.errors"],
        ),
        model_options=read_model_options(settings, settings.model),
        run_options={
            "join": settings["tools.join"],
            "require_successful_tools": settings["tools.required"],
        },
        context={key: settings[f"context.{key}"] for key in ("compact", "share", "keep")},
    )
    return Assembly(
        agent,
        settings,
        notice,
        signer,
        owns_journal=journal is None,
        make_instructions=make_instructions,
    )


def wrap_agent(agent: Agent[Any, Any], notice: Notice) -> Assembly:
    """Return a program's agent as an assembly, which leaves its journal open."""
    root = str(agent.workspace.root) if agent.workspace else None
    return Assembly(agent, load_settings(workspace=root), notice, owns_journal=False)


def _gives_short_rereadings(settings: Settings, *, is_small: bool) -> bool:
    chosen = settings["tools.rereading"]
    return chosen == "short" or (chosen == "auto" and not is_small)


def _find_address(settings: Settings, name: str) -> str:
    """Return the URL of a model's server by its full name, "" if unknown."""
    return settings.provider(name.partition(":")[0]).base_url or find_model_address(name)


def _describe_surroundings(
    settings: Settings, gate: PermissionGate, approver: Approver | None
) -> Surroundings:
    return Surroundings(
        Path(os.path.realpath(settings.workspace)),
        mode=gate.mode,
        reads=gate.reads == "allow",
        attended=approver is not None and not isinstance(approver, DenyingApprover),
        confined=settings["sandbox.mode"] != "off",
        hosts=tuple(settings["sandbox.network"]),
    )


def _name_model(settings: Settings, notice: Notice, *, is_needed: bool) -> Settings:
    """Return settings that name a model. The person is told which one was chosen, and why."""
    if settings.model or not is_needed:
        return settings
    from .model_choice import choose_model_now, describe_choice, use_model

    chosen = choose_model_now(settings)
    notice(describe_choice(chosen))
    return use_model(settings, chosen)


def _load_signer(settings: Settings) -> Signer | None:
    """Return the person's key if sessions are to be signed.

    Raises:
        ConfigError: The key is missing. Nothing must run unsigned then.
    """
    if not settings["audit.sign"]:
        return None
    return Signer.load(default_key_path())


def current_user() -> str:
    """Return the name of the current user, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def open_journal() -> SqliteJournal | journal.PostgresJournal:
    """Open the journal that the settings name, for commands that only read it."""
    return create_journal(load_settings().journal)


def open_journal_file() -> SqliteJournal:
    """Open the journal that the settings name, for commands that need it to be a file.

    Raises:
        ConfigError: It is not a file.
    """
    opened = open_journal()
    if not isinstance(opened, SqliteJournal):
        raise ConfigError(
            f"the journal `{opened.where}` is not a file, which this command needs",
            hint="docs/durability.md has what is for databases: how old sessions are removed",
        )
    return opened


def _collect_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings among the options, by key. An unset option is None or an empty tuple."""
    given: dict[str, Any] = {}
    for name, value in options.items():
        if name not in SETTING_OPTIONS or value is None or value == ():
            continue
        key = name.replace("__", ".")
        given[key] = list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]  a tuple of texts
    return given


def _make_gate(
    settings: Settings, workspace: Workspace, names: ProtectedNames, notice: Notice
) -> PermissionGate:
    return PermissionGate(
        settings.rules,
        mode=select_mode(settings.mode),
        grants=Grants.load(paths.state() / "grants.json"),
        root=workspace.root,
        names=names,
        safe_mode=_safe_mode(settings),
        reads=settings["permissions.reads"],
        opened=find_opened_folders(settings),
        remember_mode=make_mode_writer(settings, notice),
    )


def _safe_mode(settings: Settings) -> SafeMode:
    permissions: dict[str, tuple[str, ...]] = dict(settings["commands.permissions"] or ())
    return SafeMode(
        settings["commands.safe_mode"], tuple(settings["commands.allowed_commands"]), permissions
    )


def _command_policy(
    settings: Settings, for_model: ModelSettings, confine: SandboxPolicy
) -> CommandPolicy:
    return CommandPolicy(
        shell_allowed=settings["commands.shell"],
        safe_mode=_safe_mode(settings),
        allow_env=tuple(settings["env.allow"]),
        timeout=int(settings["commands.run_timeout"]),
        result_bytes=for_model.limits.max_output_bytes,
        confine=confine,
        on_missing_protection=settings["sandbox.mode"],
        remember_opening=make_opening_writer(settings),
        closed_folders=list_own_folders(),
    )


def _choose_models(settings: Settings) -> AgentModel:
    """Return the model, or several of which the next is asked if one fails."""
    fallbacks = settings["model_fallbacks"]
    return [settings.model, *fallbacks] if fallbacks else settings.model


def _media_options(settings: Settings) -> list[MediaOptions]:
    """Return how media are taken in, if the settings say anything of it."""
    domains = tuple(settings["network.allowed_domains"] or ())
    options = MediaOptions(domains, settings["media.max_side"], settings["media.ocr"])
    return [options] if options != MediaOptions() else []


def _make_artifacts(settings: Settings, catalog: Catalog) -> RunArtifacts:
    """Return the artifact store for large results.

    Without the tools that read artifacts, only results over the output limit are kept, for the
    person.
    """
    store = create_artifact_store(
        settings["artifacts.store"],
        max_bytes=settings["artifacts.max_bytes"],
        days=settings["artifacts.days"],
    )
    readable = all(tool.full_name in catalog for tool in ARTIFACT_TOOLS)
    return RunArtifacts(store, settings["artifacts.threshold"] if readable else None)


def _make_catalog(
    settings: Settings, for_model: ModelSettings, tools: Iterable[Tool]
) -> tuple[Catalog, list[str]]:
    """Return the tools of this run, and a notice for each unknown tool name in the settings."""
    chosen = read_policies(settings["tools.policy"], settings["tools.tool_policies"], "settings")
    everything = Catalog(set_loading_modes(settings, apply_policies(tools, chosen)))
    allowed, denied = settings["tools.allowed"], settings["tools.denied"]
    named = (*(allowed or ()), *denied, *chosen.tools, *configured_tool_names(settings))
    missing = [name for name in named if name not in everything and name not in FINDERS]
    _refuse_unknown_tools(settings, everything, missing)
    unknown = [_describe_unknown_tool(everything, name) for name in missing]
    if not for_model.tools_enabled or for_model.tool_mode == "none":
        return Catalog(), unknown
    kept = [
        tool
        for tool in everything
        if tool.full_name not in denied
        and (allowed is None or tool.full_name in allowed or tool.loading is Loading.INTERNAL)
    ]
    return Catalog(kept), unknown


def _refuse_unknown_tools(settings: Settings, catalog: Catalog, missing: Iterable[str]) -> None:
    """Raise ConfigError for tools that a flag or a variable names for this run, and that are not.

    A person's file may name tools of other folders. A server's tools may be waiting for approval.
    """
    for_this_run = {
        name
        for key in ("tools.allowed", "tools.denied")
        if settings.origin(key).layer in ("flags", "environment")
        for name in settings[key] or ()
    }
    wrong = [name for name in missing if name in for_this_run and "__" not in name]
    if wrong:
        known = {*(tool.full_name for tool in catalog), *list_known_names()}
        if wrong[0] not in known:
            detail, hint = find_tool_problem(wrong[0], known)
            raise ConfigError(detail, code="tool_unknown", hint=hint)


def _describe_unknown_tool(catalog: Catalog, name: str) -> str:
    suggestion = suggest_names(
        name, catalog.names(), "`ferrule tools list` lists them", count=3, cutoff=0.5
    )
    return f"the settings name a tool `{name}`, and there is none; {suggestion}"


def _tool_mode(for_model: ModelSettings) -> ToolModeOption:
    chosen = "auto" if for_model.tool_mode == "none" else for_model.tool_mode
    return cast("ToolModeOption", chosen)
