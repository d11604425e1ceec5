"""Forty changes from the history of this repository, sent as patches."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from edits.changes import load_changes

from ferrule.core.errors import ToolFailed
from ferrule.toolkits.files import edits
from ferrule.toolkits.files.patch import find_edits, parse_patch

CHANGES = Path(__file__).with_name("edit_changes.jsonl")


@pytest.mark.proves("patch.never-wrong")
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
