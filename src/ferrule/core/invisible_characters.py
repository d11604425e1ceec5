r"""Escapes characters that a reader would not see: `\x1b`, `\u202e`, `\U000e0041`, as in Python.

Whoever reads a text of a model, a tool or a stranger must see all of it: nothing in it may move a
cursor, turn the reading direction, or hold words that are not drawn. There are two sets.

*Invisible* is what is never drawn: controls except newline and tab (Cc), lone surrogates (Cs), line
and paragraph separators (Zl, Zp), bidirectional controls, what Unicode allows to be ignored when a
text is drawn (`Default_Ignorable_Code_Point` of DerivedCoreProperties.txt, Unicode 16: zero width,
fillers, variation selectors, the tag characters), and the interlinear marks. Two kinds of these
have a use: the variation selectors 15 and 16 (U+FE0E, U+FE0F) choose between text and emoji style
and stay unless several come in a row; the joiners (U+200C, U+200D) are part of scripts and emoji
and stay if `keep_joiners` is set: prose needs them, names of files and commands do not.

*Exact* is for what a person approves, where nothing may pass for something else either: all of the
above, every character that Python calls not printable (spaces other than the ASCII one, private
use, unassigned), the blank Braille pattern, and combining marks that could hide what is below
them: strokes, enclosing ones, those on no letter, and more than three in a row.

NOT covered: letters that look like other letters.
"""

from __future__ import annotations

from collections.abc import Callable
from re import Match
from unicodedata import category, combining

from .lazy_patterns import compile_lazily

_UNDRAWN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0"
    "\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_INVISIBLE = compile_lazily(f"[{_UNDRAWN}\u200c\u200d]|[\ufe0e\ufe0f]{{2,}}")
# The emoji "eye in speech bubble" has a selector before a joiner; three in a row draw nothing.
_INVISIBLE_IN_PROSE = compile_lazily(f"[{_UNDRAWN}]|[\u200c\u200d\ufe0e\ufe0f]{{3,}}")
_POSSIBLY_INVISIBLE = compile_lazily(f"[{_UNDRAWN}\u200c\u200d\ufe0e\ufe0f]")
# Characters after which a joiner has an effect: letters of scripts that join, and emoji.
_JOINABLE = compile_lazily(
    "[\u0620-\u10ff\u1200-\u17b3\u17b6-\u180a\u1810-\u1cff\u2100-\u2bff\u3030-\u303d\u3297-\u3299"
    "\ua800-\uabff\ufb1d-\ufdff\ufe70-\ufefc\U00010a00-\U0001bc9f\U0001bca4-\U0001d172"
    "\U0001d17b-\U0001faff]"
)
# Characters after which a variation selector has an effect: emoji and symbols that become one.
_SELECTABLE = compile_lazily(
    "[\xa9\xae\u203c-\u205f\u2070-\u3163\u3165-\u3299\U0001f000-\U0001faff]"
)
_MARKS = ("Mn", "Me")
_OVERLAY = 1
"""The combining class of marks that are drawn over their letter (strokes)."""
_MOST_MARKS = 3
"""Marks on one letter: Vietnamese has two, pointed Hebrew three."""
_NOT_PLAIN_ASCII = compile_lazily("[^ -~]")
_BLANK = compile_lazily(f"[{_UNDRAWN}\u200c\u200d\ufe0e\ufe0f\u2800]")


def escape_character(character: str) -> str:
    r"""Return a character as an ASCII escape: `\x1b`, `\r`, `\u202e`, `\U000e0041`."""
    return character.encode("unicode_escape").decode("ascii")


def escape_invisible(
    text: str, *, keep_joiners: bool = False, escape: Callable[[str], str] = escape_character
) -> str:
    """Return a text with invisible characters escaped.

    Tabs and newlines stay; CRLF becomes one newline.

    Args:
        text: Any text.
        keep_joiners: Keep the joiners of scripts and emoji, for prose.
        escape: Returns the escape for a character.
    """
    pattern = _INVISIBLE_IN_PROSE if keep_joiners else _INVISIBLE
    return pattern.sub(lambda match: "".join(map(escape, match[0])), text.replace("\r\n", "\n"))


def escape_for_models(text: str, escape: Callable[[str], str]) -> str:
    """Return a text with invisible characters escaped for a model; itself if it has none.

    Unlike in `escape_invisible`, line ends stay as they are, and a joiner or selector stays only
    where it has an effect: after a letter of a script that joins, or within an emoji. Between other
    letters it would be a hidden mark.
    """
    if text.isascii():
        # Twenty times faster than the expression, and true of nearly every text.
        lines = text.replace("\r\n", "") if "\r" in text else text
        if lines.replace("\n", "").replace("\t", "").isprintable():
            return text
    return _POSSIBLY_INVISIBLE.sub(
        lambda match: match[0] if _has_effect(match) else escape(match[0]), text
    )


def _has_effect(match: Match[str]) -> bool:
    """Return whether a character that is not drawn changes how its neighbours are drawn."""
    text = match.string
    start = match.start()
    character = match[0]
    after = text[start + 1 : start + 2]
    if character == "\r":
        return after == "\n"
    before = text[start - 1] if start else ""
    if character in "\ufe0e\ufe0f":
        return after == "\u20e3" or bool(_SELECTABLE.match(before))
    if character not in "\u200c\u200d":
        return False
    if before == "\ufe0f":
        # A selector without effect is escaped, so what follows it then follows ASCII.
        return bool(_SELECTABLE.match(text[start - 2] if start > 1 else ""))
    return bool(_JOINABLE.match(before))


def _is_clear_mark(match: Match[str]) -> bool:
    """Whether a mark stands on a letter, in a number that scripts use, and hides nothing.

    Marks that lie over a letter, that enclose it, or that are heaped up can hide what is below.
    """
    text, start = match.string, match.start()
    if category(match[0]) == "Me" or combining(match[0]) == _OVERLAY:
        return False
    begin = start
    while begin and category(text[begin - 1]) in _MARKS:
        begin -= 1
    return start - begin < _MOST_MARKS and begin > 0 and category(text[begin - 1])[0] == "L"


def escape_for_approval(
    text: str, *, keep: str = "\n\t", spell: Callable[[str], str] = escape_character
) -> str:
    """Return a text as a person must see it to approve it.

    Every character that is neither clearly drawn nor in `keep` is escaped.
    """

    def escape(match: Match[str]) -> str:
        character = match[0]
        is_drawn = character.isprintable() and not _BLANK.match(character)
        if is_drawn and category(character) in _MARKS:
            is_drawn = _is_clear_mark(match)
        return character if is_drawn or character in keep else spell(character)

    return _NOT_PLAIN_ASCII.sub(escape, text)
