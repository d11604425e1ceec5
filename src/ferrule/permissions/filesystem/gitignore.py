"""Reads an ignore file of git as git does (gitignore(5), and wildmatch.c for details).

A pattern of an ignore file is matched against one name only. Callers walk from the root down to the
name and skip what is below an ignored folder. (Libraries that match whole paths also count matches
of a folder above, so that a later `!*/` shows what an earlier `*` has hidden.)

Patterns come from repositories, so none may take long: runs of `*` are matched without
backtracking.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

FILE_NAME = ".gitignore"
MAX_BYTES = 1024 * 1024
"""The most bytes of an ignore file. A larger one is not read."""

_PLAIN = compile_lazily(r"[^*?\[\\]*")
_DOUBLE_STAR = compile_lazily(r"\*{2,}(?:\\?/|$)")
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


@frozen
class _Pattern:
    expression: re.Pattern[str]
    ignores: bool
    folders_only: bool
    matches_path: bool
    """True if it is matched against the whole name, not only against its last component."""


class IgnoreFile:
    """The patterns of one file. Names are relative to the folder of the file."""

    def __init__(self, data: bytes) -> None:
        # git matches bytes: a `?` is one byte.
        lines = data.removeprefix(_BOM).decode("latin-1").split("\n")
        patterns = [_parse_line(line.removesuffix("\r")) for line in lines]
        self._patterns = [pattern for pattern in reversed(patterns) if pattern is not None]

    def check(self, name: str, *, folder: bool) -> bool | None:
        """Return whether the last pattern that matches a name ignores it; None if none matches."""
        name = os.fsencode(name).decode("latin-1")
        last = name.rpartition("/")[2]
        for pattern in self._patterns:
            if pattern.folders_only and not folder:
                continue
            if pattern.expression.fullmatch(name if pattern.matches_path else last):
                return pattern.ignores
        return None


class PathPatterns:
    """Patterns in the language of ignore files, matched against whole paths.

    A path matches if a pattern matches it or a folder above it. `/*` alone means the names of the
    first level, and nothing below. Patterns are not negated; `#` begins no comment.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._first_level = False
        self._of_names: list[_Pattern] = []
        self._of_paths: list[_Pattern] = []
        self.unusable: list[str] = []
        """Patterns that match nothing, such as a bracket that is not closed."""
        for pattern in patterns:
            self._add(pattern)

    def _add(self, pattern: str) -> None:
        if pattern.rstrip(" ") == "/*":
            self._first_level = True
            return
        parsed = _parse_line(f"\\{pattern}" if pattern[:1] in ("#", "!") else pattern)
        if parsed is None:
            self.unusable.append(pattern)
        else:
            (self._of_paths if parsed.matches_path else self._of_names).append(parsed)

    def match(self, path: str) -> bool:
        """Return whether a path, relative to where the patterns begin, matches."""
        parts = path.split("/")
        last = len(parts) - 1
        if self._first_level and not last:
            return True
        for pattern in self._of_names:
            candidates = parts[:last] if pattern.folders_only else parts
            if any(map(pattern.expression.fullmatch, candidates)):
                return True
        if not self._of_paths:
            return False
        names = ["/".join(parts[: depth + 1]) for depth in range(len(parts))]
        for pattern in self._of_paths:
            candidates = names[:last] if pattern.folders_only else names
            if any(map(pattern.expression.fullmatch, candidates)):
                return True
        return False


def _parse_line(line: str) -> _Pattern | None:
    """Parse a line; None for a comment, an empty line, and a pattern that can match nothing."""
    if line.startswith("#"):
        return None
    text = _strip_trailing_spaces(line)
    ignores = not text.startswith("!")
    text = text.removeprefix("!")
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    matches_path = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    expression = _translate(text, plain=_count_plain(text) if matches_path else 0)
    if expression is None:
        return None
    return _Pattern(re.compile(expression, re.DOTALL), ignores, folders_only, matches_path)


def _count_plain(pattern: str) -> int:
    """Return how many characters a pattern begins with that stand for themselves."""
    found = _PLAIN.match(pattern)
    return found.end() if found else 0


def _strip_trailing_spaces(line: str) -> str:
    kept = line.rstrip(" ")
    backslashes = len(kept) - len(kept.rstrip("\\"))
    return kept + " " if len(kept) < len(line) and backslashes % 2 else kept


def _translate(pattern: str, *, plain: int) -> str | None:
    """Return a regular expression for a whole name; None for a pattern that git never matches.

    Of a path git compares the first `plain` characters by themselves, so that a `**` behind them
    begins a pattern (`match_pathname` in git's dir.c): `a**/b` is `a`, any folders, `b`.
    """
    pieces: list[str] = []
    literals = [""]
    position = 0
    while position < len(pattern):
        is_start = position in (0, plain) or pattern[position - 1] == "/"
        double_star = _DOUBLE_STAR.match(pattern, position) if is_start else None
        if double_star is not None:
            is_behind_plain = position == plain > 0 and pattern[position - 1] != "/"
            position = double_star.end()
            if literals != [""]:  # no slash is before it, or an escaped one
                pieces.append(_segment(literals))
                literals = [""]
            if position == len(pattern):
                return "".join([*pieces, ".*" if is_behind_plain else ".+"])
            if not pieces or pieces[-1] != _ANY_FOLDERS:
                pieces.append(_ANY_FOLDERS)
            continue
        character = pattern[position]
        if character == "/":
            pieces += (_segment(literals), "/")
            literals = [""]
            position += 1
        elif character == "*":
            literals.append("")
            position += 1
        else:
            translated = _translate_character(pattern, position)
            if translated is None:
                return None
            expression, position = translated
            literals[-1] += expression
    return "".join([*pieces, _segment(literals)])


def _translate_character(pattern: str, position: int) -> tuple[str, int] | None:
    """Return an expression for one character of a name, and the position behind it."""
    character = pattern[position]
    if character == "?":
        return "[^/]", position + 1
    if character == "[":
        return _translate_class(pattern, position + 1)
    if character == "\\":
        position += 1
        if position == len(pattern):
            return None
    return re.escape(pattern[position]), position + 1


def _segment(literals: list[str]) -> str:
    """Return an expression for a component, given the expressions between its `*`.

    Each of them is searched once from the left: backtracking would find nothing more.
    """
    if len(literals) == 1:
        return literals[0]
    middle = "".join(f"(?>[^/]*?{literal})" for literal in literals[1:-1] if literal)
    return f"{literals[0]}{middle}[^/]*{literals[-1]}"


def _translate_class(part: str, start: int) -> tuple[str, int] | None:
    """Return an expression for `[...]`, starting behind `[`, and the position behind it.

    None if it does not end, or names an unknown class.
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
        low, position = _read_member(part, position)
        high = low
        if part.startswith("-", position) and part[position + 1 : position + 2] not in ("]", ""):
            high, position = _read_member(part, position + 1)
        if low:
            # A backward range is only its first character.
            members.append(f"{_escape_member(low)}-{_escape_member(max(low, high))}")
    if position >= len(part):
        return None
    inside = "".join(members)
    if negated:
        return f"[^/{inside}]", position + 1
    # An empty class matches nothing, and no class matches a slash.
    return f"(?!/)[{inside}]" if inside else "(?!)", position + 1


def _read_member(part: str, position: int) -> tuple[str, int]:
    if part[position] == "\\":
        position += 1
    return part[position : position + 1], position + 1


def _escape_member(character: str) -> str:
    return f"\\{character}" if character in "\\]^-[&~|" else character
