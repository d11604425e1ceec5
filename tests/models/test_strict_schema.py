"""The strict-schema compiler: what it makes of a schema, and that nothing is lost by it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.calls import encode_json
from ferrule.models.openai.strict_schema import CompiledSchema, compile_strict
from ferrule.tools.decorator import tool

MAX_DEPTH = 10
MAX_ENUM_VALUES = 1000
MAX_PROPERTIES = 5000


def compiled(**schema: Any) -> CompiledSchema:
    return compile_strict(encode_json({"type": "object", **schema}))


def parameter(schema: Any, *, required: bool = True) -> CompiledSchema:
    """An object with this one parameter, `x`."""
    return compiled(
        properties={"x": schema}, required=["x"] if required else [], additionalProperties=False
    )


def sent(strict: CompiledSchema) -> Any:
    return json.loads(strict.schema)


def test_a_reference_is_sent_as_a_reference() -> None:
    node = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    found = sent(
        compiled(
            properties={"a": {"$ref": "#/$defs/N"}, "b": {"type": "integer"}},
            required=["a"],
            additionalProperties=False,
            **{"$defs": {"N": {**node, "additionalProperties": False}}},
        )
    )
    assert found["properties"]["a"] == {"$ref": "#/$defs/N"}


def test_a_schema_in_the_subset_is_sent_as_it_stands() -> None:
    text = '{"type":"object","properties":{"x":{"type":"string"}},"required":["x"],"additionalProperties":false}'
    found = compile_strict(text)
    assert (found.verdict, found.schema, found.report_lines()) == ("clean", text, ["clean"])


@pytest.mark.parametrize(
    ("optional", "expected"),
    [
        ({"type": "integer"}, {"type": ["integer", "null"]}),
        ({"type": ["string", "integer"]}, {"type": ["integer", "string", "null"]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "string", "enum": ["a", "b"]},
            {"type": ["string", "null"], "enum": ["a", "b", None]},
        ),
        ({"enum": [1, None]}, {"enum": [1, None]}),
        ({"const": 3, "title": "T"}, {"title": "T", "anyOf": [{"const": 3}, {"type": "null"}]}),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        ),
    ],
)
def test_what_is_optional_may_be_null_instead(optional: Any, expected: Any) -> None:
    found = parameter(optional, required=False)
    assert found.verdict == "rewritten"
    assert sent(found) == {
        "type": "object",
        "properties": {"x": expected},
        "required": ["x"],
        "additionalProperties": False,
    }
    assert "  /x: is optional and may be null instead" in found.report_lines()


def test_an_optional_reference_is_offered_beside_null() -> None:
    found = compiled(
        properties={"x": {"$ref": "#/$defs/P"}},
        additionalProperties=False,
        **{"$defs": {"P": {"type": "integer"}}},
    )
    assert sent(found)["properties"]["x"] == {"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]}
    assert sent(found)["$defs"] == {"P": {"type": "integer"}}


@pytest.mark.parametrize(
    ("given_", "expected", "told"),
    [
        (
            {"type": "string", "minLength": 1},
            {"type": "string"},
            "`minLength` was left out; calls are still checked for it",
        ),
        ({"type": "string", "format": "uri"}, {"type": "string"}, "`format: uri` was left out"),
        (
            {"type": "integer", "default": 5},
            {"type": "integer", "description": "Default: 5."},
            "`default` was left out",
        ),
        (
            {"oneOf": [{"type": "string"}]},
            {"anyOf": [{"type": "string"}]},
            "`oneOf` became `anyOf`",
        ),
        (
            {"allOf": [{"type": "string"}]},
            {"type": "string"},
            "`allOf` of one schema became that schema",
        ),
        (
            {"type": "object", "properties": {}},
            {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
            "takes no other keys",
        ),
    ],
)
def test_what_only_narrows_is_left_out_and_said(given_: Any, expected: Any, told: str) -> None:
    found = parameter(given_)
    assert (found.verdict, sent(found)["properties"]["x"]) == ("rewritten", expected)
    assert f"  /x: {told}" in found.report_lines()


def test_words_beside_a_reference_are_put_around_it() -> None:
    found = compiled(
        properties={"x": {"$ref": "#", "description": "More."}},
        required=["x"],
        additionalProperties=False,
    )
    assert (
        sent(found)["properties"]["x"] == {"description": "More.", "anyOf": [{"$ref": "#"}]}
        or found.verdict == "clean"
    )


@pytest.mark.parametrize(
    ("given_", "why"),
    [
        ({"type": "object"}, "/x: takes keys that it does not name"),
        (
            {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
            "/x: takes keys that it does not name",
        ),
        (
            {"type": "object", "properties": {"a~/b": {}}, "additionalProperties": False},
            "/x/a~0~1b: takes any value",
        ),
        ({}, "/x: takes any value"),
        (True, "/x: takes any value"),
        ({"description": "?"}, "/x: names no type"),
        ({"type": "array"}, "/x/items: takes any value"),
        (
            {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}},
            "/x: `prefixItems` is not supported in strict schemas",
        ),
        (
            {"allOf": [{"type": "string"}, {"minLength": 1}]},
            "/x: `allOf` is not supported in strict schemas",
        ),
        ({"type": "string", "if": {"const": "a"}}, "/x: `if` is not supported in strict schemas"),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
            "/x: requires `b`, which it does not describe",
        ),
        ({"$ref": "#/$defs/none"}, "/x: `$ref` to `#/$defs/none` leads nowhere in this schema"),
        (
            {"$ref": "https://example.com/schema"},
            "/x: `$ref` to `https://example.com/schema` leads nowhere in this schema",
        ),
    ],
)
def test_what_cannot_be_said_strictly_has_its_reason(given_: Any, why: str) -> None:
    found = parameter(given_)
    assert found.verdict == "not_strict"
    assert why in found.reasons
    assert found.schema == encode_json(
        {
            "type": "object",
            "properties": {"x": given_},
            "required": ["x"],
            "additionalProperties": False,
        }
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"type":"string"}',
        '{"anyOf":[{"type":"object"}]}',
        '{"type":"object","properties":{"a":{"type":"string"}},"anyOf":[{"required":["a"]}]}',
    ],
)
def test_a_root_that_is_no_plain_object_is_not_strict(text: str) -> None:
    assert compile_strict(text).is_strict is (text == "")


def test_the_providers_bounds_are_kept() -> None:
    deep: Any = {"type": "string"}
    for _ in range(MAX_DEPTH + 1):
        deep = {
            "type": "object",
            "properties": {"x": deep},
            "required": ["x"],
            "additionalProperties": False,
        }
    assert (
        f"objects are nested more than {MAX_DEPTH} deep"
        in compile_strict(encode_json(deep)).reasons[0]
    )
    many = {f"p{n}": {"type": "string"} for n in range(MAX_PROPERTIES + 1)}
    assert f"{MAX_PROPERTIES + 1} properties" in compiled(properties=many).reasons[0]
    values = parameter({"type": "integer", "enum": list(range(MAX_ENUM_VALUES + 1))})
    assert f"{MAX_ENUM_VALUES + 1} enum values" in values.reasons[0]
    for count, is_strict in ((250, True), (251, False)):
        long = {"type": "string", "enum": [f"{n:0>60}" for n in range(count)]}
        assert parameter(long).is_strict is is_strict
    assert "its enum has 15060 characters" in parameter(long).reasons[0]


def test_only_nulls_that_strictness_asked_for_are_dropped() -> None:
    inner = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": ["string", "null"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    found = compiled(
        properties={
            "one": inner,
            "many": {"type": "array", "items": inner},
            "either": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/I"}]},
            "kept": {"type": "null"},
        },
        required=["many"],
        additionalProperties=False,
        **{"$defs": {"I": {**inner, "required": []}}},
    )
    text = '{"one": null, "many": [{"a": 1, "b": null}], "either": {"a": null, "b": null}, "kept": null}'
    assert json.loads(found.drop_nulls(text)) == {
        "many": [{"a": 1, "b": None}],
        "either": {"b": None},
        "kept": None,
    }
    for same in ('{"many": [ ]}', "not json null", '{"many": null}', "null", '{"kept": null}'):
        assert found.drop_nulls(same) == same


def test_schemas_that_signatures_make_are_strict() -> None:
    @tool
    def search(
        pattern: str, folder: str = ".", kinds: list[str] | None = None, limit: int | None = 20
    ) -> str:
        """Search."""
        return f"{pattern}{folder}{kinds}{limit}"

    found = compile_strict(search.schema_json())
    assert found.verdict == "rewritten", found.report_lines()
    assert sent(found)["required"] == ["pattern", "folder", "kinds", "limit"]
    restored = found.drop_nulls('{"pattern":"x","folder":null,"kinds":null,"limit":null}')
    # A null that the tool's own schema takes may be meant.
    assert json.loads(restored) == {"pattern": "x", "limit": None}


# ---- for all schemas

NAMES = st.sampled_from(["a", "b", "c~", "d/e"])
LEAVES = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 0},
        {"type": "boolean"},
        {"type": ["string", "null"]},
        {"type": "null"},
        {"type": "string", "enum": ["x", "y"]},
        {"const": 3},
        {"enum": [1, None]},
        {"type": "string", "minLength": 1, "default": "d"},
    ]
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def closed(parts: tuple[dict[str, Any], list[bool]]) -> dict[str, Any]:
        properties, wanted = parts
        required = [
            name for name, is_required in zip(properties, wanted, strict=False) if is_required
        ]
        return {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    return st.tuples(
        st.dictionaries(NAMES, inner, max_size=3), st.lists(st.booleans(), min_size=3, max_size=3)
    ).map(closed)


SCHEMAS = objects(
    st.recursive(
        LEAVES,
        lambda inner: (
            objects(inner)
            | inner.map(lambda items: {"type": "array", "items": items})
            | st.lists(inner, min_size=1, max_size=2).map(lambda parts: {"anyOf": parts})
        ),
        max_leaves=6,
    )
)


def in_the_subset(schema: Any) -> bool:
    """An independent reading of the rules."""
    if "properties" in schema or schema.get("type") == "object":
        if schema.get("additionalProperties") is not False or schema["required"] != list(
            schema["properties"]
        ):
            return False
        if not all(in_the_subset(part) for part in schema["properties"].values()):
            return False
    unknown = schema.keys() - {
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "anyOf",
        "enum",
        "const",
        "minimum",
        "description",
    }
    parts = [*schema.get("anyOf", ()), *([schema["items"]] if "items" in schema else ())]
    return not unknown and all(in_the_subset(part) for part in parts)


def values_of(schema: Any, draw: Any) -> Any:
    """A value that fits a compiled schema."""
    if "anyOf" in schema:
        return values_of(draw(st.sampled_from(schema["anyOf"])), draw)
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    if "const" in schema:
        return schema["const"]
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    match draw(st.sampled_from(types)):
        case "object":
            return {name: values_of(part, draw) for name, part in schema["properties"].items()}
        case "array":
            return [values_of(schema["items"], draw) for _ in range(draw(st.integers(0, 2)))]
        case "string":
            return draw(st.sampled_from(["s", "null", "ä"]))
        case "integer":
            return draw(st.integers(0, 3))
        case "boolean":
            return draw(st.booleans())
        case _:
            return None


TEXT, MAYBE, NUMBER = {"type": "string"}, {"type": ["string", "null"]}, {"type": "integer"}


def closed(required: list[str], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("alternatives", "given", "wanted"),
    [
        pytest.param(
            [closed(["b"], a=TEXT, b=MAYBE), closed(["c"], a=TEXT, b=TEXT, c=TEXT)],
            {"a": "s", "b": None},
            {"a": "s", "b": None},
            id="what-fits-is-left-alone",
        ),
        pytest.param(
            [closed(["a", "b"], a=TEXT, b=MAYBE), closed(["a"], a=NUMBER, b=TEXT)],
            {"a": 1, "b": None},
            {"a": 1},
            id="the-same-names-other-types",
        ),
        pytest.param(
            [{"$ref": "#/$defs/odd~1name"}, closed(["a"], a=TEXT, b=TEXT, c=TEXT)],
            {"a": "s", "b": None, "c": None},
            {"a": "s", "c": None},
            id="the-first-that-then-fits",
        ),
        pytest.param(
            [closed(["a"], a=closed([], d=TEXT), b=TEXT), closed(["a"], a=TEXT)],
            {"a": {"d": None}, "b": "s"},
            {"a": {}, "b": "s"},
            id="below-an-alternative",
        ),
    ],
)
def test_the_alternative_that_the_value_fits_decides_about_its_nulls(
    alternatives: list[Any], given: Any, wanted: Any
) -> None:
    schema = closed(["x"], x={"anyOf": alternatives}) | {
        "$defs": {"odd/name": closed(["a"], a=TEXT, b=TEXT, c=MAYBE)}
    }
    found = compile_strict(encode_json(schema))
    assert json.loads(found.drop_nulls(encode_json({"x": given}))) == {"x": wanted}
    assert jsonschema_rs.is_valid(schema, {"x": wanted})


def test_alternatives_that_lead_back_to_each_other_take_no_time() -> None:
    """Each of them twice, sixty deep: tried one by one they would be as many as 2 to the 60th."""
    back = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{(n + 1) % 60}"}] * 2} for n in range(60)}
    schema = closed([], x={"$ref": "#/$defs/d0"}, y=TEXT) | {"$defs": back}
    found = compile_strict(encode_json(schema))
    assert found.drop_nulls('{"x":{"z":null},"y":null}') == '{"x":{"z":null}}'


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, st.data())
def test_what_fits_the_strict_schema_fits_the_tools_own_once_restored(
    schema: Any, data: st.DataObject
) -> None:
    found = compile_strict(encode_json(schema))
    assert found.is_strict, found.reasons
    assert in_the_subset(sent(found))
    value = values_of(sent(found), data.draw)
    assert jsonschema_rs.is_valid(sent(found), value)
    restored = found.drop_nulls(encode_json(value))
    assert jsonschema_rs.is_valid(schema, json.loads(restored)), (schema, value)
    assert found.drop_nulls(restored) == restored


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.sampled_from(["object", "array", "string", "#", "#/a"]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "properties",
                        "items",
                        "anyOf",
                        "allOf",
                        "enum",
                        "$ref",
                        "required",
                        "$defs",
                        "additionalProperties",
                        "format",
                        "default",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_nothing_that_is_no_schema_breaks_the_compiler(junk: Any) -> None:
    for found in (compile_strict(encode_json(junk)), parameter(junk, required=False)):
        assert found.verdict in ("clean", "rewritten", "not_strict")
        assert found.drop_nulls('{"x":{"x":null}}')
