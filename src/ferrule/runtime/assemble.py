"""From settings and flags to an agent that is ready to work: the one place where interfaces meet
the engine.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.engine.agent import Agent
from ferrule.engine.agent_options import Host, Permissions, Storage, ToolCalling
from ferrule.engine.artifacts.tools import TOOLS as ARTIFACT_TOOLS
from ferrule.engine.rule_names import check_rule_names
from ferrule.engine.session import Session
from ferrule.models.client import ModelOptions, Wire
from ferrule.models.registry import resolve
from ferrule.permissions.approvals import Approver, NobodyToAsk
from ferrule.permissions.filesystem.workspace import Workspace
from ferrule.permissions.gate import Gate, select_mode
from ferrule.permissions.grants import Grants
from ferrule.permissions.protected_names import DEFAULT, Names
from ferrule.permissions.safe_mode import SafeMode
from ferrule.sandbox.policy import Policy
from ferrule.storage import paths
from ferrule.storage.artifacts.store import Artifacts
from ferrule.storage.journal.protocols import Journal
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.storage.locations import artifacts_at, journal_at
from ferrule.storage.settings.settings import PROJECT_FILE, ForModel, Settings, load_settings
from ferrule.toolkits.commands import CommandPolicy
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Loading, Tool
from ferrule.tools.reliability import policies
from ferrule.tools.toolset import governed

from .a2a_peers import peers_of
from .confinement import policy_of
from .hosted_tools import approval_tools, hosted_tools
from .http_sources import http_tools_of
from .instructions import read_texts
from .mcp_servers import servers_of
from .options import SETTING_OPTIONS
from .shipped_tools import PACKS, brought_by_runs, shipped
from .tool_loading import FINDERS, loaded, named_for_loading, search_of

if TYPE_CHECKING:
    from ferrule.connectors.a2a import Peers
    from ferrule.connectors.mcp import Servers
    from ferrule.engine.event_bus.bus import Bus
    from ferrule.engine.registration.registration import RegistrationLimits
    from ferrule.extensions.extensions import Extensions
    from ferrule.storage.audit.signing import Signer
    from ferrule.storage.journal.postgres import PostgresJournal

_OWN = ("agents", "hooks", "hooks.json", "hooks.yaml")
"""What of the person's settings folder makes us look closer."""
_ARTIFACTS = (b"tools", b"hooks", b"agents")
"""Words without which a settings file holds nothing but settings."""

Notice = Callable[[str], None]

INSTRUCTIONS = (
    "You work in a folder on a person's computer. Paths are relative to that folder. "
    "Look before you change something, change only what was asked for, and say briefly what "
    "you did."
)


class Fresh(Protocol):
    """Keeps an assembly as its files are: `runtime.hot_reload.Reloading`, where the contract is."""

    async def reload(self, *sessions: Session) -> object: ...
    async def renew(self, session: Session) -> None: ...
    def forget(self, session: Session) -> None: ...
    async def close(self) -> None: ...


