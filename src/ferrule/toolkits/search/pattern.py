r"""Patterns: each kind becomes an expression of RE2, and a wider expression for ripgrep.

RE2 alone decides what matches (`tools.safe_patterns`). ripgrep only tells which files are worth a
look, so its expression must find *at least* as much. Both languages have nearly the same syntax;
`widen` writes what RE2 reads in the words of ripgrep's (https://docs.rs/regex/latest/regex/#syntax)
and leaves out, or makes wider, what could differ:

* anchors and boundaries vanish, large counts are rounded;
* `\d`, `\w` and `\s` are spelled out, since ripgrep's are not ASCII alone;
* a class of Unicode (`\pL`), and a letter beyond ASCII that ignores case, becomes any character:
  the two have tables of their own;
* what only ripgrep understands (`&&` in a class, `{,5}`, white space) is spelled out.

A test compares both over random expressions and lines. An expression that ripgrep refuses narrows
nothing: then every file is read. The rows are the same either way, only slower.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from ferrule.core.calls import ErrorType
from ferrule.core.errors import ToolFailed
from ferrule.core.value_class import frozen
from ferrule.tools.line_matching import compile_for_lines
from ferrule.tools.safe_patterns import PatternError

PatternKind = Literal["regex", "literal", "wildcard"]

MAX_PATTERN = 1024
"""Most characters of a pattern."""
MAX_PROGRAM = 4000
"""Most instructions that a pattern is compiled to. What a character costs can grow with them."""

_MAX_REPEAT = 4


@frozen
class Pattern:
    """A compiled expression, and a wider one for ripgrep.

    `plain` is True if the text could be the name of a file.
    """

    compiled: Any
    wider: str
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
        raise _refusal(_ONE_LINE)
    if not text.isascii() and re.search("[\ud800-\udfff]", text):
        raise _refusal("the pattern is not valid Unicode text")
    if kind == "literal":
        expression = re.escape(text)
    elif kind == "wildcard":
        parts = text.strip("*").split("*")
        expression = ".*".join(map(re.escape, parts))
        ignore_case = True
    else:
        expression = text
    compiled = _compile(expression, text, ignore_case=ignore_case)
    plain = kind != "regex" or not re.search(r"[\\^$*+?{}\[\]|()]", text)
    return Pattern(compiled, widen(expression, ignore_case=ignore_case), plain)


_ONE_LINE = (
    "the pattern holds a line end or NUL, but matches lie within one line; search for one line "
    "of it"
)


def _compile(expression: str, text: str, *, ignore_case: bool) -> Any:
    try:
        compiled = compile_for_lines(expression, ignore_case=ignore_case)
    except PatternError as error:
        step = "correct it, or pass `kind: literal` to look for the text as it is"
        raise _refusal(f"{error}; {step}") from None
    if compiled.programsize > MAX_PROGRAM:
        raise _refusal(
            f"`{text}` is too large: its repeats and classes are {compiled.programsize} steps, "
            f"the most is {MAX_PROGRAM}; use smaller counts"
        )
    return compiled


def _refusal(message: str) -> ToolFailed:
    return ToolFailed(ErrorType.VALIDATION_FAILED, message)


def widen(expression: str, *, ignore_case: bool) -> str:
    """Return an expression for ripgrep that matches every line that `expression` matches.

    Args:
        expression: What RE2 has compiled.
        ignore_case: Upper and lower case are the same.
    """
    folds = ignore_case or re.search(r"\(\?[A-Za-z]*i", expression) is not None
    flag = "(?i)" if ignore_case else ""
    return flag + _Widening(expression, folds=folds).widen()


_ANY = r"(?s:.)"
_WIDER = {"border": "(?:)", "unicode": _ANY}
"""By the name of a token. A border is not nothing: a repeat may follow."""
_ASCII_CLASSES = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": r"\t\f\r\x20",
}
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}

_TOKEN = re.compile(
    r"""
    \\Q (?P<quoted> .*? ) (?: \\E | \Z )
  | \\ (?P<unicode> [pP] (?: \{[^}]*\} | . ) )
  | \\ (?P<ascii> [dDwWsS] )
  | (?P<border> \\ [AzbB] | [\^$] )
  | \\ (?P<byte> C )
  | \\ (?: x\{(?P<long>[0-9A-Fa-f]+)\} | x(?P<short>[0-9A-Fa-f]{2})
         | (?P<octal>0[0-7]{0,2}|[1-7][0-7]{1,2}) | (?P<escaped>.) )
  | (?P<class> \[ )
  | (?P<group> \( (?: \?P?<\w+> | \?[a-zA-Z-]*:? )? )
  | (?P<repeat> [*+?] | \{ (?P<least>\d+) (?P<comma>,)? (?P<most>\d*) \} )
  | (?P<sign> [.|)] )
  | (?P<literal> . )
    """,
    re.VERBOSE | re.DOTALL,
)


class _Widening:
    """One expression on its way to ripgrep's words."""

    def __init__(self, expression: str, *, folds: bool) -> None:
        self._text = expression
        self._folds = folds
        self._at = 0

    def widen(self) -> str:
        return "".join(iter(self._widen_next, None))

    def _widen_next(self) -> str | None:
        if self._at == len(self._text):
            return None
        token = self._take()
        match token.lastgroup:
            case "class":
                return self._widen_class()
            case "repeat":
                return _widen_repeat(token)
            case "group":
                return _widen_group(token[0])
            case "sign":
                return token[0]
            case "ascii":
                return _write_class(token["ascii"])
            case "byte":
                raise _refusal(r"`\C` is one byte, and a match is of characters; use `.`")
            case "quoted":
                return "".join(self._widen_character(ord(sign)) for sign in token["quoted"])
            case kind if kind in _WIDER:
                return _WIDER[kind]
            case _:
                return self._widen_character(_character(token))

    def _take(self) -> re.Match[str]:
        token = _TOKEN.match(self._text, self._at)
        assert token is not None
        self._at = token.end()
        return token

    def _widen_character(self, code: int) -> str:
        if code == 10:
            raise _refusal(_ONE_LINE)
        return _ANY if self._folds and code > 127 else _escape(code)

    def _widen_class(self) -> str:
        """Write the class that begins before here, up to its bracket."""
        negated = self._text.startswith("^", self._at)
        self._at += negated
        items: list[str] = []
        wide = False
        while not items or not self._text.startswith("]", self._at):
            if group := _GROUP_OF_CLASS.match(self._text, self._at):
                self._at = group.end()
                wide = wide or group["unicode"] is not None
                items.append(group["posix"] or _write_class(group["ascii"] or "d"))
                continue
            low = high = self._take_member()
            if _RANGE.match(self._text, self._at):
                self._at += 1
                high = self._take_member()
            wide = wide or (self._folds and high > 127)
            items.append(f"{_escape(low)}-{_escape(high)}")
        self._at += 1
        return _ANY if wide else f"[{'^' * negated}{''.join(items)}]"

    def _take_member(self) -> int:
        """Return the code point of the next member of a class."""
        if self._text.startswith("\\", self._at):
            return _character(self._take())
        self._at += 1
        return ord(self._text[self._at - 1])


_GROUP_OF_CLASS = re.compile(
    r"(?P<posix>\[:\^?\w+:\])|\\(?:(?P<ascii>[dDwWsS])|(?P<unicode>[pP](?:\{[^}]*\}|.)))", re.DOTALL
)
_RANGE = re.compile(r"-(?!\])")


def _character(token: re.Match[str]) -> int:
    if digits := token["long"] or token["short"]:
        return int(digits, 16)
    if token["octal"]:
        return int(token["octal"], 8)
    if token["escaped"]:
        return _CONTROLS.get(token["escaped"]) or ord(token["escaped"])
    return ord(token["literal"])


def _write_class(name: str) -> str:
    return f"[{'^' * name.isupper()}{_ASCII_CLASSES[name.lower()]}]"


def _widen_group(opening: str) -> str:
    """Return the opening of a group that captures nothing. Of its flags only `i` counts here."""
    flags, colon, _ = opening[2:].partition(":")
    if not opening.startswith("(?") or opening.startswith(("(?P<", "(?<")):
        return "(?:"
    added, _, removed = flags.partition("-")
    kept = "i" * ("i" in added) + "-i" * ("i" in removed)
    if colon or kept:
        return f"(?{kept}{colon}"
    return "(?:"


def _widen_repeat(token: re.Match[str]) -> str:
    if token["least"] is None:
        return token["repeat"]
    least = int(token["least"])
    most = token["most"] if token["comma"] else token["least"]
    bounded = most != "" and int(most) <= _MAX_REPEAT
    return f"{{{min(least, _MAX_REPEAT)},{most if bounded else ''}}}"


def _escape(code: int) -> str:
    return f"\\x{{{code:X}}}"
