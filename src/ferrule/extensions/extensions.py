"""Load everything that files add to a run: tools, hooks and agents.

They come from a trusted repository and from the settings folder of the person who works in it.
The repository's configuration is read once, by `storage.trust`: the bytes whose digest was
trusted are the bytes that are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.engine.delegation.delegate_tool import ask_agent
from ferrule.engine.delegation.sub_agent import SubAgent
from ferrule.engine.hooks.chain import Hooks
from ferrule.engine.hooks.events import EventHook
from ferrule.engine.web.domains import AllowedDomains
from ferrule.engine.web.fetch import WebClient
from ferrule.sandbox.policy import SandboxPolicy
from ferrule.storage.trust import ConfigurationSnapshot
from ferrule.tools.context import Context
from ferrule.tools.definition import Tool

from .agents.loading import LoadedAgents, load_agents
from .builtins.dispatch import ScriptEnvironment
from .front_matter import InvalidFile
from .hooks.loading import LoadedHooks, load_hooks
from .starlark.pool import WorkerPool
from .tool_files.bundles import CONFIGURATION_FOLDERS
from .tool_files.loading import LoadedTools, load_tools
from .tool_files.python_tools import PythonSources, load_python_tools
from .tool_files.registration_tools import handle_meta_call, make_registration_tools


@frozen
class ExtensionAccess:
    """Limits on what loaded files may do.

    `domains` limits the requests of scripts (empty: any host of the open internet), `hosts` those
    of web hooks (empty: no host).
    """

    domains: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    policy: SandboxPolicy | None = None
    """What hook commands may do. Default: the workspace, and no network."""
    passed_on: tuple[str, ...] = ()
    """Names of variables that hook commands get although they look like secrets."""
    claude_folder: Path | None = None
    """The person's folder of Claude Code; None leaves out the hooks that were written for it."""


@dataclass(slots=True)
class Extensions:
    """Everything that was loaded. Close it together with the agent."""

    hooks: tuple[EventHook, ...] = ()
    agents: tuple[SubAgent, ...] = ()
    left_out: tuple[InvalidFile, ...] = ()
    """Tool files and agent files that are invalid."""
    notices: tuple[str, ...] = ()
    """For the person: what is shadowed, has no effect or looks like a mistake."""
    notices_once: tuple[str, ...] = ()
    """The same, to be said the first time only."""
    _loaded: LoadedTools | None = field(default=None, repr=False)
    _loaded_hooks: LoadedHooks | None = field(default=None, repr=False)
    _environment: ScriptEnvironment = field(default_factory=ScriptEnvironment, repr=False)
    _pool: WorkerPool | None = None
    _own_tools: tuple[Tool, ...] = ()

    def make_tools(self, others: Iterable[Tool] = ()) -> tuple[Tool, ...]:
        """Return the tools of files, and the others; one that a file replaces is for scripts only.

        Raises:
            ConfigError: A file cannot be a tool. The message names it.
        """
        others = (*others, *self._own_tools)
        if self._loaded is None:
            return others
        return self._loaded.make_tools(self._environment, shipped=others, pool=self._pool)

    def describe_hidden(self, others: Iterable[Tool]) -> Iterator[str]:
        """Yield a sentence for each of the others that a file hides from the model."""
        if self._loaded is None:
            return
        names = {tool.full_name for tool in (*others, *self._own_tools)}
        for tool in (*self._loaded.tools, *self._loaded.python):
            if tool.name in names:
                yield (
                    f"Ferrule's own tool `{tool.name}` is hidden from the model: {tool.file} has "
                    "the same name"
                )

    async def close(self) -> None:
        """Release the resources of hook commands."""
        if self._loaded_hooks is not None:
            await self._loaded_hooks.close()


