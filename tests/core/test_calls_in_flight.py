"""Calls of one answer before they go anywhere: every one has an id of its own, and one that was
sent twice is one.
"""

from __future__ import annotations

from ferrule.core.call_states import assign_call_ids
from ferrule.core.calls import ToolCall
from ferrule.core.events import ModelAnswered

LOOK, SAME, OTHER = (
    ToolCall("a", "look", "{}"),
    ToolCall("a", "look", "{}"),
    ToolCall("a", "look", '{"at":"b"}'),
)


def ids(*calls: ToolCall, taken: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    answer = assign_call_ids(ModelAnswered("", calls, raw="{}"), taken, 3)
    assert answer.raw == ("{}" if answer.calls == calls else None)
    return [(call.id, call.arguments) for call in answer.calls]


def test_a_call_that_is_there_twice_with_its_id_is_one_call() -> None:
    assert ids(LOOK, SAME) == [("a", "{}")]
    assert ids(LOOK, OTHER, SAME, taken=frozenset("a")) == [("a_2", "{}"), ("a_3", '{"at":"b"}')]


def test_two_calls_that_only_share_an_id_or_have_none_are_two() -> None:
    assert ids(LOOK, OTHER) == [("a", "{}"), ("a_2", '{"at":"b"}')]
    assert ids(ToolCall("", "look"), ToolCall("", "look")) == [
        ("call_3_0", "{}"),
        ("call_3_1", "{}"),
    ]
    assert ids(LOOK, ToolCall("b", "look")) == [("a", "{}"), ("b", "{}")]


def test_an_id_that_comes_with_every_answer_is_not_looked_for_number_by_number() -> None:
    class Counted(set[str]):
        looks = 0

        def __contains__(self, name: object) -> bool:
            self.looks += 1
            return super().__contains__(name)

    taken = Counted()
    for turn in range(500):
        answer = assign_call_ids(ModelAnswered("", (LOOK,)), taken, turn)
        taken.add(answer.calls[0].id)
    assert len(taken) == 500
    assert taken.looks < 500 * 4
