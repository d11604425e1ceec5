"""Words of names, descriptions and requests, made comparable. Pure; English suffixes only."""

from __future__ import annotations

import re
from functools import lru_cache

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_TOKEN = re.compile(r"[^\W_]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")

_FUNCTION = """
a an the this that these those some any all every each no of in on at to into onto from by for with
without about as is are was were be been being am do does did done can could would will shall should may
might must have has had having and or but nor so if then than when while where which who whom whose what
why how i you he she it we they me him her us them my your his its our their mine yours please just also
only very too there here up out off over under between among during after before until using use via per
let want need like get got not named called given
"""

FUNCTION_WORDS = frozenset(_FUNCTION.split())
"""English words that carry no content; a copied value neither begins nor ends with one (in lower
case).
"""

_ENDINGS = (("ations", 5), ("ation", 5), ("ing", 4), ("ies", 4), ("ed", 4), ("es", 4), ("s", 3))
_LAST = frozenset(ending[-1] for ending, _ in _ENDINGS)


@lru_cache(maxsize=1 << 14)
def stem(word: str) -> str:
    """A word without its commonest endings: `searching`, `searches`, `searched` are one."""
    word = word.lower()
    # Most words end otherwise: one look spares seven.
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
    """Every word of a text, names (`snake_case`, `camelCase`, `HTTPServer`, `a.b`) taken apart, in
    order, as it is written.
    """
    return _WORD.findall(_CAMEL.sub(" ", text))


def stems(text: str) -> list[str]:
    """The words of a text as stems, in order."""
    return [stem(word) for word in words(text)]


def content(text: str) -> list[str]:
    """The stems of a text that are not function words."""
    return [stem(word) for word in words(text) if word.lower() not in FUNCTION_WORDS]


def tokens(text: str) -> list[str]:
    """Runs of letters and digits in lower case: no stems, no camel case (systems.md §2.1, corpus of
    the tool search).
    """
    return _TOKEN.findall(text.lower())


def first_sentence(text: str) -> str:
    return _SENTENCE_END.split(text.strip(), maxsplit=1)[0].rstrip(".").replace("\n", " ")
