"""`regex::match`, `strings::count_char` and `crypto::sha256`: facts about a text.

Models are bad at these. Expressions are those of `tools.safe_patterns`. Places are characters (code
points) from 0.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, TypedDict

from ferrule.core.errors import RetryCall
from ferrule.tools.safe_patterns import PatternError, compile_pattern

from .typed import typed_tool

MAX_TEXT = 1_000_000
"""Most characters of a text."""
MAX_PATTERN = 2_000
MAX_MEMORY = 8 * 1024 * 1024
"""Bytes that a compiled expression may take."""
MAX_MATCHES = 1_000


class Match(TypedDict):
    """One match: the text from `start` up to `end`, and the groups (null: it took no part)."""

    text: str
    start: int
    end: int
    groups: list[str | None]


class Matches(TypedDict):
    """All matches from left to right.

    `partial`: there are more than were asked for. `names` are the named groups.
    """

    matches: list[Match]
    count: int
    partial: bool
    names: dict[str, int]


@typed_tool(
    "regex",
    examples=[
        {
            "request": "Find the numbers in 'a1 b22'",
            "arguments": {"pattern": "[0-9]+", "text": "a1 b22"},
        }
    ],
)
def match(
    pattern: Annotated[
        str, "The expression, in RE2 syntax: no look-around and no back-references."
    ],
    text: Annotated[str, "The text to search."],
    ignore_case: Annotated[bool, "Take upper and lower case as the same."] = False,
    multiline: Annotated[bool, "`^` and `$` match at every line."] = False,
    limit: Annotated[int, "Stop after this many matches, 1 to 1000."] = 100,
) -> Matches:
    """Find all that a regular expression matches in a text, with places and groups. No match is an
    empty list.
    """
    if not 1 <= limit <= MAX_MATCHES:
        raise RetryCall(f"`limit` must be from 1 to {MAX_MATCHES}, found {limit}")
    check_text(text, "text")
    compiled = _compile(pattern, ignore_case=ignore_case, multiline=multiline)
    found: list[Match] = []
    last: tuple[int, int] | None = None
    for hit in compiled.finditer(text):
        if hit.span() == last:
            continue  # google-re2 1.1 returns an empty match that lies ahead a second time.
        last = hit.span()
        if len(found) == limit:
            return _matches(compiled, found, partial=True)
        found.append(
            Match(text=hit.group(), start=hit.start(), end=hit.end(), groups=list(hit.groups()))
        )
    return _matches(compiled, found, partial=False)


def _matches(compiled: Any, found: list[Match], *, partial: bool) -> Matches:
    names = dict(sorted(compiled.groupindex.items()))
    return Matches(matches=found, count=len(found), partial=partial, names=names)


def _compile(pattern: str, *, ignore_case: bool, multiline: bool) -> Any:
    check_text(pattern, "pattern", MAX_PATTERN)
    try:
        return compile_pattern(
            pattern, ignore_case=ignore_case, multiline=multiline, max_bytes=MAX_MEMORY
        )
    except PatternError as error:
        raise RetryCall(f"`pattern` cannot be used: {error}") from None


def check_text(text: str, where: str, most: int = MAX_TEXT) -> bytes:
    """Return a text in UTF-8.

    Raises:
        RetryCall: It is too long, or holds half of a character.
    """
    if len(text) > most:
        raise RetryCall(f"`{where}` has {len(text)} characters; the most is {most}")
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise RetryCall(
            f"`{where}` has half of a surrogate pair at character {error.start}, which is no "
            "text; leave it out"
        ) from None


@typed_tool(
    "strings",
    examples=[
        {
            "request": "How many r are in strawberry?",
            "arguments": {"text": "strawberry", "char": "r"},
        }
    ],
)
async def count_char(
    text: Annotated[str, "The text to count in."],
    char: Annotated[str, "Exactly one character; upper and lower case differ."],
) -> int:
    """How often one character occurs in a text."""
    check_text(text, "text")
    if len(char) != 1:
        raise RetryCall(f"`char` must be exactly one character, found {len(char)}: `{char[:20]}`")
    return text.count(char)


@typed_tool("crypto", examples=[{"request": "SHA-256 of hello", "arguments": {"text": "hello"}}])
async def sha256(text: Annotated[str, "The text; its UTF-8 bytes are hashed."]) -> str:
    """The SHA-256 hash of a text as 64 lowercase hexadecimal digits."""
    return hashlib.sha256(check_text(text, "text")).hexdigest()
