"""Does a syntax tree account for every character of its text, the way a shell would read it?

tree-sitter-bash parses editors' text, not hostile text: here and there it swallows a character, glues a newline into
a word or splits a word in two, without an error node. Each such place is a way to show the analysis one command
and the shell another. So the tree is checked: between two tokens there may be blanks and nothing else, a word holds no
bare blank, and two words that touch are one word to a shell. Found by running random text through both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .hazards import listed

if TYPE_CHECKING:
    from tree_sitter import Node

_LOOSE_TEXT = listed("string translated_string heredoc_body heredoc_redirect regex ERROR")
"""Nodes whose text between children is content, not blanks."""
_WORDLIKE = listed("""
    word number raw_string string ansi_c_string concatenation simple_expansion expansion command_name test_operator
    command_substitution brace_expression variable_name arithmetic_expansion extglob_pattern variable_assignment""")
_SEPARATE = listed(
    "command declaration_command unset_command for_statement test_command case_statement array file_redirect"
)
"""Nodes in which touching words would be one word to a shell."""
_STATEMENTS = listed("""
    command redirected_statement declaration_command unset_command test_command pipeline list subshell compound_statement
    negated_command variable_assignments if_statement while_statement for_statement c_style_for_statement case_statement
    function_definition""")

_BLANKS = re.compile(rb"[ \t\n]*")
_BARE_BLANK = re.compile(rb"(?:[^\\\s]|\\.)*", re.DOTALL)
_BLANK_WORD = re.compile(r"(?:^|[\s;&|()<>])\\[ \t]")
_DELIMITER = re.compile(rb"""\w+|'\w+'|"\w+"|\\\w+""")


def misread(root: Node, source: bytes, text: str) -> str:
    """Why the tree cannot be trusted; empty if it can."""
    if _BLANK_WORD.search(text):
        return "a word begins with an escaped blank"
    if not _BLANKS.fullmatch(source[: root.start_byte]) or not _BLANKS.fullmatch(source[root.end_byte :]):
        return "not all of it is understood"
    pending = [root]
    while pending:
        node = pending.pop()
        if why := _wrong(node, source):
            return why
        pending += node.children
    return ""


def _wrong(node: Node, source: bytes) -> str:
    own = source[node.start_byte : node.end_byte]
    if node.type == "word" and not _BARE_BLANK.fullmatch(own):
        return "a word holds a blank"
    if node.type == "file_descriptor" and not own.isdigit():
        return "where one word ends is not clear"
    if node.type == "heredoc_start":
        after = source[node.end_byte : node.end_byte + 1]
        if not _DELIMITER.fullmatch(own) or after not in (
            b"",
            b" ",
            b"\t",
            b"\n",
            b";",
            b"|",
            b"&",
            b"<",
            b">",
            b")",
        ):
            return "the end of a here-document is not plain"
    if not node.children or node.type in _LOOSE_TEXT:
        return ""
    return _between(node, source)


def _between(node: Node, source: bytes) -> str:
    """What stands between a node's children: blanks, and only where a shell may see some."""
    at, last = node.start_byte, ""
    for child in node.children:
        gap = source[at : child.start_byte]
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
        at, last = child.end_byte, child.type
    if last == "$":
        return "a lone `$` stands for itself"
    return "" if _BLANKS.fullmatch(source[at : node.end_byte]) else "not all of it is understood"
