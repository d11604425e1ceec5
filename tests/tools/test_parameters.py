"""What a tool reads of a function is what `inspect` and `typing` say of it, whichever way it was
read.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Context, ToolDefinitionError, tool
from ferrule.tools.parameters import annotation_types, iter_defaults


class Order:
    """A class of the module that the functions are written in."""


class Shadow:
    """What that module calls `float`."""


HERE: dict[str, Any] = {
    "Annotated": Annotated,
    "Any": Any,
    "Context": Context,
    "Literal": Literal,
    "Order": Order,
    "float": Shadow,
}

said = st.sampled_from(
    [
        "str",
        "int",
        "float",
        "bool",
        "None",
        "Any",
        "Order",
        "Context",
        "Missing",
        "list",
        "list[int]",
        "list['Order']",
        "dict[str, Order]",
        "str | None",
        "Literal['a', 'b']",
        "Annotated[int, 'how many']",
        "list[Missing] | None",
    ]
)
annotated = st.just("") | said.map(": {}".format) | said.map(": {!r}".format)
results = st.just("") | said.map(" -> {}".format) | said.map(" -> {!r}".format)
rest = st.sampled_from(["", "rest", "rest: int"])
defaults = st.sampled_from(["", " = None", " = 1", " = 'a'", " = ()"])


@st.composite
def functions(draw: st.DrawFn) -> str:
    """The source of a function `f`, with what Python allows between its brackets."""
    listed: list[str] = []
    count = draw(st.integers(0, 5))
    positional = draw(st.integers(0, count))
    only = draw(st.integers(0, positional))
    optional = False
    for number in range(count):
        default = draw(defaults)
        # After a positional parameter with a default all positional ones need one.
        optional = optional or default != ""
        if number < positional and optional:
            default = default or " = 2"
        if number == positional:
            listed.append("*" + draw(rest))
        listed.append(f"p{number}{draw(annotated)}{default}")
        if 0 < only == number + 1 and draw(st.booleans()):
            listed.append("/")
    if draw(st.booleans()) and draw(st.booleans()):
        listed.append("**more: str")
    return f"def f({', '.join(listed)}){draw(results)}: return None"


def written(source: str, late: bool) -> Callable[..., Any] | None:
    """The function, its annotations kept as text where `late`; None for one whose annotations are
    not there at once.
    """
    scope = dict(HERE)
    try:
        exec(f"{'from __future__ import annotations' if late else ''}\n{source}", scope)
    except NameError:
        return None
    return scope["f"]


def outcome(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except (NameError, TypeError) as error:
        return f"{type(error).__name__}: {error}"


def by_inspect(function: Callable[..., Any]) -> list[tuple[str, Any]] | str:
    found: list[tuple[str, Any]] = []
    for name, item in inspect.signature(function).parameters.items():
        if item.kind not in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY):
            return name
        found.append((name, item.default))
    return found


def by_tools(function: Callable[..., Any]) -> list[tuple[str, Any]] | str:
    try:
        return [*iter_defaults(function, "f")]
    except ToolDefinitionError as error:
        return str(error).split("`")[3]


@settings(max_examples=400, deadline=None)
@given(functions(), st.booleans())
def test_a_function_is_read_as_inspect_and_typing_read_it(source: str, late: bool) -> None:
    function = written(source, late)
    if function is None:
        return
    typed = outcome(lambda: annotation_types(function))
    assert typed == outcome(lambda: get_type_hints(function, include_extras=True))
    assert typed.__class__ is str or list(typed) == list(get_type_hints(function))
    assert by_tools(function) == by_inspect(function)


@settings(max_examples=100, deadline=None)
@given(functions(), st.booleans())
def test_whether_a_function_has_attributes_makes_no_difference_to_its_tool(
    source: str, late: bool
) -> None:
    """An attribute is where `inspect` may find another signature, so such a function is left to
    it.
    """
    plain, marked = written(source, late), written(source, late)
    if plain is None or marked is None:
        return
    marked.mark = True  # pyright: ignore[reportFunctionMemberAccess]
    assert shown(plain) == shown(marked)


def shown(function: Callable[..., Any]) -> Any:
    try:
        made = tool(function)
    except ToolDefinitionError as error:
        return str(error)
    return made.schema_json(), made.context_parameter, made.output and made.output.schema


def greet(name: str, loud: bool = False) -> str:
    return name.upper() if loud else name


class Greeter:
    def greet(self, name: str, loud: bool = False) -> str:
        return greet(name, loud)

    @classmethod
    def of_class(cls, name: str, loud: bool = False) -> str:
        return greet(name, loud)


@functools.wraps(greet)
def wrapping(*args: Any, **kwargs: Any) -> Any:
    return greet(*args, **kwargs)


@functools.wraps(greet)
def choosing(name: str) -> str:
    return greet(name, loud=True)


@pytest.mark.parametrize(
    "function", [Greeter().greet, Greeter.of_class, wrapping, functools.lru_cache(greet)]
)
def test_what_is_bound_or_wrapped_is_the_same_tool_as_the_function(function: Any) -> None:
    assert shown(function) == shown(greet)
    assert tool(function)(name="Ada", loud=True) == "ADA"


def test_a_wrapper_with_parameters_of_its_own_is_read_by_those() -> None:
    made = tool(choosing)
    assert list(made.arguments.schema["properties"]) == ["name"]
    assert made(name="Ada") == "ADA"


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="functions have type variables from Python 3.12 on"
)
def test_a_type_variable_wins_over_a_name_of_the_module() -> None:
    scope: dict[str, Any] = {"T": Order}
    exec("from __future__ import annotations\ndef f[T](x: T) -> str: ...", scope)
    f = scope["f"]
    assert annotation_types(f) == {"x": f.__type_params__[0], "return": str}


def test_a_signature_that_somebody_wrote_is_the_one_that_counts() -> None:
    def anything(given: int) -> str:
        return str(given)

    anything.__signature__ = inspect.signature(greet)  # pyright: ignore[reportFunctionMemberAccess]
    anything.__annotations__ = dict(greet.__annotations__)
    assert shown(anything) == shown(greet)
