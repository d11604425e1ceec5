"""Does a script call itself? Starlark has no recursion; the library we use would allow it.

Functions are followed by their names through the text: a function that mentions itself, directly or
through others, is refused. Starlark's grammar lies within Python's, so Python's parser reads it;
what it cannot read is left to the library, which says better what is wrong. Not seen: a function
that is passed as a value and called there. The depth of calls is bounded as well, so that ends too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

Function = ast.FunctionDef | ast.Lambda


def recursion(source: str) -> tuple[str, int] | None:
    """Name and line of the first function that reaches itself, or None."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    bodies = dict(_functions(tree))
    edges = {name: (_mentioned(body) & bodies.keys()) - {""} for name, body in bodies.items()}
    for name, body in bodies.items():
        if _reaches(name, name, edges):
            return name, body.lineno
    return None


def _functions(tree: ast.AST) -> Iterator[tuple[str, Function]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value


def _mentioned(function: Function) -> set[str]:
    """Names that a function reads and does not make itself."""
    taken = function.args
    made = {one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}
    made |= {one.arg for one in (taken.vararg, taken.kwarg) if one is not None}
    read: set[str] = set()
    body = function.body if isinstance(function.body, list) else [function.body]
    for node in (node for part in body for node in ast.walk(part)):
        if isinstance(node, ast.Name):
            (read if isinstance(node.ctx, ast.Load) else made).add(node.id)
    return read - made


def _reaches(start: str, goal: str, edges: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    todo = [start]
    while todo:
        for following in edges[todo.pop()]:
            if following == goal:
                return True
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return False
