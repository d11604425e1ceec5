"""Patterns: each kind becomes a Python expression, and a wider expression for ripgrep.

Python's `re` alone decides what matches. ripgrep only tells which files are worth a look, so its
expression must find *at least* as much. The two languages differ in many places (Unicode classes,
case folding, look-around, back-references, `$`, bytes that are not UTF-8); `wider` walks the parsed
Python expression and replaces whatever could differ by something that certainly matches more:

* anchors, boundaries and look-around vanish; a back-reference becomes "anything";
* a class keeps its ASCII members and gets all of non-ASCII, valid or not;
* letters that ignore case become classes of their two ASCII forms (`i`, `k` and `s` have more
  forms: U+0130, U+0131, U+212A, U+017F; found by trying every character);
* counts are rounded, so that no expression becomes too large.

An expression that cannot be widened usefully (it could match an empty line, or the parser changed)
has no wider one: then every file is read. The rows are the same either way, only slower.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterable
from typing import Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen

PatternKind = Literal["regex", "literal", "wildcard"]

MAX_PATTERN = 1024
"""Most characters of a pattern."""

_NOT_ASCII = r"[^\x00-\x7F]|(?-u:[\x80-\xFF])"
_MORE_FORMS = frozenset("iksIKS")
_MAX_REPEAT = 4


@frozen
class Pattern:
    """An expression for Python, and a wider one for ripgrep (None: there is none).

    `plain` is True if the text could be the name of a file.
    """

    expression: str
    ignore_case: bool
    wider: str | None
    plain: bool


def read_pattern(text: str, kind: PatternKind, *, ignore_case: bool) -> Pattern:
    """Make a pattern from the text of a call.

    Raises:
        ToolFailed: `validation_failed` for a text that is empty, too long, or not an expression.
    """
    if not text or (kind == "wildcard" and not text.strip("*")):
        raise _refusal("the pattern is empty and would match every line; say what to look for")
    if len(text) > MAX_PATTERN:
        raise _refusal(f"the pattern has {len(text)} characters; the most is {MAX_PATTERN}")
    if "\n" in text or "\0" in text:
        raise _refusal(
            "the pattern holds a line end or NUL, but matches lie within one line; search "
            "for one line of it"
        )
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise _refusal("the pattern is not valid Unicode text")
    if kind == "literal":
        expression = re.escape(text)
    elif kind == "wildcard":
        parts = text.strip("*").split("*")
        expression = ".*".join(re.escape(part) for part in parts)
        ignore_case = True
    else:
        expression = text
    _check_compiles(expression, text)
    plain = kind != "regex" or not re.search(r"[\\^$*+?{}\[\]|()]", text)
    return Pattern(expression, ignore_case, widen(expression, ignore_case=ignore_case), plain)


def _check_compiles(expression: str, text: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        step = "correct it, or pass `kind: literal` to look for the text as it is"
        raise _refusal(f"`{text}` is not a regular expression: {error}; {step}") from None


def _refusal(message: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, message)


def widen(expression: str, *, ignore_case: bool) -> str | None:
    """Return an expression for Rust's `regex` that matches every line that `expression` matches.

    None if there is no useful one.
    """
    try:
        parser = importlib.import_module("re._parser")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed: Any = parser.parse(expression)
        ignore_case = ignore_case or bool(parsed.state.flags & re.IGNORECASE)
        text, width = _widen_sequence(parsed, ignore_case)
    except (ImportError, AttributeError, ValueError, TypeError, RecursionError):
        return None
    return text if width else None


_Wider = tuple[str, int]
"""An expression, and the least number of characters that it matches."""


def _widen_sequence(nodes: Any, ignore_case: bool) -> _Wider:
    parts = [_widen_node(str(operation), value, ignore_case) for operation, value in nodes]
    return "".join(text for text, _ in parts), sum(width for _, width in parts)


def _widen_node(operation: str, value: Any, ignore_case: bool) -> _Wider:
    match operation:
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
            return _widen_character(operation, value, ignore_case), 1
        case "BRANCH":
            branches = [_widen_sequence(branch, ignore_case) for branch in value[1]]
            return _alternatives(branches)
        case "SUBPATTERN":
            _, added, removed, inner = value
            ignores = ignore_case or bool(added & re.IGNORECASE)
            text, width = _widen_sequence(inner, ignores and not removed & re.IGNORECASE)
            return f"(?:{text})", width
        case "ATOMIC_GROUP":
            text, width = _widen_sequence(value, ignore_case)
            return f"(?:{text})", width
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            text, width = _widen_sequence(value[2], ignore_case)
            return _widen_repeat(value[0], value[1], text, width)
        case "GROUPREF":
            return f"(?:{_class_of(range(128), True)})*", 0
        case "GROUPREF_EXISTS":
            return _alternatives(
                [_widen_sequence(branch or (), ignore_case) for branch in value[1:]]
            )
        case "AT" | "ASSERT" | "ASSERT_NOT" | "FAILURE":
            return "", 0
        case _:
            raise ValueError(operation)


def _alternatives(branches: list[_Wider]) -> _Wider:
    texts = "|".join(text for text, _ in branches)
    return f"(?:{texts})", min(width for _, width in branches)


def _widen_repeat(least: int, most: Any, text: str, width: int) -> _Wider:
    if not text:
        return "", 0
    least = min(least, _MAX_REPEAT)
    upper = "" if int(most) > _MAX_REPEAT else str(int(most))
    return f"(?:{text}){{{least},{upper}}}", least * width


def _widen_character(operation: str, value: Any, ignore_case: bool) -> str:
    if operation == "ANY":
        return f"(?:{_class_of(range(128), True)})"
    if operation == "LITERAL":
        return _widen_letter(value, ignore_case)
    if operation == "NOT_LITERAL":
        return f"(?:{_class_of(set(range(128)) - {value}, True)})"
    items = [(str(kind), item) for kind, item in value]
    negated = bool(items) and items[0][0] == "NEGATE"
    members, other = _class_members(items[negated:])
    if negated:
        return f"(?:{_class_of(set(range(128)) - members, True)})"
    if ignore_case:
        characters = [chr(code) for code in members]
        members |= {ord(character.lower()) for character in characters}
        members |= {ord(character.upper()) for character in characters}
        if other:
            members |= {ord(character) for character in _MORE_FORMS}
        other = other or any(chr(code) in _MORE_FORMS for code in members)
    return f"(?:{_class_of(members, other)})"


def _widen_letter(code: int, ignore_case: bool) -> str:
    if not ignore_case:
        return _escape(code)
    if code > 127:
        # Case forms of other alphabets can be anywhere, in ASCII too.
        return f"(?:{_class_of(range(128), True)})"
    forms = {ord(chr(code).lower()), ord(chr(code).upper())}
    return f"(?:{_class_of(forms, chr(code) in _MORE_FORMS)})"


def _class_members(items: Iterable[tuple[str, Any]]) -> tuple[set[int], bool]:
    """Return the ASCII members of a class, and whether it may have others."""
    members: set[int] = set()
    other = False
    for kind, item in items:
        if kind == "LITERAL":
            low = high = item
        elif kind == "RANGE":
            low, high = item
        elif kind == "CATEGORY":
            members |= _category_members(str(item))
            other = True
            continue
        else:
            raise ValueError(kind)
        members.update(range(low, min(high, 127) + 1))
        other = other or high > 127
    return members, other


_CATEGORIES = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}


def _category_members(name: str) -> set[int]:
    _, _, last = name.rpartition("_")
    inside = {code for code in range(128) if re.match(_CATEGORIES[last], chr(code))}
    return set(range(128)) - inside if "_NOT_" in name else inside


def _class_of(codes: Iterable[int], other: bool) -> str:
    """Return a class of these ASCII codes, or of all that is not ASCII as well.

    Line ends never occur within a line.
    """
    found = [_escape(code) for code in sorted(set(codes) - {10})]
    choices: list[str] = []
    if len(found) == 127:
        choices.append(r"[\x00-\x09\x0B-\x7F]")
    elif found:
        choices.append(f"[{''.join(found)}]")
    # For an empty class `$^` would be clearer, but some expressions that cannot match are refused.
    if other or not choices:
        choices.append(_NOT_ASCII)
    return "|".join(choices)


def _escape(code: int) -> str:
    return f"\\x{{{code:X}}}"
