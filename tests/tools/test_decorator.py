"""`@tool`: what becomes of a signature and a docstring."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import Enum, IntEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Optional
from uuid import UUID

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from ferrule import (
    COMMAND,
    READS,
    WRITES,
    ConfigError,
    Context,
    Risk,
    SideEffect,
    Tool,
    ToolDefinitionError,
    tool,
)
from ferrule.core.events import EVERYTHING, Access
from ferrule.core.identity import Identity
from ferrule.tools.definition import Subject


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Point:
    x: int
    y: int = 0


class Order(BaseModel):
    """A line of an order."""

    article: str
    amount: int = Field(ge=1)


class Options(TypedDict):
    deep: bool
    depth: NotRequired[int]


class OldOptions(typing.TypedDict, total=False):
    deep: Annotated[bool, Field(description="Whether to look below.")]


def properties(made: Tool) -> dict[str, Any]:
    return json.loads(made.schema_json())["properties"]


@pytest.mark.proves("tools.schema-from-signature")
def test_name_description_and_parameters_come_from_the_function() -> None:
    @tool
    def get_weather(city: str, days: int = 3) -> str:
        """Weather of a city.

        Args:
            city: Where,
                with its country.
            days: How many days.

        Returns:
            Words.
        """
        return f"{city} {days}"

    assert (get_weather.name, get_weather.description) == ("get_weather", "Weather of a city.")
    assert json.loads(get_weather.schema_json()) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where, with its country."},
            "days": {"type": "integer", "description": "How many days.", "default": 3},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert get_weather(city="Ghent", days=1) == "Ghent 1"


@pytest.mark.proves("tools.schema-from-signature")
def test_parameters_are_described_in_rest_style_too() -> None:
    @tool
    def look(where: str) -> str:
        """Look.

        :param where: the place
        :returns: words
        """
        return where

    assert (look.description, properties(look)["where"]["description"]) == ("Look.", "the place")


@tool
def everything(  # noqa: PLR0913  one parameter of every kind
    plain: str,
    number: float,
    flag: bool,
    choice: Literal["a", "b"],
    colour: Colour,
    level: Level,
    maybe: Optional[int],  # noqa: UP045  (this spelling must work too)
    either: int | str,
    items: list[list[int]],
    table: dict[str, list[bool]],
    anything: Any,
    order: Order,
    orders: list[Order],
    point: Point,
    options: Options,
    old: OldOptions,
    old_items: list[OldOptions] | None,
    day: date,
    key: UUID,
    positive: Annotated[int, Field(gt=0)],
    described: Annotated[str, "what it is for"],
    pair: tuple[int, str],
    late: str = "later",
    empty: str | None = None,
    best: Colour = Colour.GREEN,
) -> str:
    """Takes every kind of type."""
    return "fine"


GOOD: dict[str, Any] = {
    "plain": "text",
    "number": 1.5,
    "flag": True,
    "choice": "b",
    "colour": "red",
    "level": 2,
    "maybe": None,
    "either": "x",
    "items": [[1], []],
    "table": {"a": [True]},
    "anything": {"deep": [1]},
    "order": {"article": "nut", "amount": 2},
    "orders": [{"article": "bolt", "amount": 1}],
    "point": {"x": 1},
    "options": {"deep": True},
    "old": {},
    "old_items": [{"deep": False}],
    "day": "2026-01-31",
    "key": "6d2b3e6c-3a53-4a50-8b3c-111111111111",
    "positive": 1,
    "described": "yes",
    "pair": [1, "one"],
}


def test_every_kind_of_type_becomes_a_schema_that_accepts_good_arguments(
    says_the_schema: Any,
) -> None:
    assert says_the_schema(everything, GOOD)


def test_what_a_typed_dict_says_of_its_members_is_in_the_schema() -> None:
    @tool
    def look(old: OldOptions) -> str:
        """Look."""
        return str(old)

    assert "Whether to look below." in look.schema_json()
    checked = everything.arguments.check(GOOD)
    assert (checked.problems, checked.repairs) == ([], [])
    values = checked.values
    assert values["colour"] is Colour.RED
    assert values["level"] is Level.HIGH
    assert values["order"] == Order(article="nut", amount=2)
    assert values["point"] == Point(1, 0)
    assert values["options"] == {"deep": True}
    assert values["day"] == date(2026, 1, 31)
    assert values["key"] == UUID(GOOD["key"])
    assert values["pair"] == (1, "one")
    assert (values["late"], values["empty"], values["best"]) == ("later", None, Colour.GREEN)


BAD: dict[str, Any] = {
    "plain": 5,
    "number": "much",
    "flag": "perhaps",
    "choice": "c",
    "colour": "mauve",
    "level": 3,
    "maybe": "none",
    "either": [],
    "items": [["x"]],
    "table": {"a": "x"},
    "order": {"article": "nut", "amount": 0},
    "orders": [{"amount": 1}],
    "point": {"y": 1},
    "options": {"depth": 2},
    "old": {"deep": "perhaps"},
    "day": "yesterday",
    "key": "short",
    "positive": 0,
    "pair": [1],
}


@pytest.mark.proves("tools.bad-arguments-named")
@pytest.mark.parametrize("name", BAD)
def test_a_wrong_argument_is_refused_with_its_name(name: str, says_the_schema: Any) -> None:
    wrong = {**GOOD, name: BAD[name]}
    checked = everything.arguments.check(wrong)
    assert len(checked.problems) >= 1
    assert all(name in problem for problem in checked.problems)
    if name not in ("day", "key"):  # formats are annotations for a JSON Schema validator
        assert not says_the_schema(everything, wrong)


@pytest.mark.proves("tools.bad-arguments-named")
def test_a_wrong_argument_is_shown_as_it_was_written() -> None:
    (problem,) = everything.arguments.check({**GOOD, "positive": "fünf"}).problems
    assert problem.endswith('found "fünf"')


@pytest.mark.proves("tools.bad-arguments-named")
@pytest.mark.parametrize("name", GOOD)
def test_a_missing_argument_is_refused_with_its_name(name: str, says_the_schema: Any) -> None:
    rest = {key: value for key, value in GOOD.items() if key != name}
    assert [problem for problem in everything.arguments.check(rest).problems if name in problem]
    assert not says_the_schema(everything, rest)


@tool
def simple(path: str, limit: int = 10, deep: bool = False, tags: list[str] | None = None) -> str:
    """Plain types only."""
    return path


@tool
def dated(path: str, limit: int = 10, deep: bool = False, day: date = date(2026, 1, 1)) -> str:
    """One type that needs a model."""
    return path


@pytest.mark.proves("tools.undeclared-refused")
@pytest.mark.parametrize("made", [simple, dated])
def test_an_argument_nobody_declared_is_refused_by_name_with_the_nearest(
    made: Tool, says_the_schema: Any
) -> None:
    arguments = {"path": "a", "limitt": 5}
    (problem,) = made.arguments.check(arguments).problems
    assert "`limitt`" in problem and "did you mean `limit`?" in problem
    assert not says_the_schema(made, arguments)


@pytest.mark.parametrize("made", [simple, dated])
def test_a_number_and_a_truth_value_sent_as_text_are_read_and_the_repair_is_reported(
    made: Tool,
) -> None:
    checked = made.arguments.check({"path": "a", "limit": "5", "deep": "true"})
    assert checked.problems == []
    assert (checked.values["limit"], checked.values["deep"]) == (5, True)
    assert len(checked.repairs) == 2
    assert "limit" in checked.repairs[0] and "deep" in checked.repairs[1]


@pytest.mark.parametrize("made", [simple, dated])
def test_null_for_an_optional_argument_means_its_default(made: Tool) -> None:
    checked = made.arguments.check({"path": "a", "limit": None})
    assert (checked.problems, checked.repairs) == ([], [])
    assert checked.values["limit"] == 10


def test_null_stays_null_where_the_type_has_it() -> None:
    @tool
    def either(limit: int | None = 5, day: str = "") -> str:
        return ""

    assert either.arguments.check({"limit": None}).values["limit"] is None
    assert either.arguments.check({}).values["limit"] == 5


def test_a_list_sent_as_its_json_text_is_read_and_the_repair_is_reported() -> None:
    checked = simple.arguments.check({"path": "a", "tags": '["x", "y"]'})
    assert checked.values["tags"] == ["x", "y"]
    assert len(checked.repairs) == 1


def test_the_context_is_filled_in_and_hidden_from_the_model() -> None:
    @tool
    def remember(text: str, context: Context) -> str:
        context.memory["said"] = text
        return text

    assert list(properties(remember)) == ["text"]
    assert remember.context_parameter == "context"
    assert "context" in remember.arguments.check({"text": "a", "context": {}}).problems[0]


def test_a_resource_the_run_does_not_have_is_named() -> None:
    context = Context(Identity("t", "u", "s", "r"), "c", resources={Point: Point(1)})
    assert context.resource(Point) == Point(1)
    with pytest.raises(Exception, match="`Colour`"):
        context.resource(Colour)


def test_async_and_sync_functions_are_told_apart() -> None:
    @tool
    async def slow() -> str:
        return ""

    @tool
    def quick() -> str:
        return ""

    assert (slow.is_async, quick.is_async) == (True, False)


def test_the_return_type_becomes_the_output_schema() -> None:
    @tool
    def plain() -> dict[str, int]:
        return {}

    @tool
    def modelled() -> list[Order]:
        return []

    @tool
    def nothing():  # type: ignore[no-untyped-def]
        return 1

    assert plain.output is not None and plain.output.schema == {
        "type": "object",
        "additionalProperties": {"type": "integer"},
    }
    assert plain.output.encode({"a": 1}) == ({"a": 1}, [])
    assert plain.output.encode({"a": "1"})[1] != []
    assert modelled.output is not None and modelled.output.schema["type"] == "array"
    assert modelled.output.encode([Order(article="nut", amount=1)]) == (
        [{"article": "nut", "amount": 1}],
        [],
    )
    assert "amount" in modelled.output.encode([{"article": "nut", "amount": 0}])[1][0]
    assert nothing.output is None


def test_an_enumeration_is_returned_as_its_value() -> None:
    @tool
    def paint() -> Colour:
        return Colour.RED

    assert paint.output is not None
    assert paint.output.encode(Colour.RED) == ("red", [])


class Opaque:
    """No JSON Schema can say what this is."""


def with_opaque(path: str, thing: Opaque) -> str:
    return path


def with_callback(path: str, then: Callable[[int], int]) -> str:
    return path


def with_values(*values: str) -> str:
    return ""


def with_rest(**rest: str) -> str:
    return ""


def with_positional(first: str, /) -> str:
    return first


def without_type(path) -> str:  # type: ignore[no-untyped-def]
    return path


def with_odd_default(path: str, when: object = Opaque()) -> str:
    return path


@pytest.mark.parametrize(
    ("function", "parameter"),
    [
        (with_opaque, "thing"),
        (with_callback, "then"),
        (with_values, "values"),
        (with_rest, "rest"),
        (with_positional, "first"),
        (without_type, "path"),
        (with_odd_default, "when"),
    ],
)
def test_what_cannot_be_a_schema_fails_with_the_tool_and_the_parameter(
    function: Any, parameter: str
) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        tool(function)
    assert f"`{function.__name__}`" in str(refused.value)
    assert f"`{parameter}`" in str(refused.value)


def test_an_output_that_cannot_be_a_schema_names_the_tool() -> None:
    def give() -> Opaque:
        return Opaque()

    with pytest.raises(ToolDefinitionError, match="`give`"):
        tool(give)


def test_annotations_that_cannot_be_read_name_the_tool() -> None:
    def odd(path: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821, UP037
        return ""

    with pytest.raises(ToolDefinitionError, match="`odd`"):
        tool(odd)


def test_parameters_may_have_names_that_a_library_uses_itself() -> None:
    @tool
    def odd(schema: str, copy: date, model_config: int, _hidden: str = "x", json: str = "") -> str:
        return schema

    given = {"schema": "s", "copy": "2026-01-02", "model_config": 3, "_hidden": "h"}
    assert list(properties(odd)) == ["schema", "copy", "model_config", "_hidden", "json"]
    checked = odd.arguments.check(given)
    assert (checked.problems, checked.repairs) == ([], [])
    assert checked.values == {**given, "copy": date(2026, 1, 2), "json": ""}


def test_marks_say_what_a_call_touches() -> None:
    @tool(side_effect="write")
    def move(
        source: Annotated[str, READS], target: Annotated[str, WRITES, "where to"], note: str = ""
    ) -> str:
        return ""

    values = {"source": "a.txt", "target": "b/c.txt", "note": "n"}
    assert move.subjects(values) == (Subject("read", "a.txt"), Subject("write", "b/c.txt"))
    assert move.access(values) == Access(reads=("a.txt",), writes=("b/c.txt",))
    assert properties(move)["target"]["description"] == "where to"


def test_a_mark_inside_an_optional_or_a_list_is_not_lost() -> None:
    @tool(side_effect="read")
    def look(
        path: Annotated[str, READS] | None = None,
        more: list[Annotated[str, READS]] = [],  # noqa: B006  a schema's default, never changed
    ) -> str:
        return ""

    assert look.subjects({"path": "a", "more": ["b", "c"]}) == tuple(
        Subject("read", name) for name in "abc"
    )


def test_a_command_given_as_a_list_is_one_subject() -> None:
    @tool(side_effect="execute")
    def execute(argv: Annotated[list[str], COMMAND]) -> str:
        return ""

    assert execute.subjects({"argv": ["git", "log"]}) == (Subject("command", ("git", "log")),)
    assert execute.access({"argv": ["git", "log"]}) == EVERYTHING


def test_a_tool_that_declares_nothing_runs_unasked_beside_others_and_once() -> None:
    @tool
    def mystery() -> str:
        return ""

    assert (mystery.side_effect, mystery.risk) == (SideEffect.UNDECLARED, Risk.SAFE)
    assert mystery.access({}) == Access()
    assert mystery.reliability.total_attempts(mystery.is_repeatable) == 1


@pytest.mark.parametrize(
    ("effect", "risk"),
    [
        ("none", "safe"),
        ("read", "safe"),
        ("write", "medium"),
        ("external", "medium"),
        ("execute", "high"),
    ],
)
def test_the_risk_follows_from_the_side_effect_unless_said(effect: str, risk: str) -> None:
    def act() -> str:
        return ""

    assert tool(side_effect=effect)(act).risk == risk
    assert tool(side_effect=effect, risk="critical")(act).risk is Risk.CRITICAL


@pytest.mark.proves("tools.senseless-options")
@pytest.mark.parametrize(
    "options",
    [{"side_effect": "evil"}, {"risk": "none"}, {"timeout": 0}, {"max_attempts": 0}],
)
def test_senseless_options_are_refused_with_the_tools_name(options: dict[str, Any]) -> None:
    def act() -> str:
        return ""

    with pytest.raises(ToolDefinitionError, match="`act`"):
        tool(**options)(act)


PROGRAM = """
from datetime import date
from typing import Literal
from pydantic import BaseModel
from ferrule import Catalog, tool

