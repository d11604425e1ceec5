"""Text from other systems: without invisible characters, and compared with what was approved."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.invisible_characters import escape_for_approval, escape_invisible

_UNPRINTABLE_CATEGORIES = ("Cf", "Co", "Cn")
_UNUSUAL = re.compile(r"[^\n\t -~]")
"""Whatever else ASCII text of lines does not have."""


def clean_text(text: str) -> str:
    """Remove invisible characters from a text.

    These are the ones of `core.invisible_characters`, and format characters, private and
    unassigned ones.
    """
    if _UNUSUAL.search(text) is None:
        return text
    shown = escape_invisible(text, escape=lambda character: "")
    return "".join(
        character
        for character in shown
        if unicodedata.category(character) not in _UNPRINTABLE_CATEGORIES
    )


def clean_json(value: Any) -> Any:
    """Clean every text in a JSON value. A model reads the descriptions in a schema too."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {clean_text(str(key)): clean_json(field) for key, field in fields.items()}
    if isinstance(value, list):
        return [clean_json(item) for item in cast("list[Any]", value)]
    return value


def diff_texts(name: str, approved: str, current: str) -> str:
    """Return what changed since a person approved it, as a unified diff; empty if nothing did.

    Invisible characters are spelled out.
    """
    if approved == current:
        return ""
    old = escape_for_approval(approved).splitlines()
    new = escape_for_approval(current).splitlines()
    return "\n".join(difflib.unified_diff(old, new, f"approved/{name}", name, lineterm="", n=2))
