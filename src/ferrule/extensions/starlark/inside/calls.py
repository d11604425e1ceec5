"""`assert(…)` and `log(…)`: calls that Starlark cannot have by itself, rewritten before it reads
the script.

`assert` is reserved there, and `log` is a namespace (`log.warn`), which is no function. Each call
of them becomes the call of a function of ours in the same line, so that places stay right.
Starlark's grammar lies within Python's, so Python's parser finds them; in what it cannot read
nothing is changed. A script that has a `log` of its own keeps it.
"""

from __future__ import annotations

import ast

ASSERT = b"_ferrule_assert"
LOG = b"_ferrule_log"


def rewritten(source: str) -> str:
    """The text with these calls replaced. `assert x, "why"` without brackets is one of them."""
    if ("assert" not in source and "log" not in source) or "\r" in source.replace("\r\n", ""):
        return source  # A bare carriage return is an end of line to Python's parser and none to us.
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return source
    edits: list[tuple[int, int, int, bytes]] = []
    named = any(_binds(node) for node in ast.walk(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            edits += _asserted(node)
        elif not named and isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func
            if name.id == "log":
                edits.append((name.lineno, name.col_offset, len("log"), LOG))
    lines = source.encode().split(b"\n")
    for line, column, length, text in sorted(edits, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + text + old[column + length :]
    return b"\n".join(lines).decode()


def _asserted(node: ast.Assert) -> list[tuple[int, int, int, bytes]]:
    """Edits that make a call of an assertion: line, column, how many bytes go, what comes."""
    begin = (node.lineno, node.col_offset, len("assert"))
    assert node.end_lineno is not None and node.end_col_offset is not None
    if node.msg is None and isinstance(node.test, ast.Tuple):
        return [(*begin, ASSERT)]  # Its own brackets are those of the call.
    return [(*begin, ASSERT + b"("), (node.end_lineno, node.end_col_offset, 0, b")")]


def _binds(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name="log") | ast.arg(arg="log"):
            return True
        case ast.Name(id="log", ctx=ast.Store()):
            return True
        case _:
            return False