def load_extensions(
    snapshot: ConfigurationSnapshot,
    *,
    settings_folder: Path | None = None,
    access: ExtensionAccess | None = None,
    environment: ScriptEnvironment | None = None,
    pool: WorkerPool | None = None,
    register: bool = False,
    python: PythonSources | None = None,
) -> Extensions:
    """Load tools, hooks and agents of a workspace and of the person's settings folder.

    A repository that is not trusted adds nothing.

    Args:
        snapshot: The workspace as `Trust.read` read it.
        settings_folder: The person's settings folder.
        access: Limits on what the loaded files may do.
        environment: What scripts may use beyond tools. Its `web` is replaced by one limited to
            `access.domains`.
        pool: The worker pool for scripts.
        register: Whether scripts may add to a session. The Agent needs `registration` as well.
        python: Python files and modules to take tools from.

    Raises:
        ConfigError: Files are invalid. It lists all problems of tools, or all problems of hooks.
    """
    access = access or ExtensionAccess()
    python_tools = load_python_tools(
        python or PythonSources(),
        snapshot,
        settings_folder,
        access.policy.command_writable if access.policy else None,
    )
    trusted_files = snapshot.files if snapshot.state == "trusted" else {}
    loaded = load_tools(trusted_files, python_tools)
    agents = load_agents(snapshot, settings_folder)
    environment = environment or ScriptEnvironment(
        delegate=delegate_from_script, meta=handle_meta_call
    )
    environment = replace(environment, web=WebClient(AllowedDomains.parse(access.domains)))
    hooks = load_hooks(
        snapshot,
        settings_folder=settings_folder,
        claude_folder=access.claude_folder,
        hosts=access.hosts,
        policy=access.policy,
        passed_on=access.passed_on,
        pool=pool,
        messages=environment.messages,
    )
    left_out = (*loaded.left_out, *agents.left_out)
    warnings = (*hooks.warnings, *agents.warnings)
    return Extensions(
        hooks=hooks.hooks,
        agents=agents.agents,
        left_out=left_out,
        notices=(
            *map(str, left_out),
            *map(str, (*loaded.shadowed, *loaded.warnings)),
            *map(str, warnings),
            *_list_unread_links(snapshot),
            *_trust_notices(hooks, agents),
        ),
        notices_once=hooks.idle,
        _loaded=loaded,
        _loaded_hooks=hooks,
        _environment=environment,
        _pool=pool,
        _own_tools=make_registration_tools(pool) if register else (),
    )


def _list_unread_links(snapshot: ConfigurationSnapshot) -> Iterable[str]:
    if snapshot.state == "trusted":
        for name in snapshot.links:
            if name.endswith(".md") and name.startswith(CONFIGURATION_FOLDERS):
                yield f"{name}: it is a link, and links are not followed"


def _trust_notices(hooks: LoadedHooks, agents: LoadedAgents) -> Iterable[str]:
    for kind, files in (("hooks", hooks.inert), ("agents", agents.inert)):
        if files:
            yield f"{kind} of this folder have no effect until you trust it: {', '.join(files)}"
    if hooks.guards:
        yield (
            "hooks of this folder as you trusted it last can still refuse calls: "
            f"{', '.join(hooks.guards)}"
        )


async def delegate_from_script(context: Context, given: Mapping[str, Any]) -> dict[str, Any]:
    """Delegate a task from a script, as `ScriptEnvironment(delegate=delegate)`.

    Raises ToolFailed.
    """
    request = dict(given)
    _check_hooks(request.pop("hooks", None), context)
    task = request.pop("task", None)
    if not isinstance(task, str):
        raise ToolFailed(ErrorType.VALIDATION_FAILED, "`delegate`: `task` must be a text")
    return await ask_agent(context, task, **request)


def _check_hooks(names: Any, context: Context) -> None:
    if names is None:
        return
    hooks = context.resources.get(Hooks)
    known = {hook.name for hook in hooks.hooks} if isinstance(hooks, Hooks) else set[str]()
    listed = cast("list[Any]", names) if isinstance(names, list) else [names]
    for name in listed:
        if name not in known:
            raise ToolFailed(
                ErrorType.NOT_FOUND,
                f"`delegate`: there is no hook `{name}` in this session to watch the agent",
            )
