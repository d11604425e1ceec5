"""Hot reload: changed tool files, hooks, agents, skills and settings apply to the next message.

An interface checks for changes between messages. Nothing is watched in between, and nothing changes
during a run.

    reloading = Reloading(assembly, options)
    changed = reloading.look()            # before each message
    if changed is not None:
        if changed.asks: ...              # show `Trust().diff(...)`, ask, `Trust().trust(...)`
        await reloading.reload(session)
    await reloading.renew(session)        # a session that was busy during a reload

* A repository's files are used only as a person trusted them (rule 6). When one changes, everything
  from the repository is withdrawn with the next reload, and returns once the person trusts the new
  content.
* A file that cannot be read or compiled changes nothing: the last good version of everything stays,
  and the error names file, line and column. That holds for tool files and agent files too, which a
  start would leave out, unless they were left out before. If the last good version has something
  that must be withdrawn, `reload` raises and no message may be run.
* The history, the system text and the order of tools stay (`engine.agent_reload`); the model is
  told with its next message which tools came and went.
* MCP servers and A2A agents are connected anew: what they kept in memory is gone.
* A Python file of `tools.python` is run again only if its content, or that of a named file beside
  it, changed. It is then a new module, and the state of the old one is gone. Running calls finish
  with the old one. Installed modules are never reloaded.
* `journal.path`, `journal.durability` and `workspace` belong to the process: changes apply at its
  next start. Files outside the workspace and the settings folder that settings name
  (`tools.http_manifests`, `tools.openapi`) are read again, but not watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.engine.agent_reload import continue_catalog, is_same_tool
from ferrule.engine.plugins.protocol import LeftOutFile
from ferrule.engine.session import Session
from ferrule.storage.trust import PROJECT_FILE, ConfigurationSnapshot, TrustStore
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Loading, Tool

from .assemble import Assembly, assemble
from .file_changes import WatchedFiles

SOURCE = "reload"
"""The source of the messages that say what changed."""
_WITHDRAWN = "this folder's configuration is withdrawn until you trust it again (`ferrule trust`): "
_SET_AT_START = ("journal.path", "journal.durability")


@frozen
class ConfigurationChange:
    """What changed since the last reload.

    Attributes:
        files: The names of the changed files.
        repository: The repository as it is now.
        needs_trust: Whether a trusted repository changed, which has no effect until it is trusted
            again.
    """

    files: tuple[str, ...]
    repository: ConfigurationSnapshot
    needs_trust: bool


@frozen
class ToolChanges:
    """How the tools of a reload differ from those before, by full name."""

    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @staticmethod
    def compare(before: Catalog, now: Catalog, files: Iterable[str] = ()) -> ToolChanges:
        """Compare two catalogs. A tool also counts as changed if one of `files` defines it."""
        was = _callable_tools(before)
        are = _callable_tools(now)
        touched = {f"file {file}" for file in files} | {f"http {file}" for file in files}
        changed = tuple(
            name
            for name, tool in are.items()
            if name in was and (tool.source in touched or not is_same_tool(was[name], tool))
        )
        return ToolChanges(
            tuple(sorted(are.keys() - was.keys())), tuple(sorted(was.keys() - are.keys())), changed
        )

    def __str__(self) -> str:
        parts: list[str] = []
        for label, names in (("new", self.new), ("gone", self.gone), ("changed", self.changed)):
            if names:
                quoted = ", ".join(f"`{name}`" for name in names)
                parts.append(f"{label}: {quoted}")
        return "; ".join(parts)


class HotReloader:
    """Reloads one assembly in place when its files change. One interface, one event loop.

    Args:
        assembly: The assembly.
        options: The options that it was made from.
        interruptible: As it was passed to `assemble`.
    """

    def __init__(
        self,
        assembly: Assembly,
        options: dict[str, Any],
        *,
        interruptible: bool = False,
    ) -> None:
        self._assembly = assembly
        self._options = options
        self._interruptible = interruptible
        self._trust = TrustStore()
        self._behind: dict[str, Assembly] = {}
        """By session id: sessions that were busy during a reload, and what they still use."""
        self._past: list[Assembly] = []
        """Assemblies that were replaced but not closed yet."""
        self._watched = WatchedFiles()
        self._seen: ConfigurationSnapshot = assembly.settings.repository
        self._own: dict[str, str] = self._hash_own_files()

    def find_changes(self) -> ConfigurationChange | None:
        """Return what changed since the last reload, or None.

        Raises:
            ConfigError: The repository cannot be read.
        """
        seen = self._trust.read(self._assembly.settings.workspace)
        own = self._hash_own_files()
        if (seen.state, seen.digest) == (self._seen.state, self._seen.digest) and own == self._own:
            return None
        files = [
            *_find_differences(self._seen.files, seen.files),
            *_find_differences(self._own, own),
        ]
        asks = seen.state == "changed" and seen.digest != self._seen.digest
        return ConfigurationChange(tuple(files), seen, asks)

    async def reload(self, *sessions: Session) -> ToolChanges | None:
        """Load everything again, and let these sessions continue with it.

        Returns:
            How the tools changed; None if nothing was replaced (a notice says why).

        Raises:
            ConfigError: Trust was lost and loading failed: no message may be run.
        """
        changed = self.find_changes()
        if changed is None:
            return None
        before = self._assembly
        own = self._hash_own_files()
        if own == self._own and _is_without_effect(before.settings.repository, changed.repository):
            self._seen = changed.repository
            before.notice(
                "the configuration of this folder changed; it is not trusted and has no effect"
            )
            return None
        try:
            made = await self._assemble(before)
        except ConfigError as error:
            if _in_force(before.settings.repository) and not _in_force(changed.repository):
                raise
            self._seen = changed.repository
            self._own = own
            self._assembly.notice(f"reload failed, the last good version stays: {error.detail}")
            return None
        self._seen = made.settings.repository
        watched = made.agent.plugins.watched
        is_same = watched == before.agent.plugins.watched
        self._own = own if is_same else self._watched.hash_files(watched)
        return await self._exchange(made, sessions, changed.files)

    def _hash_own_files(self) -> dict[str, str]:
        return self._watched.hash_files(self._assembly.agent.plugins.watched)

    async def update_session(self, session: Session) -> None:
        """Update a session that was busy during a reload. Other sessions are left alone."""
        if not session.is_busy and session.id in self._behind:
            self._update(session, ())
            await self._close_past()

    def forget_session(self, session: Session) -> None:
        """Forget a session that was closed."""
        self._behind.pop(session.id, None)

    async def close(self) -> None:
        """Close what was kept for sessions that were never updated; they are closed by now."""
        self._behind.clear()
        await self._close_past()

    async def _assemble(self, before: Assembly) -> Assembly:
        """Assemble again.

        Raises:
            ConfigError: It fails, or a tool file or agent file is invalid that was not so before.
        """
        agent = before.agent
        options = self._options
        if (
            agent.model != before.settings.model
            or before.settings.origin("model").layer == "default"
        ):
            # The person changed the model since, or nobody named it: it stays.
            options = {**options, "model": agent.model}
        notices: list[str] = []
        made = assemble(
            options,
            notice=notices.append,
            approver=agent.approver,
            journal=agent.journal,
            bus=agent.bus,
            interruptible=self._interruptible,
        )
        broken = _find_newly_invalid(before, made)
        if broken:
            await made.close_sources()
            details = "\n".join(file.detail for file in broken)
            raise ConfigError(details, hint=broken[0].hint)
        for text in notices:
            before.notice(text)
        return made

    async def _exchange(
        self, made: Assembly, sessions: Iterable[Session], files: tuple[str, ...]
    ) -> ToolChanges:
        """Put the parts of a new assembly into the current one, so that references to it stay."""
        now = self._assembly
        before = replace(self._assembly)
        tools = ToolChanges.compare(before.agent.catalog, made.agent.catalog, files)
        made.agent.catalog = continue_catalog(made.agent.catalog, before.agent.catalog)
        if _same_model(before, made):
            made.agent.share_model(before.agent)
        now.agent = made.agent
        now.settings = made.settings
        now.signer = made.signer
        now.make_instructions = made.make_instructions
        self._past.append(before)
        for session in sessions:
            # A session that is behind already keeps its older assembly: it has missed more.
            self._behind.setdefault(session.id, before)
            if not session.is_busy:
                self._update(session, files)
        for key in _SET_AT_START:
            if before.settings[key] != now.settings[key]:
                now.notice(f"`{key}` takes effect with the next start")
        await self._close_past()
        return tools

    def _update(self, session: Session, files: Iterable[str]) -> None:
        """Let a session continue with the current assembly, and tell it what changed."""
        now = self._assembly
        before = self._behind.pop(session.id)
        was = before.settings.repository
        seen = now.settings.repository
        files = sorted({*files, *_find_differences(was.files, seen.files)})
        tools = ToolChanges.compare(before.agent.catalog, now.agent.catalog, files)
        mode = session.mode
        now.agent.take_over(session, changed=(*tools.changed, *tools.gone))
        if mode != before.settings.mode:
            # The mode that the person chose for this session stays.
            session.set_mode(mode)
        lost_trust = _in_force(was) and not _in_force(seen)
        prefix = _WITHDRAWN if lost_trust else ""
        session.add_notice(SOURCE, prefix + _describe_change(files, tools))
        message = _message_to_model(before, now, tools)
        if message:
            session.tell(message, SOURCE)

    async def _close_past(self) -> None:
        """Close the resources of earlier assemblies that no session uses any more."""
        for before in [*self._past]:
            if any(one is before for one in self._behind.values()):
                continue
            self._past = [one for one in self._past if one is not before]
            if not _same_model(before, self._assembly):
                await before.agent.disconnect()
            elif before.agent.sub_agents is not None:
                await before.agent.sub_agents.disconnect()
            await before.close_sources()


def _find_newly_invalid(before: Assembly, made: Assembly) -> list[LeftOutFile]:
    known = {(file.kind, file.name) for file in before.agent.plugins.left_out}
    return [file for file in made.agent.plugins.left_out if (file.kind, file.name) not in known]


def _callable_tools(catalog: Catalog) -> dict[str, Tool]:
    """Return the tools that a model or a person can call, by name; not those for scripts only."""
    return {tool.full_name: tool for tool in catalog if tool.loading is not Loading.INTERNAL}


def _is_without_effect(before: ConfigurationSnapshot, now: ConfigurationSnapshot) -> bool:
    """Whether a change of a repository that is not trusted changes none of its restrictions."""
    if _in_force(before) or _in_force(now):
        return False
    settings = (before.files.get(PROJECT_FILE), now.files.get(PROJECT_FILE))
    return settings[0] == settings[1] and before.kept == now.kept


def _in_force(seen: ConfigurationSnapshot) -> bool:
    return seen.state == "trusted"


def _same_model(one: Assembly, other: Assembly) -> bool:
    """Whether two assemblies use the same model at the same address and so can share its client."""
    return one.agent.model == other.agent.model and _provider(one) == _provider(other)


def _provider(assembly: Assembly) -> object:
    return assembly.settings.provider(assembly.agent.model.partition(":")[0])


def _find_differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _describe_change(files: Sequence[str], tools: ToolChanges) -> str:
    shown = ", ".join(files[:5])
    if len(files) > 5:
        shown += f" and {len(files) - 5} more"
    parts = [part for part in (shown, str(tools)) if part]
    return "; ".join(parts) or "what is trusted changed"


def _message_to_model(before: Assembly, now: Assembly, tools: ToolChanges) -> str:
    """Say what the model should know besides its list of tools; "" if there is nothing."""
    lines: list[str] = []
    if tools.new or tools.gone or tools.changed:
        lines.append(f"The tools changed. {tools}.")
    text = now.agent.plugins.make_text(now.agent.catalog)
    if text != before.agent.plugins.make_text(before.agent.catalog):
        instructions = text or "(nothing)"
        lines.append(
            f"In place of what you were told of this folder at the beginning:\n{instructions}"
        )
    return "\n".join(lines)
