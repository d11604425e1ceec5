"""Finds the one place that `edit_file` changes, or explains why there is none. No I/O."""

from __future__ import annotations

import difflib
import re

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.models.untrusted_text import escape_untrusted

from . import lines

_NUMBERED = re.compile(r"^\d+: ", re.MULTILINE)
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")
_MAX_SEARCHED_LINES = 5000
"""Lines searched for a similar one; the hint is optional and must stay quick."""


def replace_match(
    text: str, old: str, new: str, *, everywhere: bool, where: str
) -> tuple[str, int, int]:
    """Replace `old` by `new` in a text.

    In a CRLF file, an `old` and `new` written with bare newlines are understood.

    Args:
        text: Content of the file.
        old: What is replaced.
        new: What takes its place.
        everywhere: Replace every occurrence; otherwise `old` must occur exactly once.
        where: Names the file in messages.

    Returns:
        The new text, the number of replacements, and the line of the first.

    Raises:
        ToolFailed: `validation_failed` if there is no such place, or more than one.
    """
    if not old:
        raise _refusal(
            "`old_string` is empty; use `insert_lines` to add text or `write_file` for a new file"
        )
    if old == new:
        raise _refusal("`old_string` and `new_string` are the same: there is nothing to change")
    end = lines.detect_line_ending(text)
    if old not in text:
        old = lines.convert_line_endings(old, end)
    if old not in text:
        raise _refusal(f"`old_string` was not found in {where}{_mismatch_hint(text, old)}")
    first = text.find(old)
    if not everywhere and text.find(old, first + 1) != -1:
        raise _refusal(
            f"`old_string` occurs more than once in {where}, {_describe_places(text, old)}; "
            "add lines around it until it is unique, or pass `replace_all: true`"
        )
    return (
        text.replace(old, lines.convert_line_endings(new, end)),
        text.count(old),
        _line_of(text, first),
    )


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _describe_places(text: str, old: str) -> str:
    found: list[int] = []
    position = text.find(old)
    while position != -1 and len(found) < 10:
        found.append(_line_of(text, position))
        position = text.find(old, position + 1)
    more = " and more" if position != -1 else ""
    return f"at lines {', '.join(map(str, found))}{more}"


def _mismatch_hint(text: str, old: str) -> str:
    """Return a hint for the next attempt: the cause if it is a known one, else the closest line."""
    if _NUMBERED.match(old):
        return (
            "; it begins with a line number: leave out the `N: ` that `read_file` puts before "
            "each line"
        )
    escape_hint = _escape_hint(text, old)
    if escape_hint:
        return escape_hint
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    candidates = [line.strip()[:300] for line in lines.split_lines(text)[:_MAX_SEARCHED_LINES]]
    if not wanted or not candidates:
        return "; read the file again"
    if wanted in candidates:
        number = candidates.index(wanted) + 1
        return (
            f"; line {number} has its first line, so what differs is white space or the lines "
            "after it. Read the file again"
        )
    near = difflib.get_close_matches(wanted[:300], candidates, n=1, cutoff=0.5)
    if not near:
        return "; read the file again"
    return f"; the most similar line is {candidates.index(near[0]) + 1}: {near[0]}"


def _escape_hint(text: str, old: str) -> str:
    """Return a hint where text and `old` spell a character differently.

    Models see some characters as escapes (see `models.untrusted_text`).
    """
    decoded = _ESCAPE.sub(lambda match: chr(int(match[1], 16)), old)
    decoded = decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if decoded != old and decoded in text:
        return (
            f"; at line {_line_of(text, text.find(decoded))} the file has the characters that "
            "`old_string` spells as escapes: in the "
            "arguments, which are JSON, write these escapes with one backslash, in `new_string` too"
        )
    spelled = escape_untrusted(old)
    if spelled != old and spelled in text:
        return (
            f"; at line {_line_of(text, text.find(spelled))} the file has these escapes as "
            "text: in the arguments, which are JSON, "
            "write their backslashes twice, in `new_string` too"
        )
    return ""


def _refusal(message: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, message)
