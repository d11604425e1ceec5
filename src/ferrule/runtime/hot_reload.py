"""Hot reload: what tool files, hooks, agents, skills and settings say when they change takes effect
with the next message.

An interface looks between messages; nothing watches meanwhile, and nothing changes while a message
is worked.

    reloading = Reloading(assembly, options)
    if (changed := reloading.look()) is not None:       # before each message
        ...                                             # `changed.asks`: show `Trust().diff(...)`, ask, `Trust().trust(...)`
        await reloading.reload(session)
    await reloading.renew(session)                      # a session that worked during a reload

* A repository's files are used only as a person trusted them (rule 6): once one changes, all that
  they brought is withdrawn with the next reload, and comes back when the person trusts it as it
  stands then.
* A file that cannot be read or compiled changes nothing: the last good version of everything stays,
  and the error says which file, line and column. Where that would keep what must be withdrawn,
  `reload` raises and no message may be worked.
* History, system text and the order of tools stay (`engine.agent_reload`); what came and went is
  said to the model with its next message.
* MCP servers and peers are begun anew: what they kept in memory is gone.
* A Python file of `tools.python` is run again only where its bytes, or those of a named file beside
  it, changed; then it is a new module, and what the old one kept is gone. Calls at work end with
  the old one. Installed modules are never loaded again.
* `journal.path`, `journal.durability` and `workspace` belong to the process: they change with its
  next start. Files outside the workspace and the settings folder that settings name
  (`tools.http_manifests`, `tools.openapi`) are read again, but not watched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.engine.agent import Agent
from ferrule.engine.agent_reload import continued, same
from ferrule.engine.session import Session
from ferrule.extensions.instructions import NAME
from ferrule.storage.trust import Snapshot, Trust
from ferrule.tools.catalog import Catalog
from ferrule.tools.definition import Loading, Tool

from .assemble import INSTRUCTIONS, Assembly, assemble
from .file_changes import Watched

SOURCE = "reload"
"""Who tells the model what changed."""
_WITHDRAWN = "what this folder brought is withdrawn until you trust it again (`ferrule trust`): "
_STARTS = ("journal.path", "journal.durability")


@dataclass(frozen=True, slots=True)
class Changed:
    """What is not as it was. `asks`: a repository that was trusted changed, and does nothing until
    it is trusted again.
    """

    files: tuple[str, ...]
    seen: Snapshot
    asks: bool


@dataclass(frozen=True, slots=True)
class Tools:
    """How the tools of a reload differ from those before, by full name."""

    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @staticmethod
    def between(before: Catalog, now: Catalog, files: Iterable[str] = ()) -> Tools:
        """What came, went and is not the same: to whoever calls it, or because one of these files
        is where it comes from.
        """
        was, are = (_seen(catalog) for catalog in (before, now))
        touched = {f"{kind} {file}" for kind in ("file", "http") for file in files}
        changed = tuple(
            name
            for name, tool in are.items()
            if name in was and (tool.source in touched or not same(was[name], tool))
        )
        return Tools(
            tuple(sorted(are.keys() - was.keys())), tuple(sorted(was.keys() - are.keys())), changed
        )

    def __str__(self) -> str:
        said = (("new", self.new), ("gone", self.gone), ("changed", self.changed))
        return "; ".join(
            f"{word}: {', '.join(f'`{name}`' for name in names)}" for word, names in said if names
        )


class Reloading:
    """Keeps one assembly, in place, as its files are. `options` are those that it was made of; one
    interface, one loop.
    """

    def __init__(
        self,
        assembly: Assembly,
        options: dict[str, Any],
        *,
        interruptible: bool = False,
        trust: Trust | None = None,
    ) -> None:
        self._assembly = assembly
        self._options = options
        self._interruptible = interruptible
        self._trust = trust or Trust()
        self._behind: dict[str, Assembly] = {}
        """Sessions that worked during a reload, and what they still work with."""
        self._past: list[Assembly] = []
        """Assemblies that were replaced and not given back yet."""
        names = (NAME, *assembly.settings["instructions.fallbacks"])
        self._watched = Watched(assembly.settings.workspace, names)
        self._seen: Snapshot = assembly.settings.repository
        self._own: dict[str, str] = self._watched.look()

    def look(self) -> Changed | None:
        """What changed since the last reload, or None. Raises ConfigError where the repository
        cannot be read.
        """
        seen, own = self._trust.look(self._assembly.settings.workspace), self._watched.look()
        if (seen.state, seen.digest) == (self._seen.state, self._seen.digest) and own == self._own:
            return None
        files = [*_differing(self._seen.files, seen.files), *_differing(self._own, own)]
        asks = seen.state == "changed" and seen.digest != self._seen.digest
        return Changed(tuple(files), seen, asks)

    async def reload(self, *sessions: Session) -> Tools | None:
        """Make everything anew, and let these sessions go on with it; None if what there is stays,
        for the reason that was said.

        Raises ConfigError where what there was must not stay and nothing can take its place: then
        no message may be worked.
        """
        changed = self.look()
        if changed is None:
            return None
        before, own = self._assembly, self._watched.look()
        if (
            own == self._own
            and not _in_force(before.settings.repository)
            and not _in_force(changed.seen)
        ):
            # Nobody trusts it: what it says had no effect before and has none now.
            self._seen = changed.seen
            before.notice(
                "the configuration of this folder changed; it is not trusted and does nothing"
            )
            return None
        try:
            made = self._made(before)
        except ConfigError as error:
            if _in_force(before.settings.repository) and not _in_force(changed.seen):
                raise
            self._seen, self._own = changed.seen, own
            self._assembly.notice(f"what there was stays: {error.detail}")
            return None
        self._seen, self._own = made.settings.repository, own
        return await self._exchange(made, sessions, changed.files)

    async def renew(self, session: Session) -> None:
        """Let a session that worked during a reload go on with what there is now. Others are left
        as they are.
        """
        if not session.is_busy and session.id in self._behind:
            self._go_on(session, ())
            await self._retire()

    def forget(self, session: Session) -> None:
        """A session that was closed."""
        self._behind.pop(session.id, None)

    async def close(self) -> None:
        """Give back what is kept for sessions that were never renewed; they are closed by now."""
        self._behind.clear()
        await self._retire()

    # ---- how

    def _made(self, before: Assembly) -> Assembly:
        agent, options = before.agent, self._options
        if agent.model != before.settings.model:
            # The person changed it since: that holds, as an option does.
            options = {**options, "model": agent.model}
        said: list[str] = []
        made = assemble(
            options,
            notice=said.append,
            approver=agent.approver,
            journal=agent.journal,
            bus=agent.bus,
            interruptible=self._interruptible,
        )
        for text in said:
            before.notice(text)
        return made

    async def _exchange(
        self, made: Assembly, sessions: Iterable[Session], files: tuple[str, ...]
    ) -> Tools:
        now, before = self._assembly, replace(self._assembly)
        tools = Tools.between(before.agent.catalog, made.agent.catalog, files)
        made.agent.catalog = continued(made.agent.catalog, before.agent.catalog)
        if _same_model(before, made):
            made.agent.share_model(before.agent)
        now.agent, now.settings, now.signer = made.agent, made.settings, made.signer
        now.extensions, now.servers, now.peers = made.extensions, made.servers, made.peers
        self._past.append(before)
        for session in sessions:
            # One that is behind already goes on from what it works with: all that changed since is
            # new to it.
            self._behind.setdefault(session.id, before)
            if not session.is_busy:
                self._go_on(session, files)
        for key in _STARTS:
            if before.settings[key] != now.settings[key]:
                now.notice(f"`{key}` takes effect with the next start")
        await self._retire()
        return tools

    def _go_on(self, session: Session, files: Iterable[str]) -> None:
        now, before = self._assembly, self._behind.pop(session.id)
        was, seen = before.settings.repository, now.settings.repository
        files = sorted({*files, *_differing(was.files, seen.files)})
        tools = Tools.between(before.agent.catalog, now.agent.catalog, files)
        mode = session.mode
        now.agent.take_over(session, changed=(*tools.changed, *tools.gone))
        if mode != before.settings.mode:
            # What the person chose in this session holds in it.
            session.set_mode(mode)
        lost = _in_force(was) and not _in_force(seen)
        session.add_notice(SOURCE, f"{_WITHDRAWN if lost else ''}{_sentence(files, tools)}")
        if told := _told(before.agent, now.agent, tools):
            session.tell(told, SOURCE)

    async def _retire(self) -> None:
        """Give back what earlier assemblies brought that no session works with any more."""
        for before in [*self._past]:
            if any(one is before for one in self._behind.values()):
                continue
            self._past = [one for one in self._past if one is not before]
            if not _same_model(before, self._assembly):
                await before.agent.disconnect()
            elif before.agent.roster is not None:
                await before.agent.roster.disconnect()
            for brought in (before.extensions, before.servers, before.peers):
                if brought is not None:
                    await brought.close()


def _seen(catalog: Catalog) -> dict[str, Tool]:
    """The tools that a model or a person can call, by name. What scripts ask with comes and goes
    with them.
    """
    return {tool.full_name: tool for tool in catalog if tool.loading is not Loading.INTERNAL}


def _in_force(seen: Snapshot) -> bool:
    return seen.state == "trusted"


def _same_model(one: Assembly, other: Assembly) -> bool:
    """Whether two assemblies ask one model at one address, so that connections (and a local server)
    can be shared.
    """
    return one.agent.model == other.agent.model and _provider(one) == _provider(other)


def _provider(assembly: Assembly) -> object:
    return assembly.settings.provider(assembly.agent.model.partition(":")[0])


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _sentence(files: Sequence[str], tools: Tools) -> str:
    shown = ", ".join(files[:5]) + (f" and {len(files) - 5} more" if len(files) > 5 else "")
    return "; ".join(filter(None, (shown, str(tools)))) or "what is trusted changed"


def _told(before: Agent, now: Agent, tools: Tools) -> str:
    """What the model should know besides its list of tools."""
    said: list[str] = []
    if tools.new or tools.gone or tools.changed:
        said.append(f"The tools changed. {tools}.")
    if before.instructions != now.instructions:
        told = now.instructions.removeprefix(INSTRUCTIONS).strip()
        said.append(
            "In place of what you were told of this folder at the "
            f"beginning:\n{told or '(nothing)'}"
        )
    return "\n".join(said)
