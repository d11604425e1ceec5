"""Words of a shell command: what is known of them before the shell runs.

A `Word` keeps the text that the program gets, with marks for what only the shell will know:
`UNKNOWN` for an expansion, `ANY` for `*`, `ONE` for `?` and `[...]`, `BRACE` for `{a,b}`. The marks are control
characters that `command.py` refuses in the input, so they cannot be forged.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from ferrule.core.expressions import expression
from ferrule.core.frozen import frozen

if TYPE_CHECKING:
    from tree_sitter import Node

UNKNOWN, ANY, ONE, BRACE = "\0", "\1", "\2", "\3"
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
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c(.)|(.))", re.DOTALL
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


def read_word(node: Node, home: str, root: str) -> Word:
    """The word of a syntax node. `home` and `root` stand in for `~`, `$HOME` and `$PWD`."""
    pieces = [_piece(node, home, root)]
    text = "".join(text for text, _ in pieces)
    raw = _text(node)
    if raw.startswith("~"):
        text = _tilde(text, home)
    return Word(text, raw, any(splits for _, splits in pieces))


def _tilde(text: str, home: str) -> str:
    name, slash, rest = text.partition("/")
    if name == "~":
        return f"{home or UNKNOWN}{slash}{rest}"
    # Another user's home, `~+` or `~-`: known to be a folder elsewhere.
    return f"/home/{name[1:]}{slash}{rest}"


def _piece(node: Node, home: str, root: str) -> tuple[str, bool]:
    reader = _READERS.get(node.type)
    return reader(node, home, root) if reader else (UNKNOWN, True)


def _bare(node: Node, home: str, root: str) -> tuple[str, bool]:
    raw = _text(node)
    out: list[str] = []
    index = 0
    while index < len(raw):
        character = raw[index]
        if character == "\\" and index + 1 < len(raw):
            out.append(raw[index + 1])
            index += 2
            continue
        out.append({"*": ANY, "?": ONE}.get(character, character))
        index += 1
    return "".join(out), False


def _single(node: Node, home: str, root: str) -> tuple[str, bool]:
    return _text(node)[1:-1], False


def _double(node: Node, home: str, root: str) -> tuple[str, bool]:
    """Bytes between the expansions are literal: the grammar does not give every blank a node."""
    source = node.text or b""
    start, out, at = node.start_byte, list[str](), 1
    for child in node.named_children:
        if child.type in ("string_content", "comment"):
            continue
        out.append(_unescaped(source[at : child.start_byte - start]))
        out.append(_piece(child, home, root)[0])
        at = child.end_byte - start
    out.append(_unescaped(source[at:-1]))
    return "".join(out), False


def _unescaped(data: bytes) -> str:
    return re.sub(r'\\([$`"\\\n])', lambda m: "" if m[1] == "\n" else m[1], data.decode("utf-8", "replace"))


def _ansi(node: Node, home: str, root: str) -> tuple[str, bool]:
    return _ANSI.sub(_escape, _text(node)[2:-1]), False


def _escape(match: re.Match[str]) -> str:
    for group, radix in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if match[group]:
            code = int(match[group], radix)
            return chr(code) if 3 < code < 0x110000 and not 0xD800 <= code < 0xE000 else UNKNOWN
    if match[5]:
        return UNKNOWN
    return _ESCAPES.get(match[6], match[6] if match[6] in "\\'\"?" else "\\" + match[6])


def _joined(node: Node, home: str, root: str) -> tuple[str, bool]:
    pieces = [_piece(child, home, root) for child in node.children]
    text = "".join(piece for piece, _ in pieces)
    # The grammar splits `.{e,x}nv` and `[ab]c` into words of one concatenation.
    if any(child.type == "word" and _text(child) in ("{", "[") for child in node.children):
        text = _class(_braces(text))
    return text, any(splits for _, splits in pieces)


def _braces(text: str) -> str:
    while (shorter := re.sub(r"\{[^{}]*(?:,|\.\.)[^{}]*\}", BRACE, text)) != text:
        text = shorter
    return text


def _class(text: str) -> str:
    return re.sub(r"\[[^\]]+\]", ONE, text)


def _variable(node: Node, home: str, root: str) -> tuple[str, bool]:
    known = {"$HOME": home, "${HOME}": home, "$PWD": root, "${PWD}": root}.get(_text(node), "")
    return (known, False) if known else (UNKNOWN, True)


def _number(node: Node, home: str, root: str) -> tuple[str, bool]:
    return (_text(node), False) if not node.named_child_count else (UNKNOWN, True)


def _glob(node: Node, home: str, root: str) -> tuple[str, bool]:
    return BRACE, True


def _nothing(node: Node, home: str, root: str) -> tuple[str, bool]:
    return "", False


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


_READERS: dict[str, Callable[[Node, str, str], tuple[str, bool]]] = {
    "word": _bare,
    "variable_name": _bare,
    "test_operator": _bare,
    "number": _number,
    "file_descriptor": _number,
    "raw_string": _single,
    "string": _double,
    "translated_string": _double,
    "ansi_c_string": _ansi,
    "concatenation": _joined,
    "simple_expansion": _variable,
    "expansion": _variable,
    "brace_expression": _glob,
    "extglob_pattern": _glob,
    "$": _nothing,
}


def could_name(glob: str, pattern: str) -> bool:
    """True if one component with marks (`glob`) could be a name that `pattern` (with `*`, `?`) matches.

    Follows the shell in that a leading wildcard does not reach a leading dot. A brace or expansion may.
    """
    if glob[:1] in (ANY, ONE) and pattern[:1] == ".":
        return False
    return _meet(glob.lower(), pattern.lower(), 0, 0, set())


def _meet(glob: str, pattern: str, i: int, j: int, seen: set[tuple[int, int]]) -> bool:
    if (i, j) in seen:
        return False
    seen.add((i, j))
    many = i < len(glob) and glob[i] in (ANY, UNKNOWN, BRACE)
    star = j < len(pattern) and pattern[j] == "*"
    if i == len(glob) and j == len(pattern):
        return True
    if many and (
        _meet(glob, pattern, i + 1, j, seen) or (j < len(pattern) and _meet(glob, pattern, i, j + 1, seen))
    ):
        return True
    if star and (
        _meet(glob, pattern, i, j + 1, seen) or (i < len(glob) and _meet(glob, pattern, i + 1, j, seen))
    ):
        return True
    if many or star or i == len(glob) or j == len(pattern):
        return False
    return (glob[i] == ONE or pattern[j] == "?" or glob[i] == pattern[j]) and _meet(
        glob, pattern, i + 1, j + 1, seen
    )
