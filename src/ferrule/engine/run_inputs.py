"""What a program gives to its runs: dependencies for tools, and instructions that functions say.

Dependencies are the object that `Agent(deps_type=...)` promises; instructions are worked out once
for each run (`Agent(instructions=[..., today])`).
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from types import UnionType
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from ferrule.core.errors import ConfigError, FerruleError
from ferrule.core.identity import Identity
from ferrule.core.value_class import frozen
from ferrule.tools.context import Context, find_deps_type, is_context
from ferrule.tools.definition import Tool

InstructionFunction = Callable[..., str | None] | Callable[..., Awaitable[str | None]]
Instructions = str | InstructionFunction | Iterable[str | InstructionFunction]
"""What an agent takes: a text, a function, or several of both."""


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""No dependencies were given; None may be the dependencies of an agent."""


def check_wanted_deps(owner: str, wanted: Any, deps_type: Any) -> None:
    """Check that an agent's dependencies are what a tool or a function asks for.

    Protocols that cannot be checked at run time are left to the type checker.

    Args:
        owner: What asks for them, for the error.
        wanted: The type in its `Context[...]`; Any if it asks for none.
        deps_type: The agent's.

    Raises:
        ConfigError: They are not.
    """
    if wanted is Any or deps_type is Any or _is_within(deps_type, wanted):
        return
    if deps_type is None:
        raise ConfigError(
            f"{owner} needs dependencies of type `{_name(wanted)}`, and the agent has none",
            hint=f"pass deps_type={_name(wanted)} to the Agent, and deps=... to its runs",
        )
    raise ConfigError(
        f"{owner} needs dependencies of type `{_name(wanted)}`, and the agent's are "
        f"`{_name(deps_type)}`",
        hint="give it an agent with other dependencies, or change its `Context[...]`",
    )


class Dependencies:
    """The dependencies of a session's runs: what tools and functions find as `Context.deps`.

    Args:
        deps_type: Their type (`Agent(deps_type=...)`); None without any.
        make: Makes those of a run that is given none (`Host.make_deps`).
        earlier: Those of the session that this one continues.
    """

    def __init__(
        self,
        deps_type: Any,
        make: Callable[[Identity], Any] | None = None,
        earlier: Dependencies | None = None,
    ) -> None:
        self.value: object = None if earlier is None else earlier.value
        self._type = deps_type
        self._make = make
        self._is_given = earlier is not None and earlier._is_given

    def give(self, deps: Any) -> None:
        """Take dependencies, from now on. Raises ConfigError if they are of another type."""
        check_deps(deps, self._type)
        self._is_given = True
        self.value = deps

    async def provide(self, identity: Identity) -> None:
        """Make the dependencies of a run or call, unless the session was given some.

        Raises:
            ConfigError: There are none and nothing makes them, or they are of another type.
        """
        if self._is_given or self._type is None:
            return
        if self._make is None:
            check_deps(UNSET, self._type)
            return
        # For this run alone: the next one gets its own.
        self.value = await make_deps(self._make, identity, self._type)


def check_tools(tools: Iterable[Tool], deps_type: Any) -> None:
    """Check that an agent's dependencies are what its tools ask for. Raises ConfigError."""
    for tool in tools:
        if tool.deps_type is not Any:
            check_wanted_deps(f"tool `{tool.full_name}`", tool.deps_type, deps_type)


def check_deps(deps: object, deps_type: Any) -> None:
    """Check the dependencies that a run was given.

    Raises:
        ConfigError: There are none and the agent needs them, or they are of another type.
    """
    if deps is UNSET:
        if deps_type is None or _accepts(None, deps_type):
            return
        raise ConfigError(
            f"the agent needs dependencies of type `{_name(deps_type)}`, and the run was given "
            "none",
            hint="pass deps=... to the run or to the session, or Host(make_deps=...) to the agent",
        )
    if deps_type is None and deps is not None:
        raise ConfigError(
            f"the run was given dependencies of type `{type(deps).__name__}`, and the agent has "
            "none",
            hint=f"pass deps_type={type(deps).__name__} to the Agent",
        )
    if not _accepts(deps, deps_type):
        raise ConfigError(
            f"the agent needs dependencies of type `{_name(deps_type)}`, and the run was given "
            f"`{type(deps).__name__}`"
        )


def _is_within(given: Any, wanted: Any) -> bool:
    """Return whether every value of one type is one of the other, as far as that can be known."""
    if given == wanted:
        return True
    if get_origin(given) in (Union, UnionType):
        return all(_is_within(one, wanted) for one in get_args(given))
    if get_origin(wanted) in (Union, UnionType):
        return any(_is_within(given, one) for one in get_args(wanted))
    if given is None or wanted is None:
        return False
    return _is_subclass(get_origin(given) or given, get_origin(wanted) or wanted)


