"""Forty changes from the history of this repository, sent with every mistake of `make edits`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from edits.changes import load_changes, split_change
from edits.mistakes import LANDS, MISTAKES, Mistake
from edits.trial import Outcome, send

CHANGES = load_changes(Path(__file__).with_name("edit_changes.jsonl"))
SELDOM = {"one of two places", "last line without its newline"}
"""Mistakes that few changes allow."""


def outcomes(mistake: Mistake) -> list[Outcome]:
    sent = (send(mistake, change, 1) for change in CHANGES)
    return [outcome for outcome in sent if outcome is not None]


@pytest.mark.proves("edits.real-changes")
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_no_edit_lands_wrong_and_what_is_refused_shows_the_place(mistake: Mistake) -> None:
    sent = outcomes(mistake)
    counts = Counter(outcome.kind for outcome in sent)
    assert counts["wrong"] == 0, [outcome for outcome in sent if outcome.kind == "wrong"]
    assert counts["not shown"] <= len(sent) * 0.1
    if mistake.meant == LANDS and mistake.name not in SELDOM:
        assert counts["right"] >= len(sent) * 0.85, counts
        assert len(sent) > 5


@pytest.mark.proves("edits.refusals")
@pytest.mark.parametrize("form", ["V4A patch", "unified diff"])
def test_a_patch_that_spells_its_newlines_is_told_where_its_text_is(form: str) -> None:
    (spelled,) = (mistake for mistake in MISTAKES if mistake.name == "escaped newlines")
    sent = [send(spelled, change, 1, form) for change in CHANGES]
    counts = Counter(outcome.kind for outcome in sent if outcome is not None)
    assert counts["wrong"] == 0
    assert counts["not shown"] <= 1
    assert counts["shown"] > 20


def test_the_parts_of_a_change_make_it_one_by_one() -> None:
    several = [change for change in CHANGES if len(change.edits) > 1]
    assert several
    for change in several:
        parts = split_change(change)
        assert [part.edits for part in parts] == [(edit,) for edit in change.edits]
        assert parts[0].before == change.before
        assert parts[-1].after == change.after
        assert all(one.after == other.before for one, other in pairwise(parts))


def test_the_program_sees_what_lands_wrong() -> None:
    (plain,) = (mistake for mistake in MISTAKES if mistake.name == "none")
    spoiled = replace(CHANGES[0], after=CHANGES[0].after + "more\n")
    outcome = send(plain, spoiled, 1)
    assert outcome is not None
    assert outcome.kind == "wrong"
