"""Text from other systems: without invisible characters, and compared with what was approved."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.invisible_characters import exact, visible

_UNPRINTABLE_CATEGORIES = ("Cf", "Co", "Cn")


def clean(text: str) -> str:
    """Remove invisible characters from a text.

    These are the ones of `core.invisible_characters`, and format characters, private and
    unassigned ones.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = visible(text, spell=lambda character: "")
    return "".join(
        character
        for character in shown
        if unicodedata.category(character) not in _UNPRINTABLE_CATEGORIES
    )


def cleaned(value: Any) -> Any:
    """Clean every text in a JSON value. A model reads the descriptions in a schema too."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        return {clean(str(key)): cleaned(field) for key, field in fields.items()}
    if isinstance(value, list):
        return [cleaned(item) for item in cast("list[Any]", value)]
    return value


def difference(name: str, approved: str, now: str) -> str:
    """Return what changed since a person approved it, as a unified diff; empty if nothing did.

    Invisible characters are spelled out.
    """
    if approved == now:
        return ""
    old = exact(approved).splitlines()
    new = exact(now).splitlines()
    return "\n".join(difflib.unified_diff(old, new, f"approved/{name}", name, lineterm="", n=2))
