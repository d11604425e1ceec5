"""What a source file defines, line by line. No I/O.

Python is parsed. Other languages are searched for lines that look like a definition: a good guess
for those with keywords (`class`, `fn`, `func`, `interface`...) and for C-like functions, no more;
what is commented out is found too.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from . import lines

MOST = 1000
"""Definitions in an outline at the most."""

_COLUMNS = 200
_MODIFIERS = (
    "export|default|declare|public|private|protected|internal|static|final|abstract|async|unsafe|extern|inline|"
    "virtual|override|open|sealed|data|partial|const|pub(?:\\([a-z:]{1,40}\\))?"
)
_KEYWORDS = (
    "class|interface|struct|enum|trait|impl|type|namespace|module|mod|record|object|protocol|extension|union|"
    "func|function\\*?|fn|def|defp|defmodule|defmacro|fun|sub|proc|macro_rules!|actor|mixin"
)
_DEFINITION = re.compile(rf"\s*(?:(?:{_MODIFIERS})\s+)*(?:{_KEYWORDS})(?:\s+|(?=<))[\w(<&*~$:.'\"]")
_ASSIGNED = re.compile(
    r"\s*(?:export\s+|pub\s+)?(?:const|let|var)\s+[\w$]+\s*(?::[^=]{0,80})?=\s*"
    r"(?:(?:async\s+)?(?:function\b|(?:\([^)]{0,200}\)|[\w$]+)\s*(?::[^=]{0,80})?=>)"
    r"|(?:packed\s+|extern\s+)?(?:struct|enum|union|class)\b)"
)
_C_FUNCTION = re.compile(r"[A-Za-z_][\w\s*&:<>,\[\]~]{0,160}\b~?\w+\s*\([^;]{0,200}[^;]$")
_C_STATEMENT = re.compile(
    r"\s*(?:if|else|for|while|switch|return|do|case|catch|assert|sizeof|throw|new|delete|goto)\b"
)
_SQL = re.compile(
    r"\s*create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?(?:unique\s+)?(?:table|view|index|function|procedure|trigger|type)\b",
    re.I,
)
_HEADING = re.compile(r"#{1,6}\s+\S")
_C_LIKE = (".c", ".h", ".cc", ".cpp", ".hpp", ".cxx", ".m", ".mm", ".java", ".cs", ".d")


@dataclass(frozen=True, slots=True)
class Definition:
    """`line` counts from 1, `depth` how many definitions it lies in, `text` is its first line."""

    line: int
    depth: int
    text: str


def outline(name: str, text: str) -> tuple[list[Definition], str]:
    """The definitions in a file, and a note if they were found by a lesser way than its language
    has.
    """
    ending = name[name.rfind(".") :].lower() if "." in name else ""
    if ending in (".py", ".pyi"):
        try:
            return _python(text), ""
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return _searched(
                text, ending
            ), f"not valid Python ({type(error).__name__}); found by searching"
    return _searched(text, ending), ""


def _python(text: str) -> list[Definition]:
    found: list[Definition] = []
    waiting: list[tuple[ast.AST, int]] = [(ast.parse(text), 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(Definition(node.lineno, depth, _signature(node)))
            depth += 1
        # Definitions also stand in `if`, `try` and `with`; an expression holds none.
        waiting += [
            (child, depth)
            for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case)
        ]
    return sorted(found, key=lambda one: one.line)


def _signature(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in [*node.bases, *node.keywords])
        return _cut(f"class {node.name}({bases})" if bases else f"class {node.name}")
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return _cut(f"{word} {node.name}({ast.unparse(node.args)}){returns}")


def _searched(text: str, ending: str) -> list[Definition]:
    found: list[Definition] = []
    margins: list[int] = []
    for number, line in enumerate(lines.split(text), 1):
        line = line.rstrip()[: 2 * _COLUMNS]
        if not _looks_like_one(line, ending):
            continue
        margin = len(line) - len(line.lstrip())
        while margins and margins[-1] >= margin:
            margins.pop()
        found.append(
            Definition(number, len(margins), _cut(line.strip().removesuffix("{").rstrip()))
        )
        margins.append(margin)
    return found


def _looks_like_one(line: str, ending: str) -> bool:
    if ending in (".md", ".markdown"):
        return bool(_HEADING.match(line))
    if ending == ".sql":
        return bool(_SQL.match(line))
    if _DEFINITION.match(line) or _ASSIGNED.match(line):
        return True
    return (
        ending in _C_LIKE
        and bool(_C_FUNCTION.match(line.lstrip()))
        and not _C_STATEMENT.match(line)
    )


def _cut(text: str) -> str:
    return text if len(text) <= _COLUMNS else text[: _COLUMNS - 1] + "…"
