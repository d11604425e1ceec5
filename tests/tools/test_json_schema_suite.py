"""The JSON Schema Test Suite (2020-12) through the functions that check the arguments of calls.

The suite (github.com/json-schema-org/JSON-Schema-Test-Suite, MIT, as the `jsonschema` 4.26.0 sdist
brings it) lies in `json_schema_suite`, one line a file. Each case is checked as one argument's
value; a case whose value is an object also as the arguments themselves. What is not passed stands
here with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from ferrule.connectors.bounded_schemas import ShallowArguments, make_arguments
from ferrule.core.errors import ToolDefinitionError
from ferrule.tools.define import SchemaArguments
from ferrule.tools.definition import Arguments

SUITE: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "json_schema_suite" / "draft2020-12.json").read_text()
)

FETCHED = {
    ("dynamicRef", "strict-tree schema, guards against misspelled properties"),
    ("dynamicRef", "tests for implementation dynamic anchor and reference link"),
    ("dynamicRef", "$ref and $dynamicAnchor are independent of order - $defs first"),
    ("dynamicRef", "$ref and $dynamicAnchor are independent of order - $ref first"),
    ("dynamicRef", "$ref to $dynamicRef finds detached $dynamicAnchor"),
    *(("refRemote", group["description"]) for group in SUITE["refRemote"]),
    ("vocabulary", "schema that uses custom metaschema with with no validation vocabulary"),
}
"""They refer to documents at other addresses, and a schema does not make this machine fetch
anything: the tool is refused.
"""

NOT_FOLLOWED = {
    "dynamicRef",
    "unevaluatedItems with $dynamicRef",
    "unevaluatedProperties with $dynamicRef",
}
"""Where a `$dynamicRef` leads is known only while a value is checked, so its cost is not bounded
beforehand: what a server's schema refuses by it is left to the server. (File, or group of cases.)
"""
METASCHEMA = {"validate definition against metaschema", "remote ref, containing refs itself"}
"""The metaschema refers to itself by `$dynamicRef`: the same."""

OTHER_METASCHEMA = {"schema that uses custom metaschema with with no validation vocabulary"}
"""A part of a schema is read by 2020-12's own metaschema, whatever it names as its own."""

CHECKS: dict[str, Callable[[dict[str, Any]], Arguments]] = {
    "a program's own": lambda schema: SchemaArguments("t", schema),
    "a server's": lambda schema: make_arguments("t", schema),
}


def cases() -> Iterator[tuple[str, str, dict[str, Any], Any, bool]]:
    """File, group, schema of the arguments, arguments, and whether they are valid."""
    for file, groups in SUITE.items():
        for group in groups:
            schema: Any = group["schema"]
            inner: Any = (
                {"$id": "urn:case", **cast("dict[str, Any]", schema)}
                if isinstance(schema, dict)
                else schema
            )
            whole: dict[str, Any] = {
                "type": "object",
                "properties": {"value": inner},
                "required": ["value"],
            }
            for case in group["tests"]:
                data, valid = case["data"], case["valid"]
                yield file, group["description"], whole, {"value": data}, valid
                # Arguments are an object; a schema that is about something else as well is no
                # schema of arguments.
                if isinstance(schema, dict) and isinstance(data, dict) and "type" not in schema:
                    yield file, group["description"], cast("dict[str, Any]", schema), data, valid


