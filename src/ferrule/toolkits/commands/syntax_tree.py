"""The syntax tree of a command line that may be rewritten: is it right, and what are its words?

The check asks whether a tree accounts for every character of its text, the way a shell would read
it. tree-sitter-bash parses editors' text, not hostile text: here and there it swallows a character,
glues a newline into a word or splits a word in two, without an error node. Each such place is a way
to show the analysis one command and the shell another. So the tree is checked: between two tokens
there may be blanks and nothing else, a word holds no bare blank, and two words that touch are one
word to a shell. Found by running random text through both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.permissions.command_analysis.program_facts import word_set
from ferrule.permissions.command_analysis.shell_words import (
    ANY,
    BRACE,
    ONE,
    UNKNOWN,
    Word,
    decode_ansi_quotes,
    expand_tilde,
)

if TYPE_CHECKING:
    from tree_sitter import Node
else:
    Node = Any

_LOOSE_TEXT = word_set("string translated_string heredoc_body heredoc_redirect regex ERROR")
"""Nodes whose text between children is content, not blanks."""
_WORDLIKE = word_set("""
    word number raw_string string ansi_c_string concatenation simple_expansion expansion
    command_name test_operator command_substitution brace_expression variable_name
    arithmetic_expansion extglob_pattern variable_assignment""")
_SEPARATE = word_set(
    "command declaration_command unset_command for_statement test_command case_statement "
    "array file_redirect"
)
"""Nodes in which touching words would be one word to a shell."""
_STATEMENTS = word_set("""
    command redirected_statement declaration_command unset_command test_command pipeline list
    subshell compound_statement negated_command variable_assignments if_statement while_statement
    for_statement c_style_for_statement case_statement function_definition""")

_BLANKS = compile_lazily(rb"[ \t\n]*")
_BARE_BLANK = compile_lazily(rb"(?:[^\\\s]|\\.)*", re.DOTALL)
_BLANK_WORD = compile_lazily(r"(?:^|[\s;&|()<>])\\[ \t]")
_DELIMITER = compile_lazily(rb"""\w+|'\w+'|"\w+"|\\\w+""")
_AFTER_DELIMITER = (b"", b" ", b"\t", b"\n", b";", b"|", b"&", b"<", b">", b")")


CRASHING_TEXT = compile_lazily(r"(\{[0-9]*(?:\.\.[0-9]*)?)[^\x00-\xff]")
"""Text that is never given to tree-sitter-bash.

Version 0.25 takes what follows `{` for an index into a table of 384: other characters read memory
that is not there and end the process.
"""


def find_misreading(root: Node, source: bytes, text: str) -> str:
    """Return why the tree cannot be trusted; empty if it can."""
    if root.has_error:
        return "it cannot be parsed"
    if _BLANK_WORD.search(text):
        return "a word begins with an escaped blank"
    before = source[: root.start_byte]
    after = source[root.end_byte :]
    if not _BLANKS.fullmatch(before) or not _BLANKS.fullmatch(after):
        return "not all of it is understood"
    pending = [root]
    while pending:
        node = pending.pop()
        problem = _node_problem(node, source)
        if problem:
            return problem
        pending += node.children
    return ""


def _node_problem(node: Node, source: bytes) -> str:
    own = source[node.start_byte : node.end_byte]
    if node.type == "word" and not _BARE_BLANK.fullmatch(own):
        return "a word holds a blank"
    if node.type == "file_descriptor" and not own.isdigit():
        return "where one word ends is not clear"
    if node.type == "heredoc_start":
        after = source[node.end_byte : node.end_byte + 1]
        if not _DELIMITER.fullmatch(own) or after not in _AFTER_DELIMITER:
            return "the end of a here-document is not plain"
    if not node.children or node.type in _LOOSE_TEXT:
        return ""
    return _gap_problem(node, source)


def _gap_problem(node: Node, source: bytes) -> str:
    """Return what is wrong between a node's children: only blanks may be there, not everywhere."""
    position = node.start_byte
    last = ""
    for child in node.children:
        gap = source[position : child.start_byte]
        if not _BLANKS.fullmatch(gap) or (gap and node.type == "concatenation"):
            return "not all of it is understood"
        touching = not gap and last in _WORDLIKE and child.type in _WORDLIKE
        if touching and node.type in _SEPARATE:
            return "where one word ends is not clear"
        if last == "$" and node.type != "simple_expansion" and (gap or child.type != "string"):
            return "a lone `$` stands for itself"
        if last in _STATEMENTS and child.type in _STATEMENTS and b"\n" not in gap:
            # `find &>> x ls -delete`: the words after the target were taken for a second command.
            return "two commands stand side by side"
        position = child.end_byte
        last = child.type
    if last == "$":
        return "a lone `$` stands for itself"
    if not _BLANKS.fullmatch(source[position : node.end_byte]):
        return "not all of it is understood"
    return ""


