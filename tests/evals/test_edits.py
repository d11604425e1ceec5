"""Forty changes from the history of this repository, sent with every mistake of `make lab NAME=edits`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from edits import page
from edits.changes import Change, find_lines, load_changes, make_after, split_change
from edits.forms import ALL_IN_ONE
from edits.mistakes import LANDS, MISTAKES, Mistake
from edits.trial import Outcome, is_another_request, make_case, send

from ferrule.toolkits.files.edit_matching import Edit

CHANGES = load_changes(Path(__file__).with_name("edit_changes.jsonl"))
SELDOM = {"one of two places", "last line without its newline"}
"""Mistakes that few changes allow."""


def make_change(before: str, old: str, new: str) -> Change:
    edit = Edit(old, new)
    return Change("f", before, make_after(before, [edit]), (edit,), find_lines(before, [old]))


def outcomes(mistake: Mistake) -> list[Outcome]:
    sent = (send(mistake, change, 1) for change in CHANGES)
    return [outcome for outcome in sent if outcome is not None]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_no_edit_lands_wrong_and_what_is_refused_shows_the_place(mistake: Mistake) -> None:
    sent = outcomes(mistake)
    counts = Counter(outcome.kind for outcome in sent)
    assert counts["wrong"] == 0, [outcome for outcome in sent if outcome.kind == "wrong"]
    assert counts["not shown"] <= len(sent) * 0.1
    if mistake.meant == LANDS and mistake.name not in SELDOM:
        assert counts["right"] >= len(sent) * 0.85, counts
        assert len(sent) > 5


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


@pytest.mark.parametrize(
    ("before", "meant", "sent", "as_edit", "as_patch"),
    [
        # As a text it is in both lines, as a line it is the second.
        ("    go()\ngo()\n", "    go()\n", "go()\n", False, True),
        # As a text it is the end of the second line, as a line it is nowhere.
        ("  go()\nx = no()\n", "  go()\n", "no()\n", True, False),
        ("  go()\nno()\nno()\n", "  go()\n", "no()\n", False, False),
        ("  go()\nno()\n", "  go()\n", "  go()\n", False, False),
    ],
)
def test_what_fits_once_elsewhere_is_another_request_by_the_places_of_its_form(
    before: str, meant: str, sent: str, as_edit: bool, as_patch: bool
) -> None:
    change = make_change(before, meant, "")
    spoiled = replace(change, edits=(Edit(sent, ""),))
    assert is_another_request(change, spoiled, ALL_IN_ONE) is as_edit
    assert is_another_request(change, spoiled, "V4A patch") is as_patch
    assert is_another_request(change, spoiled, "unified diff") is as_patch


def test_an_edit_that_deletes_has_no_line_to_number() -> None:
    (numbers,) = (mistake for mistake in MISTAKES if mistake.name == "numbers `1: `")
    case = make_case(numbers, make_change("a\nb\n", "a\nb\n", ""), 1, "V4A patch")
    assert case is not None
    assert case.edits == (Edit("1: a\n2: b\n", ""),)


PAGE = f"""# Edits

{page.MARK}

2 changes; the history up to `1`.

### One

| mistake | sent as | sent | right | wrong |
|---|---|--:|--:|--:|
| quotes | lands | 2 | 1 | 1 |
| none | lands | 2 | 2 | 0 |
| all |  | 4 | 3 | 1 |

### Two

| mistake | sent as | sent | right | wrong |
|---|---|--:|--:|--:|
| quotes | lands | 2 | 1 | 1 |
| all |  | 2 | 1 | 1 |
"""


def test_rows_that_were_made_again_are_replaced_in_the_page_and_summed_up() -> None:
    rows = ["2 changes; the history up to `1`.", "### One", "| quotes | lands | 3 | 3 | 0 |"]
    written = page.replace_rows(PAGE, rows)
    expected = PAGE.replace("| quotes | lands | 2 | 1 | 1 |", "| quotes | lands | 3 | 3 | 0 |", 1)
    assert written == expected.replace("| all |  | 4 | 3 | 1 |", "| all |  | 5 | 5 | 0 |")


def test_rows_of_other_changes_than_the_pages_are_refused() -> None:
    with pytest.raises(ValueError, match="other changes"):
        page.replace_rows(PAGE, ["2 changes; the history up to `2`."])
