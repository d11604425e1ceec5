"""Docstrings and comments name only what there is: parameters under `Args:`, names in backticks."""

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

Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

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


def documented() -> Iterator[tuple[str, Documented, str]]:
    """Every function and class with a docstring that lists arguments, and where it stands."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, Documented):
                continue
            text = ast.get_docstring(node) or ""
            if re.search(r"^(Args|Attributes):$", text, re.MULTILINE):
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", node, text


def parameters(node: Documented) -> set[str]:
    """The parameters of a function; of a class its fields, properties and `__init__`'s parameters."""
    if not isinstance(node, ast.ClassDef):
        every = node.args
        named = [*every.posonlyargs, *every.args, *every.kwonlyargs]
        return {one.arg for one in (*named, every.vararg, every.kwarg) if one is not None}
    found: set[str] = set()
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            found.add(member.target.id)
        elif isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(member.name)
            if member.name == "__init__":
                found |= parameters(member)
                found |= {
                    one.attr
                    for one in ast.walk(member)
                    if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)
                }
    return found


def listed(text: str) -> Iterator[str]:
    """The names that stand under `Args:` and `Attributes:`."""
    for section in re.finditer(r"^(?:Args|Attributes):\n((?:    .*\n?|\n)+)", text, re.MULTILINE):
        for entry in re.finditer(r"^    (\*{0,2}\w+(?:, \*{0,2}\w+)*):", section[1], re.MULTILINE):
            yield from (name.strip("*") for name in entry[1].split(", "))


def test_what_is_listed_as_an_argument_is_one() -> None:
    wrong = [
        f"{where}: {name}"
        for where, node, text in documented()
        if not (isinstance(node, ast.ClassDef) and node.bases)
        for name in listed(text)
        if name not in parameters(node)
    ]
    assert wrong == []


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