@dataclass(slots=True)
class Assembly:
    """An agent with the settings it was made from. `notice` is told, sentence by sentence, what a
    person should know.
    """

    agent: Agent
    settings: Settings
    notice: Notice
    extensions: Extensions | None = None
    servers: Servers | None = None
    peers: Peers | None = None
    signer: Signer | None = None
    owns_journal: bool = True
    """Whether `close` closes the journal: not where it was brought along."""
    reloading: Fresh | None = None
    """What keeps this as its files are, where an interface wants that."""

    def open(self, session: str | None) -> Session:
        """A new session, or the one with this id (or beginning of it)."""
        return self.agent.resume(session) if session else self.agent.session()

    async def change_model(self, name: str, session: Session) -> None:
        """Another model for the same session; its history goes along, its own settings hold from
        now on.

        Raises ConfigError, ProviderError; then nothing has changed.
        """
        mine = self.settings.for_model(name)
        options = _model_options(self.settings, name, mine)
        wire = wire_of(self.settings, name)
        try:
            await wire.capabilities()
        except FerruleError:
            await wire.close()
            raise
        try:
            await self.agent.disconnect()
        finally:
            self.agent.change_model(wire, options=options, tool_mode=_way(mine))
            session.reset_model()
            session.limits, session.model = mine.limits, name

    async def leave(self, session: Session, *, strict: bool = True) -> None:
        """Give one session back, signed where the settings want that; everything else stays as it
        is. `strict` as in `close`: where somebody else asked for the session, that it could not be
        signed is no failure of theirs.
        """
        try:
            await session.close()
            self._sign(session)
        except FerruleError as error:
            if strict:
                raise
            self.notice(error.detail)

    async def close(self, session: Session | None = None, *, strict: bool = True) -> None:
        """Give everything back. With `strict=False` an error on the way is said and not raised:
        another one counts.
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
            for brought in (self.extensions, self.servers, self.peers, self.reloading):
                if brought is not None:
                    await brought.close()
            if self.owns_journal:
                self.agent.journal.close()

    def _sign(self, session: Session | None) -> None:
        if self.signer is None or session is None or not session.is_recorded:
            return
        from ferrule.storage.audit.checkpoints import place_of, sign_heads

        journal, now = self.agent.journal, int(time.time() * 1000)
        sign_heads(journal, place_of(journal), self.signer, [session.id], now=now)


def assemble(
    options: dict[str, Any],
    *,
    notice: Notice,
    approver: Approver | None = None,
    journal: Journal | None = None,
    bus: Bus | None = None,
    interruptible: bool = False,
    mcp_servers: Mapping[str, Any] | None = None,
) -> Assembly:
    """Read the settings with these options on top (a setting's key with `__` for the dot;
    `workspace`), and build the agent. No network.

    `approver` is who is asked, by default nobody; `journal` takes the place of the one that the
    settings name, and stays its owner's. `mcp_servers` are entries that an editor handed over
    (`mcp_servers.servers_of`). Raises ConfigError naming the setting and where it stands.
    """
    settings = load_settings(workspace=options.get("workspace"), flags=_flags(options))
    signer = _signer(settings)
    for one in settings.notices:
        notice(one)
    mine = settings.for_model(settings.model)
    names = DEFAULT.extended(
        reserved=settings["reserved.extend"], secret=settings["secrets.extend"]
    )
    workspace = Workspace(settings.workspace, names=names)
    gate = _gate(settings, workspace, names)
    held = workspace.refusing(gate.refuses, gate.denials).command_names()
    confine = policy_of(settings, workspace.root, held)
    of_ours = shipped(settings["tools.packs"])
    extensions = _extensions(settings, confine, of_ours)
    texts = read_texts(settings, gate, names)
    own = of_ours if extensions is None else extensions.tools
    tools = (*own, *texts.tools, *ARTIFACT_TOOLS, *approval_tools(settings))
    http = http_tools_of(settings)
    tools = tools if http is None else (*tools, *http.tools)
    servers = servers_of(settings, confine, [tool.full_name for tool in tools], mcp_servers)
    tools = tools if servers is None else (*tools, *servers.tools)
    peers = peers_of(settings, [tool.full_name for tool in tools])
    catalog, unknown = _catalog(settings, mine, tools if peers is None else (*tools, *peers.tools))
    check_rule_names(gate.rules, catalog, _other_names)
    brought = [one.notices for one in (extensions, texts, http, servers, peers) if one is not None]
    for problem in (*gate.grants.problems, *chain.from_iterable(brought), *unknown):
        notice(str(problem))
    agent = Agent(
        settings.model,
        catalog,
        instructions="\n\n".join((INSTRUCTIONS, *texts.told(catalog))),
        workspace=workspace,
        limits=mine.limits,
        permissions=Permissions(gate=gate, approver=approver or NobodyToAsk()),
        storage=Storage(
            journal=journal
            or journal_at(settings.journal, durability=settings["journal.durability"]),
            user=person(),
            artifacts=_artifacts(settings, catalog),
        ),
        host=Host(
            bus=bus, interruptible=interruptible, connect=lambda name: wire_of(settings, name)
        ),
        hooks=() if extensions is None else extensions.hooks,
        agents=extensions.agents or None if extensions is not None else None,
        registration=_registration(settings, extensions),
        tool_calling=ToolCalling(
            mode=_way(mine),
            fallback=settings["tools.fallback"],
            results=mine.results,
            search=search_of(settings, catalog),
        ),
        model_options=_model_options(settings, settings.model, mine),
        resources=[_commands(settings, mine, confine)],
        run_options={
            "join": settings["tools.join"],
            "require_successful_tools": settings["tools.required"],
        },
        context={key: settings[f"context.{key}"] for key in ("compact", "share", "keep")},
    )
    return Assembly(
        agent, settings, notice, extensions, servers, peers, signer, owns_journal=journal is None
    )


def _other_names() -> list[str]:
    """Names of tools that this run may not have, and another one has."""
    return [*(tool.full_name for tool in shipped(PACKS)), *brought_by_runs()]


def _signer(settings: Settings) -> Signer | None:
    """The person's key, if sessions are to be signed. Raises ConfigError where it is missing: then
    nothing runs unsigned.
    """
    if not settings["audit.sign"]:
        return None
    from ferrule.storage.audit.signing import Signer, key_path

    return Signer.load(key_path())


def person() -> str:
    """Who sits here, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def journal() -> SqliteJournal | PostgresJournal:
    """The journal that the settings name, for commands that only read it."""
    return journal_at(load_settings().journal)


