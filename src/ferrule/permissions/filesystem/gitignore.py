"""One ignore file of git, read as git reads it (gitignore(5), and wildmatch.c for what the page
leaves open).

A pattern speaks of the very name it is asked about. That nothing below an ignored folder is shown
is for whoever walks from the root down to the name. Libraries that match patterns against whole
paths also count what matches a folder above, so that a later `!*/` shows what an earlier `*` has
hidden.

Patterns come from repositories, so no pattern may take long: runs of `*` are matched without going
back.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

FILE = ".gitignore"
MOST_BYTES = 1024 * 1024
"""Of an ignore file; a larger one is not read."""

_FOLDERS = re.compile(r"\*{2,}(?:\\?/|$)")
_ANY_FOLDERS = "(?:.*/)?"
_BOM = b"\xef\xbb\xbf"
_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t-\\r",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}


@dataclass(frozen=True, slots=True)
class _Pattern:
    expression: re.Pattern[str]
    ignores: bool
    folders_only: bool
    whole: bool
    """Matched against the whole name and not its last part."""


class IgnoreFile:
    """The patterns of one file. Names are relative to the folder that it lies in."""

    def __init__(self, data: bytes) -> None:
        # git knows bytes: one `?` is one of them.
        lines = data.removeprefix(_BOM).decode("latin-1").split("\n")
        read = [_read(line.removesuffix("\r")) for line in lines]
        self._patterns = [pattern for pattern in reversed(read) if pattern is not None]

    def verdict(self, name: str, *, folder: bool) -> bool | None:
        """Whether the last pattern that means this very name ignores it; None where no pattern
        does.
        """
        name = os.fsencode(name).decode("latin-1")
        last = name.rpartition("/")[2]
        for pattern in self._patterns:
            if pattern.folders_only and not folder:
                continue
            if pattern.expression.fullmatch(name if pattern.whole else last):
                return pattern.ignores
        return None


def _read(line: str) -> _Pattern | None:
    """One line; None for a comment, a blank line, and what can match nothing."""
    if line.startswith("#"):
        return None
    text = _without_trailing_blanks(line)
    ignores = not text.startswith("!")
    text = text.removeprefix("!")
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    whole = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    expression = _translate(text)
    if expression is None:
        return None
    return _Pattern(re.compile(expression, re.DOTALL), ignores, folders_only, whole)


def _without_trailing_blanks(line: str) -> str:
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if len(kept) < len(line) and backslashes % 2 else kept


def _translate(pattern: str) -> str | None:
    """A regular expression for a whole name; None for a pattern that git never matches."""
    pieces: list[str] = []
    literals = [""]
    position = 0
    while position < len(pattern):
        sign = pattern[position]
        at_start = position == 0 or pattern[position - 1] == "/"
        folders = _FOLDERS.match(pattern, position) if at_start else None
        if folders is not None and folders.end() == len(pattern):
            return "".join([*pieces, ".+"])
        if folders is not None:
            if not pieces or pieces[-1] != _ANY_FOLDERS:
                pieces.append(_ANY_FOLDERS)
            position = folders.end()
            continue
        position += 1
        if sign == "/":
            pieces += (_segment(literals), "/")
            literals = [""]
        elif sign == "*":
            literals.append("")
        elif sign == "?":
            literals[-1] += "[^/]"
        elif sign == "[":
            found = _translate_class(pattern, position)
            if found is None:
                return None
            expression, position = found
            literals[-1] += expression
        elif sign == "\\":
            if position == len(pattern):
                return None
            literals[-1] += re.escape(pattern[position])
            position += 1
        else:
            literals[-1] += re.escape(sign)
    return "".join([*pieces, _segment(literals)])


def _segment(literals: list[str]) -> str:
    """A part of a path. What stands between two `*` is looked for once, from the left: going back
    finds nothing more.
    """
    if len(literals) == 1:
        return literals[0]
    middle = "".join(f"(?>[^/]*?{literal})" for literal in literals[1:-1] if literal)
    return f"{literals[0]}{middle}[^/]*{literals[-1]}"


def _translate_class(part: str, start: int) -> tuple[str, int] | None:
    """What stands in brackets, from behind the first one, and where it ends; None where it does
    not.
    """
    position = start
    negated = part[position : position + 1] in ("!", "^")
    position += negated
    members: list[str] = []
    first = position
    while position < len(part) and (part[position] != "]" or position == first):
        if part.startswith("[:", position) and (end := part.find(":]", position)) > 0:
            known = _CLASSES.get(part[position + 2 : end])
            if known is None:
                return None
            members.append(known)
            position = end + 2
            continue
        low, position = _member(part, position)
        high = low
        if part.startswith("-", position) and part[position + 1 : position + 2] not in ("]", ""):
            high, position = _member(part, position + 1)
        if low:
            # A range that runs backwards is its first sign alone.
            members.append(f"{_in_class(low)}-{_in_class(high if low <= high else low)}")
    if position >= len(part):
        return None
    inside = "".join(members)
    if negated:
        return f"[^/{inside}]", position + 1
    # Nothing is in a class that is empty, and no class holds a slash.
    return f"(?!/)[{inside}]" if inside else "(?!)", position + 1


def _member(part: str, position: int) -> tuple[str, int]:
    if part[position] == "\\":
        position += 1
    return part[position : position + 1], position + 1


def _in_class(sign: str) -> str:
    return f"\\{sign}" if sign in "\\]^-[&~|" else sign
