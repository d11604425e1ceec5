"""Texts of strangers without what a person would not see in them."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any, cast

_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
_KEEP = "\n\t"


def clean(text: str) -> str:
    """A text without what cannot be seen: control and format characters, line separators, unassigned ones."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(one for one in text if one in _KEEP or unicodedata.category(one) not in _UNSEEN)


def cleaned(value: Any) -> Any:
    """A JSON value with every text in it cleaned: descriptions in a schema are read by the model too."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): cleaned(one) for key, one in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list):
        return [cleaned(one) for one in cast("list[Any]", value)]
    return value