class Order(BaseModel):
    article: str
    amount: int = 1

@tool
def plain(kind: Literal["a", "b"], names: list[str], table: dict[str, int], flag: bool = False) -> str:
    "Plain."
    return ""

@tool
def modelled(order: Order, day: date, tags: set[str]) -> Order:
    "Modelled."
    return order

for made in Catalog([modelled, plain]):
    print(made.full_name, made.schema_json(), made.output and made.output.schema)
"""


@pytest.mark.proves("tools.byte-stable")
def test_schemas_are_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    seen: set[bytes] = set()
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            check=True,
        )
        seen.add(ran.stdout)
    assert len(seen) == 1
    assert seen.pop().startswith(b"modelled {")


def test_a_function_given_with_options_is_the_tool_that_the_decorator_makes_of_it() -> None:
    def look(path: str) -> str:
        """Look."""
        return path

    made, decorated = (
        tool(look, side_effect="read", risk="low"),
        tool(side_effect="read", risk="low")(look),
    )
    assert (
        (made.side_effect, made.risk) == (decorated.side_effect, decorated.risk) == ("read", "low")
    )


def test_a_method_is_told_what_to_do_instead_and_a_bound_one_is_a_tool() -> None:
    class Shop:
        def price(self, item: str) -> int:
            """Price."""
            return len(item)

    with pytest.raises(ToolDefinitionError) as raised:
        tool(Shop.price)
    assert "it is a method" in raised.value.detail
    assert "tool(thing.price)" in raised.value.hint
    bound = tool(Shop().price)
    assert list(bound.arguments.schema["properties"]) == ["item"]
    assert bound(item="tea") == 3


def test_a_resource_that_was_not_given_is_named_with_where_it_is_given() -> None:
    class Database:
        """A resource of a program."""

    with pytest.raises(ConfigError) as raised:
        Context(Identity("t", "u", "s", "r"), "c1").resource(Database)
    assert "`Database`" in raised.value.detail
    assert raised.value.hint == "pass a `Database` in `resources=[...]` of the Agent"
