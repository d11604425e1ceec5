"""For all events there can be: what goes into a journal comes out of it."""

from __future__ import annotations

import json
import typing
from dataclasses import fields, replace
from enum import Enum
from types import UnionType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule import Agent, Scripted, Storage, tool
from ferrule.core.calls import ErrorType, ToolCall, ToolResult, encode_json
from ferrule.core.events import (
    Access,
    Event,
    ProviderToolCall,
    ToolAnswered,
    Unknown,
    Usage,
    event_from_json,
    event_to_json,
)
from ferrule.core.limits import Limits
from ferrule.core.media import MediaKind, MediaReference
from ferrule.core.messages import ToolMessage
from ferrule.core.output import OutputRequest
from ferrule.models.scripted import calls, says
from ferrule.storage.export.jsonl import export_jsonl, read_jsonl
from ferrule.storage.journal.hash_chain import cap_result
from ferrule.storage.journal.sqlite import SqliteJournal
from ferrule.testing.journal_conformance import ME

OUTPUT_CAP = 64 * 1024

TEXT = st.text(st.characters(exclude_categories=()), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
RESULTS = st.builds(
    ToolResult,
    call_id=TEXT,
    tool=TEXT,
    success=st.booleans(),
    data=JSON,
    error_type=st.sampled_from(ErrorType),
    error_message=st.none() | TEXT,
    partial=st.booleans(),
    notes=st.lists(TEXT, max_size=2).map(tuple),
)
LIMITS = st.builds(
    Limits,
    max_turns=st.integers(1, 99),
    max_calls_per_turn=st.integers(1, 99),
    max_output_bytes=st.integers(256, OUTPUT_CAP),
    max_seconds=st.none() | st.floats(0.1, 1e6),
    max_tokens=st.none() | st.integers(1),
    on_limit=st.sampled_from(("error", "answer")),
)
CALLS = st.builds(ToolCall, TEXT, TEXT, TEXT)
NUMBERS = st.integers()
BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: NUMBERS,
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    str | None: st.none() | TEXT,
    ToolCall: CALLS,
    ToolResult: RESULTS,
    ToolResult | None: st.none() | RESULTS,
    Limits: LIMITS,
    OutputRequest | None: st.none() | st.builds(OutputRequest, TEXT, NUMBERS),
    Usage: st.builds(Usage, *[NUMBERS] * 5),
    Access: st.builds(
        Access, st.lists(TEXT, max_size=2).map(tuple), st.lists(TEXT, max_size=2).map(tuple)
    ),
    tuple[str, ...]: st.lists(TEXT, max_size=3).map(tuple),
    tuple[int, ...]: st.lists(NUMBERS, max_size=3).map(tuple),
    dict[str, Any]: st.dictionaries(TEXT, JSON, max_size=3),
    tuple[MediaReference, ...]: st.lists(
        st.builds(MediaReference, st.sampled_from(typing.get_args(MediaKind)), TEXT, TEXT, NUMBERS),
        max_size=2,
    ).map(tuple),
    tuple[ToolCall, ...]: st.lists(CALLS, max_size=2).map(tuple),
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{part.name: values_of(hints[part.name]) for part in fields(kind)})


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a field: any word of a closed vocabulary, else what the table has."""
    if hint in BY_TYPE:
        return BY_TYPE[hint]
    if typing.get_origin(hint) is typing.Literal:
        return st.sampled_from(typing.get_args(hint))
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return st.one_of(*map(values_of, typing.get_args(hint)))
    if hint is type(None):
        return st.none()
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(hint)
    raise TypeError(f"no values for a field of the type {hint}")


BY_TYPE[tuple[ProviderToolCall, ...]] = st.lists(any_of(ProviderToolCall), max_size=2).map(tuple)

UNKNOWN = st.builds(
    Unknown, st.from_regex(r"x\.[a-z]+", fullmatch=True), st.dictionaries(TEXT, JSON, max_size=3)
)
EVENTS = st.one_of(
    UNKNOWN, *(any_of(kind) for kind in typing.get_args(Event) if kind is not Unknown)
)


@settings(deadline=None)
@given(EVENTS)
def test_decoding_undoes_encoding_through_text(event: Event) -> None:
    kind, body = event_to_json(event)
    assert event_from_json(kind, json.loads(encode_json(body))) == event


@settings(deadline=None)
@given(st.lists(st.lists(EVENTS, max_size=3), max_size=4))
def test_a_journal_gives_back_what_it_was_given_and_verifies(batches: list[list[Event]]) -> None:
    with SqliteJournal(":memory:") as journal:
        written = [
            record
            for number, batch in enumerate(batches)
            for record in journal.append("s1", f"r{number}", batch, identity=ME)
        ]
        if not written:
            return
        assert [record.event for record in written] == [
            event for batch in batches for event in batch
        ]
        assert list(journal.records("s1")) == written
        journal.verify("s1")
        assert list(read_jsonl(export_jsonl(written))) == written


@given(st.text(st.characters(exclude_categories=()), max_size=60), st.integers(1, 50))
def test_cutting_is_on_a_character_and_cutting_twice_is_cutting_once(text: str, cap: int) -> None:
    event = ToolAnswered(ToolResult("c", "t", True, text))
    cut = cap_result(event, cap)
    assert isinstance(cut, ToolAnswered)
    assert text.startswith(cut.result.data)
    assert len(cut.result.data.encode("utf-8", "surrogatepass")) <= cap
    assert cut.result.partial == (cut.result.data != text)
    assert cap_result(cut, cap) == cut and cap_result(event, OUTPUT_CAP) is event


@pytest.mark.parametrize("character", ["x", "\u20ac"])
@pytest.mark.parametrize("part", ["data", "error_message"])
def test_what_a_journal_records_of_a_result_is_cut_at_64_kib_and_says_so(
    character: str, part: str
) -> None:
    size = len(character.encode())
    text = character * (70_000 // size)
    result = replace(ToolResult("c", "t", part == "data"), **{part: text})
    with SqliteJournal(":memory:") as journal:
        written = journal.append("s1", "r1", [ToolAnswered(result)], identity=ME)
        assert list(journal.records("s1")) == written
        journal.verify("s1")
    (event,) = [record.event for record in written]
    assert isinstance(event, ToolAnswered)
    assert getattr(event.result, part) == character * (65_536 // size)
    assert event.result.partial
    assert event.result.notes == ("[recorded up to 65536 bytes]",)


async def test_a_recording_holds_what_the_conversation_held() -> None:
    @tool(side_effect="none")
    def say() -> str:
        """Say much."""
        return "\u20ac" * 40_000

    with SqliteJournal(":memory:") as journal:
        ours = Agent(
            Scripted([calls(("say", {})), says("ok")]), [say], storage=Storage(journal=journal)
        )
        ran = await ours.run("go")
        recorded = [record.event for record in journal.records(ran.session)]
        (answered,) = [event.result for event in recorded if isinstance(event, ToolAnswered)]
        (told,) = [
            message
            for message in ours.model_client.histories[-1]
            if isinstance(message, ToolMessage)
        ]  # type: ignore[attr-defined]
    assert answered.data == "\u20ac" * 21_845 and answered.partial
    assert told.text.startswith(answered.data) and len(told.text) - len(answered.data) < 200


def test_a_known_kind_that_cannot_be_built_is_kept_as_unknown() -> None:
    assert event_from_json("run.started", {}) == Unknown("run.started", {})
    assert event_from_json("call.answered", {"result": {"error_type": "new"}}) == Unknown(
        "call.answered", {"result": {"error_type": "new"}}
    )
