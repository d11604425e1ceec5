"""Regular expressions and globs of models and strangers, in time that is linear in the text.

Python's `re` backtracks: a pattern like `(a+)+$` and thirty letters would block a run for minutes.
The expressions here are RE2's (https://github.com/google/re2/wiki/Syntax): it has no look-around
and no back-references, so no text can make it hang. What a character costs grows with the compiled
expression, so its size is bounded as well.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

MAX_PATTERN_LENGTH = 2000
MAX_COMPILED_BYTES = 1 << 20
"""Bytes that a compiled expression and the states it is matched with may take."""


class PatternError(ValueError):
    """An expression that cannot be compiled; the text says why."""


def compile_pattern(
    pattern: str | bytes,
    *,
    ignore_case: bool = False,
    multiline: bool = False,
    within_lines: bool = False,
    max_bytes: int = MAX_COMPILED_BYTES,
) -> Any:
    """Compile an expression.

    Args:
        pattern: The expression. Bytes are UTF-8 and match UTF-8.
        ignore_case: Upper and lower case are the same.
        multiline: `^` and `$` match at every line.
        within_lines: No match holds a line end.
        max_bytes: What it and its states may take.

    Raises:
        PatternError: It is no expression, or too large.
    """
    # Not at the top: most runs match nothing, and the library takes milliseconds to load.
    re2: Any = importlib.import_module("re2")  # it has no types
    options = re2.Options()
    options.max_mem = max_bytes
    options.log_errors = False
    options.case_sensitive = not ignore_case
    options.never_nl = within_lines
    flags = "(?m)" if multiline else ""
    try:
        if isinstance(pattern, str):
            return re2.compile(flags + pattern, options)
        return re2.compile(flags.encode() + pattern, options)
    except re2.error as error:
        detail = error.args[0]
        text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(error)
        shown = pattern if isinstance(pattern, str) else pattern.decode("utf-8", "replace")
        raise PatternError(
            f"`{shown}` is not a regular expression of RE2: {text[:200]} (RE2 has no look-around "
            "and no back-references)"
        ) from None


def check_length(pattern: str) -> None:
    """Raise PatternError if an expression has too many characters."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise PatternError(
            f"the expression has {len(pattern)} characters, the limit is {MAX_PATTERN_LENGTH}"
        )


@lru_cache(maxsize=256)
def compile_regex(pattern: str) -> Callable[[str], bool]:
    """Return a function that says whether the expression is found anywhere in a text.

    Raises:
        ValueError: The expression is invalid, too long or too large.
    """
    check_length(pattern)
    search = compile_pattern(pattern.encode("utf-8", "surrogatepass")).search
    return lambda text: search(text.encode("utf-8", "surrogatepass")) is not None


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
    wildcards = {"*": ".*", "?": "."}
    simplified = re.sub(r"\*+", "*", pattern)
    parts = [wildcards.get(character) or re.escape(character) for character in simplified]
    return f"(?s)^{''.join(parts)}$"
