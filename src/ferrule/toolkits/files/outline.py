"""The definitions in a source file. No I/O.

Python is parsed. Other languages are searched for lines that look like a definition: a good guess
for those with keywords (`class`, `fn`, `func`, `interface`...) and for C-like functions, no more.
Definitions that are commented out are found too.
"""

from __future__ import annotations

import ast
import re

from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

from . import lines

MAX_DEFINITIONS = 1000
"""Most definitions in an outline."""

_MAX_COLUMNS = 200
_MODIFIERS = (
    "export|default|declare|public|private|protected|internal|static|final|abstract|async|unsafe|extern|inline|"
    "virtual|override|open|sealed|data|partial|const|pub(?:\\([a-z:]{1,40}\\))?"
)
_KEYWORDS = (
    "class|interface|struct|enum|trait|impl|type|namespace|module|mod|record|object|protocol|extension|union|"
    "func|function\\*?|fn|def|defp|defmodule|defmacro|fun|sub|proc|macro_rules!|actor|mixin"
)
_DEFINITION = compile_lazily(
    rf"\s*(?:(?:{_MODIFIERS})\s+)*(?:{_KEYWORDS})(?:\s+|(?=<))[\w(<&*~$:.'\"]"
)
_ASSIGNED = compile_lazily(
    r"\s*(?:export\s+|pub\s+)?(?:const|let|var)\s+[\w$]+\s*(?::[^=]{0,80})?=\s*"
    r"(?:(?:async\s+)?(?:function\b|(?:\([^)]{0,200}\)|[\w$]+)\s*(?::[^=]{0,80})?=>)"
    r"|(?:packed\s+|extern\s+)?(?:struct|enum|union|class)\b)"
)
_C_FUNCTION = compile_lazily(r"[A-Za-z_][\w\s*&:<>,\[\]~]{0,160}\b~?\w+\s*\([^;]{0,200}[^;]$")
_C_STATEMENT = compile_lazily(
    r"\s*(?:if|else|for|while|switch|return|do|case|catch|assert|sizeof|throw|new|delete|goto)\b"
)
_SQL = compile_lazily(
    r"\s*create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?(?:unique\s+)?(?:table|view|index|function|procedure|trigger|type)\b",
    re.I,
)
_HEADING = compile_lazily(r"#{1,6}\s+\S")
_C_LIKE = (".c", ".h", ".cc", ".cpp", ".hpp", ".cxx", ".m", ".mm", ".java", ".cs", ".d")


@frozen
class Definition:
    """A definition: its line (from 1), its nesting depth, and its first line as text."""

    line: int
    depth: int
    text: str


def find_definitions(name: str, text: str) -> tuple[list[Definition], str]:
    """Return the definitions in a file, and a note if its language could not be parsed."""
    ending = name[name.rfind(".") :].lower() if "." in name else ""
    if ending in (".py", ".pyi"):
        try:
            return _parse_python(text), ""
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            note = f"not valid Python ({type(error).__name__}); found by searching"
            return _search_definitions(text, ending), note
    return _search_definitions(text, ending), ""


def _parse_python(text: str) -> list[Definition]:
    found: list[Definition] = []
    waiting: list[tuple[ast.AST, int]] = [(ast.parse(text), 0)]
    while waiting:
        node, depth = waiting.pop()
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(Definition(node.lineno, depth, _signature(node)))
            depth += 1
        # Definitions also occur in `if`, `try` and `with`; an expression contains none.
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


def _search_definitions(text: str, ending: str) -> list[Definition]:
    found: list[Definition] = []
    margins: list[int] = []
    for number, line in enumerate(lines.split_lines(text), 1):
        line = line.rstrip()[: 2 * _MAX_COLUMNS]
        if not _is_definition(line, ending):
            continue
        margin = len(line) - len(line.lstrip())
        while margins and margins[-1] >= margin:
            margins.pop()
        heading = line.strip().removesuffix("{").rstrip()
        found.append(Definition(number, len(margins), _cut(heading)))
        margins.append(margin)
    return found


def _is_definition(line: str, ending: str) -> bool:
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
    return text if len(text) <= _MAX_COLUMNS else text[: _MAX_COLUMNS - 1] + "…"
