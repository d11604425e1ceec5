"""Load everything that files add to a run: tools, hooks and agents.

They come from a trusted repository and from the settings folder of the person who works in it.
The repository's configuration is read once, by `storage.trust`: the bytes whose digest was
trusted are the bytes that are used.
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
    """Limits on what loaded files may do.

    `domains` limits the requests of scripts (empty: any host of the open internet), `hosts` those
    of web hooks (empty: no host).
    """

    domains: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    policy: Policy | None = None
    """What hook commands may do. Default: the workspace, and no network."""


@dataclass(slots=True)
class Extensions:
    """Everything that was loaded. Close it together with the agent.

    `tools` include the ones passed as `shipped`.
    """

    tools: tuple[Tool, ...]
    hooks: tuple[EventHook, ...] = ()
    agents: tuple[SubAgent, ...] = ()
    notices: tuple[str, ...] = ()
    """For the person: what is shadowed, has no effect or looks like a mistake."""
    _loaded: LoadedHooks | None = field(default=None, repr=False)

    async def close(self) -> None:
        """Release the resources of hook commands."""
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
    """Load tools, hooks and agents of a workspace and of the person's settings folder.

    A repository that is not trusted adds nothing.

    Args:
        seen: The workspace as `Trust.look` read it.
        shipped: Tools that ship with Ferrule, to be combined with the loaded ones.
        own: The person's settings folder.
        reach: Limits on what the loaded files may do.
        world: What scripts may use beyond tools. Its `web` is replaced by one limited to
            `reach.domains`.
        pool: The worker pool for scripts.
        register: Whether scripts may add to a session. The Agent needs `registration` as well.
        python: The setting `tools.python`.
        python_from: Where that setting was written, for error messages.

    Raises:
        ConfigError: Files are invalid. It lists all problems of tools, or all problems of hooks.
    """
    reach = reach or Reach()
    python_tools = load_python(python, seen, own=own, where=python_from)
    trusted_files = seen.files if seen.state == "trusted" else {}
    loaded = replace(load(trusted_files, python_tools), state=seen.state)
    agents = load_agents(seen, own)
    if register:
        shipped = (*shipped, *registration_tools(pool))
    world = world or World(delegate=delegate, meta=meta)
    world = replace(world, web=Web(Domains.parse(reach.domains)))
    hooks = load_hooks(
        seen, own=own, hosts=reach.hosts, policy=reach.policy, pool=pool, turns=world.turns
    )
    warnings = (*hooks.warnings, *agents.warnings)
    return Extensions(
        tools=loaded.make(world, shipped=shipped, pool=pool),
        hooks=hooks.hooks,
        agents=agents.agents,
        notices=(
            *_tool_notices(loaded, shipped),
            *map(str, warnings),
            *_trust_notices(hooks, agents),
        ),
        _loaded=hooks,
    )


def _tool_notices(loaded: Loaded, shipped: Iterable[Tool]) -> Iterable[str]:
    yield from map(str, (*loaded.shadowed, *loaded.warnings))
    shipped_names = {tool.full_name for tool in shipped}
    for tool in (*loaded.tools, *loaded.python):
        if tool.name in shipped_names:
            yield (
                f"Ferrule's own tool `{tool.name}` is hidden from the model: {tool.file} has the "
                "same name"
            )


def _trust_notices(hooks: LoadedHooks, agents: LoadedAgents) -> Iterable[str]:
    for kind, files in (("hooks", hooks.inert), ("agents", agents.inert)):
        if files:
            yield f"{kind} of this folder have no effect until you trust it: {', '.join(files)}"
