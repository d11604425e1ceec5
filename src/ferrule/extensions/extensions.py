"""Everything that files bring to a run: tools, hooks and agents, of a repository that is trusted
and of the person who works in it.

What a repository holds is taken as `storage.trust` saw it, once: the bytes whose digest was trusted
are the bytes that are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.engine.hooks.events import EventHook
from ferrule.sandbox.policy import Policy
from ferrule.storage.trust import Snapshot
from ferrule.tools.definition import Tool

from .agents.loading import LoadedAgents, load_agents
from .agents.scripts import delegate
from .builtins.builtins import World
from .hooks.loading import LoadedHooks, load_hooks
from .starlark.pool import Pool
from .tool_files.python_tools import load_python
from .tool_files.registering import meta, registration_tools
from .tool_files.sources import Loaded, load
from .web.domains import Domains
from .web.fetch import Web


@dataclass(frozen=True, slots=True)
class Reach:
    """How far what files bring may go. `domains` are for scripts (none: the open internet), `hosts`
    for web hooks (none: nowhere).
    """

    domains: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    policy: Policy | None = None
    """What hook commands may do; by default the workspace and no network."""


@dataclass(slots=True)
class Extensions:
    """What was found. `tools` include those that were given as `shipped`. Close it with the
    agent.
    """

    tools: tuple[Tool, ...]
    hooks: tuple[EventHook, ...] = ()
    agents: tuple[SubAgent, ...] = ()
    notices: tuple[str, ...] = ()
    """For the person: what is shadowed, has no effect or looks like a mistake."""
    _loaded: LoadedHooks | None = field(default=None, repr=False)

    async def close(self) -> None:
        """Give back what hook commands needed."""
        if self._loaded is not None:
            await self._loaded.close()


def load_extensions(
    seen: Snapshot,
    *,
    shipped: Sequence[Tool] = (),
    own: Path | None = None,
    reach: Reach | None = None,
    world: World | None = None,
    pool: Pool | None = None,
    register: bool = False,
    python: Sequence[str] = (),
    python_from: str = "",
) -> Extensions:
    """What the files of a workspace, as `Trust.look` saw it, and of `own`, the person's settings
    folder, bring.

    `python` is the setting `tools.python`, which stands at `python_from`. With `register` their
    scripts may add to a session, if the Agent has `registration`. A repository that is not trusted
    brings nothing. Raises ConfigError, all problems of tools (or of hooks) at once.
    """
    reach = reach or Reach()
    in_python = load_python(python, seen, own=own, where=python_from)
    found = replace(
        load(seen.files if seen.state == "trusted" else {}, in_python), state=seen.state
    )
    agents = load_agents(seen, own)
    if register:
        shipped = (*shipped, *registration_tools(pool))
    given = replace(
        world or World(delegate=delegate, meta=meta), web=Web(Domains.parse(reach.domains))
    )
    hooks = load_hooks(
        seen, own=own, hosts=reach.hosts, policy=reach.policy, pool=pool, turns=given.turns
    )
    return Extensions(
        found.make(given, shipped=shipped, pool=pool),
        hooks.hooks,
        agents.agents,
        (
            *_said(found, shipped),
            *map(str, (*hooks.warnings, *agents.warnings)),
            *_inert(hooks, agents),
        ),
        hooks,
    )


def _said(found: Loaded, shipped: Iterable[Tool]) -> Iterable[str]:
    yield from (str(one) for one in (*found.shadowed, *found.warnings))
    by_name = {tool.full_name for tool in shipped}
    for file in (*found.tools, *found.python):
        if file.name in by_name:
            yield (
                f"the tool `{file.name}` of Ferrule is not shown to the model: {file.file} has "
                "its name"
            )


def _inert(hooks: LoadedHooks, agents: LoadedAgents) -> Iterable[str]:
    for what, files in (("hooks", hooks.inert), ("agents", agents.inert)):
        if files:
            yield f"{what} of this folder have no effect before it is trusted: {', '.join(files)}"
