"""Events out and in again are the same, and a reader survives what it does not know."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from ferrule.core.calls import ErrorType, ToolCall, ToolResult
from ferrule.core.events import (
    Access,
    DirectCall,
    Event,
    ModelAnswered,
    ProviderToolCall,
    RunFinished,
    RunStarted,
    ToolAnswered,
    Unknown,
    Usage,
    dump_event,
    event_from_json,
    event_to_json,
)
from ferrule.core.limits import Limits
from ferrule.core.media import MediaReference
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
limits = st.builds(Limits, st.integers(1, 99), st.integers(1, 99), st.integers(256, 65_536))
OF_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: text,
    int: count,
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    ToolCall: calls,
    ToolResult: results,
    Usage: st.builds(Usage, *[count] * 5),
    Limits: limits,
    Access: st.builds(Access, texts, texts),
    OutputRequest: st.builds(OutputRequest, text, count),
    tuple[MediaReference, ...]: st.lists(
        st.builds(
            MediaReference,
            st.sampled_from(["image", "audio", "document"]),
            text,
            text,
            count,
            count,
            text,
            count,
            count,
        ),
        max_size=2,
    ).map(tuple),
    dict[str, Any]: st.dictionaries(text, text | count | texts.map(list), max_size=3),
}


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type."""
    if hint in OF_TYPE:
        return OF_TYPE[hint]
    words = words_of(hint)
    if words:
        return st.sampled_from(words)
    if hint is ProviderToolCall:
        return events_of(hint)
    if get_origin(hint) is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=3).map(tuple)
    (inner,) = [one for one in get_args(hint) if one is not type(None)]
    return st.none() | values_of(inner)


def words_of(hint: Any) -> list[Any]:
    """The words of a field that has a closed vocabulary."""
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return list(hint)
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    parts = [words_of(one) for one in get_args(hint)]
    return list(chain(*parts)) if parts and all(parts) else []


def events_of(cls: Any) -> st.SearchStrategy[Any]:
    """Values of one kind of event, every field filled."""
    hints = get_type_hints(cls)
    return st.builds(cls, **{item.name: values_of(hints[item.name]) for item in fields(cls)})


WORDS = [
    (cls, item.name)
    for cls in KINDS
    for item in fields(cls)
    if words_of(get_type_hints(cls)[item.name])
]
"""The fields of events that have a closed vocabulary."""


def through_json(event: Any) -> Any:
    kind, body = event_to_json(event)
    return event_from_json(kind, json.loads(json.dumps(body)))


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.kind)
def test_an_event_written_and_read_is_the_same_event(cls: Any) -> None:
    @settings(max_examples=40)
    @given(events_of(cls))
    def check_round_trip(event: Any) -> None:
        assert through_json(event) == event

    check_round_trip()


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


@pytest.mark.parametrize("cls", KINDS, ids=lambda cls: cls.kind)
def test_a_field_from_the_future_is_dropped(cls: Any) -> None:
    @settings(max_examples=40)
    @given(events_of(cls))
    def with_more(event: Any) -> None:
        kind, body = event_to_json(event)
        assert event_from_json(kind, {**body, "field_of_a_later_version": {"a": [1]}}) == event

    with_more()


def test_a_missing_field_takes_its_default() -> None:
    assert event_from_json("model.answered", {"text": "hello"}) == ModelAnswered("hello")
    assert event_from_json("run.finished", {"stop": "done"}) == RunFinished("done")


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


@pytest.mark.parametrize(("cls", "name"), WORDS, ids=lambda one: getattr(one, "kind", one))
def test_a_word_that_its_field_cannot_have_is_neither_read_nor_written(cls: Any, name: str) -> None:
    hints = get_type_hints(cls)
    # The first value that is drawn is as good as the smallest, and takes a tenth of the time.
    first = settings(phases=[Phase.generate], max_examples=1, database=None)
    simplest = {
        item.name: find(values_of(hints[item.name]), lambda _: True, settings=first)
        for item in fields(cls)
    }
    event = cls(**simplest)
    kind, body = event_to_json(event)
    assert event_from_json(kind, body) == event
    for wrong in ("Deny", "a word of the future", None, 1, ["deny"]):
        odd = {**body, name: wrong}
        assert event_from_json(kind, odd) == Unknown(kind, odd)
        with pytest.raises(TypeError):
            dump_event(replace(event, **{name: wrong}))


def test_which_fields_have_a_closed_vocabulary() -> None:
    assert sorted(f"{cls.kind} {name}" for cls, name in WORDS) == [
        "call.evaluated effect",
        "call.evaluated layer",
        "call.evaluated mode",
        "call.evaluated risk",
        "call.evaluated verdict",
        "call.files when",
        "call.hooked verdict",
        "call.probed found",
        "consent.answered choice",
        "consent.answered refused_by",
        "context.compacted made",
        "context.compacted why",
        "delegation.finished stop",
        "limit.hit limit",
        "model.answered stop",
        "model.answered tool_mode",
        "person.answered choice",
        "person.answered refused_by",
        "run.finished stop",
        "session.opened mode",
        "session.opened results",
        "tool_search_query mode",
        "tool_search_result mode",
    ]


@pytest.mark.parametrize("wrong", [5, None, True, ["a"], {"a": 1}])
def test_a_value_of_another_type_is_not_taken_for_one(wrong: Any) -> None:
    body = {"call_id": wrong, "choice": "once"}
    assert event_from_json("person.answered", body) == Unknown("person.answered", body)


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
