"""The last pipeline of a shell text: where a copy of a producer's output can be taken, or why not.

Only text that is understood completely is changed: `permissions.command_analysis.analysis` found no
problem in it, every node of its syntax tree is of a kind listed here, and nothing in it changes the
shell for what comes later (functions, aliases, traps, `exec`). Whatever is not known to be harmless
is a reason to leave the text alone: that costs at most a command that has to be run again, while a
mistake costs a wrong answer. So two readers that share no code must agree: what tree-sitter-bash
makes of the text is used only where the gate's own reader found nothing to ask about.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen
from ferrule.permissions.command_analysis.analysis import analyse_command
from ferrule.permissions.command_analysis.program_facts import program_name, word_set
from ferrule.permissions.command_analysis.shell_words import Word

from .syntax_tree import CRASHING_TEXT, find_misreading, read_word

if TYPE_CHECKING:
    from tree_sitter import Node

FILTERS = word_set("""
    tail wc sort uniq cat nl tac rev column fold fmt cut tr grep egrep fgrep base64 od hexdump xxd
    cksum sum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum""")
"""Filters that read all their input.

Never head, sed or awk: they may stop, or ask for a certain line only.
"""

_GREPS = word_set("grep egrep fgrep")
_STOPPING_LETTERS = compile_lazily(r"-[^-].*[qmlL]|-[qmlL]")
_STOPPING = (
    "--quiet",
    "--silent",
    "--max-count",
    "--files-with-matches",
    "--files-without-match",
)


@frozen
class Pipeline:
    """Byte offsets into the text as UTF-8.

    `start` is the beginning of the first part, `pipe` the last `|`, `end` the end of the filter.
    `parts` counts the parts before the filter; `simple` is True if all are single commands.
    """

    start: int
    pipe: int
    end: int
    parts: int
    simple: bool


class NotCapturable(Exception):
    """A text is left alone, for this reason."""


def find_last_pipeline(text: str, *, bash: bool) -> Pipeline:
    """Return the pipeline that ends the text.

    Args:
        text: What the shell reads.
        bash: Whether bash reads the text, or another POSIX shell.

    Raises:
        NotCapturable: No copy can be taken, with the reason.
    """
    if "\n" in text.strip():
        raise NotCapturable("it has more than one line")
    analysis = analyse_command(text)
    problem = analysis.over_limit or analysis.problem
    if problem:
        raise NotCapturable(problem)
    if _is_reader_missing():
        raise NotCapturable(
            "the second reader of shell text is not installed (pip install 'ferrule[capture]')"
        )
    if CRASHING_TEXT.search(text):
        raise NotCapturable("it holds a character that the parser cannot read")
    source = text.encode()
    root = _parse(source)
    problem = find_misreading(root, source, text)
    if problem:
        raise NotCapturable(f"it is not sure how a shell reads it: {problem}")
    _check_kinds(root, bash)
    for words in _programs(root):
        _check_program(words)
    parts, pipe, redirects = _last_statement(root)
    _check_filter(parts[-1], redirects)
    end = max(node.end_byte for node in (parts[-1], *redirects))
    simple = all(_without_redirects(part).type == "command" for part in parts[:-1])
    return Pipeline(parts[0].start_byte, pipe, end, len(parts) - 1, simple)


@cache
def _is_reader_missing() -> bool:
    return any(find_spec(name) is None for name in ("tree_sitter", "tree_sitter_bash"))


def _parse(source: bytes) -> Node:
    import tree_sitter  # heavy
    import tree_sitter_bash

    language = tree_sitter.Language(tree_sitter_bash.language())
    return tree_sitter.Parser(language).parse(source).root_node


# ---- the trees that are understood

_WORD_KINDS = word_set("""
    word number raw_string string string_content concatenation simple_expansion expansion
    variable_name special_variable_name arithmetic_expansion binary_expression unary_expression
    test_operator brace_expression""")
_STATEMENT_KINDS = word_set("""
    program list pipeline command command_name variable_assignment variable_assignments
    declaration_command unset_command redirected_statement file_redirect file_descriptor
    compound_statement for_statement while_statement if_statement elif_clause else_clause do_group
    test_command""")
_BASH_KINDS = word_set("ansi_c_string")
_REASONS = {
    "command_substitution": "it holds a command substitution",
    "process_substitution": "it holds a process substitution",
    "heredoc_redirect": "it holds a here-document",
    "herestring_redirect": "it holds a here-document",
    "subshell": "it holds a subshell",
    "function_definition": "it defines a function",
    "negated_command": "it is negated",
    "comment": "it holds a comment",
}
_TOKENS = {
    "|&": "it pipes both outputs",
    "&>": "it redirects both outputs",
    "&>>": "it redirects both outputs",
    "``": "it holds a command substitution",
    "&": "it starts something in the background",
    "[[": "it holds `[[`",
    "((": "it holds `((`",
}
_VARIABLES = compile_lazily(r"_|PIPESTATUS|LINENO|SECONDS|BASH\w*|SHELLOPTS|PPID|__ferrule\w*")
"""Variables that could reveal an addition to the text."""


def _nodes(root: Node) -> Iterator[Node]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(node.children)


def _check_kinds(root: Node, bash: bool) -> None:
    known = _WORD_KINDS | _STATEMENT_KINDS
    if bash:
        known |= _BASH_KINDS
    for node in _nodes(root):
        reasons = _REASONS if node.is_named else _TOKENS
        if node.type in reasons:
            raise NotCapturable(reasons[node.type])
    for node in _nodes(root):
        if node.is_named and node.type not in known:
            raise NotCapturable(f"it holds `{node.type}`, which is not looked into")
        if node.type == "expansion" and not _is_plain_expansion(node):
            raise NotCapturable("it holds an expansion that is not plain")
        if node.type.endswith("variable_name") and _VARIABLES.fullmatch(_text(node)):
            raise NotCapturable(f"it looks at `{_text(node)}`")


def _is_plain_expansion(node: Node) -> bool:
    return all(child.type in _WORD_KINDS for child in node.named_children)


def _last_statement(root: Node) -> tuple[list[Node], int, list[Node]]:
    """Return the last top-level statement: its parts, its last pipe, the redirects after it."""
    parts: list[Node] = []
    pipes: list[Node] = []
    redirects: list[Node] = []
    ended = False
    for node in _flatten(root):
        if node.type in (";", "&&", "||"):
            ended = True
            continue
        if ended:
            parts = []
            pipes = []
            redirects = []
            ended = False
        if node.type == "|":
            pipes.append(node)
        elif node.type == "file_redirect":
            redirects.append(node)
        else:
            parts.append(node)
        alternates = len(parts) == len(pipes) + (node.type != "|")
        redirects_are_last = not redirects or node is redirects[-1]
        if not alternates or not redirects_are_last:
            raise NotCapturable("where its pipes stand is not plain")
    if not pipes:
        raise NotCapturable("its last statement has no pipe")
    return parts, pipes[-1].start_byte, redirects


def _flatten(node: Node) -> Iterator[Node]:
    """Yield statements, redirects and operators in the order of the text.

    The grammar nests `a | b | c && d` as if `&&` bound tighter than `|`. Only the order of the
    operators is taken from it; what they bind is known.
    """
    if node.type in ("program", "list", "pipeline") or _without_redirects(node).type in (
        "list",
        "pipeline",
    ):
        for child in node.children:
            yield from _flatten(child)
    else:
        yield node


# ---- the filter


def _check_filter(node: Node, redirects: list[Node]) -> None:
    command = _without_redirects(node)
    if command.type != "command":
        raise NotCapturable("its filter is not a single command")
    own = [*_redirects(node), *_redirects(command), *redirects]
    if any("<" in _operator(redirect) for redirect in own):
        raise NotCapturable("its filter reads from elsewhere")
    if any(child.type == "variable_assignment" for child in command.named_children):
        raise NotCapturable("its filter begins with an assignment")
    words = _words(command)
    name = program_name(words[0].text) if words and words[0].is_known else ""
    if name not in FILTERS:
        raise NotCapturable(f"`{name or '?'}` is not a filter that reads all it is given")
    if name in _GREPS:
        if any(_redirects_stdout(redirect) for redirect in own):
            # Into /dev/null, grep stops at the first match.
            raise NotCapturable(f"`{name}` writes into a file")
        if any(_may_stop(word) for word in words[1:]):
            raise NotCapturable(f"`{name}` may stop early")


def _may_stop(word: Word) -> bool:
    """Return whether an argument of grep ends it before its input does, or could turn out to."""
    if word.may_be_flag and not word.is_known:
        return True
    if not word.text.startswith("--"):
        return _STOPPING_LETTERS.match(word.text) is not None
    name = word.text.partition("=")[0]
    return len(name) > 2 and any(long.startswith(name) for long in _STOPPING)


# ---- all programs

_CHANGES_SHELL = word_set(
    "trap exec eval source . alias unalias shopt enable umask builtin fc coproc"
)
_LISTS_PROCESSES = word_set("ps pgrep pidof pstree top lsof fuser jobs")
_KEYWORDS = word_set("! time { }")
_SET_OPTION = compile_lazily(r"[-+][eu]*o?|pipefail")


def _check_program(words: list[Word]) -> None:
    if any(program_name(word.text) == "tee" for word in words):
        raise NotCapturable("it holds a `tee` already")
    if not words[0].is_known:
        raise NotCapturable("which program runs is known only when it runs")
    name = program_name(words[0].text)
    if name in _KEYWORDS:
        raise NotCapturable(f"`{name}` belongs to the whole pipeline")
    named = {program_name(word.text) for word in words} if name == "command" else {name}
    if named & _CHANGES_SHELL:
        raise NotCapturable(f"`{name}` changes the shell")
    if named & _LISTS_PROCESSES:
        raise NotCapturable(f"`{name}` would see one process more")
    if name == "set" and not all(
        word.is_known and _SET_OPTION.fullmatch(word.text) for word in words[1:]
    ):
        raise NotCapturable("`set` changes more than what happens after a failure")


def _programs(root: Node) -> Iterator[list[Word]]:
    for node in _nodes(root):
        if node.type != "command":
            continue
        words = _words(node)
        if words:
            yield words


def _words(command: Node) -> list[Word]:
    found: list[Word] = []
    for child in command.named_children:
        if child.type in ("variable_assignment", "file_redirect"):
            continue
        word = child.named_children[0] if child.type == "command_name" else child
        found.append(read_word(word))
    return found


def _without_redirects(node: Node) -> Node:
    """Return a statement without its redirects."""
    body = node.child_by_field_name("body") if node.type == "redirected_statement" else None
    return node if body is None else body


def _redirects(node: Node) -> list[Node]:
    return [child for child in node.named_children if child.type == "file_redirect"]


def _redirects_stdout(redirect: Node) -> bool:
    """Return whether standard output goes into a file (`2>file` and `>&2` do not do that)."""
    children = {child.type: _text(child) for child in redirect.named_children}
    duplicates = _operator(redirect).endswith("&") and "number" in children
    return ">" in _operator(redirect) and children.get("file_descriptor") != "2" and not duplicates


def _operator(redirect: Node) -> str:
    return next((_text(child) for child in redirect.children if not child.is_named), "")


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")
