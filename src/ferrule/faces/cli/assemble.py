"""From settings and flags to an agent that is ready to work: the one place where the command line meets the engine."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ferrule.core.calls import Call
from ferrule.engine.agent import Agent
from ferrule.engine.session import Session
from ferrule.guard.approval import AllowThese, Approver, NobodyToAsk
from ferrule.guard.gate import Gate, select_mode
from ferrule.guard.grants import Grants
from ferrule.guard.reserved import DEFAULT, Names
from ferrule.guard.safe_mode import SafeMode
from ferrule.guard.workspace import Workspace
from ferrule.models.registry import resolve
from ferrule.models.wire import ModelOptions, Wire
from ferrule.store import paths
from ferrule.store.journal import SqliteJournal
from ferrule.store.settings import ForModel, Settings, load_settings
from ferrule.toolkits import browse, clock, files, git, search, shell, tasks
from ferrule.toolkits.shell import CommandPolicy
from ferrule.tools.catalog import Catalog

from .approve import TerminalApprover
from .terminal import Terminal

INSTRUCTIONS = (
    "You work in a folder on a person's computer. Paths are relative to that folder. "
    "Look before you change something, change only what was asked for, and say briefly what you did."
)


@dataclass(slots=True)
class Assembly:
    """An agent with the settings it was made from and the terminal it talks to."""

    agent: Agent
    settings: Settings
    terminal: Terminal

    def open(self, session: str | None) -> Session:
        """A new session, or the one with this id (or beginning of it)."""
        return self.agent.resume(session) if session else self.agent.session()

    def find(self, session: Session) -> Callable[[str], Call | None]:
        """Looks a call up by its id, for drawing it."""

        def found(call_id: str) -> Call | None:
            slot = session.driver.machine.slot(call_id)
            return None if slot is None else slot.call

        return found

    async def change_model(self, name: str, session: Session) -> None:
        """Another model for the same session; its history goes along. Raises ConfigError, ProviderError."""
        wire = _wire(self.settings, name)
        await wire.capabilities()
        await self.agent.close()
        self.agent.change_model(wire)
        session.driver.reopen()


def assemble(options: dict[str, Any], *, interruptible: bool = False) -> Assembly:
    """Read the settings with these command-line options on top, and build the agent. No network.

    Raises ConfigError naming the setting and where it stands.
    """
    settings = load_settings(workspace=options.get("workspace"), flags=_flags(options))
    terminal = Terminal(quiet=bool(options.get("quiet")))
    for notice in settings.notices:
        terminal.say(f"! {notice}", style="yellow")
    mine = settings.for_model(settings.model)
    names = DEFAULT.extended(reserved=settings["reserved.extend"], secret=settings["secrets.extend"])
    workspace = Workspace(settings.workspace, names=names)
    gate = _gate(settings, workspace, names)
    for problem in gate.grants.problems:
        terminal.say(f"! {problem}", style="yellow")
    agent = Agent(
        settings.model,
        _catalog(settings, mine),
        instructions=INSTRUCTIONS,
        workspace=workspace,
        limits=mine.limits,
        gate=gate,
        approver=_approver(options, terminal),
        journal=SqliteJournal(settings.journal, durability=settings["journal.durability"]),
        way="auto" if mine.tool_mode == "none" else mine.tool_mode,
        results=mine.results,
        options=_model_options(mine),
        user=person(),
        resources=[_commands(settings)],
        interruptible=interruptible,
        connect=lambda name: _wire(settings, name),
    )
    return Assembly(agent, settings, terminal)


def person() -> str:
    """Who sits here, for the journal."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def journal() -> SqliteJournal:
    """The journal that the settings name, for commands that only read it."""
    return SqliteJournal(load_settings().journal)


def _flags(options: dict[str, Any]) -> dict[str, Any]:
    named = {
        "model": options.get("model"),
        "mode": options.get("mode"),
        "tool_mode": options.get("way"),
        "limits.max_rounds": options.get("max_rounds"),
        "permissions.allow": list(options.get("allow") or ()) or None,
        "permissions.deny": list(options.get("deny") or ()) or None,
    }
    return {key: value for key, value in named.items() if value is not None}


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
    return SafeMode(settings["commands.safe_mode"], tuple(settings["commands.allowed_commands"]), permissions)


def _commands(settings: Settings) -> CommandPolicy:
    return CommandPolicy(
        shell_allowed=settings["commands.shell"],
        safe_mode=_safe_mode(settings),
        allow_env=tuple(settings["env.allow"]),
        timeout=int(settings["commands.run_timeout"]),
    )


def _catalog(settings: Settings, mine: ForModel) -> Catalog:
    kits = (files, browse, search, shell, git, tasks, clock)
    allowed, denied = settings["tools.allowed"], settings["tools.denied"]
    if not mine.tools_enabled or mine.tool_mode == "none":
        return Catalog()
    return Catalog(
        tool
        for kit in kits
        for tool in kit.TOOLS
        if (allowed is None or tool.full_name in allowed) and tool.full_name not in denied
    )


def _approver(options: dict[str, Any], terminal: Terminal) -> Approver:
    asked: Approver = NobodyToAsk()
    if sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty():
        asked = TerminalApprover(terminal, _read_line, user=person())
    yes_to = tuple(options.get("yes_to") or ())
    return AllowThese(yes_to, asked) if yes_to else asked


async def _read_line(text: str) -> str:
    import asyncio

    sys.stderr.write(text)
    sys.stderr.flush()
    line = await asyncio.to_thread(sys.stdin.readline)
    if not line:
        raise EOFError
    return line


def _wire(settings: Settings, name: str) -> Wire:
    provider = settings.provider(name.partition(":")[0])
    options: dict[str, Any] = {}
    if provider.base_url:
        options["base_url"] = provider.base_url
    if provider.api_key_env:
        options["api_key"] = os.environ.get(provider.api_key_env, "")
    if provider.ca_bundle:
        from ferrule.models.transport import Transport

        options["transport"] = Transport(ca_bundle=provider.ca_bundle)
    return resolve(name, **options)


def _model_options(mine: ForModel) -> ModelOptions:
    options = ModelOptions(mine.temperature, mine.max_output_tokens, mine.num_ctx, mine.thinking, mine.seed)
    return options if mine.timeout is None else replace(options, timeout=mine.timeout)
