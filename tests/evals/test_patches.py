"""Forty changes from the history of this repository, sent as patches."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from edits.changes import load_changes
from edits.mistakes import MISTAKES
from edits.trial import send

from ferrule.core.errors import ToolFailed
from ferrule.toolkits.files import edits
from ferrule.toolkits.files.patch import find_edits, parse_patch

CHANGES = Path(__file__).with_name("edit_changes.jsonl")


def test_a_hunk_that_fits_behind_an_indentation_and_adds_another_is_refused() -> None:
    hunk = "-    x = 1\n+        x = 1\n+        y = 2\n \n"
    before = "class A:\n    def f(self):\n        x = 1\n\n        return x\n"
    (change,) = parse_patch(f"*** Begin Patch\n*** Update File: a\n@@\n{hunk}*** End Patch")
    with pytest.raises(ToolFailed):
        edits.plan_text_replacement(find_edits(before, change, "a"))(before, "a")


@pytest.mark.parametrize("form", ["V4A patch", "unified diff"])
@pytest.mark.parametrize(
    "name", ["none", "indented 4 less, old only", "curly quotes", "a stale line"]
)
def test_no_change_with_a_mistake_lands_wrong_as_a_patch(form: str, name: str) -> None:
    (mistake,) = (each for each in MISTAKES if each.name == name)
    sent = [send(mistake, change, 1, form) for change in load_changes(CHANGES)]
    kinds = [each.kind for each in sent if each is not None]
    assert len(kinds) > 5 and "wrong" not in kinds
    assert name != "none" or set(kinds) == {"right"}


@pytest.mark.parametrize("context", [0, 1, 3])
def test_real_changes_land_right_or_are_refused(context: int) -> None:
    changes = load_changes(CHANGES)
    landed = 0
    for each in changes:
        before, after = each.before, each.after
        body = list(
            difflib.unified_diff(
                before.splitlines(), after.splitlines(), "a", "b", "", "", context, ""
            )
        )[2:]
        plain = ["@@" if line.startswith("@@") else line for line in body]
        text = "\n".join(["*** Begin Patch", "*** Update File: a", *plain, "*** End Patch"])
        try:
            (change,) = parse_patch(text)
            made = edits.plan_text_replacement(find_edits(before, change, "a"))(before, "a").text
        except ToolFailed:
            continue
        assert made == after, each.source
        landed += 1
    assert len(changes) == 40
    assert landed == 40
