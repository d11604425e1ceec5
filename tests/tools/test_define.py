"""`define_tool`: tools that are data."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ferrule import Agent, Scripted, ToolDefinitionError, define_tool, tool
from ferrule.tools.definition import Subject


def act(**arguments: Any) -> Any:
    return arguments


def made(parameters: dict[str, Any] | None = None, **more: Any) -> Any:
    return define_tool("act", "Does something.", parameters=parameters, handler=act, **more)


@pytest.mark.proves("define.required-unless-said")
def test_a_parameter_is_required_unless_it_says_otherwise() -> None:
    tool = made(
        {"path": {"type": "string"}, "limit": {"type": "integer", "required": False}, "note": "A bare text."}
    )
    schema = json.loads(tool.schema_json())
    assert schema["required"] == ["path", "note"]
    assert schema["properties"]["note"] == {"type": "string", "description": "A bare text."}
    assert "required" not in schema["properties"]["limit"]
    assert tool.arguments.check({"path": "a", "note": "n"}).problems == []
    assert "path" in tool.arguments.check({"note": "n"}).problems[0]


@pytest.mark.proves("define.params-pointed-out")
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


@pytest.mark.proves("define.params-pointed-out")
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


@pytest.mark.proves("catalog.functions")
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


@pytest.mark.proves("define.bad-schema-named")
@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"path": {"type": "strng"}}, "`path`"),
        ({"path": 5}, "`path`"),
        ({"type": "object", "properties": {"a": {"type": 5}}}, "`act`"),
        ({"type": "object", "properties": {"a": {"$ref": "http://example.com/schema.json"}}}, "fetched"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_place(
    parameters: dict[str, Any], said: str
) -> None:
    with pytest.raises(ToolDefinitionError, match=said):
        made(parameters)


@pytest.mark.proves("tools.undeclared-refused")
def test_an_argument_nobody_declared_is_refused_by_name() -> None:
    (problem,) = made({"path": "Where."}).arguments.check({"path": "a", "pth": "b"}).problems
    assert "`pth`" in problem and "`path`" in problem


@pytest.mark.proves("define.json-schema")
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


@pytest.mark.proves("tools.touches")
def test_touches_are_words_and_unknown_ones_are_refused() -> None:
    tool = made(
        {"path": "Where.", "cmd": "What."}, touches={"path": "write", "cmd": "command"}, side_effect="write"
    )
    assert tool.subjects({"path": "a", "cmd": "ls"}) == (Subject("write", "a"), Subject("command", "ls"))
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
    assert (tool.full_name, tool.reliability.timeout, tool.polls, tool.risk) == ("n::act", 5, True, "safe")


async def later(**arguments: Any) -> Any:
    return arguments


@pytest.mark.proves("tools.async-and-sync")
def test_an_async_handler_is_seen_as_such() -> None:
    assert define_tool("later", "Waits.", handler=later).is_async
    assert not made().is_async


@pytest.mark.proves("tools.bad-arguments-named")
@pytest.mark.parametrize("wrong", [{"path": True}, {"path": None}, {}, {"path": ["a"]}])
def test_a_wrong_argument_is_refused_with_its_name(wrong: dict[str, Any]) -> None:
    problems = made({"path": {"type": "string"}}).arguments.check(wrong).problems
    assert problems and all("path" in problem for problem in problems)
