"""Recognise the words of asking in a request, and the kinds of values in it."""

from __future__ import annotations

import re

from ferrule.tools.word_stems import stem

_WORDS = """
need want would like wish hope help please tell know show give provide see look find check
interested able sure make think go try appreciate kindly assist assistance thank hello hi hey okay
ok now well really something someone anything much many
"""

REQUEST_STEMS = frozenset(map(stem, _WORDS.split()))
"""Stems of words that people ask with; few tools are about them."""

_MONTH = "january|february|march|april|june|july|august|september|october|november|december"
_FILE = "csv|docx?|jpe?g|json|log|md|pdf|png|py|svg|toml|txt|xlsx?|xml|ya?ml|zip"
_KINDS = (
    (r"https?://|www\.", "url"),
    (r"\S@\S+\.\w", "email"),
    (rf"\b\d{{4}}-\d\d-\d\d|\b\d{{1,2}}/\d{{1,2}}/\d{{2,4}}|\b(?:{_MONTH})\b", "date"),
    (r"\b\d{1,2}:\d\d|\b\d{1,2} ?[ap]m\b", "time"),
    (r"[$€£¥] ?\d|\b(?:dollars|euros|eur|gbp|usd)\b", "price amount currency"),
    (rf"[\w-]\.(?:{_FILE})\b", "file"),
    (r"\d\.\d{3,}[°\s]*[ns]?,\s*-?\d+\.\d{3,}", "coordinate latitude longitude"),
)
_SIGNS = tuple(
    (re.compile(sign, re.IGNORECASE), tuple(map(stem, names.split()))) for sign, names in _KINDS
)


def value_kinds(query: str) -> list[str]:
    """Return stems that name the kinds of values in a request.

    A tool that takes an address, a date or a file mentions it somewhere.
    """
    found: list[str] = []
    for sign, stems in _SIGNS:
        if sign.search(query):
            found += stems
    return found
