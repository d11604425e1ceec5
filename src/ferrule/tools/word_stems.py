"""Make words of names, descriptions and requests comparable. Pure; English suffixes only."""

from __future__ import annotations

import re
from functools import lru_cache

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")
"""Where a word of a name begins; the `s` of `PRs` and `URLs` begins none."""
_WORD = re.compile(r"[^\W\d_]+|\d+")
_TOKEN = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")

_FUNCTION = """
a an the this that these those some any all every each no of in on at to into onto from by for
with without about as is are was were be been being am do does did done can could would will shall
should may might must have has had having and or but nor so if then than when while where which
who whom whose what why how i you he she it we they me him her us them my your his its our their
mine yours please just also only very too there here up out off over under between among during
after before until using use via per let want need like get got not named called given
"""

FUNCTION_WORDS = frozenset(_FUNCTION.split())
"""English words without content, in lower case.

A value copied from a request neither begins nor ends with one.
"""

_ENDINGS = (("ations", 5), ("ation", 5), ("ing", 4), ("ies", 4), ("ed", 4), ("es", 4), ("s", 3))
_LAST = frozenset(ending[-1] for ending, _ in _ENDINGS)


@lru_cache(maxsize=1 << 14)
def stem(word: str) -> str:
    """Return a word without its most frequent endings: `searching` and `searched` are one."""
    word = word.lower()
    # Most words have none of these endings: checking the last letter saves seven comparisons.
    if word[-1:] in _LAST:
        for ending, least in _ENDINGS:
            if (
                word.endswith(ending)
                and len(word) - len(ending) >= least - 1
                and not word.endswith("ss")
            ):
                word = word[: -len(ending)]
                if ending == "ies":
                    word += "y"
                break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def words(text: str) -> list[str]:
    """Return the words of a text in order, as written.

    Names are split: `snake_case`, `camelCase`, `HTTPServer`, `a.b`.
    """
    return _WORD.findall(_CAMEL.sub(" ", text))


def stems(text: str) -> list[str]:
    """Return the stems of all words of a text, in order."""
    return [stem(word) for word in words(text)]


def content_stems(text: str) -> list[str]:
    """Return the stems of the words of a text that are not function words."""
    return [stem(word) for word in words(text) if word.lower() not in FUNCTION_WORDS]


def tokens(text: str) -> list[str]:
    """Return the runs of letters and digits of a text in lower case.

    Neither stems nor parts of camel case (systems.md §2.1, corpus of the tool search).
    """
    return _TOKEN.findall(text.lower())


def first_sentence(text: str) -> str:
    """Return the first sentence of a text in one line, without its full stop."""
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0].rstrip(".").replace("\n", " ")
