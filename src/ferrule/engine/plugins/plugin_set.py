"""The passes over a list of plugins, which end in one `PluginSet` or in an error.

Each plugin is set up in order; their tools are put together; tools made of others are added; what
the model sees of them is decided. Two plugins that want the same name are an error.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, is_dataclass, replace
from pathlib import Path
from typing import TypeVar, cast

from ferrule.core.errors import ConfigError, ToolDefinitionError
from ferrule.core.value_class import frozen
from ferrule.engine import delegation, event_bus, registration
from ferrule.engine import hooks as event_hooks
from ferrule.engine.driver import Driver, DriverExtension
from ferrule.engine.hooks.call_hooks import Hook
from ferrule.models.client import ModelClient
from ferrule.permissions import filesystem
from ferrule.permissions.protected_names import DEFAULT_NAMES
from ferrule.permissions.rule_evaluation import Rules
from ferrule.storage import paths
from ferrule.tools.catalog import Catalog, ToolLike, as_tool
from ferrule.tools.definition import Tool

from .lifetimes import LifetimeMaker, PluginLifetimes
from .protocol import BusListener, LeftOutFile, Parts, Plugin, Setup, SetupInternals

T = TypeVar("T")

PROGRAM = "the program"
"""Where tools and resources are from that no plugin brought, in messages."""
PRESENTABLE = ("description", "arguments", "examples", "loading")
"""The fields of a tool that `CatalogChanges.present` may change."""


@frozen
class PluginInstructions:
    """The text of one plugin for the model, and the names of the plugin's tools."""

    text: str | Callable[[Catalog], str]
    tools: frozenset[str]

    def select(self, catalog: Catalog) -> str:
        """Return the text for a session with these tools."""
        if callable(self.text):
            return self.text(catalog)
        if self.tools and not any(name in catalog for name in self.tools):
            return ""
        return self.text


@frozen
class PluginSet:
    """What plugins add to an agent, put together.

    Attributes:
        names: The plugins, in order.
        tools: Their tools and those of the program, sorted by full name.
        sources: The plugin of each tool that a plugin brought, by the tool's full name.
    """

    names: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    instructions: tuple[PluginInstructions, ...] = ()
    hooks: tuple[Hook | event_hooks.EventHook | event_hooks.Hooks, ...] = ()
    agents: tuple[delegation.SubAgent, ...] = ()
    delegation: delegation.DelegationLimits | None = None
    resources: tuple[object, ...] = ()
    observers: tuple[Callable[[event_bus.BusEvent], None], ...] = ()
    listeners: tuple[BusListener, ...] = ()
    lifetimes: PluginLifetimes = field(default_factory=PluginLifetimes)
    extensions: tuple[Callable[[Driver], DriverExtension], ...] = ()
    registration: registration.RegistrationLimits | None = None
    watched: tuple[Path, ...] = ()
    left_out: tuple[LeftOutFile, ...] = ()

    def find_resource(self, kind: type[T]) -> T | None:
        """Return the resource of a type, None if no plugin that is on brings one."""
        return next((one for one in self.resources if isinstance(one, kind)), None)

    def make_name_check(self, is_named: Callable[[str], bool]) -> Callable[[str], bool]:
        """Return whether a tool is named: by this, or by an agent of a plugin."""
        named = {name for agent in self.agents for name in agent.tools or ()}
        return lambda name: name in named or is_named(name)

    def make_text(self, catalog: Catalog) -> str:
        """Return what the plugins tell the model of a session with these tools."""
        texts = (one.select(catalog).strip() for one in self.instructions)
        return "\n\n".join(filter(None, texts))

    def watch(self, bus: event_bus.Bus | None) -> event_bus.Bus | None:
        """Attach the observers to the bus; to a new one if there is none. Return the bus."""
        if not self.observers and not self.listeners:
            return bus
        bus = bus or event_bus.Bus()
        for observer in self.observers:
            bus.tap(observer)
        for listener in self.listeners:
            listener.listen(bus)
        return bus

    def unwatch(self, bus: event_bus.Bus | None) -> None:
        """Detach the observers from the bus."""
        if bus is None:
            return
        for observer in self.observers:
            bus.untap(observer)
        for listener in self.listeners:
            listener.leave(bus)


def find_state_folder() -> Path:
    """Return the folder in which each plugin has one of its own. It need not exist."""
    return paths.state() / "plugins"