def journal_file() -> SqliteJournal:
    """The journal that the settings name, for commands that work on the file itself. Raises
    ConfigError if it is none.
    """
    store = journal()
    if not isinstance(store, SqliteJournal):
        raise ConfigError(f"`{store.where}` is no file: this works on a journal that is one")
    return store


def model_of(session: str) -> str:
    """The model that a session last worked with."""
    with journal() as store:
        return store.find(session).model


def _flags(options: dict[str, Any]) -> dict[str, Any]:
    """The settings that were given as options: an option's name is the setting's key with `__` for
    the dot.
    """
    given = {
        name.replace("__", "."): value for name, value in options.items() if name in SETTING_OPTIONS
    }
    return {
        key: list(value) if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownArgumentType]  a tuple of texts
        for key, value in given.items()
        if value is not None and value != ()
    }


def _gate(settings: Settings, workspace: Workspace, names: Names) -> Gate:
    return Gate(
        settings.rules,
        mode=select_mode(settings.mode, "flags"),
        grants=Grants.load(paths.state() / "grants.json"),
        root=workspace.root,
        names=names,
        safe_mode=_safe_mode(settings),
    )


def _safe_mode(settings: Settings) -> SafeMode:
    permissions: dict[str, tuple[str, ...]] = dict(settings["commands.permissions"] or ())
    return SafeMode(
        settings["commands.safe_mode"], tuple(settings["commands.allowed_commands"]), permissions
    )


def _commands(settings: Settings, mine: ForModel, confine: Policy) -> CommandPolicy:
    return CommandPolicy(
        shell_allowed=settings["commands.shell"],
        safe_mode=_safe_mode(settings),
        allow_env=tuple(settings["env.allow"]),
        timeout=int(settings["commands.run_timeout"]),
        result_bytes=mine.limits.max_output_bytes,
        confine=confine,
        on_gap=settings["sandbox.mode"],
    )


def _artifacts(settings: Settings, catalog: Catalog) -> Artifacts:
    """Where large results go. Without the tools to read them, only what exceeds the output limit is
    kept, for the person.
    """
    where, most, days = (settings[f"artifacts.{key}"] for key in ("store", "max_bytes", "days"))
    store = artifacts_at(where, max_bytes=most, days=days)
    readable = all(tool.full_name in catalog for tool in ARTIFACT_TOOLS)
    return Artifacts(store, settings["artifacts.threshold"] if readable else None)


