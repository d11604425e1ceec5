"""Calls of one answer before they go anywhere: every one has an id of its own, and one that was
sent twice is one.
"""

from __future__ import annotations

import pytest

from ferrule.core.calls import Call
from ferrule.core.calls_in_flight import named
from ferrule.core.events import ModelAnswered

LOOK, SAME, OTHER = (
    Call("a", "look", "{}"),
    Call("a", "look", "{}"),
    Call("a", "look", '{"at":"b"}'),
)


def ids(*calls: Call, taken: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    answer = named(ModelAnswered("", calls, raw="{}"), taken, 3)
    assert answer.raw == ("{}" if answer.calls == calls else None)
    return [(call.id, call.arguments) for call in answer.calls]


@pytest.mark.proves("calls.sent-twice")
def test_a_call_that_is_there_twice_with_its_id_is_one_call() -> None:
    assert ids(LOOK, SAME) == [("a", "{}")]
    assert ids(LOOK, OTHER, SAME, taken=frozenset("a")) == [("a_2", "{}"), ("a_3", '{"at":"b"}')]


@pytest.mark.proves("calls.sent-twice")
def test_two_calls_that_only_share_an_id_or_have_none_are_two() -> None:
    assert ids(LOOK, OTHER) == [("a", "{}"), ("a_2", '{"at":"b"}')]
    assert ids(Call("", "look"), Call("", "look")) == [("call_3_0", "{}"), ("call_3_1", "{}")]
    assert ids(LOOK, Call("b", "look")) == [("a", "{}"), ("b", "{}")]