def make_plugin_folder(plugin: str, parent: Path | None = None) -> Path:
    """Make and return the folder that `Setup.state` gives a plugin, for its commands.

    Args:
        plugin: The plugin's name.
        parent: The folder of the folders of all plugins. Default: the one in the state folder.
    """
    return paths.make_private_folder((parent or find_state_folder()) / plugin)


@frozen
class PluginOptions:
    """How one plugin is set up.

    Attributes:
        environment: The variables that it may read; None for all.
        origins: Where its fields were set.
        is_optional: Whether it is left out, with a notice, if it fails.
        distribution: Where it was installed from; "" for a plugin that the program made itself,
            whose own errors reach the program.
    """

    environment: Sequence[str] | None = None
    origins: Mapping[str, str] = field(default_factory=dict[str, str])
    is_optional: bool = False
    distribution: str = ""


def set_up_plugins(
    plugins: Iterable[Plugin | Parts],
    setup: Setup,
    *,
    tools: Iterable[Tool] = (),
    options: Mapping[str, PluginOptions] | None = None,
) -> PluginSet:
    """Set the plugins up, in order, and put together what they add.

    Args:
        plugins: The plugins, and what the program adds itself.
        setup: What they may use. `state` returns the folder in which each has one of its own.
        tools: Tools that the program gives the agent besides.
        options: How single plugins are set up, by their names.

    Raises:
        ConfigError: Two plugins have one name, or two of them bring the same tool or resource; or
            something is not what `Parts` allows.
    """
    given: dict[str, Parts] = {}
    named_by_agents: set[str] = set()

    def is_named(name: str) -> bool:
        return name in named_by_agents or setup.internals.is_named(name)

    for plugin in plugins:
        if isinstance(plugin, Parts):
            own_parts = _check_parts(PROGRAM, plugin)
            given[_name_program(given)] = own_parts
            named_by_agents.update(*(agent.tools or () for agent in own_parts.agents))
            continue
        name = _check_plugin(plugin, given)
        chosen = (options or {}).get(name, PluginOptions())
        own = _make_own_setup(setup, name, chosen, is_named)
        parts = _set_up(plugin, own, chosen)
        if parts is not None:
            given[name] = parts
            named_by_agents.update(*(agent.tools or () for agent in parts.agents))
    if not given:
        return PluginSet(tools=tuple(tools))
    collected = _collect_tools(given, tools)
    _check_resources(given)
    return PluginSet(
        tuple(given),
        tuple(tool for _, tool in sorted(collected.tools.items())),
        collected.sources,
        tuple(
            PluginInstructions(parts.instructions, collected.list_names(name))
            for name, parts in given.items()
            if parts.instructions
        ),
        tuple(hook for parts in given.values() for hook in parts.hooks),
        tuple(agent for parts in given.values() for agent in parts.agents),
        next((parts.delegation for parts in given.values() if parts.delegation), None),
        tuple(item for parts in given.values() for item in parts.resources),
        tuple(observer for parts in given.values() for observer in parts.observers),
        tuple(one for parts in given.values() for one in parts.internals.listeners),
        PluginLifetimes(_list_lifetimes(given), setup.notice),
        tuple(make for parts in given.values() for make in parts.internals.extensions),
        _find_registration(given),
        tuple(path for parts in given.values() for path in parts.internals.watched),
        tuple(file for parts in given.values() for file in parts.internals.left_out),
    )


def add_plugins(
    plugins: Sequence[Plugin | Parts | str] | PluginSet, setup: Setup, catalog: Catalog
) -> tuple[PluginSet, Catalog]:
    """Return the plugins of an agent and its tools. A set that is given is in the catalog already.

    Raises ConfigError, as `set_up_plugins`; also for a name that no plugin has.
    """
    if isinstance(plugins, PluginSet):
        return plugins, catalog
    if isinstance(plugins, str):
        raise ConfigError("`plugins` is a text", hint=f'write `plugins=["{plugins}"]`')
    names = [one for one in plugins if isinstance(one, str)]
    named = _make_named_plugins(names) if names else {}
    made = [named[one][0] if isinstance(one, str) else one for one in plugins]
    options = {name: chosen for name, (_, chosen) in named.items()}
    added = set_up_plugins(made, setup, tools=catalog, options=options)
    is_same = not added.names or added.tools == tuple(catalog)
    return added, catalog if is_same else Catalog(added.tools)


def _make_named_plugins(names: Iterable[str]) -> dict[str, tuple[Plugin, PluginOptions]]:
    """Return the plugins with these names; each may read the variables that its manifest names."""
    # Only a name needs the readers of manifests.
    from .loading import find_manifest, make_plugin

    return {
        name: (make_plugin(name), PluginOptions(find_manifest(name).environment)) for name in names
    }