def _extensions(settings: Settings, confine: Policy, of_ours: Sequence[Tool]) -> Extensions | None:
    """What files bring. None, and nothing loaded for it, where there are none."""
    seen, own = settings.repository, paths.config()
    theirs = any(
        name != PROJECT_FILE or any(word in data for word in _ARTIFACTS)
        for name, data in seen.files.items()
    )
    python = settings["tools.python"]
    if not theirs and not python and not any((own / name).exists() for name in _OWN):
        return None
    from ferrule.extensions.extensions import Reach, load_extensions

    domains = tuple(settings["network.allowed_domains"] or ())
    reach = Reach(domains, tuple(settings["hooks.hosts"]), confine)
    return load_extensions(
        seen,
        shipped=of_ours,
        own=own,
        reach=reach,
        register=settings["tools.register"],
        python=python,
        python_from=settings.origin("tools.python").where,
    )


def _registration(settings: Settings, extensions: Extensions | None) -> RegistrationLimits | None:
    """How much sessions may gain by scripts. None where they may not, or there are none."""
    if extensions is None or not settings["tools.register"]:
        return None
    from ferrule.engine.registration.registration import RegistrationLimits

    return RegistrationLimits()


def _catalog(
    settings: Settings, mine: ForModel, tools: Iterable[Tool]
) -> tuple[Catalog, list[str]]:
    """The tools of this run, and a sentence for each name in the settings that names none."""
    chosen = policies(settings["tools.policy"], settings["tools.tool_policies"], "settings")
    everything = Catalog(loaded(settings, governed(tools, chosen)))
    allowed, denied = settings["tools.allowed"], settings["tools.denied"]
    named = (*(allowed or ()), *denied, *chosen.tools, *named_for_loading(settings))
    unknown = [
        _no_tool(everything, name)
        for name in named
        if name not in everything and name not in FINDERS
    ]
    if not mine.tools_enabled or mine.tool_mode == "none":
        return Catalog(), unknown
    kept = [
        tool
        for tool in everything
        if tool.full_name not in denied
        and (allowed is None or tool.full_name in allowed or tool.loading is Loading.INTERNAL)
    ]
    return Catalog(kept), unknown


def _no_tool(catalog: Catalog, name: str) -> str:
    near = ", ".join(f"`{one}`" for one in catalog.nearest(name))
    return f"the settings name a tool `{name}`, and there is none" + (
        f"; nearest: {near}" if near else ""
    )


def wire_of(settings: Settings, name: str) -> Wire:
    """The wire of a model with what the settings say of its provider. Raises ConfigError."""
    provider = settings.provider(name.partition(":")[0])
    options: dict[str, Any] = {}
    if provider.base_url:
        options["base_url"] = provider.base_url
    if provider.api_key_env:
        options["api_key"] = _key(provider.api_key_env)
    if provider.force_native_tool_search:
        options["force_native_tool_search"] = True
    if provider.ca_bundle:
        from ferrule.models.http.transport import Transport

        options["transport"] = Transport(ca_file=provider.ca_bundle)
    return resolve(name, **options)


def _key(variable: str) -> str:
    key = os.environ.get(variable, "")
    if not key:
        raise ConfigError(f"the settings take the key from `{variable}`, which is not set")
    return key


def _way(mine: ForModel) -> str:
    return "auto" if mine.tool_mode == "none" else mine.tool_mode


def options_of(settings: Settings, name: str) -> ModelOptions:
    """What the settings say of a model, by its full name. Raises ConfigError."""
    return _model_options(settings, name, settings.for_model(name))


def _model_options(settings: Settings, name: str, mine: ForModel) -> ModelOptions:
    options = ModelOptions(
        mine.temperature, mine.max_output_tokens, mine.num_ctx, mine.thinking, mine.seed
    )
    options = replace(options, provider_tools=hosted_tools(settings, name, mine))
    return options if mine.timeout is None else replace(options, timeout=mine.timeout)
