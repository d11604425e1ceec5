"""The same annotation means the same wherever it stands, and what pydantic says it means.

One table, the whole product: how a value is described × what kind of callable takes it × what type it
has × where it stands (a tool's parameter, a typed answer, a field of a parameter).
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, Generic, TypedDict, TypeVar

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from ferrule import Tool, tool
from ferrule.core.calls import encode_json
from ferrule.core.identity import Identity
from ferrule.engine.output.json_answer import find_json
from ferrule.engine.output.output_type import PydanticType, parse_output_type
from ferrule.tools.context import Context
from ferrule.tools.pydantic_schemas import make_portable

T = TypeVar("T")
TEXT = "which one it is"


@dataclass
class Part:
    name: str
    count: int


class Address(TypedDict):
    street: str
    number: int


class Branch(TypedDict):
    label: str
    below: list[Branch]


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Box(BaseModel, Generic[T]):
    content: T


TYPES: dict[str, tuple[Any, Any, Any]] = {
    "text": (str, "a", 7),
    "number": (int, 3, "three"),
    "list": (list[int], [1, 2], [1, "x"]),
    "mapping": (dict[str, int], {"a": 1}, {"a": "x"}),
    "dataclass": (Part, {"name": "bolt", "count": 2}, {"name": "bolt"}),
    "typed dict": (Address, {"street": "High", "number": 1}, {"street": "High"}),
    "pydantic": (Person, {"name": "Ada", "age": 3}, {"name": "Ada", "age": -1}),
    "recursive model": (Node, {"name": "a", "children": [{"name": "b"}]}, {"children": []}),
    "recursive typed dict": (
        Branch,
        {"label": "a", "below": [{"label": "b", "below": []}]},
        {"label": "a", "below": [{"label": 1}]},
    ),
    "generic": (Box[int], {"content": 3}, {"content": "x"}),
    "list of models": (list[Person], [{"name": "Ada", "age": 3}], [{"name": "Ada"}]),
}
"""Each type with a value that fits and one that does not."""


def annotate(way: str, kind: Any) -> tuple[Any, str, dict[str, Any]]:
    """The annotation of a parameter, the docstring, and its default."""
    if way == "annotated":
        return Annotated[kind, TEXT], "Do it.", {}
    if way == "field":
        return Annotated[kind, Field(description=TEXT)], "Do it.", {}
    if way == "field as default":
        return kind, "Do it.", {"default": Field(description=TEXT)}
    if way == "docstring":
        return kind, f"Do it.\n\nArgs:\n    value: {TEXT}\n", {}
    return kind, "Do it.", {}


WAYS = ("plain", "annotated", "field", "field as default", "docstring")


def make_function(way: str, kind: Any) -> Callable[..., Any]:
    annotation, text, default = annotate(way, kind)

    def do(value, other=None, **options):
        return value

    do.__doc__ = text
    do.__annotations__ = {"value": annotation, "other": int | None}
    do.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [
            inspect.Parameter("value", inspect.Parameter.KEYWORD_ONLY, **default),
            inspect.Parameter("other", inspect.Parameter.KEYWORD_ONLY, default=None),
        ]
    )
    return do


def make_callable(shape: str, way: str, kind: Any) -> Callable[..., Any]:
    function = make_function(way, kind)
    if shape == "function":
        return function
    if shape == "partial":
        return functools.partial(function, other=3)
    if shape == "wrapped":

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper
    annotation, text, default = annotate(way, kind)

    def method(self, value):
        return value

    method.__doc__ = text
    method.__annotations__ = {"value": annotation}
    method.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [
            inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY),
            inspect.Parameter("value", inspect.Parameter.KEYWORD_ONLY, **default),
        ]
    )
    if shape == "method":
        return type("Holder", (), {"do": method})().do
    if shape == "object":
        return type("Doer", (), {"__call__": method})()
    # Before Python 3.12 pydantic takes a typed dict of `typing` in no field of a class.
    annotation, text, _ = annotate(way, make_portable(kind))
    return make_dataclass("Made", [("value", annotation)], namespace={"__doc__": text})


SHAPES = ("function", "method", "partial", "object", "wrapped", "class")
PLACES = ("tool", "output", "nested")
CELLS = [
    (way, shape, name, place)
    for way in WAYS
    for shape in SHAPES
    for name in TYPES
    for place in PLACES
    # A class takes a `Field` as its default only if pydantic makes it.
    if (way, shape) != ("field as default", "class") or place == "nested"
]


def made_tool(way: str, shape: str, kind: Any) -> Tool:
    return tool(make_callable(shape, way, kind), name="do")


def make_holder(way: str, kind: Any) -> Any:
    """A type with a field `value`, described in that way."""
    annotation, text, default = annotate(way, make_portable(kind))
    if way == "field as default":
        members = {"__annotations__": {"value": annotation}, "value": default["default"]}
        return type("Holder", (BaseModel,), {**members, "__doc__": text})
    return make_dataclass("Holder", [("value", annotation)], namespace={"__doc__": text})


def check_tool(way: str, shape: str, kind: Any, value: Any) -> tuple[Any, list[str], Any]:
    """The schema, what is wrong with the value, and the value that a tool's handler gets."""
    arguments = made_tool(way, shape, kind).arguments
    assert next(iter(arguments.schema["properties"])) == "value"
    assert arguments.schema["required"] == ["value"]
    assert arguments.check({}).problems
    taken = arguments.check({"value": value})
    assert taken.problems or taken.repairs == []
    return arguments.schema, taken.problems, taken.values.get("value")


