"""Texts of strangers without what a person would not see in them, and how one differs from what a
person approved.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Mapping
from typing import Any, cast

from ferrule.core.invisible_characters import exact, visible

_NOBODYS = ("Cf", "Co", "Cn")


def clean(text: str) -> str:
    """A text without what cannot be seen (`core.invisible_characters`), and without format
    characters, private and unassigned ones.
    """
    if text.isascii() and text.isprintable():
        return text
    seen = visible(text, spell=lambda character: "")
    return "".join(one for one in seen if unicodedata.category(one) not in _NOBODYS)


def cleaned(value: Any) -> Any:
    """A JSON value with every text in it cleaned: descriptions in a schema are read by the model
    too.
    """
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {
            clean(str(key)): cleaned(one) for key, one in cast("Mapping[str, Any]", value).items()
        }
    if isinstance(value, list):
        return [cleaned(one) for one in cast("list[Any]", value)]
    return value


def difference(name: str, approved: str, now: str) -> str:
    """What changed since a person approved it, as a unified diff in which nothing hides; empty if
    nothing did.
    """
    if approved == now:
        return ""
    old, new = exact(approved).splitlines(), exact(now).splitlines()
    return "\n".join(difflib.unified_diff(old, new, f"approved/{name}", name, lineterm="", n=2))
