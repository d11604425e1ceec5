"""Describe a tool in one value: for the model, permissions, the scheduler and people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field, replace
from enum import StrEnum
from typing import Any, Protocol, cast

from ferrule.core.calls import encode_json
from ferrule.core.events import EVERYTHING, EXCLUSIVE, Access
from ferrule.core.value_class import frozen, mutable
from ferrule.core.vocabulary import Risk, SideEffect

from .outcome_probe import Probe
from .reliability import Reliability


class Loading(StrEnum):
    """When the model learns about a tool.

    `ALWAYS`: from the start. `DEFERRED`: once a search has found it. `INTERNAL`: never; only other
    tools call it.
    """

    ALWAYS = "always"
    DEFERRED = "deferred"
    INTERNAL = "internal"


@frozen
class Touch:
    """Marks a parameter that permissions must look at: `path: Annotated[str, READS]`.

    `kind` is `read` or `write` (a workspace path), `command` (text or argv of a program),
    `variables` (a mapping: additions to a command's environment) or `url`.
    """

    kind: str


BUILTIN_NAMESPACE = "ferrule"
"""The namespace of a built-in tool whose name is taken by a tool of a file."""

SEARCH_TOOLS_SOURCE = "ferrule tool search"
"""The source of the tools that find others (`engine.tool_search.search_tools`).

A run without a tool search is not shown them.
"""

PROVIDER_TYPE = "provider_type"
"""Annotation of a tool that a provider's API knows as a type of its own: the type's name."""

READS = Touch("read")
WRITES = Touch("write")
COMMAND = Touch("command")
VARIABLES = Touch("variables")
URL = Touch("url")


@frozen
class Subject:
    """Something one call touches: `Touch.kind` and the value of the marked argument.

    Variables are written `NAME=value`.
    """

    kind: str
    value: str | tuple[str, ...]


class Arguments(Protocol):
    """Checks the arguments of a tool. Made by `tools.decorator`, `tools.define` or a tool source.

    Contract: `check` never raises and does no I/O. On success `problems` is empty and `values`
    holds what the handler gets; `repairs` describes what was changed (`"limit": "5" -> 5`).
    """

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema (2020-12) of the arguments: an object. Byte-stable across processes."""
        ...

    def check(self, arguments: Mapping[str, Any]) -> CheckedArguments: ...


@mutable
class CheckedArguments:
    """The result of a check: values for the handler, or problems that a model can act on."""

    values: dict[str, Any]
    problems: list[str]
    repairs: list[str]


class Output(Protocol):
    """Checks and encodes what a handler returned."""

    @property
    def schema(self) -> Mapping[str, Any]: ...

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        """Return the value as JSON types, and its problems against the schema. Never raises."""
        ...


def misfit_notice(tool: Tool, problems: Sequence[str]) -> str:
    """Return a notice that a result does not fit its tool's output schema.

    The call took effect, so this is not a failure and no reason to call again.
    """
    shown = "; ".join(problems[:8])
    return (
        f"[note: `{tool.name}` ran; its result is as it came and does not fit the tool's own "
        f"schema: {shown[:1000]}]"
    )


class Preview(Protocol):
    """Shows a person what a call would do, without doing it: a unified diff, the command line.

    It raises ToolFailed where the call would fail: the person sees why, beside the arguments. So
    they do after any other error.
    """

    async def __call__(self, values: Mapping[str, Any], context: Any) -> str: ...


@frozen
class Confinement:
    """What the kernel holds commands to, where it holds them to all that settings require.

    `readable` and `own` are folders that a command has besides the workspace: of the machine to
    read, and of its session alone, which no one else sees.
    """

    readable: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    """Those of `own` that file tools see under the same name."""
    has_loopback: bool = False
    """Whether `localhost` is the session's own, where nothing but its commands answers."""
    runs_machine_program: Callable[[str], bool] = lambda name: True
    """Whether a name, or path, starts a program that no command can have written."""


FindConfinement = Callable[[Mapping[type, object]], Confinement | None]
"""Takes what a run was given, by type (`Context.resources`).

It returns what the kernel holds the commands of that run to; None: to less than is required. It
starts no command and changes nothing.
"""


@frozen
class ConfinedHandler:
    """A claim of a tool's author: the handler starts commands in what `find` describes alone.

    Nothing is verified: the claim is code of the program, which chooses its tools and trusts them.
    It cannot be made by accident, though. It names its handler, so that a copy of a tool with
    another handler has none; it is a field of `Tool`, which no wrapper of a function copies; and
    neither files nor servers nor annotations can set it.
    """

    handler: Callable[..., Any]
    find: FindConfinement


@frozen
class Tool:
    """A tool as the rest of Ferrule sees it.

    Attributes:
        arguments: Checks the arguments. `arguments.schema` is the JSON Schema that models see.
        handler: Takes the checked values by keyword, and a `Context` under `context_parameter` if
            that is set. Sync handlers run in a thread, async ones on the event loop. It returns
            text or a JSON-compatible value, or raises `ToolFailed`.
        deps_type: The type of the dependencies that its `Context[...]` asks for.
        side_effect: With `risk`, decides whether a call needs an approval.
        touches: Maps parameter names to what their values name.
        polls: Exempts the tool from the check for repeated calls.
        parallel: False keeps a call from running together with others. A function says of the
            arguments whether the call only reads, and so may run together with what reads too.
        inline: Results are already parts of something, with a way to read on; they are never kept
            as artifacts.
        probe: Finds out whether a call happened (`tools.outcome_probe`).
        annotations: Further facts for programs; they decide nothing here (`tools.toolset` sets
            `key`, `groups` and `defer_loading`).
        find_more: Returns the tools that its source has gained since it was listed. It is asked
            before each request of a session to its model; it is quick where nothing is new, and
            never raises.
        command_form: Returns the command, as words, that a call amounts to. Deny and ask rules
            about commands (`Bash(git push:*)`) bind the tool as they bind that command.
        impossible: Returns, for the model, why values that fit the schema can never work. Must be
            quick and do no I/O: it runs before any permission rule is evaluated and before a
            person is asked.
        confined: What its author says of the handler: the kernel confines whatever it starts.
            `@tool(confined_by=...)` sets it, `wrap` keeps it; for another handler it does not
            count.
    """

    _: KW_ONLY
    name: str
    description: str
    arguments: Arguments
    handler: Callable[..., Any]
    output: Output | None = None
    side_effect: SideEffect = SideEffect.UNDECLARED
    risk: Risk = Risk.SAFE
    touches: Mapping[str, Touch] = field(default_factory=dict[str, Touch])
    reliability: Reliability = Reliability()
    idempotent: bool = False
    is_async: bool = False
    context_parameter: str | None = None
    deps_type: Any = Any
    polls: bool = False
    parallel: bool | Callable[[Mapping[str, Any]], bool] = True
    preview: Preview | None = None
    namespace: str = ""
    scopes: frozenset[str] = frozenset()
    loading: Loading = Loading.ALWAYS
    cost: str = ""
    latency: str = ""
    examples: tuple[Mapping[str, Any], ...] = ()
    source: str = "python"
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    inline: bool = False
    probe: Probe | None = None
    impossible: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    command_form: Callable[[Mapping[str, Any]], tuple[str, ...]] | None = None
    find_more: Callable[[], Awaitable[Sequence[Tool]]] | None = None
    confined: ConfinedHandler | None = None

    @property
    def full_name(self) -> str:
        """The name used in rules, journals and the catalog: `namespace::name`."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name

    @property
    def offered_description(self) -> str:
        """The description as a model gets it: with the hints about cost and latency, if any."""
        hints = [
            f"{name}: {hint}"
            for name, hint in (("cost", self.cost), ("latency", self.latency))
            if hint
        ]
        return f"{self.description}\n({'; '.join(hints)})" if hints else self.description

    @property
    def rule_name(self) -> str:
        """The name for permission rules: the full name, without the namespace `ferrule`.

        A built-in tool keeps its rules when a tool of a file has taken its name.
        """
        return self.name if self.namespace == BUILTIN_NAMESPACE else self.full_name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the handler itself, without permissions or journal, as in unit tests of the tool."""
        return self.handler(*args, **kwargs)

    def find_confinement(self, resources: Mapping[type, object]) -> Confinement | None:
        """Return what the kernel holds this tool's commands to in a run; None: to nothing known.

        Args:
            resources: What the run was given, as `Context.resources`.
        """
        if self.confined is None or self.confined.handler is not self.handler:
            return None
        return self.confined.find(resources)

    def wrap(self, handler: Callable[..., Any], **changes: Any) -> Tool:
        """Return this tool with a handler that calls this one's and starts nothing of its own."""
        confined = self.confined
        if confined is not None and confined.handler is self.handler:
            confined = replace(confined, handler=handler)
        return replace(self, handler=handler, confined=confined, **changes)

    def schema_json(self) -> str:
        """Return the argument schema as compact JSON."""
        return encode_json(self.arguments.schema)

    def find_problems(self, values: Mapping[str, Any]) -> list[str]:
        """Return why these checked values can never work; empty if they can."""
        found = [
            f"{name}: it names no program"
            for name, touch in self.touches.items()
            if touch.kind == "command" and _is_blank(values.get(name))
        ]
        if self.impossible is not None:
            found.extend(self.impossible(values))
        return found

    @property
    def declared_side_effect(self) -> str:
        """The side effect as a word, or "" if none is declared."""
        undeclared = self.side_effect is SideEffect.UNDECLARED
        return "" if undeclared else str(self.side_effect)

    @property
    def is_repeatable(self) -> bool:
        """Whether a second run cannot do harm: the tool only reads or is idempotent."""
        return self.idempotent or self.side_effect in (SideEffect.NONE, SideEffect.READ)

    def subjects(self, values: Mapping[str, Any]) -> tuple[Subject, ...]:
        """Return what these arguments touch. Paths are as given; permissions normalise them."""
        found: list[Subject] = []
        for parameter, touch in self.touches.items():
            value = values.get(parameter)
            if isinstance(value, str):
                found.append(Subject(touch.kind, value))
            elif isinstance(value, Mapping) and touch.kind in ("read", "write"):
                # A file described by an object: only its path names something of the workspace.
                path = cast("Mapping[object, object]", value).get("path")
                if isinstance(path, str):
                    found.append(Subject(touch.kind, path))
            elif isinstance(value, Mapping):
                pairs = cast("Mapping[object, object]", value).items()
                found.append(Subject(touch.kind, tuple(f"{name}={text}" for name, text in pairs)))
            elif isinstance(value, (list, tuple)):
                items = tuple(str(item) for item in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                if touch.kind == "command":
                    found.append(Subject(touch.kind, items))
                else:
                    found.extend(Subject(touch.kind, item) for item in items)
        return tuple(found)

    def brings_content(self, values: Mapping[str, Any]) -> bool:
        """Return whether a call brings the content of every file that it reads.

        True for a tool that only reads, if each of its files is an object with `base64` and no
        `path`.
        """
        kinds = {touch.kind for touch in self.touches.values()}
        if self.side_effect is not SideEffect.READ or kinds != {"read"}:
            return False
        given = [values.get(name) for name in self.touches]
        return all(isinstance(value, Mapping) and "base64" in value for value in given) and (
            not self.subjects(values)
        )

    def access(self, values: Mapping[str, Any]) -> Access:
        """Return which other calls of the turn this one must not overlap with.

        A tool that declares nothing overlaps with all but those that touch the same paths.
        """
        if callable(self.parallel):
            return Access(reads=("",)) if self.parallel(values) else EXCLUSIVE
        if not self.parallel:
            return EXCLUSIVE
        if self.side_effect is SideEffect.NONE:
            return Access()
        if self.side_effect in (SideEffect.EXECUTE, SideEffect.EXTERNAL):
            return EVERYTHING
        subjects = self.subjects(values)
        paths = {
            kind: tuple(_path_prefix(subject.value) for subject in subjects if subject.kind == kind)
            for kind in ("read", "write")
        }
        if self.side_effect is SideEffect.UNDECLARED:
            return Access(reads=paths["read"], writes=paths["write"])
        if self.side_effect is SideEffect.READ:
            return Access(reads=paths["read"] or ("",))
        return Access(reads=paths["read"], writes=paths["write"] or ("",))


def _is_blank(command: object) -> bool:
    """Return whether a command is given but names no program."""
    if isinstance(command, str):
        return not command.strip()
    if isinstance(command, (list, tuple)):
        return not command or not str(cast("Sequence[object]", command)[0]).strip()
    return False


def _path_prefix(path: object) -> str:
    """Return a path prefix for `Access`; "" stands for the whole workspace.

    Any unusual path means the whole workspace: calls that wait for each other needlessly are safe.
    """
    parts = [part for part in str(path).split("/") if part not in ("", ".")]
    if ".." in parts or str(path).startswith(("/", "~")):
        return ""
    return "/".join(parts)