@pytest.mark.parametrize("whose", CHECKS)
def test_every_case_of_the_suite_is_decided_as_it_says_or_listed_with_its_reason(
    whose: str,
) -> None:
    wrong: list[Any] = []
    refused: set[tuple[str, str]] = set()
    outer: set[str] = set()
    checked = 0
    for file, group, schema, arguments, valid in cases():
        try:
            made = CHECKS[whose](schema)
        except ToolDefinitionError:
            refused.add((file, group))
            continue
        checked += 1
        if bool(made.check(arguments).problems) == valid:
            if (
                isinstance(made, ShallowArguments)
                and not valid
                and (file in NOT_FOLLOWED or group in NOT_FOLLOWED | METASCHEMA)
            ):
                outer.add(group)
            elif group not in OTHER_METASCHEMA:
                wrong.append((type(made).__name__, file, group, arguments, valid))
    print(
        f"{whose}: {checked} checked, {len(refused)} groups refused, {len(outer)} groups "
        "checked from the outside"
    )
    assert wrong == []
    assert refused == FETCHED
    assert bool(outer) == (whose == "a server's")
    assert checked > 1500


CLOSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (
        {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
        {"x-a": "1"},
        "",
    ),
    (
        {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False},
        {"y": 1},
        "`y` is not an argument",
    ),
    (
        {"allOf": [{"properties": {"path": {}}, "additionalProperties": False}]},
        {"pth": 1},
        "`pth` is not an argument",
    ),
    (
        {"$ref": "#/$defs/a", "$defs": {"a": {"additionalProperties": False}}},
        {"y": 1},
        "`y` is not an argument",
    ),
    ({"if": {}, "then": {"additionalProperties": False}}, {"y": 1}, "`y` is not an argument"),
    (
        {"dependentSchemas": {"y": {"additionalProperties": False}}},
        {"y": 1},
        "`y` is not an argument",
    ),
    (
        {"properties": {"a": {}}, "allOf": [{"additionalProperties": False}]},
        {"a": 1},
        "`arguments`: ",
    ),
    ({"properties": {"path": {}}, "unevaluatedProperties": False}, {"pth": 1}, "`arguments`: "),
]


@pytest.mark.parametrize("whose", CHECKS)
@pytest.mark.parametrize(("schema", "arguments", "said"), CLOSED)
def test_what_nobody_declared_is_refused_by_name_wherever_the_schema_says_so(
    whose: str, schema: dict[str, Any], arguments: Mapping[str, Any], said: str
) -> None:
    problems = CHECKS[whose](schema).check(arguments).problems
    assert len(problems) == bool(said)
    assert not said or problems[0].startswith(said)


TREE = {
    "type": "object",
    "properties": {
        "left": {"$ref": "#"},
        "right": {"$ref": "#/$defs/%6eode"},
        "name": {"type": "string"},
    },
    "additionalProperties": False,
    "$defs": {"node": {"$ref": "#"}},
}


def test_a_schema_that_refers_to_itself_is_checked_in_full_as_deep_as_that_is_cheap() -> None:
    tree = make_arguments("t", TREE)
    assert tree.check({"left": {"right": {"name": "a"}}}).problems == []
    assert tree.check({"left": {"right": {"name": 1}}}).problems
    assert tree.check({"left": {"rihgt": {}}}).problems
    deep: dict[str, Any] = {"name": 1}
    for _ in range(40):
        deep = {"left": deep}
    assert tree.check(deep).problems == []
    assert tree.check({"name": 1, "left": deep}).problems


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {
            "$defs": {"a": {"not": {"$ref": "#/$defs/b"}}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
            "$ref": "#/$defs/a",
        },
        {"$id": "urn:x", "if": {"$ref": "urn:x"}},
        {"dependentSchemas": {"a": {"$ref": "#"}}},
    ],
)
def test_a_schema_that_calls_itself_for_the_same_value_is_looked_at_from_the_outside(
    schema: dict[str, Any],
) -> None:
    assert isinstance(make_arguments("t", schema), ShallowArguments)


def test_references_that_multiply_at_every_level_cost_no_more_than_the_bound() -> None:
    schema = {
        "properties": {"c": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}},
        "additionalProperties": False,
    }
    deep: dict[str, Any] = {"bad": 1}
    for _ in range(24):
        deep = {"c": deep}
    assert make_arguments("t", schema).check(deep).problems == []
    assert make_arguments("t", schema).check({"c": {"bad": 1}}).problems
