"""Forty changes from the history of this repository, sent with every mistake of `make edits`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from edits.changes import load_changes
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


def test_the_program_sees_what_lands_wrong() -> None:
    (plain,) = (mistake for mistake in MISTAKES if mistake.name == "none")
    spoiled = replace(CHANGES[0], after=CHANGES[0].after + "more\n")
    outcome = send(plain, spoiled, 1)
    assert outcome is not None
    assert outcome.kind == "wrong"
