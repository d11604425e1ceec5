"""`define_tool`: tools that are data."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule import Agent, Context, Scripted, ToolDefinitionError, define_tool, tool
from ferrule.connectors.bounded_schemas import make_arguments
from ferrule.models.scripted import calls, says
from ferrule.tools.catalog import Catalog
from ferrule.tools.define import SchemaArguments
from ferrule.tools.definition import Subject


def act(**arguments: Any) -> Any:
    return arguments


def made(parameters: dict[str, Any] | None = None, **more: Any) -> Any:
    return define_tool("act", "Does something.", parameters=parameters, handler=act, **more)


@pytest.mark.proves("define.required-unless-said")
def test_a_parameter_is_required_unless_it_says_otherwise() -> None:
    tool = made(
        {
            "path": {"type": "string"},
            "limit": {"type": "integer", "required": False},
            "note": "A bare text.",
        }
    )
    schema = json.loads(tool.schema_json())
    assert schema["required"] == ["path", "note"]
    assert schema["properties"]["note"] == {"type": "string", "description": "A bare text."}
    assert "required" not in schema["properties"]["limit"]
    assert tool.arguments.check({"path": "a", "note": "n"}).problems == []
    assert "path" in tool.arguments.check({"note": "n"}).problems[0]


@pytest.mark.parametrize(
    ("wrong", "right"), [("params", "parameters"), ("function", "handler"), ("desc", "description")]
)
def test_a_key_that_is_nearly_right_is_pointed_out(wrong: str, right: str) -> None:
    with pytest.raises(ToolDefinitionError) as refused:
        define_tool("act", "Does.", handler=act, **{wrong: {}})
    assert (
        f"`{right}`" in str(refused.value)
        and f"`{wrong}`" in str(refused.value)
        and "`act`" in str(refused.value)
    )


def test_an_unknown_key_is_refused_with_the_nearest() -> None:
    with pytest.raises(ToolDefinitionError, match="did you mean `timeout`"):
        made(timeuot=5)


@pytest.mark.proves("define.complete")
def test_a_tool_without_a_handler_a_description_or_a_name_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="no handler"):
        define_tool("act", "Does.")
    with pytest.raises(ToolDefinitionError, match="no description"):
        define_tool("act", "  ", handler=act)
    with pytest.raises(ToolDefinitionError, match="cannot be the name"):
        define_tool("no name", "Does.", handler=act)


def test_many_tools_are_declared_at_once_as_a_list_of_functions_and_definitions() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    @tool(side_effect="none")
    def greet(name: str) -> str:
        """Greet."""
        return f"Hello {name}"

    agent = Agent(Scripted([]), [add, greet, made({"path": "Where."})])
    session = agent.session()
    answers = [
        asyncio.run(session.call("add", a=1, b=2)),
        asyncio.run(session.call("greet", name="Ada")),
        asyncio.run(session.call("act", path="a.txt")),
    ]
    assert [answer.data for answer in answers] == [3, "Hello Ada", {"path": "a.txt"}]
    with pytest.raises(ToolDefinitionError, match="`add`"):
        Agent(Scripted([]), [add, made(), add])


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"path": {"type": "strng"}}, "`path`"),
        ({"path": 5}, "`path`"),
        ({"type": "object", "properties": {"a": {"type": 5}}}, "`act`"),
        (
            {"type": "object", "properties": {"a": {"$ref": "http://example.com/schema.json"}}},
            "fetched",
        ),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_place(
    parameters: dict[str, Any], said: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=said):
        made(parameters)


def test_a_type_that_has_no_schema_is_refused_with_its_parameter_and_the_reason() -> None:
    def act(path: str, then: Callable[[], None]) -> None:
        """Act."""

    with pytest.raises(
        ToolDefinitionError, match=r"of `then` cannot .*: Cannot generate a JsonSch"
    ):
        tool(act)


@pytest.mark.proves("tools.undeclared-refused")
def test_an_argument_nobody_declared_is_refused_by_name() -> None:
    (problem,) = made({"path": "Where."}).arguments.check({"path": "a", "pth": "b"}).problems
    assert "`pth`" in problem and "`path`" in problem


def test_a_json_schema_is_kept_as_it_is_and_decides() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 1}, "deep": {"$ref": "#/$defs/d"}},
        "required": ["n"],
        "$defs": {"d": {"type": "array", "items": {"type": "string"}}},
    }
    tool = made(schema)
    assert json.loads(tool.schema_json()) == schema
    assert tool.arguments.check({"n": 1, "deep": ["x"], "extra": True}).problems == []
    assert "`n`" in tool.arguments.check({"n": 0}).problems[0]
    assert "deep[0]" in tool.arguments.check({"n": 1, "deep": [1]}).problems[0]


def test_a_default_is_filled_in_and_a_handler_that_changes_it_changes_nothing() -> None:
    tool = made({"tags": {"type": "array", "default": ["a"], "required": False}})
    first = tool.arguments.check({}).values
    first["tags"].append("b")
    assert tool.arguments.check({}).values == {"tags": ["a"]}
    assert json.loads(tool.schema_json())["properties"]["tags"]["default"] == ["a"]


def test_touches_are_words_and_unknown_ones_are_refused() -> None:
    tool = made(
        {"path": "Where.", "cmd": "What."},
        touches={"path": "write", "cmd": "command"},
        side_effect="write",
    )
    assert tool.subjects({"path": "a", "cmd": "ls"}) == (
        Subject("write", "a"),
        Subject("command", "ls"),
    )
    for kind in ("read", "write", "command", "variables", "url"):
        (one,) = made({"it": "What."}, touches={"it": kind}).touches.values()
        assert one.kind == kind
    with pytest.raises(ToolDefinitionError, match="`path`"):
        made({"path": "Where."}, touches={"path": "delete"})


@pytest.mark.proves("tools.senseless-options")
@pytest.mark.parametrize("namespace", [42, True, ["ops"], " ", "a b", "ops::"])
def test_a_namespace_that_is_no_name_is_an_error_where_it_is_written(namespace: Any) -> None:
    with pytest.raises(ToolDefinitionError):
        made({}, namespace=namespace)
    with pytest.raises(ToolDefinitionError):
        tool(namespace=namespace)(later)
    assert made({}, namespace="ops::web").full_name == "ops::web::act"


def test_options_are_those_of_the_decorator() -> None:
    tool = made({}, side_effect="read", timeout=5, namespace="n", polls=True)
    assert (tool.full_name, tool.reliability.timeout, tool.polls, tool.risk) == (
        "n::act",
        5,
        True,
        "safe",
    )


async def later(**arguments: Any) -> Any:
    return arguments


def test_an_async_handler_is_seen_as_such() -> None:
    assert define_tool("later", "Waits.", handler=later).is_async
    assert not made().is_async


@pytest.mark.proves("tools.bad-arguments-named")
@pytest.mark.parametrize("wrong", [{"path": True}, {"path": None}, {}, {"path": ["a"]}])
def test_a_wrong_argument_is_refused_with_its_name(wrong: dict[str, Any]) -> None:
    problems = made({"path": {"type": "string"}}).arguments.check(wrong).problems
    assert problems and all("path" in problem for problem in problems)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=5,
)
SCHEMAS = st.fixed_dictionaries(
    {"default": VALUES},
    optional={"type": st.sampled_from(["string", "integer", "boolean", "array", "object", "null"])},
)


@given(st.dictionaries(st.text(min_size=1, max_size=3), SCHEMAS, max_size=4), st.data())
def test_a_schema_that_somebody_else_wrote_adds_nothing_to_arguments(
    properties: dict[str, Any], data: st.DataObject
) -> None:
    """With defaults of the right and the wrong type, and nested ones; whether the arguments fit or
    not.
    """
    nested = {
        "type": "object",
        "properties": {"in": {"type": "object", "properties": properties}, **properties},
    }
    given = data.draw(
        st.dictionaries(st.sampled_from(["in", *properties, "x"]), VALUES, max_size=3)
    )
    before = json.dumps(given)
    for arguments in (SchemaArguments("t", nested), make_arguments("t", nested)):
        assert json.dumps(arguments.check(given).values) == before
    assert json.dumps(given) == before


@pytest.mark.parametrize("default", ["many", None, [1], 1.5])
def test_a_default_that_does_not_fit_its_own_schema_is_an_error_where_it_is_written(
    default: Any,
) -> None:
    with pytest.raises(ToolDefinitionError, match="the default of `n` does not fit"):
        made({"n": {"type": "integer", "default": default, "required": False}})


def test_an_output_schema_is_shown_and_holds_what_the_handler_returns() -> None:
    returns = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    counted = define_tool("count", "Count.", returns=returns, handler=lambda: {"n": 1})
    wrong = define_tool("wrong", "Count.", returns=returns, handler=lambda: {"n": "one"})
    assert counted.output is not None
    assert counted.output.schema == returns
    script = Scripted([calls(("count", {}), ("wrong", {})), says("done")])
    right, misfit = Agent(script, [counted, wrong]).run_sync("go").results
    assert (right.success, right.data, right.notes) == (True, {"n": 1}, ())
    assert (misfit.success, misfit.data) == (True, {"n": "one"})
    assert "`n`" in misfit.notes[0]
    with pytest.raises(ToolDefinitionError, match="`count`"):
        define_tool("count", "Count.", returns={"type": "nonsense"}, handler=lambda: 1)


def increment(a: int) -> int:
    return a + 1


def test_many_tools_come_from_a_list_of_dictionaries() -> None:
    listed: list[dict[str, Any]] = [
        {
            "name": "add",
            "description": "Add.",
            "parameters": {"a": {"type": "integer"}},
            "handler": increment,
        },
        {"name": "ping", "description": "Ping.", "handler": lambda: "pong", "side_effect": "none"},
    ]
    script = Scripted([calls(("add", {"a": 1}), ("ping", {})), says("done")])
    assert [result.data for result in Agent(script, tools=listed).run_sync("go").results] == [
        2,
        "pong",
    ]
    assert [tool.name for tool in Catalog(listed)] == ["add", "ping"]
    catalog = Catalog()
    with pytest.raises(ToolDefinitionError, match="`ping`: the key is `handler`, not `function`"):
        catalog.add(listed[0], {"name": "ping", "description": "Ping.", "function": print})
    assert len(catalog) == 0
    with pytest.raises(ToolDefinitionError, match="no `name`"):
        catalog.add({"description": "Ping.", "handler": print})
    with pytest.raises(ToolDefinitionError, match="no description"):
        catalog.add({"name": "ping", "handler": print})


@pytest.mark.parametrize("kind", ["array", "string", "null"])
def test_a_schema_of_something_else_than_an_object_is_no_schema_of_parameters(kind: str) -> None:
    with pytest.raises(
        ToolDefinitionError, match=f"describes a {kind}, where arguments are an object"
    ):
        made({"type": kind, "items": {"type": "string"}})
    named = made({"type": {"type": "string", "description": "What kind."}})
    assert list(json.loads(named.schema_json())["properties"]) == ["type"]


# ---- how a handler takes the arguments


class Scale:
    """An object that is a handler."""

    async def __call__(self, n: int) -> int:
        return n * 2


class Shop:
    open = True


def is_open(context: Context[Shop]) -> bool:
    return context.deps.open


@pytest.mark.proves("define.handler")
async def test_a_handler_gets_its_context_and_dependencies_as_a_tool_does() -> None:
    tool = define_tool("is_open", "Say whether the shop is open.", handler=is_open)
    assert (tool.context_parameter, tool.deps_type) == ("context", Shop)
    assert json.loads(tool.schema_json())["properties"] == {}
    agent = Agent(Scripted([calls(("is_open", {})), says("Yes.")]), [tool], deps_type=Shop)
    assert (await agent.run("Is it open?", deps=Shop())).results[0].data is True


@pytest.mark.proves("define.handler")
@pytest.mark.parametrize(
    "handler",
    [
        lambda **arguments: arguments["n"] * 2,
        lambda n, deep=False: n * 2,
        Scale(),
        partial(lambda n, by: n * by, by=2),
    ],
    ids=["mapping", "default", "async object", "partial"],
)
async def test_every_kind_of_handler_gets_its_arguments(handler: Callable[..., Any]) -> None:
    tool = define_tool("double", "Double.", parameters={"n": {"type": "integer"}}, handler=handler)
    run = await Agent(Scripted([calls(("double", {"n": 2})), says("4")]), [tool]).run("2 * 2?")
    assert run.results[0].data == 4


@pytest.mark.proves("define.handler")
@pytest.mark.parametrize(
    ("handler", "problem"),
    [
        (lambda args: args["n"], "`n` is no parameter of it; its `args` has no default"),
        (lambda n, m: n + m, "its `m` has no default, and is not required"),
        (lambda m=1: m, "`n` is no parameter of it"),
        (lambda n, /: n, "parameters that cannot be passed by name"),
        (lambda *args: args, "`n` is no parameter of it"),
    ],
)
def test_a_handler_that_cannot_take_the_arguments_is_an_error_where_it_is_defined(
    handler: Callable[..., Any], problem: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=re.escape(problem)) as refused:
        define_tool("act", "Act.", parameters={"n": {"type": "integer"}}, handler=handler)
    assert "`def handler(n)`, or `def handler(**arguments)`" in refused.value.hint


@pytest.mark.proves("define.handler")
def test_an_argument_that_the_handler_could_not_take_is_refused_by_name() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    closed = define_tool("act", "Act.", parameters=schema, handler=lambda n: n)
    (problem,) = closed.arguments.check({"n": 1, "m": 2}).problems
    assert "`m`" in problem
    assert json.loads(made(schema).schema_json()) == schema, "`**arguments` takes what comes"


@pytest.mark.proves("define.handler")
def test_a_schema_that_combines_others_may_require_what_its_properties_do_not_show() -> None:
    either = {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}
    define_tool("act", "Act.", parameters=either, handler=lambda a=0, b=0: a + b)
    define_tool(
        "act",
        "Act.",
        parameters={
            "type": "object",
            "$ref": "#/$defs/x",
            "$defs": {"x": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}},
        },
        handler=lambda a: a,
    )


@pytest.mark.proves("tools.bad-arguments-named")
def test_a_missing_argument_is_named_as_in_tools_of_functions() -> None:
    nested = {"type": "object", "properties": {"by": {"type": "string"}}, "required": ["by"]}
    problems = made({"n": {"type": "integer"}, "sort": nested}).arguments.check({"sort": {}})
    assert problems.problems == ["`n` is missing", "`sort.by` is missing"]
