"""What a plugin is: one method, which returns one value.

    @dataclass(frozen=True)
    class Greeting:
        name: ClassVar[str] = "greeting"
        language: str = "en"

        def setup(self, setup: Setup) -> Parts:
            return Parts(instructions=f"Greet people in `{self.language}`.")

    Agent("ollama:llama3.2", plugins=[Greeting("nl")])

Which part to choose: a tool for the model: `tools`; refuse, change or redact: `hooks`; watch:
`observers`; state that tools share: `resources`; something to open and to close: `lifetime`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from pathlib import Path
from typing import ClassVar, Protocol, runtime_checkable

from ferrule import sandbox, storage
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen, options
from ferrule.engine import delegation, event_bus, registration
from ferrule.engine import hooks as event_hooks
from ferrule.engine.driver import Driver, DriverExtension
from ferrule.engine.hooks.call_hooks import Hook
from ferrule.models.client import ModelClient
from ferrule.permissions import filesystem
from ferrule.permissions.protected_names import DEFAULT_NAMES, ProtectedNames
from ferrule.permissions.rule_evaluation import Rules
from ferrule.tools.catalog import Catalog, ToolLike
from ferrule.tools.definition import Tool


@frozen
class SetupInternals:
    """What plugins that ship with Ferrule need of a run besides. It may change with any version.

    Attributes:
        find_address: Returns the URL of a model's server by its full name, "" if unknown.
        rules: What calls and paths are allowed.
        remark: Tells the person one sentence that `--quiet` leaves out.
        is_named: Returns whether the settings or a plugin's agent name a tool; asked once all
            plugins are set up.
        settings_folder: The person's settings folder. None in a program: nothing of theirs is read.
        repository: The configuration of the workspace, as it was read once. None in a program.
        names: The protected names of the workspace, without the deny rules.
        origins: Where the plugin's fields were set, by their names.
    """

    find_address: Callable[[str], str]
    rules: Rules
    remark: Callable[[str], None]
    is_named: Callable[[str], bool]
    settings_folder: Path | None = None
    repository: storage.ConfigurationSnapshot | None = None
    names: ProtectedNames = DEFAULT_NAMES
    origins: Mapping[str, str] = field(default_factory=dict[str, str])


@frozen
class Setup:
    """What a plugin may use while it is set up. Nothing in it reaches into an agent.

    Attributes:
        model: The agent's model, as `provider:model`.
        workspace: The folder of file tools, with the deny rules of the run; the agent closes it.
        state: Makes and returns this plugin's own folder, outside every workspace.
        notice: Tells the person one sentence.
        environment: The variables that the plugin's manifest declares; all of them without one.
        confine: For programs that the plugin starts: the limits of commands. None without a
            sandbox policy.
        connect: Returns a client of another model. Raises ConfigError.
        internals: What plugins that ship need besides.
    """

    model: str
    workspace: filesystem.Workspace | None
    state: Callable[[], Path]
    notice: Callable[[str], None]
    environment: Mapping[str, str]
    confine: sandbox.SandboxPolicy | None
    connect: Callable[[str], ModelClient]
    internals: SetupInternals


class BusListener(Protocol):
    """Listens to a bus, perhaps with scopes of its own (`Bus.add_scope`)."""

    def listen(self, bus: event_bus.Bus) -> None:
        """Begin; called once for each agent of the bus."""
        ...

    def leave(self, bus: event_bus.Bus) -> None:
        """End; called as often."""
        ...


class LeftOutFile(Protocol):
    """A file that is left out because it is invalid."""

    @property
    def kind(self) -> str:
        """What it would have defined: `tool`, `agent`."""
        ...

    @property
    def name(self) -> str:
        """The name of that."""
        ...

    @property
    def detail(self) -> str:
        """What is wrong, beginning with its place."""
        ...

    @property
    def hint(self) -> str:
        """What to do about it, or ""."""
        ...


@frozen
class CatalogChanges:
    """What a plugin does with the tools of others.

    Attributes:
        add: Returns more tools, from those so far: of all plugins, and what the plugins before this
            one made of them.
        replace: Returns all tools from those so far, with its own in the place of others, which may
            get another namespace and loading. For tools that people wrote to replace one.
        present: Returns the tools as models see them: with another description, other arguments,
            examples or loading, or without some. All else must stay as it is.
    """

    add: Callable[[Catalog], Iterable[ToolLike]] | None = None
    replace: Callable[[Catalog], Iterable[Tool]] | None = None
    present: Callable[[Sequence[Tool]], Sequence[Tool]] | None = None


@frozen
class PartsInternals:
    """What plugins that ship with Ferrule add besides. It may change with any version.

    Attributes:
        listeners: Told the agent's bus, where watching needs more than events.
        extensions: Each is called with the driver of a session, and returns what takes part in its
            steps. Sessions of sub-agents get none.
        registration: Lets sessions gain so many tools, hooks and agents while they run.
        watched: Files and folders that this was made of, for interfaces that reload.
        left_out: Invalid files. A reload that would leave out more is not done.
    """

    listeners: Sequence[BusListener] = ()
    extensions: Sequence[Callable[[Driver], DriverExtension]] = ()
    registration: registration.RegistrationLimits | None = None
    watched: Sequence[Path] = ()
    left_out: Sequence[LeftOutFile] = ()


NO_CHANGES = CatalogChanges()
NO_INTERNALS = PartsInternals()


@options
class Parts:
    """What a plugin adds to an agent. Everything is optional.

    A program gives an agent its own hooks, sub-agents and resources as one of these:
    `Agent(model, tools, plugins=[Parts(hooks=[guard])])`.

    Attributes:
        tools: Tools, plain functions or dictionaries, as `Agent` takes them.
        instructions: Text for the model; or a function that is called with the tools of a session
            when it begins. A text is left out where the plugin has tools and the session none of
            them.
        hooks: Asked around calls, or on events.
        agents: Sub-agents that sessions may delegate to.
        delegation: The limits of that; with them sessions may delegate without any of these.
        resources: Objects that tools find by their type with `Context.resource`, those of other
            plugins too.
        observers: See every event of the agent's bus, in the thread of its run; they must be quick.
            One that raises is removed.
        lifetime: A function without parameters that returns an async context manager, as one with
            `@asynccontextmanager` does. That is entered before the first session starts and left
            when the agent is closed, both in one task; several times, if the event loop ends.
        catalog: What it does with the tools of others.
        internals: What plugins that ship add besides.
    """

    tools: Iterable[ToolLike] = ()
    instructions: str | Callable[[Catalog], str] = ""
    hooks: Sequence[Hook | event_hooks.EventHook | event_hooks.Hooks] = ()
    agents: Iterable[delegation.SubAgent] = ()
    delegation: delegation.DelegationLimits | None = None
    resources: Iterable[object] = ()
    observers: Sequence[Callable[[event_bus.BusEvent], None]] = ()
    lifetime: Callable[[], AbstractAsyncContextManager[object]] | None = None
    catalog: CatalogChanges = NO_CHANGES
    internals: PartsInternals = NO_INTERNALS

    def __post_init__(self) -> None:
        """Raise ConfigError here, at the author's own line, for a value of another shape."""
        for name in ("tools", "hooks", "agents", "resources", "observers"):
            value = getattr(self, name)
            if isinstance(value, str) or not isinstance(value, Iterable):
                raise _build_shape_error(name, value, "a list")
        if not isinstance(self.instructions, str) and not callable(self.instructions):
            raise _build_shape_error("instructions", self.instructions, "a text or a function")
        if self.lifetime is not None and not callable(self.lifetime):
            raise _build_shape_error(
                "lifetime", self.lifetime, "a function that returns an async context manager"
            )


def _build_shape_error(name: str, value: object, expected: str) -> ConfigError:
    return ConfigError(
        f"`Parts({name}=...)` must be {expected}; found a `{type(value).__name__}`",
        code="plugin_invalid",
        hint="docs/plugins.md has an example of each part",
    )


class Plugin(Protocol):
    """Something that can be added to an agent: a frozen value whose fields are its settings."""

    name: ClassVar[str]

    def setup(self, setup: Setup) -> Parts:
        """Return what this plugin adds. Called once per agent; sync, and without network."""
        ...


@runtime_checkable
class ProtectsNames(Protocol):
    """A plugin that starts programs of the workspace, which commands must not replace."""

    def list_protected_names(self, workspace: Path) -> tuple[str, ...]:
        """Return patterns of names below the workspace, before anything is set up."""
        ...
