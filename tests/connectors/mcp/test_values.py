"""Policies, schemas and results as values: no server is needed."""

from __future__ import annotations

import contextlib
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.connectors.bounded_schemas import (
    is_bounded,
    make_arguments,
    make_output,
    nesting_depth,
)
from ferrule.connectors.mcp import McpServer
from ferrule.connectors.mcp.definitions import ToolDefinition
from ferrule.connectors.mcp.results import resource_value, result_value
from ferrule.connectors.mcp.tools import classify_tool
from ferrule.core.errors import ConfigError, ToolDefinitionError, ToolFailed
from ferrule.core.media import Media, has_media
from ferrule.tools.reliability import Policies, Reliability, read_policies
from media_samples import PDF, SVG, make_png, make_wav

fields: Any = st.fixed_dictionaries(
    {},
    optional={
        "max_attempts": st.integers(1, 9),
        "timeout_ms": st.integers(1, 99_999),
        "retry_on": st.lists(st.sampled_from(["transient", "timeout", "5xx", "permanent"])),
    },
)


@given(server=fields, tool=fields)
def test_each_field_falls_through_by_itself(server: dict[str, Any], tool: dict[str, Any]) -> None:
    found = read_policies(server, {"search": tool}, "x").policy_for("search")
    both = {**server, **tool}
    assert found.max_attempts == both.get("max_attempts")
    assert found.timeout == (both["timeout_ms"] / 1000 if "timeout_ms" in both else None)
    assert found.retry_on == (tuple(both["retry_on"]) if "retry_on" in both else None)
    assert (
        read_policies(server, {"search": tool}, "x").policy_for("other")
        == read_policies(server, None, "x").default
    )


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"retry_on": ["5xx", "often"]}, "found `often`"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout_ms": "10"}, "timeout_ms"),
        ({"max_retries": 3}, "unknown key `max_retries`"),
    ],
)
def test_what_a_policy_cannot_mean_is_an_error_that_names_it(
    given_: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        read_policies(given_, None, "server `x`")
    with pytest.raises(ConfigError, match=said):
        read_policies(None, {"search": given_}, "server `x`")


def test_nothing_written_leaves_the_defaults() -> None:
    assert (
        read_policies(None, None, "x") == Policies()
        and Policies().policy_for("any") == Reliability()
    )


@pytest.mark.parametrize(
    ("hints", "says", "expected"),
    [
        (False, {}, ("external", "medium", False)),
        (False, {"readOnlyHint": True}, ("external", "medium", False)),
        (False, {"destructiveHint": True}, ("external", "high", False)),
        (False, {"idempotentHint": True}, ("external", "medium", False)),
        (True, {"readOnlyHint": True}, ("read", "low", True)),
        (True, {"readOnlyHint": True, "destructiveHint": True}, ("external", "medium", True)),
        (True, {"idempotentHint": True}, ("external", "medium", True)),
        (True, {"readOnlyHint": "yes"}, ("external", "medium", False)),
    ],
)
def test_what_a_tool_says_of_itself_only_tightens_unless_the_server_is_believed(
    hints: bool, says: dict[str, Any], expected: tuple[str, str, bool]
) -> None:
    server = McpServer("x", command=("x",), hints=hints)
    one = ToolDefinition({"name": "a", "inputSchema": {"type": "object"}, "annotations": says})
    side_effect, risk, idempotent = classify_tool(server, one)
    if says == {"readOnlyHint": True, "destructiveHint": True}:
        assert str(side_effect) == "external" and str(risk) != "low"
    else:
        assert (str(side_effect), str(risk), idempotent) == expected


@pytest.mark.parametrize(
    ("result", "value"),
    [
        ({"content": [], "structuredContent": {"a": 1}}, {"a": 1}),
        ({"content": [{"type": "text", "text": "x"}], "structuredContent": [1]}, [1]),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "text", "text": '{"a": 1}'}]}, {"a": 1}),
        ({"content": [{"type": "text", "text": "{broken"}]}, "{broken"),
        ({"content": [{"type": "text", "text": "12"}]}, "12"),
        ({"content": []}, ""),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]},
            {
                "parts": [
                    {
                        "type": "image",
                        "media_type": "image/png",
                        "bytes": 3,
                        "note": "not shown: it is nothing that models take: it begins with 00 00 00",
                    }
                ]
            },
        ),
        (
            {
                "content": [
                    {"type": "text", "text": "see"},
                    {"type": "resource_link", "uri": "a://b", "name": "b"},
                ]
            },
            {
                "parts": [
                    {"type": "text", "text": "see"},
                    {"type": "resource_link", "uri": "a://b", "name": "b"},
                ]
            },
        ),
        (
            {"content": [{"type": "resource", "resource": {"uri": "a://b", "text": "in it"}}]},
            {"parts": [{"type": "resource", "uri": "a://b", "media_type": "", "text": "in it"}]},
        ),
        (
            {"content": [{"type": "hologram"}]},
            {"parts": [{"type": "hologram", "note": "unknown kind of content"}]},
        ),
    ],
)
def test_results_become_values(result: dict[str, Any], value: Any) -> None:
    assert result_value("s", "t", result) == value


