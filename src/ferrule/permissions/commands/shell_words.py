"""Words of a shell command: what is known of them before the shell runs.

A `Word` keeps the text that the program gets, with marks for what only the shell will know:
`UNKNOWN` for an expansion, `ANY` for `*`, `ONE` for `?` and `[...]`, `BRACE` for `{a,b}`. The marks
are control characters that `command.py` refuses in the input, so they cannot be forged.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from ferrule.core.frozen import frozen
from ferrule.core.lazy_patterns import expression

UNKNOWN, ANY, ONE, BRACE = "\0", "\1", "\2", "\3"
_MARKED = (UNKNOWN, ANY, ONE, BRACE)
_MARKS = expression("[\0-\3]")
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_ANSI = expression(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))",
    re.DOTALL,
)


@frozen
class Word:
    """One word. `splits` is True if the shell may make none or several words of it."""

    text: str
    raw: str
    splits: bool = False

    @property
    def known(self) -> bool:
        """The program gets exactly `text`."""
        return not self.splits and _MARKS.search(self.text) is None

    @property
    def may_be_flag(self) -> bool:
        """The shell could turn this into a word that begins with a dash, other than it stands."""
        return self.splits or (not self.known and self.text[:1] in (UNKNOWN, ANY, ONE, BRACE, "-"))

    def shown(self) -> str:
        """For matching rules: quoted where a rule's words could otherwise run together."""
        if not self.known:
            return self.raw
        return (
            self.text
            if self.text and not re.search(r"[\s'\"\\;&|<>()$`]", self.text)
            else shlex.quote(self.text)
        )


def literal(text: str) -> Word:
    """A word that no shell touches."""
    return Word(text, text)


class WordBuilder:
    """Puts a word together as its text is read.

    `shape` is as long as the text: the character itself where it is bare, `q` where it is quoted,
    `u` for what only the shell will know. Braces, brackets, `*` and `?` mean something only where
    they are bare.
    """

    __slots__ = ("_inside", "_shape", "_text", "evaluated", "plain", "splits", "text", "used")

    def __init__(self) -> None:
        self._text: list[str] = []
        self._shape: list[str] = []
        self._inside: list[Any] = []
        self.text = ""
        self.splits = False
        self.plain = True
        self.evaluated: list[str] = []
        self.used: list[str] = []

    @property
    def inside(self) -> tuple[Any, ...]:
        """The scripts that run while the word is expanded."""
        return tuple(self._inside)

    def bare(self, text: str) -> None:
        """Add text that the shell may still change."""
        self._text.append(text)
        self._shape.append(text)

    def quoted(self, text: str) -> None:
        """Add text that stays as it is."""
        self._text.append(text)
        self._shape.append("q" * len(text))
        self.plain = False

    def unknown(self, *, splits: bool) -> None:
        """Add what only the shell will know."""
        self._text.append(UNKNOWN)
        self._shape.append("u")
        self.splits = self.splits or splits
        self.plain = False

    def run(self, script: Any) -> None:
        """Add commands that run while the word is expanded."""
        self._inside.append(script)

    def merge(self, inner: WordBuilder) -> None:
        """Take over what runs and what is evaluated in a word within this one."""
        self._inside += inner._inside
        self.evaluated += inner.evaluated
        self.used += inner.used

    def finish(self, home: str | None) -> None:
        """Set `text`: braces, wildcards and, with a `home`, a leading `~` become what they stand
        for.
        """
        text = "".join(self._text)
        shape = "".join(self._shape)
        if "{" in shape:
            text, shape = _replaced(_BRACES, BRACE, text, shape)
            # `{a},b}` is `a}` and `b`.
            self.splits = self.splits or _has_odd_braces(shape)
        if "[" in shape:
            text, shape = _replaced(_CLASS, ONE, text, shape)
        if "*" in shape or "?" in shape:
            text = "".join(_WILD.get(mark, own) for own, mark in zip(text, shape, strict=True))
        if home is not None and shape.startswith("~"):
            self.splits = self.splits or text.partition("/")[0] != "~"
            text = tilde(text, home)
        self.text = text
        # `ls x=~/y:~` is expanded where an assignment is not, too.
        tildes = "=~/" in shape or ":~" in shape or shape.endswith("=~")
        self.splits = self.splits or text == BRACE or (tildes and shape != "=~")