async def make_deps(make: Callable[[Identity], Any], identity: Identity, deps_type: Any) -> Any:
    """Return the dependencies of a run, made by a function of the program, which may be async.

    Raises:
        ConfigError: The function failed, or made another type.
    """
    try:
        made = make(identity)
        if inspect.isawaitable(made):
            made = await made
    except FerruleError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the dependencies of the run could not be made: {type(error).__name__}: {error}",
            code="deps",
            hint="`Host(make_deps=...)` makes them; see the cause",
        ) from error
    check_deps(made, deps_type)
    return made


def _accepts(deps: object, deps_type: Any) -> bool:
    if deps_type in (Any, object):
        return True
    if deps_type is None:
        return deps is None
    if get_origin(deps_type) in (Union, UnionType):
        return any(_accepts(deps, one) for one in get_args(deps_type))
    kind = get_origin(deps_type) or deps_type
    if _is_unchecked(kind):
        return True
    return isinstance(deps, kind)


def _is_subclass(given: Any, wanted: Any) -> bool:
    if _is_unchecked(wanted):
        return True
    return isinstance(given, type) and issubclass(given, wanted)


def _is_unchecked(kind: Any) -> bool:
    """Return whether nothing can be checked at run time: a protocol, a typed dict, an alias."""
    if not isinstance(kind, type):
        return True
    is_protocol = getattr(kind, "_is_protocol", False)
    return bool(is_protocol) or hasattr(kind, "__required_keys__")


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)


@frozen
class _Instruction:
    """One function, and whether it takes the `Context` of the run."""

    function: InstructionFunction
    takes_context: bool


class RunInstructions:
    """The functions that are asked once at the start of each run.

    What they say is part of the event that begins the run: a replay or a resumed run asks none.
    """

    def __init__(self, functions: Sequence[InstructionFunction], deps_type: Any) -> None:
        self._functions = [_read_function(one, deps_type) for one in functions]

    async def evaluate(self, context: Context[Any]) -> str:
        """Return what the functions say, a paragraph each. Raises what a function raises.

        An empty text or None says nothing. Functions that are not async run in a thread.
        """
        said = [await _ask(one, context) for one in self._functions]
        return "\n\n".join(text.strip() for text in said if text.strip())


def parse_instructions(given: Instructions, deps_type: Any) -> tuple[str, RunInstructions | None]:
    """Return the text that is the same in every run, and the functions; None if there are none.

    Raises:
        ConfigError: One is neither a text nor a function, or a function cannot be called.
    """
    if isinstance(given, str):
        return given, None
    parts: list[Any] = [given]
    if not callable(given) and isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  said by programs
        parts = [*given]
    texts: list[str] = []
    functions: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part.strip())
        elif callable(part):
            functions.append(part)
        else:
            raise ConfigError(
                f"instructions: found {part!r}", hint="give texts and functions that return one"
            )
    text = "\n\n".join(filter(None, texts))
    return text, RunInstructions(functions, deps_type) if functions else None


def _read_function(function: InstructionFunction, deps_type: Any) -> _Instruction:
    name = getattr(function, "__name__", type(function).__name__)
    parameters = list(inspect.signature(function).parameters.values())
    needed = [one for one in parameters if one.default is inspect.Parameter.empty]
    if len(needed) > 1:
        raise ConfigError(
            f"instructions: the function `{name}` takes {len(needed)} values",
            hint="it may take one, the `Context` of the run",
        )
    if not parameters:
        return _Instruction(function, takes_context=False)
    first = parameters[0]
    try:
        annotation = get_type_hints(function).get(first.name, Context)
    except NameError as error:
        raise ConfigError(f"instructions: the function `{name}`: {error}") from error
    if not is_context(annotation):
        if needed:
            raise ConfigError(
                f"instructions: the parameter `{first.name}` of `{name}` is no `Context`",
                hint="only the `Context` of the run can be given",
            )
        return _Instruction(function, takes_context=False)
    check_wanted_deps(f"the function `{name}`", find_deps_type(annotation), deps_type)
    return _Instruction(function, takes_context=True)


async def _ask(instruction: _Instruction, context: Context[Any]) -> str:
    function = cast("Callable[..., Any]", instruction.function)
    given = (context,) if instruction.takes_context else ()
    if inspect.iscoroutinefunction(function):
        said = await function(*given)
    else:
        said = await asyncio.to_thread(function, *given)
        if inspect.isawaitable(said):
            said = await said
    if said is None:
        return ""
    if not isinstance(said, str):
        name = getattr(function, "__name__", type(function).__name__)
        raise ConfigError(
            f"instructions: the function `{name}` returned {type(said).__name__}, not text"
        )
    return said
