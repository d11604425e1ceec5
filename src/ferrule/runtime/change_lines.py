"""The change that a call's arguments describe, as lines of a diff: what its card shows.

Only arguments are looked at, by the names that tools which write use, so it is the same live and
from a journal. It is not what approvals show: that is the tool's own preview, made with the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from ferrule.core.calls import read_arguments

_REPLACED = (("old_string", "new_string"), ("old_text", "new_text"))
_WRITTEN = ("content", "new_content", "new_string", "text")


def diff_arguments(arguments: str) -> list[str]:
    """Return what a call would write, as lines of a diff; empty if it writes nothing we know of."""
    values = read_arguments(arguments) or {}
    for old_name, new_name in _REPLACED:
        old = values.get(old_name)
        new = values.get(new_name)
        if isinstance(old, str) and isinstance(new, str):
            return _diff_texts(old, new)
    for name in _WRITTEN:
        text = values.get(name)
        if isinstance(text, str) and "path" in values:
            return [f"+{line}" for line in text.splitlines()]
    patch = values.get("patch") or values.get("input")
    return patch.splitlines() if isinstance(patch, str) and "\n" in patch else []


def is_change(name: str, values: Mapping[str, Any]) -> bool:
    """Return whether an argument is part of the change that is shown as a diff."""
    if any(name in pair and all(one in values for one in pair) for pair in _REPLACED):
        return True
    return name in _WRITTEN and isinstance(values[name], str) and "path" in values


def _diff_texts(old: str, new: str) -> list[str]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm="")
    return list(lines)[3:]