def setup_for_program(
    model: str,
    workspace: filesystem.Workspace | None,
    connect: Callable[[str], ModelClient],
    rules: Rules,
) -> Setup:
    """Return what the plugins of an agent may use that a program makes itself."""
    return Setup(
        model,
        workspace,
        state=find_state_folder,
        notice=logging.getLogger("ferrule.plugins").warning,
        environment=os.environ,
        confine=None,
        connect=connect,
        internals=SetupInternals(
            find_address=_find_address,
            rules=rules,
            remark=logging.getLogger("ferrule.plugins").info,
            is_named=lambda name: False,
            names=workspace.names if workspace else DEFAULT_NAMES,
        ),
    )


def _make_own_setup(
    setup: Setup, plugin: str, options: PluginOptions, is_named: Callable[[str], bool]
) -> Setup:
    """Return what one plugin may use: its own folder, and the variables it declares or all."""

    def state() -> Path:
        return make_plugin_folder(plugin, setup.state())

    internals = replace(setup.internals, origins=options.origins, is_named=is_named)
    own = replace(setup, state=state, internals=internals)
    if options.environment is None:
        return own
    given = setup.environment
    declared = {name: given[name] for name in options.environment if name in given}
    return replace(own, environment=declared)


def _set_up(plugin: Plugin, setup: Setup, options: PluginOptions) -> Parts | None:
    """Return the plugin's parts; None if it fails, or what it returns is invalid, and may be."""
    try:
        _check_frozen(plugin)
        return _check_parts(plugin.name, plugin.setup(setup))
    except Exception as error:
        if not options.distribution:
            raise
        from .failures import explain_failure  # loaded only where something failed

        problem = explain_failure(plugin.name, options.distribution, error, type(plugin).__module__)
        if not options.is_optional:
            raise problem from error
        setup.notice(f"{problem.detail}; it is left out")
        return None


def _collect_tools(given: Mapping[str, Parts], tools: Iterable[Tool]) -> _CollectedTools:
    """Make the passes over the tools of the program and of the plugins."""
    collected = _CollectedTools(tools)
    for name, parts in given.items():
        collected.add(name, parts.tools)
    for name, parts in given.items():
        changes = parts.catalog
        if changes.add is not None:
            collected.add(name, changes.add(Catalog(collected.tools.values())))
        if changes.replace is not None:
            collected.replace(name, changes.replace(Catalog(collected.tools.values())))
    for name, parts in given.items():
        if parts.catalog.present is not None:
            collected.present(name, parts.catalog.present)
    return collected


class _CollectedTools:
    """The tools of the program and of the plugins, each with its source."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools = {tool.full_name: tool for tool in tools}
        self.sources: dict[str, str] = {}

    def add(self, plugin: str, tools: Iterable[ToolLike]) -> None:
        for item in tools:
            tool = _make_tool(plugin, item)
            name = tool.full_name
            if name in self.tools:
                other = self.sources.get(name, "")
                raise ConfigError(
                    f"two tools are named `{name}`: from {_name_source(other)} and from the "
                    f"plugin `{plugin}` ({tool.source})",
                    code="plugin_conflict",
                    hint="leave one of them out, or give its tools a namespace",
                )
            self.tools[name] = tool
            self.sources[name] = plugin

    def replace(self, plugin: str, arranged: Iterable[Tool]) -> None:
        """Take the tools of a plugin that puts its own in the place of others."""
        sources = {
            (id(tool.handler), tool.name): self.sources.get(name)
            for name, tool in self.tools.items()
        }
        self.tools = {tool.full_name: tool for tool in Catalog(arranged)}
        self.sources = {}
        for name, tool in self.tools.items():
            source = sources.get((id(tool.handler), tool.name), plugin)
            if source is not None:
                self.sources[name] = source

    def present(self, plugin: str, present: Callable[[Sequence[Tool]], Sequence[Tool]]) -> None:
        before = self.tools
        shown = {tool.full_name: tool for tool in present(tuple(before.values()))}
        for name, tool in shown.items():
            changed = _find_changed_field(before.get(name), tool)
            if changed:
                raise ConfigError(
                    f"the plugin `{plugin}` presents `{name}` with another `{changed}`",
                    code="plugin_presents",
                    hint=f"`present` may change {', '.join(PRESENTABLE)}, and leave tools out",
                )
        self.tools = shown

    def list_names(self, plugin: str) -> frozenset[str]:
        return frozenset(name for name, source in self.sources.items() if source == plugin)


def _check_plugin(plugin: Plugin, given: Mapping[str, Parts]) -> str:
    """Return the plugin's name. Raises ConfigError if it is no plugin, or the name is taken."""
    name = getattr(plugin, "name", None)
    if isinstance(plugin, type) or not isinstance(name, str) or not hasattr(plugin, "setup"):
        shown = plugin.__name__ if isinstance(plugin, type) else type(plugin).__name__
        raise ConfigError(
            f"`{shown}` is not a plugin",
            code="plugin_invalid",
            hint=(
                f"write `{shown}()`"
                if isinstance(plugin, type)
                else "a plugin has a `name` and a method `setup` (`ferrule.plugins.Plugin`)"
            ),
        )
    if name in given:
        raise ConfigError(
            f"two plugins are named `{name}`",
            code="plugin_conflict",
            hint=f"give one `{name}` with the fields of both",
        )
    return name