def check_output(way: str, shape: str, kind: Any, value: Any) -> tuple[Any, list[str], Any]:
    """The same of a typed answer that the callable takes."""
    made = parse_output_type(make_callable(shape, way, kind))
    assert made is not None
    is_member = made.is_wrapped or "value" in made.schema.get("properties", {})
    answer = find_json(encode_json({"value": value} if is_member else value), lists=True)
    context = Context(Identity("t", "u", "s", "r"), "call")
    taken = asyncio.run(made.finish(made.read(answer, context), context))
    assert taken.problems or taken.repairs == ()
    output = taken.value.value if shape == "class" and not taken.problems else taken.value
    return made.schema, list(taken.problems), output


@pytest.mark.parametrize(("way", "shape", "name", "place"), CELLS)
def test_a_value_is_what_pydantic_takes(way: str, shape: str, name: str, place: str) -> None:
    kind, good, bad = TYPES[name]
    check = check_output if place == "output" else check_tool
    is_described = way != "plain"
    if place == "nested":
        way, kind, good, bad = "plain", make_holder(way, kind), {"value": good}, {"value": bad}
    schema, problems, value = check(way, shape, kind, good)
    assert problems == []
    assert value == TypeAdapter(make_portable(kind)).validate_python(good)
    assert (TEXT in json.dumps(schema)) == is_described
    _, problems, _ = check(way, shape, kind, bad)
    assert problems


def test_the_table_is_the_whole_product() -> None:
    left_out = len(TYPES) * 2
    assert len(CELLS) == len(WAYS) * len(SHAPES) * len(TYPES) * len(PLACES) - left_out


NESTED = [name for name in TYPES if name not in ("text", "number")]


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("depth", ["parameter", "item", "field"])
def test_json_text_is_read_as_the_value_that_it_stands_for_and_said(name: str, depth: str) -> None:
    kind, good, _ = TYPES[name]
    text = json.dumps(good)
    if depth == "item":
        kind, good, text = list[kind], [good], [text]
    elif depth == "field":
        kind, good, text = (
            make_dataclass("Outer", [("inner", make_portable(kind))]),
            {"inner": good},
            {"inner": text},
        )
    whole = TypeAdapter(make_portable(kind)).validate_python(good)
    arguments = made_tool("annotated", "function", kind).arguments.check({"value": text})
    assert (arguments.problems, arguments.values["value"]) == ([], whole)
    assert any("JSON text was read as" in note for note in arguments.repairs)
    if depth == "parameter" and not PydanticType(kind).is_wrapped:
        return  # a whole answer is never JSON text in JSON text
    output = read_output(kind, text if depth == "field" else {"value": text})
    assert (output.problems, output.value) == ((), whole)
    assert any("JSON text was read as" in note for note in output.repairs)


