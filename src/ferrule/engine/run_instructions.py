"""Instructions that functions of a program say for each run: `Agent(instructions=[..., today])`."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast, get_type_hints

from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.tools.context import Context, find_deps_type, is_context

from .dependencies import check_wanted_deps

InstructionFunction = Callable[..., str | None] | Callable[..., Awaitable[str | None]]
Instructions = str | InstructionFunction | Iterable[str | InstructionFunction]
"""What an agent takes: a text, a function, or several of both."""


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
