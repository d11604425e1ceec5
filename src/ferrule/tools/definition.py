"""What a tool is. One value describes it for the model, the gate, the scheduler and the person."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, cast

from ferrule.core.calls import compact
from ferrule.core.events import ALONE, EVERYTHING, Access
from ferrule.core.frozen import frozen

from .reliability import Reliability

if TYPE_CHECKING:
    from .outcome_probe import Probe


class SideEffect(StrEnum):
    """What a tool does to the world. `UNDECLARED` is treated as the worst for retries and order."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    EXTERNAL = "external"
    UNDECLARED = "undeclared"


class Loading(StrEnum):
    """When the model learns of a tool. `DEFERRED`: once a search found it. `INTERNAL`: never, it is
    for other tools to call.
    """

    ALWAYS = "always"
    DEFERRED = "deferred"
    INTERNAL = "internal"


class Risk(StrEnum):
    """How much a person should mind: safe runs, low asks once a session, medium and high ask
    (high with a preview), critical always asks."""

    SAFE = "safe"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


@frozen
class Touch:
    """Marks a parameter as naming something the gate must know of: `path: Annotated[str, READS]`.

    `kind` is `read` or `write` (a workspace path), `command` (text or argv of a program),
    `variables` (a mapping: what a command's environment gets besides) or `url`.
    """

    kind: str


OWN = "ferrule"
"""The namespace that a tool of Ferrule's own goes to where a file has taken its name."""

FINDERS = "ferrule tool search"
"""The source of the tools that find others (`engine.tool_search.tools`): a run without a search is
not shown them.
"""

READS = Touch("read")
WRITES = Touch("write")
COMMAND = Touch("command")
VARIABLES = Touch("variables")
URL = Touch("url")


@frozen
class Subject:
    """What one call touches: `Touch.kind` and the value of the marked argument; variables as
    `NAME=value`.
    """

    kind: str
    value: str | tuple[str, ...]


class Arguments(Protocol):
    """Checks the arguments of a tool. Made by `tools.signature`, `tools.define` or a source.

    Contract: `check` never raises and does no I/O; on success `problems` is empty and `values`
    holds what the handler gets; `repairs` says in words what was changed on the way (`"limit": "5"
    -> 5`).
    """

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema (2020-12) of the arguments: an object. Byte-stable across processes."""
        ...

    def check(self, arguments: Mapping[str, Any]) -> Checked: ...


@dataclass(slots=True)
class Checked:
    """What came of checking: handler values, or problems in words a model can act on."""

    values: dict[str, Any]
    problems: list[str]
    repairs: list[str]


class Output(Protocol):
    """Checks and encodes what a handler returned."""

    @property
    def schema(self) -> Mapping[str, Any]: ...

    def encode(self, value: Any) -> tuple[Any, list[str]]:
        """The JSON-able value and its problems against the schema. Never raises."""
        ...


def misfit(tool: Tool, problems: Sequence[str]) -> str:
    """A notice that a value does not fit what its tool promised. The call took effect: it is no
    failure, and no reason to call again.
    """
    shown = "; ".join(problems[:8])
    return (
        f"[note: `{tool.name}` ran; its result is as it came and does not fit the tool's own "
        f"schema: {shown[:1000]}]"
    )


class Preview(Protocol):
    """Shows a person what a call would do, without doing it: a unified diff, the command line."""

    async def __call__(self, values: Mapping[str, Any], context: Any) -> str: ...


@frozen
class Tool:
    """A tool as everything else in Ferrule sees it.

    `handler` takes the checked values by keyword (and a `Context` under `context_parameter` if that
    is set); sync handlers run in a thread, async ones on the loop. It returns text or a JSON-able
    value, or raises `ToolFailed`. `risk` and `side_effect` steer the gate; `touches` maps parameter
    names to what they name; `polls` exempts a tool from the repeat breaker; `parallel=False` keeps
    it alone; `inline` says that its results are parts already, with a way to read on: they are
    never kept as artifacts. `probe` finds out whether a call happened (`tools.outcome_probe`).
    `annotations` are further facts for programs, which decide nothing here (`tools.toolset` lists
    those it sets).
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
    polls: bool = False
    parallel: bool = True
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
    """Say what is wrong with values that fit the schema and can never work, for the model. Quick,
    without I/O: it runs before any rule is looked at and before a person is asked.
    """

    @property
    def full_name(self) -> str:
        """`namespace::name`, the name used in rules, journals and the catalog."""
        return f"{self.namespace}::{self.name}" if self.namespace else self.name

    @property
    def known_as(self) -> str:
        """What guards know it by: the full name, and its own where it had to give that to a tool of
        a file.
        """
        return self.name if self.namespace == OWN else self.full_name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, without gate or journal: for the tool's own unit tests."""
        return self.handler(*args, **kwargs)

    def schema_json(self) -> str:
        """The argument schema as compact JSON; the catalog keeps it, so that it is encoded once."""
        return compact(self.arguments.schema)

    def problems_of(self, values: Mapping[str, Any]) -> list[str]:
        """What makes these checked values impossible, by what they name and by what the tool says
        itself.
        """
        found = [
            f"{name}: it names no program"
            for name, touch in self.touches.items()
            if touch.kind == "command" and _is_blank(values.get(name))
        ]
        if self.impossible is not None:
            found.extend(self.impossible(values))
        return found

    @property
    def repeatable(self) -> bool:
        """True if running it again cannot do harm: it only reads, or says it is idempotent."""
        return self.idempotent or self.side_effect in (SideEffect.NONE, SideEffect.READ)

    def subjects(self, values: Mapping[str, Any]) -> tuple[Subject, ...]:
        """What these arguments touch. Paths are as given; the gate normalises them."""
        found: list[Subject] = []
        for parameter, touch in self.touches.items():
            value = values.get(parameter)
            if isinstance(value, str):
                found.append(Subject(touch.kind, value))
            elif isinstance(value, Mapping):
                pairs = cast("Mapping[object, object]", value).items()
                found.append(Subject(touch.kind, tuple(f"{name}={text}" for name, text in pairs)))
            elif isinstance(value, (list, tuple)):
                items = tuple(str(v) for v in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                if touch.kind == "command":
                    found.append(Subject(touch.kind, items))
                else:
                    found.extend(Subject(touch.kind, item) for item in items)
        return tuple(found)

    def access(self, values: Mapping[str, Any]) -> Access:
        """Which other calls of the round this one must not overlap with."""
        if not self.parallel:
            return ALONE
        if self.side_effect is SideEffect.NONE:
            return Access()
        if self.side_effect not in (SideEffect.READ, SideEffect.WRITE):
            return EVERYTHING
        subjects = self.subjects(values)
        paths = {
            kind: tuple(_key(s.value) for s in subjects if s.kind == kind)
            for kind in ("read", "write")
        }
        if self.side_effect is SideEffect.READ:
            return Access(reads=paths["read"] or ("",))
        return Access(reads=paths["read"], writes=paths["write"] or ("",))


def _is_blank(command: object) -> bool:
    """Whether a command is given and has no word in it."""
    if isinstance(command, str):
        return not command.strip()
    if isinstance(command, (list, tuple)):
        return not command or not str(cast("Sequence[object]", command)[0]).strip()
    return False


def _key(path: object) -> str:
    """A path prefix for `Access`. Anything unusual means the whole workspace: too much order is
    safe.
    """
    parts = [part for part in str(path).split("/") if part not in ("", ".")]
    return "" if ".." in parts or str(path).startswith(("/", "~")) else "/".join(parts)