def _replaced(pattern: re.Pattern[str], mark: str, text: str, shape: str) -> tuple[str, str]:
    """Text and shape with a mark for each match in the shape, inner ones first."""
    while (found := pattern.search(shape)) is not None:
        text = text[: found.start()] + mark + text[found.end() :]
        shape = shape[: found.start()] + mark + shape[found.end() :]
    return text, shape


def _has_odd_braces(shape: str) -> bool:
    """True if braces are left that are expanded: a `}` before the first comma ends nothing."""
    for start, character in enumerate(shape):
        if character != "{":
            continue
        level = 0
        separated = False
        for at in range(start + 1, len(shape)):
            here = shape[at]
            if here == "{":
                level += 1
            elif here == "}" and level:
                level -= 1
            elif here == "}" and separated:
                return True
            elif not level and (here == "," or shape.startswith("..", at)):
                separated = True
    return False


_WILD = {"*": ANY, "?": ONE}
_BRACES = expression(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_CLASS = expression(r"\[[!^]?\]?[^\]]*\]")


def tilde(text: str, home: str) -> str:
    """A text that begins with `~`, as the shell completes it."""
    name, slash, rest = text.partition("/")
    if name == "~":
        return f"{home or UNKNOWN}{slash}{rest}"
    # Another user's home, `~+` or `~-`: known to be a folder elsewhere.
    return f"/home/{name[1:]}{slash}{rest}"


def ansi_text(text: str) -> str:
    """What stands between `$'` and `'`, decoded."""
    out: list[str] = []
    at = 0
    for match in _ANSI.finditer(text):
        out += (text[at : match.start()], _escape(match))
        at = match.end()
        if out[-1] == UNKNOWN:
            return "".join(out)  # a NUL ends it, whatever stands behind
    return "".join((*out, text[at:]))


def _escape(match: re.Match[str]) -> str:
    for group, radix in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if match[group]:
            code = int(match[group], radix)
            return chr(code) if 3 < code < 0x80 else UNKNOWN
    if match[5]:
        return UNKNOWN
    return _ESCAPES.get(match[6], match[6] if match[6] in "\\'\"?" else "\\" + match[6])


def could_name(glob: str, pattern: str) -> bool:
    """True if one component with marks (`glob`) could be a name that `pattern` (with `*`, `?`)
    matches.

    Follows the shell in that a leading wildcard does not reach a leading dot. A brace or expansion
    may.
    """
    if glob[:1] in (ANY, ONE) and pattern[:1] == ".":
        return False
    glob = glob.lower()
    pattern = pattern.lower()
    # Most differ in their last letters.
    for own, wanted in zip(reversed(glob), reversed(pattern), strict=False):
        if own in _MARKED or wanted in "*?":
            break
        if own != wanted:
            return False
    return _meet(glob, pattern, 0, 0, set())


def _meet(glob: str, pattern: str, i: int, j: int, seen: set[tuple[int, int]]) -> bool:
    if (i, j) in seen:
        return False
    seen.add((i, j))
    many = i < len(glob) and glob[i] in (ANY, UNKNOWN, BRACE)
    star = j < len(pattern) and pattern[j] == "*"
    if i == len(glob) and j == len(pattern):
        return True
    if many and (
        _meet(glob, pattern, i + 1, j, seen)
        or (j < len(pattern) and _meet(glob, pattern, i, j + 1, seen))
    ):
        return True
    if star and (
        _meet(glob, pattern, i, j + 1, seen)
        or (i < len(glob) and _meet(glob, pattern, i + 1, j, seen))
    ):
        return True
    if many or star or i == len(glob) or j == len(pattern):
        return False
    return (glob[i] == ONE or pattern[j] == "?" or glob[i] == pattern[j]) and _meet(
        glob, pattern, i + 1, j + 1, seen
    )
