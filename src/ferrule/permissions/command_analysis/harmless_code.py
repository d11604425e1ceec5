"""Which words of interpreters and fetchers do nothing but compute and print, or ask the session.

`python3 -c` counts if its text, read by Python's own grammar, only computes: values, operators, and
functions and attributes of a short list. Nothing is opened or imported but `sys`, which is a part
of the interpreter and cannot be replaced by a file of the workspace.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from ferrule.core.lazy_patterns import compile_lazily

from .program_facts import word_set

PYTHON = compile_lazily(r"python(3(\.\d+)?)?")
_MAX_CODE = 2000
_FUNCTIONS = word_set("""
    abs all any bin bool chr dict divmod enumerate float hex int len list max min oct ord pow print
    range repr reversed round set sorted str sum tuple zip""")
_METHODS = word_set("""
    count endswith find hex index isdigit items join keys lower lstrip replace rstrip split
    startswith strip title upper values zfill""")
_FACTS = word_set("""
    base_prefix byteorder executable implementation major maxsize micro minor name path platform
    prefix version version_info""")
"""Attributes of `sys`, and of what they give."""

_VALUES = (
    ast.BinOp | ast.BoolOp | ast.Compare | ast.Dict | ast.FormattedValue | ast.GeneratorExp
    | ast.IfExp | ast.JoinedStr | ast.List | ast.ListComp | ast.Set | ast.Slice | ast.Starred
    | ast.Subscript | ast.Tuple | ast.UnaryOp | ast.comprehension | ast.keyword | ast.operator
    | ast.unaryop | ast.boolop | ast.cmpop | ast.expr_context
)  # fmt: skip
_STATEMENTS = ast.Module | ast.Expr | ast.Assign | ast.For | ast.If | ast.Pass


def computes(words: Sequence[str]) -> bool:
    """Return whether `python3 -c TEXT`, or `python3 --version`, only computes and prints."""
    rest = words[1:]
    if rest in (["--version"], ["-V"], ["-VV"]):
        return True
    if len(rest) != 2 or rest[0] != "-c" or len(rest[1]) > _MAX_CODE:
        return False
    try:
        nodes = list(ast.walk(ast.parse(rest[1])))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    names = [node for node in nodes if isinstance(node, ast.Name)]
    # A name is a value only if the text binds it: `max(texts, key=exec)` would run them.
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    known = bound | _FUNCTIONS | {"sys"}
    is_plain = not bound.intersection(dir(builtins)) and all(name.id in known for name in names)
    return is_plain and all(map(_is_harmless, nodes))


def _is_harmless(node: ast.AST) -> bool:
    match node:
        case ast.Name():
            return True
        case ast.Constant():
            return not isinstance(node.value, bytes)
        case ast.Import():
            return all(one.name == "sys" and one.asname is None for one in node.names)
        case ast.Attribute():
            return node.attr in _METHODS or node.attr in _FACTS
        case ast.Call():
            return _calls_known_function(node)
        case ast.alias():
            return node.name == "sys"
        case _:
            return isinstance(node, _VALUES | _STATEMENTS)


def _calls_known_function(call: ast.Call) -> bool:
    """Return whether a call is of a listed function, or of a listed method of some value."""
    if isinstance(call.func, ast.Name):
        return call.func.id in _FUNCTIONS
    return isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS


_OWN_URL = compile_lazily(
    r"(http://)?(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?([/?#][^\s\[\]{}]*)?"
)
_CURL_FLAGS = word_set("--silent --show-error --fail --head --include --verbose --compressed")
_CURL_LETTERS = "sSfIivN4"
_CURL_VALUES = word_set("-m --max-time --connect-timeout --retry --retry-delay")


def asks_own_server(words: Sequence[str]) -> bool:
    """Return whether `curl` gets something from a server of the session's own, and prints it."""
    rest = iter(words[1:])
    urls = 0
    for word in rest:
        if _OWN_URL.fullmatch(word):
            urls += 1
            continue
        option = _split_flags(word)
        if option in _CURL_VALUES:
            is_harmless = next(rest, "").replace(".", "").isdigit()
        elif option in ("-w", "--write-out"):
            format_text = next(rest, "@")
            is_harmless = "output" not in format_text and not format_text.startswith("@")
        elif option in ("-o", "--output"):
            is_harmless = next(rest, "") == "/dev/null"
        else:
            is_harmless = not option or option in _CURL_FLAGS
        if not is_harmless:
            return False
    return urls > 0


def _split_flags(word: str) -> str:
    """Return the option at the end of `-sSo`; "" if there are flags alone."""
    if not word.startswith("-") or word.startswith("--"):
        return word
    last = word[1:].lstrip(_CURL_LETTERS)
    return f"-{last}" if last or word == "-" else ""