def test_an_error_of_a_tool_is_a_failure_with_its_words() -> None:
    with pytest.raises(ToolFailed, match=r"`t` of server `s` failed: no such city") as caught:
        result_value(
            "s", "t", {"isError": True, "content": [{"type": "text", "text": "no such city"}]}
        )
    assert not caught.value.is_transient


json_values: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["$ref", "type", "properties", "allOf", "a"]), inner, max_size=4
        )
    ),
    max_leaves=25,
)


@given(
    st.dictionaries(
        st.sampled_from(["$ref", "type", "properties", "$defs", "allOf"]), json_values, max_size=5
    )
)
def test_whatever_a_schema_says_it_is_judged_without_breaking(schema: dict[str, Any]) -> None:
    assert nesting_depth(schema) >= 1
    is_bounded(schema)
    for make in (make_arguments, make_output):
        with contextlib.suppress(ToolDefinitionError):
            make("t", schema)


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/b"}},
                "$defs": {"b": {"type": "string"}},
            },
            True,
        ),
        ({"type": "object", "properties": {"a": {"$ref": "#"}}}, False),
        ({"$ref": "#"}, False),
        ({"type": "object", "allOf": [{"$dynamicRef": "#x"}]}, False),
        ({"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}, False),
    ],
)
def test_references_that_lead_round_are_not_checked_to_the_end(
    schema: dict[str, Any], expected: bool
) -> None:
    assert is_bounded(schema) is expected
    if not expected:
        assert (
            make_arguments("t", {**schema, "type": "object"}).check({"a": {"a": {}}}).problems == []
        )


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ({"n": 1}, []),
        ({"n": "1"}, ["['n']: "]),
        ("n is 1", [": "]),
        ([{"n": 1}, Media(make_png())], []),
        ([{"n": "1"}, Media(make_png())], ["['n']: "]),
        ([Media(make_png())], ["the answer is not JSON"]),
        (Media(make_png()), ["the answer is not JSON"]),
        ([], [": "]),
    ],
)
def test_a_result_is_checked_against_what_was_promised_and_passed_on_as_it_is(
    value: Any, problems: list[str]
) -> None:
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    passed, found = make_output("t", number).encode(value)
    assert passed is value
    assert [said.startswith(begins) for said, begins in zip(found, problems, strict=True)] == [
        True
    ] * len(problems)


def block(kind: str, data: bytes, mime: str = "image/png") -> dict[str, Any]:
    return {"type": kind, "mimeType": mime, "data": b64encode(data).decode()}


def shape(value: Any) -> list[Any]:
    """A list of texts and media, with media as their kind of bytes and their name."""
    return [(one.data, one.name) if isinstance(one, Media) else one for one in value]


def test_pictures_sounds_and_files_of_a_server_become_media_by_their_content() -> None:
    blob = b64encode(PDF).decode()
    parts = [
        {"type": "text", "text": "here"},
        block("image", make_png(), "text/html"),
        block("audio", make_wav(), "audio/x-wav"),
        {"type": "resource", "resource": {"uri": "a://b/paper.pdf", "blob": blob}},
        {"type": "resource_link", "uri": "a://b", "name": "b"},
    ]
    assert shape(result_value("s", "t", {"content": parts})) == [
        "here",
        (make_png(), ""),
        (make_wav(), ""),
        (PDF, "paper.pdf"),
        {"type": "resource_link", "uri": "a://b", "name": "b"},
    ]
    structured = {"structuredContent": {"a": 1}, "content": parts[:2]}
    assert shape(result_value("s", "t", structured)) == [{"a": 1}, (make_png(), "")]
    read = resource_value({"contents": [{"uri": "a://b/paper.pdf", "blob": blob}]})
    assert shape(read) == [(PDF, "paper.pdf")]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (make_png(animated=True), "animated"),
        (make_png()[:-20], "cut off"),
        (SVG, "image/svg+xml"),
        (b"\x7fELF\1\1\1\0", "nothing that models take"),
        (b"x" * (34 << 20), "the most is 33554432"),
    ],
)
def test_what_models_cannot_take_is_described_and_the_result_stays(data: bytes, said: str) -> None:
    value = result_value("s", "t", {"content": [block("image", data)]})
    assert not has_media(value)
    (part,) = value["parts"]
    assert (part["type"], part["bytes"]) == ("image", len(data))
    assert said in part.get("note", "") or said == "image/svg+xml"
