"""Words of a shell command: what is known about them before the shell runs.

A `Word` contains the text that the program gets, with marks for what only the shell knows:
`UNKNOWN` for an expansion, `ANY` for `*`, `ONE` for `?` and `[...]`, `BRACE` for `{a,b}`. The marks
are control characters, which `simple_commands` refuses in the input, so they cannot be forged.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

UNKNOWN = "\0"
ANY = "\1"
ONE = "\2"
BRACE = "\3"
UNKNOWN_MARKS = (UNKNOWN, ANY, ONE, BRACE)
_MARKS = compile_lazily("[\0-\3]")
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
_ANSI = compile_lazily(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|(c.|x\{)|(.))",
    re.DOTALL,
)


@frozen
class Word:
    """One word. `splits` is True if the shell may turn it into none or several words."""

    text: str
    raw: str
    splits: bool = False

    @property
    def is_known(self) -> bool:
        """True if the program gets exactly `text`."""
        return not self.splits and _MARKS.search(self.text) is None

    @property
    def may_be_flag(self) -> bool:
        """True if the shell could turn it into another word that begins with a dash."""
        return self.splits or (
            not self.is_known and self.text[:1] in (UNKNOWN, ANY, ONE, BRACE, "-")
        )

    def to_text(self) -> str:
        """Return the text that rules match, quoted if it contains blanks or operators."""
        if not self.is_known:
            return self.raw
        if not self.text or re.search(r"[\s'\"\\;&|<>()$`]", self.text):
            return shlex.quote(self.text)
        return self.text


def literal_word(text: str) -> Word:
    """Return a word that no shell changes."""
    return Word(text, text)


class WordBuilder:
    """Builds a word while its text is parsed.

    The shape is as long as the text: it has the character itself if it is bare, `q` if it is
    quoted, and `u` for what only the shell knows. Braces, brackets, `*` and `?` are special only if
    they are bare.
    """

    __slots__ = (
        "_inside",
        "_shape",
        "_text",
        "evaluated",
        "plain",
        "sets",
        "splits",
        "text",
        "used",
    )

    def __init__(self) -> None:
        self._text: list[str] = []
        self._shape: list[str] = []
        self._inside: list[Any] = []
        self.text = ""
        self.splits = False
        self.plain = True
        self.evaluated: list[str] = []
        self.sets: list[str] = []
        self.used: list[str] = []

    @property
    def inside(self) -> tuple[Any, ...]:
        """The scripts that run while the word is expanded."""
        return tuple(self._inside)

    def add_bare(self, text: str) -> None:
        """Add text that the shell may still change."""
        self._text.append(text)
        self._shape.append(text)

    def add_quoted(self, text: str) -> None:
        """Add text that stays as it is."""
        self._text.append(text)
        self._shape.append("q" * len(text))
        self.plain = False

    def add_unknown(self, *, splits: bool) -> None:
        """Add what only the shell knows."""
        self._text.append(UNKNOWN)
        self._shape.append("u")
        self.splits = self.splits or splits
        self.plain = False

    def add_script(self, script: Any) -> None:
        """Add commands that run while the word is expanded."""
        self._inside.append(script)

    def merge(self, inner: WordBuilder) -> None:
        """Add what runs, what is evaluated and what is set in a word inside this one."""
        self._inside += inner._inside
        self.evaluated += inner.evaluated
        self.sets += inner.sets
        self.used += inner.used

    def finish(self, home: str | None) -> None:
        """Set `text`, with marks for braces and wildcards and, given a `home`, `~` expanded."""
        text = "".join(self._text)
        shape = "".join(self._shape)
        if "{" in shape:
            text, shape = _replace_matches(_BRACES, BRACE, text, shape)
            # `{a},b}` is `a}` and `b`.
            self.splits = self.splits or _has_odd_braces(shape)
        if "[" in shape:
            text, shape = _replace_matches(_CLASS, ONE, text, shape)
        if "*" in shape or "?" in shape:
            text = "".join(_WILD.get(mark, own) for own, mark in zip(text, shape, strict=True))
        if home is not None and shape.startswith("~"):
            self.splits = self.splits or text.partition("/")[0] != "~"
            text = expand_tilde(text, home)
        self.text = text
        # `~` is also expanded in arguments like `x=~/y:~`.
        tildes = "=~/" in shape or ":~" in shape or shape.endswith("=~")
        self.splits = self.splits or text == BRACE or (tildes and shape != "=~")


def _replace_matches(pattern: re.Pattern[str], mark: str, text: str, shape: str) -> tuple[str, str]:
    """Replace each match in the shape by a mark, inner ones first; return text and shape."""
    match = pattern.search(shape)
    while match is not None:
        text = text[: match.start()] + mark + text[match.end() :]
        shape = shape[: match.start()] + mark + shape[match.end() :]
        match = pattern.search(shape)
    return text, shape


def _has_odd_braces(shape: str) -> bool:
    """Return whether there are further braces to expand: a `}` before the first comma ends none."""
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
_BRACES = compile_lazily(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_CLASS = compile_lazily(r"\[[!^]?\]?[^\]]*\]")


def expand_tilde(text: str, home: str) -> str:
    """Expand a text that begins with `~` as the shell does."""
    name, slash, rest = text.partition("/")
    if name == "~":
        return f"{home or UNKNOWN}{slash}{rest}"
    # Another user's home, `~+` or `~-`: certainly a folder elsewhere.
    return f"/home/{name[1:]}{slash}{rest}"


def decode_ansi_quotes(text: str) -> str:
    """Decode the text between `$'` and `'`."""
    out: list[str] = []
    at = 0
    for match in _ANSI.finditer(text):
        out += (text[at : match.start()], _decode_escape(match))
        at = match.end()
        if out[-1] == UNKNOWN:
            return "".join(out)  # a NUL ends the text
    return "".join((*out, text[at:]))


def _decode_escape(match: re.Match[str]) -> str:
    for group, radix in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if match[group]:
            code = int(match[group], radix)
            return chr(code) if 3 < code < 0x80 else UNKNOWN
    if match[5]:
        # A control character, or `\x{27}`, which not every version of bash reads alike.
        return UNKNOWN
    return _ESCAPES.get(match[6], match[6] if match[6] in "\\'\"?" else "\\" + match[6])


def could_match_name(glob: str, pattern: str) -> bool:
    """Return whether a component with marks could become a name that a pattern matches.

    As in a shell, a leading wildcard does not match a leading dot; a brace or an expansion may.

    Args:
        glob: A component with marks.
        pattern: A pattern with `*` and `?`.
    """
    if glob[:1] in (ANY, ONE) and pattern[:1] == ".":
        return False
    glob = glob.lower()
    pattern = pattern.lower()
    # Fast: most differ in their last letters.
    for own, wanted in zip(reversed(glob), reversed(pattern), strict=False):
        if own in UNKNOWN_MARKS or wanted in "*?":
            break
        if own != wanted:
            return False
    return _can_meet(glob, pattern, 0, 0, set())


def _can_meet(glob: str, pattern: str, i: int, j: int, seen: set[tuple[int, int]]) -> bool:
    """Return whether `glob[i:]` and `pattern[j:]` can match the same text."""
    if (i, j) in seen:
        return False
    seen.add((i, j))
    if i == len(glob) and j == len(pattern):
        return True
    is_many = i < len(glob) and glob[i] in (ANY, UNKNOWN, BRACE)
    is_star = j < len(pattern) and pattern[j] == "*"
    if is_many or is_star:
        skips_one = i < len(glob) and _can_meet(glob, pattern, i + 1, j, seen)
        return skips_one or (j < len(pattern) and _can_meet(glob, pattern, i, j + 1, seen))
    if i == len(glob) or j == len(pattern):
        return False
    is_same = glob[i] == ONE or pattern[j] == "?" or glob[i] == pattern[j]
    return is_same and _can_meet(glob, pattern, i + 1, j + 1, seen)
