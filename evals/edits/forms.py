"""The forms in which a change is sent: texts to replace, or patches of two kinds."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence

from ferrule.toolkits.files import edits
from ferrule.toolkits.files.edit_application import apply_edits
from ferrule.toolkits.files.edit_matching import Edit
from ferrule.toolkits.files.patch import find_edits, parse_patch


def apply_as_edits(before: str, given: Sequence[Edit]) -> str:
    """Return what one call of `edit_file` makes of a text. Raises ToolFailed."""
    return apply_edits(before, tuple(given), "`f`").text


def apply_as_v4a(before: str, given: Sequence[Edit]) -> str:
    """Return what `apply_patch` makes of a text and a V4A patch. Raises ToolFailed."""
    return _apply_patch(before, make_v4a(given))


def apply_as_unified(before: str, given: Sequence[Edit]) -> str:
    """Return what `apply_patch` makes of a text and a unified diff. Raises ToolFailed."""
    return _apply_patch(before, make_unified(given))


ONE_BY_ONE = "one edit a call"
ALL_IN_ONE = "all edits in one call"
FORMS: dict[str, Callable[[str, Sequence[Edit]], str]] = {
    ONE_BY_ONE: apply_as_edits,
    ALL_IN_ONE: apply_as_edits,
    "V4A patch": apply_as_v4a,
    "unified diff": apply_as_unified,
}
"""How each form is made to a text. `ONE_BY_ONE` gets the changes of `split_change`."""
PATCHES = ("V4A patch", "unified diff")
"""The forms whose old texts are whole lines."""


def _apply_patch(before: str, text: str) -> str:
    (change,) = parse_patch(text)
    arguments = find_edits(before, change, "`f`")
    return edits.plan_text_replacement(arguments)(before, "`f`").text


def make_v4a(given: Sequence[Edit]) -> str:
    """Return edits as a V4A patch of the file `f`, whose hunks name no line above them."""
    hunks = (["@@", *make_hunk(edit)] for edit in given)
    lines = [line for hunk in hunks for line in hunk]
    return "\n".join(["*** Begin Patch", "*** Update File: f", *lines, "*** End Patch"])


def make_unified(given: Sequence[Edit]) -> str:
    """Return edits as a unified diff of the file `f`. Its line numbers are wrong, as models' are."""
    hunks = (["@@ -1,1 +1,1 @@", *make_hunk(edit)] for edit in given)
    lines = [line for hunk in hunks for line in hunk]
    return "\n".join(["--- a/f", "+++ b/f", *lines]) + "\n"


def make_hunk(edit: Edit) -> list[str]:
    """Return the lines of a hunk: kept ones as the old text has them."""
    old = edit.old.removesuffix("\n").split("\n")
    new = edit.new.removesuffix("\n").split("\n") if edit.new else []
    return list(_mark(old, new))


def _mark(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for _, first, last, new_first, new_last in matcher.get_opcodes():
        kept = old[first:last] == new[new_first:new_last]
        yield from (f"{' ' if kept else '-'}{line}" for line in old[first:last])
        if not kept:
            yield from (f"+{line}" for line in new[new_first:new_last])
