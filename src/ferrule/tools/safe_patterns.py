"""Regular expressions and globs that cannot be made to hang: whatever the text, their time is
linear in it.

Python's `re` backtracks: a pattern like `(a+)+$` and thirty letters would hold up a run for
minutes. The expressions here are Rust's (`jsonschema_rs` carries the engine): no look-around and no
back-references, so no such text exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

LONGEST_PATTERN = 2000
SIZE = 1 << 20
"""Bytes of a compiled expression; `a{1000}{1000}` is refused."""


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Callable[[str], bool]:
    """A function that says whether the expression is found anywhere in a text. Raises
    ValueError.
    """
    import jsonschema_rs

    if len(pattern) > LONGEST_PATTERN:
        raise ValueError(
            f"an expression of {len(pattern)} characters, the bound is {LONGEST_PATTERN}"
        )
    try:
        bounds = jsonschema_rs.RegexOptions(size_limit=SIZE, dfa_size_limit=SIZE)
        # A plain string schema: `pattern` is a search, not anchored.
        found = jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=bounds)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise ValueError(
            f"`{pattern}` is not a regular expression: {str(error).splitlines()[0]}"
        ) from error
    return found.is_valid


def matches_glob(text: str, pattern: str) -> bool:
    """Whether the whole text fits the pattern: `*` is any run of characters (also none, also with
    `/`), `?` is one.

    Raises ValueError for a pattern that is too long.
    """
    return compile_regex(_translated(pattern))(text)


@lru_cache(maxsize=256)
def _translated(pattern: str) -> str:
    if len(pattern) > LONGEST_PATTERN // 8:
        raise ValueError(
            f"a pattern of {len(pattern)} characters, the bound is {LONGEST_PATTERN // 8}"
        )
    signs = {"*": r"[\s\S]*", "?": r"[\s\S]"}
    return (
        "^"
        + "".join(signs.get(sign) or _literal(sign) for sign in re.sub(r"\*+", "*", pattern))
        + "$"
    )


def _literal(sign: str) -> str:
    return sign if sign.isalnum() or sign in " /_-:,=@<>\n" or not sign.isascii() else f"\\{sign}"