def read_output(kind: Any, answer: Any) -> Any:
    made = PydanticType(kind)
    context = Context(Identity("t", "u", "s", "r"), "call")
    return made.read(find_json(encode_json(answer), lists=made.is_wrapped), context)


@pytest.mark.parametrize("way", ["annotated", "field"])
@pytest.mark.parametrize("name", TYPES)
def test_a_field_is_described_as_a_parameter_is(way: str, name: str) -> None:
    annotation, _, _ = annotate(way, make_portable(TYPES[name][0]))
    holders = (
        make_dataclass("Record", [("value", annotation)]),
        type("Model", (BaseModel,), {"__annotations__": {"value": annotation}}),
        TypedDict("Members", {"value": annotation}),  # pyright: ignore[reportGeneralTypeIssues]
    )
    for holder in holders:
        parameter = made_tool("docstring", "function", holder).arguments.schema
        for schema in (parameter, PydanticType(holder).schema):
            assert f'"description": "{TEXT}"' in json.dumps(schema), (holder, schema)


def test_defaults_of_fields_are_defaults_and_are_made_anew_for_each_call() -> None:
    def do(
        first: Annotated[int, Field(description="x")] = 1,
        second: int = Field(default=2, ge=0),
        third: list[int] = Field(default_factory=list),  # noqa: B008
        fourth: Annotated[str, Field(default="d")] = "own",
    ) -> None: ...

    made = tool(do)
    assert "required" not in made.arguments.schema
    taken = made.arguments.check({}).values
    assert taken == {"first": 1, "second": 2, "third": [], "fourth": "own"}
    taken["third"].append(1)
    assert made.arguments.check({}).values["third"] == []
    assert made.arguments.check({"second": -1}).problems


def test_an_alias_is_an_error_that_names_the_parameter() -> None:
    def do(value: Annotated[int, Field(alias="v")]) -> None: ...

    with pytest.raises(Exception, match="parameter `value`: its `Field` has an alias"):
        tool(do)


def test_a_wrappers_own_default_wins_over_that_of_the_function_it_wraps() -> None:
    def base(k: int, j: int = 2) -> str:
        return f"{k} {j}"

    @functools.wraps(base)
    def wrapper(k: int, j: int = 4) -> str:
        return base(k, j)

    bound = functools.update_wrapper(functools.partial(base, j=4), base)
    for made in (tool(wrapper), tool(bound)):
        assert made.handler(**made.arguments.check({"k": 1}).values) == "1 4"
    assert list(tool(bound).arguments.schema["properties"]) == ["k"]


async def test_an_object_with_an_async_call_is_awaited() -> None:
    class Doer:
        """Do it."""

        async def __call__(self, x: int) -> int:
            return x + 1

    made = tool(Doer())
    assert (made.name, made.description, made.is_async) == ("Doer", "Do it.", True)
    assert await made.handler(x=1) == 2


@pytest.mark.parametrize("place", ["parameter", "item", "output"])
def test_a_description_stays_where_it_was_written(place: str) -> None:
    """Others that use the same type, the owner of the type too, see nothing of it."""

    class Topic(BaseModel):
        name: str
        below: list[Topic] = []

    Topic.model_rebuild(_types_namespace={"Topic": Topic})
    described = Annotated[Topic, Field(description=TEXT)]
    if place == "output":
        made = parse_output_type(described)
        assert made is not None
        assert TEXT in json.dumps(made.schema)
    else:
        kind = list[described] if place == "item" else described
        assert TEXT in json.dumps(made_tool("plain", "function", kind).arguments.schema)
    plain = made_tool("plain", "function", list[Topic]).arguments.schema
    assert TEXT not in json.dumps([plain, Topic.model_json_schema()])
