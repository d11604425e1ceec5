"""Characters that a person would not see, and how they are spelled out: `\\x1b`, `\\u202e`,
`\\U000e0041`, as Python writes them.

Whoever reads a text of a model, a tool or a stranger must see all of it: nothing in it moves a
cursor, turns the reading direction, or holds words that are not drawn. There are two sets.

*Unseen* is what is never drawn: controls but newline and tab (Cc), lone surrogates (Cs), line and
paragraph separators (Zl, Zp), bidirectional controls, and what Unicode says may be ignored when a
text is drawn (`Default_Ignorable_Code_Point` of DerivedCoreProperties.txt, Unicode 16: zero width,
fillers, variation selectors, the tag characters), and the interlinear marks. Two kinds of them are
letters of a kind: the selectors 15 and 16 (U+FE0E, U+FE0F) say whether the emoji before is
coloured, and stay unless they come in a row; the joiners (U+200C, U+200D) make up scripts and
emoji, and stay where `joiners` asks for it: prose needs them, names of files and commands do not.

*Exact* is for what a person approves, where also nothing may pass for something else: besides all
of these, each character that Python calls not printable (spaces but the one of ASCII, private use,
unassigned) and the blank of Braille.

NOT covered: letters that look like other letters.
"""

from __future__ import annotations

from collections.abc import Callable
from re import Match

from .lazy_patterns import expression

_UNDRAWN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_UNSEEN = expression(f"[{_UNDRAWN}\u200c\u200d]|[\ufe0e\ufe0f]{{2,}}")
# An eye in a speech bubble has a selector before a joiner; more than two in a row draw nothing.
_IN_PROSE = expression(f"[{_UNDRAWN}]|[\u200c\u200d\ufe0e\ufe0f]{{3,}}")
_HIDDEN = expression(f"[{_UNDRAWN}\u200c\u200d\ufe0e\ufe0f]")
# What a joiner, or a selector, does something behind: letters of scripts that join, emoji, and the
# keys that become one.
_JOINS = expression(
    "[\u0620-\u10ff\u1200-\u17b3\u17b6-\u180a\u1810-\u1cff\u2100-\u2bff\u3030-\u303d\u3297-\u3299\ua800-\uabff"
    "\ufb1d-\ufdff\ufe70-\ufefc\U00010a00-\U0001bc9f\U0001bca4-\U0001d172\U0001d17b-\U0001faff]"
)
_SELECTS = expression("[\xa9\xae\u203c-\u205f\u2070-\u3163\u3165-\u3299\U0001f000-\U0001faff]")
_DOUBTFUL = expression("[^ -~]")
_BLANK = expression(f"[{_UNDRAWN}\u200c\u200d\ufe0e\ufe0f\u2800]")


def spelling(character: str) -> str:
    """`\\x1b`, `\\r`, `\\u202e`, `\\U000e0041`: how a character is spelled out, in ASCII."""
    return character.encode("unicode_escape").decode("ascii")


def visible(text: str, *, joiners: bool = False, spell: Callable[[str], str] = spelling) -> str:
    """A text with what is unseen spelled out; tabs and newlines (CRLF is one) stay, and with
    `joiners` those of scripts and emoji.
    """
    found = _IN_PROSE if joiners else _UNSEEN
    return found.sub(lambda match: "".join(map(spell, match[0])), text.replace("\r\n", "\n"))


def for_models(text: str, spell: Callable[[str], str]) -> str:
    """A text with what is unseen spelled out for a model; the same text where nothing is.

    Unlike in `visible`, line ends stay as they are, and a joiner or selector stays only where it
    does something: after a letter of a script that joins, or within an emoji. Between other letters
    it would be a hidden mark.
    """
    if text.isascii():
        # Twenty times faster than the expression, and nearly every text is this one.
        lines = text.replace("\r\n", "") if "\r" in text else text
        if lines.replace("\n", "").replace("\t", "").isprintable():
            return text
    return _HIDDEN.sub(lambda match: match[0] if _at_work(match) else spell(match[0]), text)


def _at_work(match: Match[str]) -> bool:
    """Whether a character that is not drawn does something to its neighbours."""
    text, at, character = match.string, match.start(), match[0]
    after = text[at + 1 : at + 2]
    if character == "\r":
        return after == "\n"
    before = text[at - 1] if at else ""
    if character in "\ufe0e\ufe0f":
        return after == "\u20e3" or bool(_SELECTS.match(before))
    if character not in "\u200c\u200d":
        return False
    if before == "\ufe0f":
        # A selector that does nothing itself is spelled out, and what follows it then follows
        # ASCII.
        return bool(_SELECTS.match(text[at - 2] if at > 1 else ""))
    return bool(_JOINS.match(before))


def exact(text: str, *, keep: str = "\n\t", spell: Callable[[str], str] = spelling) -> str:
    """A text as a person must see it to say yes to it: what is not `keep` and not clearly drawn is
    spelled out.
    """

    def shown(character: str) -> str:
        drawn = character.isprintable() and not _BLANK.match(character)
        return character if drawn or character in keep else spell(character)

    return _DOUBTFUL.sub(lambda match: shown(match[0]), text)
