"""What happens to a script before Starlark parses it: a check for recursion, and rewritten calls.

Starlark's grammar lies within Python's, so Python's parser reads the script. Where it cannot,
nothing is checked or changed here, and the Starlark library reports the error.

Recursion: Starlark has none, but the library we use would allow it. Functions are followed by their
names through the text, and one that mentions itself, directly or through others, is refused. Not
seen: a function that is passed as a value and called there. The depth of calls is limited as well,
so that ends, too.

`assert(…)` and `log(…)`: `assert` is reserved in Starlark, and `log` is a namespace (`log.warn`),
which cannot be called. Each call of them becomes a call of a function of ours in the same line, so
that line numbers stay right. A script that has a `log` of its own keeps it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

ASSERT = b"_ferrule_assert"
LOG = b"_ferrule_log"

_Function = ast.FunctionDef | ast.Lambda
_Edit = tuple[int, int, int, bytes]
"""Line, column, number of bytes to remove, bytes to insert."""


def _parse(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# ---- recursion


def find_recursion(source: str) -> tuple[str, int] | None:
    """Return name and line of the first function that reaches itself, or None."""
    tree = _parse(source)
    if tree is None:
        return None
    functions = dict(_functions(tree))
    mentions = {
        name: (_free_names(function) & functions.keys()) - {""}
        for name, function in functions.items()
    }
    for name, function in functions.items():
        if _reaches(name, name, mentions):
            return name, function.lineno
    return None


def _functions(tree: ast.AST) -> Iterator[tuple[str, _Function]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value


def _free_names(function: _Function) -> set[str]:
    """Return the names that a function reads and does not bind itself."""
    parameters = function.args
    named = (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
    bound = {parameter.arg for parameter in named}
    bound |= {rest.arg for rest in (parameters.vararg, parameters.kwarg) if rest is not None}
    read: set[str] = set()
    body = function.body if isinstance(function.body, list) else [function.body]
    for part in body:
        for node in ast.walk(part):
            if not isinstance(node, ast.Name):
                continue
            if isinstance(node.ctx, ast.Load):
                read.add(node.id)
            else:
                bound.add(node.id)
    return read - bound


def _reaches(start: str, goal: str, edges: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    pending = [start]
    while pending:
        for name in edges[pending.pop()]:
            if name == goal:
                return True
            if name not in seen:
                seen.add(name)
                pending.append(name)
    return False


# ---- `assert` and `log`


def rewrite_calls(source: str) -> str:
    """Replace calls of `assert` (also the statement `assert x, "why"`) and `log`."""
    if "assert" not in source and "log" not in source:
        return source
    if "\r" in source.replace("\r\n", ""):
        return source  # A bare carriage return ends a line for Python's parser, but not for us.
    tree = _parse(source)
    if tree is None:
        return source
    edits: list[_Edit] = []
    has_own_log = any(_binds_log(node) for node in ast.walk(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            edits += _assert_edits(node)
        elif not has_own_log and isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func
            if name.id == "log":
                edits.append((name.lineno, name.col_offset, len("log"), LOG))
    lines = source.encode().split(b"\n")
    for line, column, length, replacement in sorted(edits, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + replacement + old[column + length :]
    return b"\n".join(lines).decode()


def _assert_edits(node: ast.Assert) -> list[_Edit]:
    """Return the edits that turn an assertion into a call."""
    start = (node.lineno, node.col_offset, len("assert"))
    assert node.end_lineno is not None and node.end_col_offset is not None
    if node.msg is None and isinstance(node.test, ast.Tuple):
        return [(*start, ASSERT)]  # Its own brackets become those of the call.
    return [(*start, ASSERT + b"("), (node.end_lineno, node.end_col_offset, 0, b")")]


def _binds_log(node: ast.AST) -> bool:
    match node:
        case ast.FunctionDef(name="log") | ast.arg(arg="log"):
            return True
        case ast.Name(id="log", ctx=ast.Store()):
            return True
        case _:
            return False