def read_word(node: Node) -> Word:
    """Read the word of a syntax node. What a variable holds is unknown."""
    pieces = [_read_piece(node)]
    text = "".join(text for text, _ in pieces)
    raw = _text(node)
    if raw.startswith("~"):
        text = expand_tilde(text, "")
    return Word(text, raw, any(splits for _, splits in pieces))


def _read_piece(node: Node) -> tuple[str, bool]:
    reader = _READERS.get(node.type)
    return reader(node) if reader else (UNKNOWN, True)


def _decode_unquoted(node: Node) -> tuple[str, bool]:
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


def _decode_single_quoted(node: Node) -> tuple[str, bool]:
    return _text(node)[1:-1], False


def _decode_double_quoted(node: Node) -> tuple[str, bool]:
    """Read bytes between expansions literally: the grammar does not give every blank a node."""
    source = node.text or b""
    start = node.start_byte
    position = 1
    pieces: list[str] = []
    for child in node.named_children:
        if child.type in ("string_content", "comment"):
            continue
        pieces.append(_unescape(source[position : child.start_byte - start]))
        pieces.append(_read_piece(child)[0])
        position = child.end_byte - start
    pieces.append(_unescape(source[position:-1]))
    return "".join(pieces), False


def _unescape(data: bytes) -> str:
    text = data.decode("utf-8", "replace")
    return re.sub(r'\\([$`"\\\n])', lambda match: "" if match[1] == "\n" else match[1], text)


def _decode_ansi_quoted(node: Node) -> tuple[str, bool]:
    return decode_ansi_quotes(_text(node)[2:-1]), False


def _concatenation(node: Node) -> tuple[str, bool]:
    pieces = [_read_piece(child) for child in node.children]
    text = "".join(piece for piece, _ in pieces)
    # The grammar splits `.{e,x}nv` and `[ab]c` into words of one concatenation.
    if any(child.type == "word" and _text(child) in ("{", "[") for child in node.children):
        text = _replace_classes(_replace_braces(text))
    return text, any(splits for _, splits in pieces)


def _replace_braces(text: str) -> str:
    while (shorter := re.sub(r"\{[^{}]*(?:,|\.\.)[^{}]*\}", BRACE, text)) != text:
        text = shorter
    return text


def _replace_classes(text: str) -> str:
    return re.sub(r"\[[^\]]+\]", ONE, text)


def _number(node: Node) -> tuple[str, bool]:
    return (_text(node), False) if not node.named_child_count else (UNKNOWN, True)


def _glob(node: Node) -> tuple[str, bool]:
    return BRACE, True


def _empty(node: Node) -> tuple[str, bool]:
    return "", False


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


_READERS: dict[str, Callable[[Node], tuple[str, bool]]] = {
    "word": _decode_unquoted,
    "variable_name": _decode_unquoted,
    "test_operator": _decode_unquoted,
    "number": _number,
    "file_descriptor": _number,
    "raw_string": _decode_single_quoted,
    "string": _decode_double_quoted,
    "translated_string": _decode_double_quoted,
    "ansi_c_string": _decode_ansi_quoted,
    "concatenation": _concatenation,
    "brace_expression": _glob,
    "extglob_pattern": _glob,
    "$": _empty,
}
