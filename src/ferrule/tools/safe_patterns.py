"""Match regular expressions and globs in time that is linear in the text.

Python's `re` backtracks: a pattern like `(a+)+$` and thirty letters would block a run for minutes.
The expressions here are those of Rust's engine, which comes with `jsonschema_rs`: it has no
look-around and no back-references, so no text can make it hang.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

MAX_PATTERN_LENGTH = 2000
MAX_COMPILED_BYTES = 1 << 20
"""Size limit of a compiled expression in bytes; `a{1000}{1000}` is refused."""


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether the expression is found anywhere in a text.

    Raises:
        ValueError: The expression is invalid, too long or too large.
    """
    import jsonschema_rs

    if len(pattern) > MAX_PATTERN_LENGTH:
        raise ValueError(
            f"the expression has {len(pattern)} characters, the limit is {MAX_PATTERN_LENGTH}"
        )
    try:
        bounds = jsonschema_rs.RegexOptions(
            size_limit=MAX_COMPILED_BYTES, dfa_size_limit=MAX_COMPILED_BYTES
        )
        # A plain string schema: `pattern` is a search, not anchored.
        found = jsonschema_rs.validator_for({"pattern": pattern}, pattern_options=bounds)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise ValueError(
            f"`{pattern}` is not a regular expression: {str(error).splitlines()[0]}"
        ) from error
    return found.is_valid


def matches_glob(text: str, pattern: str) -> bool:
    """Return whether the whole text matches a glob pattern.

    `*` stands for any number of characters, including none and `/`; `?` for exactly one.

    Raises:
        ValueError: The pattern is too long.
    """
    return compile_regex(_translate_glob(pattern))(text)


@lru_cache(maxsize=256)
def _translate_glob(pattern: str) -> str:
    if len(pattern) > MAX_PATTERN_LENGTH // 8:
        raise ValueError(
            f"the pattern has {len(pattern)} characters, the limit is {MAX_PATTERN_LENGTH // 8}"
        )
    wildcards = {"*": r"[\s\S]*", "?": r"[\s\S]"}
    simplified = re.sub(r"\*+", "*", pattern)
    parts = [wildcards.get(character) or _escape(character) for character in simplified]
    return f"^{''.join(parts)}$"


def _escape(character: str) -> str:
    if character.isalnum() or character in " /_-:,=@<>\n" or not character.isascii():
        return character
    return f"\\{character}"