def _check_frozen(plugin: Plugin) -> None:
    if is_dataclass(plugin) and type(plugin).__setattr__ is object.__setattr__:
        raise ConfigError(
            f"the plugin `{type(plugin).__name__}` can be changed, and may serve many agents",
            code="plugin_invalid",
            hint="write `@dataclass(frozen=True)`",
        )


def _check_parts(plugin: str, parts: object) -> Parts:
    if not isinstance(parts, Parts):
        raise ConfigError(
            f"`setup` of the plugin `{plugin}` returned {type(parts).__name__}",
            code="plugin_invalid",
            hint="return `Parts(...)`, and define `setup` without `async`",
        )
    for hook in parts.hooks:
        _check_hook(plugin, hook)
    # Each is read more than once.
    return replace(
        parts,
        tools=tuple(_make_tool(plugin, one) for one in parts.tools),
        agents=tuple(parts.agents),
        resources=tuple(parts.resources),
    )


def _make_tool(plugin: str, item: ToolLike) -> Tool:
    try:
        return as_tool(item)
    except ToolDefinitionError as error:
        raise ConfigError(
            f"{_name_source(plugin)}: {error.detail}", code="plugin_invalid", hint=error.hint
        ) from error


def _find_changed_field(before: Tool | None, tool: Tool) -> str:
    """Return the field that `present` must not have changed, "" if there is none."""
    if before is None:
        return "name"
    names = cast("Iterable[str]", Tool.__dataclass_fields__)
    fixed = [name for name in names if name not in PRESENTABLE]
    return next((name for name in fixed if getattr(before, name) != getattr(tool, name)), "")


def _check_hook(plugin: str, hook: object) -> None:
    """Check that a hook can be asked: a call that one that cannot would be asked of is refused."""
    if isinstance(hook, event_hooks.EventHook | event_hooks.Hooks):
        return
    if not all(callable(getattr(hook, method, None)) for method in ("before", "after")):
        raise ConfigError(
            f"{_name_source(plugin)}: {hook!r} is not a hook",
            hint="give an object with the methods `before` and `after`, or an `EventHook`",
        )


def _check_resources(given: Mapping[str, Parts]) -> None:
    """Raise ConfigError for two resources of one type."""
    sources: dict[type, str] = {}
    for name, parts in given.items():
        for item in parts.resources:
            kind = type(item)
            if kind in sources:
                raise ConfigError(
                    f"two resources are a `{kind.__name__}`: of {_name_source(sources[kind])} and "
                    f"of {_name_source(name)}",
                    code="plugin_conflict",
                    hint="tools find resources by their type: leave one out",
                )
            sources[kind] = name


def _name_program(given: Mapping[str, Parts]) -> str:
    """Return the name under which what the program adds itself is kept, also if it is not all."""
    count = sum(name.startswith(PROGRAM) for name in given)
    return PROGRAM + " " * count


def _name_source(plugin: str) -> str:
    if not plugin or plugin.startswith(PROGRAM):
        return PROGRAM
    return f"the plugin `{plugin}`"


def _find_registration(given: Mapping[str, Parts]) -> registration.RegistrationLimits | None:
    limits = (parts.internals.registration for parts in given.values())
    return next((one for one in limits if one is not None), None)


def _list_lifetimes(given: Mapping[str, Parts]) -> tuple[tuple[str, LifetimeMaker], ...]:
    return tuple(
        (name, parts.lifetime) for name, parts in given.items() if parts.lifetime is not None
    )


def _find_address(model: str) -> str:
    from ferrule.engine.telemetry.names import find_model_address

    return find_model_address(model)
