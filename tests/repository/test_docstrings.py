"""What docstrings and comments name in backticks is a name of the code."""

from __future__ import annotations

import ast
import builtins
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache

from source import PACKAGE, ROOT

OUTSIDE = {
    "concurrent.futures",
    "calendar.day_name",
    "seccomp_data.arch",
    "Default_Ignorable_Code_Point",
    "TokenStorage",
    "EventStore",
    "ServerRequestContext",
    "Via",
    "PIP_PROXY",
    "Carbohydrates",
    "HTTPServer",
    "Mm",
}
"""Names of other libraries, of the kernel and of examples, which no code here contains."""

NAME = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[A-Z]\w*)(?:\(\))?`(?!`)")
"""A dotted name, or one that begins as classes and constants do. Words of a line are left alone."""


@cache
def known() -> frozenset[str]:
    """Every identifier of the code, every word of its short texts, modules, and Python's own names."""
    found = set(dir(builtins)) | set(sys.stdlib_module_names)
    for folder in ("src", "tests", "benchmarks", "docs", "evals", "examples"):
        for path in (ROOT / folder).rglob("*.py"):
            found |= set(path.relative_to(ROOT).with_suffix("").parts)
            nodes = list(ast.walk(ast.parse(path.read_text())))
            remark = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            for node in nodes:
                for attribute in ("id", "attr", "arg", "name"):
                    name = getattr(node, attribute, None)
                    if isinstance(name, str):
                        found |= set(name.split("."))
                is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
                if is_text and len(node.value) < 80 and id(node) not in remark:
                    found |= set(re.findall(r"\w+", node.value))
    return frozenset(found)


def remarks() -> Iterator[tuple[str, str]]:
    """Every comment and every text in triple quotes, and where it begins."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            is_text = token.type == tokenize.STRING and '"""' in token.string
            if is_text or token.type == tokenize.COMMENT:
                yield f"{path.relative_to(ROOT)}:{token.start[0]}", token.string


def test_a_name_in_backticks_is_a_name_of_the_code() -> None:
    wrong = [
        f"{where}: {name}"
        for where, text in remarks()
        for name in NAME.findall(text)
        if name not in OUTSIDE and not set(name.split(".")) <= known()
    ]
    assert wrong == []
