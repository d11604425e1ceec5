"""Folding what an agent says of its task: whatever arrives, there is one outcome, and nothing of it
is lost or doubled.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.connectors.a2a.cards import Card, card_from_json, read_card
from ferrule.connectors.a2a.results import result_value
from ferrule.connectors.a2a.task_state import TaskState
from ferrule.core.errors import ToolFailed

MAX_ARTIFACTS = 256

texts = st.text(max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
leaf = st.sampled_from(
    [None, True, "", "a", [], {}, [{"text": "x"}], [{"raw": "x"}, 7], {"parts": [{"data": None}]}]
)
states = st.sampled_from(
    [
        "TASK_STATE_COMPLETED",
        "TASK_STATE_WORKING",
        "TASK_STATE_INPUT_REQUIRED",
        "TASK_STATE_FAILED",
        9,
    ]
)
status = leaf | st.fixed_dictionaries({"state": states}, optional={"message": leaf})
artifact = leaf | st.fixed_dictionaries(
    {}, optional={"artifactId": leaf, "name": leaf, "parts": leaf}
)
inner = leaf | st.fixed_dictionaries(
    {},
    optional={
        "id": leaf,
        "taskId": leaf,
        "contextId": leaf,
        "parts": leaf,
        "status": status,
        "artifact": artifact,
        "artifacts": st.lists(artifact, max_size=2),
        "append": leaf,
        "history": leaf,
    },
)
wild = st.sampled_from(["task", "message", "statusUpdate", "artifactUpdate", "else"]).flatmap(
    lambda kind: inner.map(lambda value: {kind: value})
)


def piece(text: str, *, append: bool = True, key: str = "a") -> dict[str, Any]:
    artifact = {"artifactId": key, "parts": [{"text": text}]}
    return {
        "artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, "append": append}
    }


def state(name: str) -> dict[str, Any]:
    return {
        "statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": f"TASK_STATE_{name}"}}
    }


@given(st.lists(texts, min_size=1, max_size=30))
def test_pieces_of_a_text_are_that_text(pieces: list[str]) -> None:
    work = TaskState()
    for number, text in enumerate(pieces):
        work.apply_event(piece(text, append=number > 0))
    work.apply_event(state("COMPLETED"))
    assert result_value("friend", "friend__x", work) == {
        "agent": "friend",
        "answer": "".join(pieces),
    }


@given(json_values)
def test_a_value_that_an_agent_gives_is_the_value_that_comes_back(value: Any) -> None:
    work = TaskState()
    work.apply_event({"message": {"parts": [{"data": value}]}})
    assert result_value("friend", "friend__x", work) == {"agent": "friend", "answer": value}


@given(st.lists(wild, max_size=5))
def test_whatever_arrives_is_folded_or_refused_and_has_one_outcome(events: list[Any]) -> None:
    work = TaskState()
    for event in events:
        try:
            shown = work.apply_event(event)
        except ValueError:
            return
        assert len(shown) <= 200
        if work.is_settled:
            break
    try:
        value = result_value("friend", "friend__x", work)
    except ToolFailed as error:
        assert "friend" in error.message
    else:
        assert not isinstance(value, dict) or value["agent"] == "friend"


def test_a_piece_that_does_not_continue_begins_anew() -> None:
    work = TaskState()
    for event in (piece("old"), piece("new", append=False), piece("er"), state("COMPLETED")):
        work.apply_event(event)
    assert result_value("friend", "t", work)["answer"] == "newer"


def test_artifacts_without_end_are_refused() -> None:
    work = TaskState()
    with pytest.raises(ValueError, match="more than"):
        for number in range(MAX_ARTIFACTS + 1):
            work.apply_event(piece("x", key=str(number)))


def test_a_state_of_a_later_version_goes_on() -> None:
    work = TaskState()
    work.apply_event(state("PONDERING"))
    assert (work.state, work.is_settled, work.can_cancel) == ("working", False, True)


def test_an_answer_that_stands_in_the_history_alone_is_found() -> None:
    spoken = [
        {"role": "ROLE_USER", "parts": [{"text": "q"}]},
        {"role": "ROLE_AGENT", "parts": [{"text": "a"}]},
    ]
    work = TaskState()
    work.apply_task({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "history": spoken})
    assert result_value("friend", "t", work) == {"agent": "friend", "answer": "a"}


cards = st.fixed_dictionaries(
    {},
    optional={
        "name": texts,
        "version": texts,
        "skills": st.lists(
            st.fixed_dictionaries(
                {"id": st.sampled_from(["a", "b", "ä", "c d"])},
                optional={"name": texts, "tags": st.lists(texts, max_size=2)},
            ),
            max_size=4,
        ),
        "signatures": st.lists(st.dictionaries(texts, texts, max_size=1), max_size=1),
    },
)


@given(cards)
def test_a_card_that_is_kept_is_the_card_that_was_read(said: dict[str, Any]) -> None:
    card = read_card(said)
    kept = card_from_json(json.loads(json.dumps(card.to_json())))
    assert (kept.digest(), kept.head_hash, kept.to_text()) == (
        card.digest(),
        card.head_hash,
        card.to_text(),
    )


@given(cards, cards)
def test_cards_have_one_digest_exactly_if_they_say_the_same(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first, second = read_card(one), read_card(other)
    same = (first.head, [s.raw for s in first.skills]) == (
        second.head,
        [s.raw for s in second.skills],
    )
    assert (first.digest() == second.digest()) is same


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_two_skills_never_get_one_name_unless_somebody_aims_at_it(one: str, other: str) -> None:
    from ferrule.connectors.a2a.cards import Skill
    from ferrule.tools.names import check_name

    names = [Skill({"id": text}).tool_name for text in (one, other)]
    for name in names:
        check_name(f"friend__{name}")
    assert (names[0] == names[1]) is (one == other)


def test_an_empty_card_is_a_card() -> None:
    assert read_card({}) == Card()
