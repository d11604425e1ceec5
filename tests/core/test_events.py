"""Events out and in again are the same, and a reader survives what it does not know."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.events import (
    Access,
    CallEvaluated,
    DirectCall,
    Event,
    ModelAnswered,
    ProviderToolCall,
    RunFinished,
    RunStarted,
    ToolAnswered,
    Unknown,
    Usage,
    event_from_json,
    event_to_json,
)
from ferrule.core.limits import Limits
from ferrule.core.output import OutputRequest

KINDS: list[Any] = [cls for cls in get_args(Event) if cls is not Unknown]

text = st.text(max_size=20)
count = st.integers(min_value=0, max_value=2**53)
json_values = st.recursive(
    st.none() | st.booleans() | count | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
texts = st.lists(text, max_size=3).map(tuple)
calls = st.builds(ToolCall, text, text, text)
results = st.builds(
    ToolResult,
    text,
    text,
    st.booleans(),
    json_values,
    st.sampled_from(ErrorType),
    st.none() | text,
    count,
    count,
    count,
    st.booleans(),
    texts,
)
SPECIAL: dict[str, st.SearchStrategy[Any]] = {
    "call": calls,
    "calls": st.lists(calls, max_size=3).map(tuple),
    "provider_calls": st.lists(st.builds(ProviderToolCall, *[text] * 9, texts), max_size=2).map(
        tuple
    ),
    "usage": st.builds(Usage, *[count] * 5),
    "limits": st.builds(Limits, st.integers(1, 99), st.integers(1, 99), st.integers(256, 65_536)),
    "access": st.builds(Access, texts, texts),
    "raw": st.none() | text,
    "tools": texts,
    "format": count,
    "join": count,
    "require": texts,
    "tool_references": texts,
    "promoted": texts,
    "query": st.dictionaries(text, text | count | texts.map(list), max_size=3),
    "events": count,
    "problems": texts,
    "final": st.booleans(),
    "number": count,
    "polls": st.booleans(),
    "asks": st.booleans(),
    "at_once": st.booleans(),
    "value": st.floats(allow_nan=False, allow_infinity=False),
    "share": st.floats(allow_nan=False, allow_infinity=False),
    "elided": st.lists(count, max_size=3).map(tuple),
    "stubs": texts,
    "through": count,
    "kept": st.lists(count, max_size=3).map(tuple),
    "before": count,
    "after": count,
    "window": count,
}


def events_of(cls: Any) -> st.SearchStrategy[Any]:
    """Values of one kind of event, every field filled."""
    optional_result = cls is CallEvaluated
    made: dict[str, st.SearchStrategy[Any]] = {}
    for item in fields(cls):
        if item.name == "result":
            made["result"] = st.none() | results if optional_result else results
        elif item.name == "output_request":
            made["output_request"] = st.none() | st.builds(OutputRequest, text, count)
        else:
            made[item.name] = SPECIAL.get(item.name, text)
    return st.builds(cls, **made)


def through_json(event: Any) -> Any:
    kind, body = event_to_json(event)
    return event_from_json(kind, json.loads(json.dumps(body)))


@pytest.mark.proves("events.identity")
@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.kind)
def test_an_event_written_and_read_is_the_same_event(cls: Any) -> None:
    @settings(max_examples=40)
    @given(events_of(cls))
    def check_round_trip(event: Any) -> None:
        assert through_json(event) == event

    check_round_trip()


@pytest.mark.proves("events.identity")
def test_kinds_are_unique_and_every_kind_is_a_flat_value() -> None:
    assert len({cls.kind for cls in KINDS}) == len(KINDS)
    assert all(is_dataclass(cls) for cls in KINDS)


@given(
    name=st.from_regex(r"x\.[a-z]{1,8}", fullmatch=True),
    body=st.dictionaries(text, json_values, max_size=3),
)
@pytest.mark.proves("events.unknown-kept")
def test_an_event_of_an_unknown_kind_is_kept_and_written_back_unchanged(
    name: str, body: dict[str, Any]
) -> None:
    event = event_from_json(name, body)
    assert event == Unknown(name, body)
    assert event_to_json(event) == (name, body)


@pytest.mark.proves("events.tolerant")
@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.kind)
def test_a_field_from_the_future_is_dropped(cls: Any) -> None:
    @settings(max_examples=40)
    @given(events_of(cls))
    def with_more(event: Any) -> None:
        kind, body = event_to_json(event)
        assert event_from_json(kind, {**body, "field_of_a_later_version": {"a": [1]}}) == event

    with_more()


@pytest.mark.proves("events.tolerant")
def test_a_missing_field_takes_its_default() -> None:
    assert event_from_json("model.answered", {"text": "hello"}) == ModelAnswered("hello")
    assert event_from_json("run.finished", {"stop": "done"}) == RunFinished("done")


@pytest.mark.proves("events.tolerant")
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("run.started", {}),
        ("run.started", {"text": "hello", "limits": {"on_limit": "a word of the future"}}),
        ("run.started", {"text": "hello", "limits": {"max_turns": 0}}),
        ("call.direct", {"call": "not an object"}),
        ("call.direct", {"call": None}),
        ("call.answered", {"result": None}),
        (
            "call.answered",
            {
                "result": {
                    "call_id": "c",
                    "tool": "t",
                    "success": False,
                    "error_type": "of-the-future",
                }
            },
        ),
        ("model.answered", {"calls": [{"tool": "no id"}]}),
        ("model.answered", {"calls": 5}),
        ("model.answered", {"usage": 5}),
    ],
)
def test_a_known_kind_that_cannot_be_understood_is_kept_as_it_is(
    kind: str, body: dict[str, Any]
) -> None:
    event = event_from_json(kind, body)
    assert event == Unknown(kind, body)
    assert event_to_json(event) == (kind, body)


def test_a_result_inside_an_event_keeps_lists_as_lists() -> None:
    event = ToolAnswered(ToolResult("c", "t", True, ["a", ["b"]], notes=("n",)))
    back = through_json(event)
    assert back.result.data == ["a", ["b"]]
    assert back.result.notes == ("n",)


def test_usage_adds_up() -> None:
    assert Usage(1, 2, 3) + Usage(10, 20, 30) == Usage(11, 22, 33)


def test_what_is_written_is_named_by_its_kind() -> None:
    assert event_to_json(RunStarted("hello", "m"))[0] == "run.started"
    assert event_to_json(DirectCall(ToolCall("c", "t")))[1] == {
        "call": {"id": "c", "tool": "t", "arguments": "{}"},
        "by": "person",
    }
