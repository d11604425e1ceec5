"""Small breakages of a module, made from its syntax tree, each with the line it stands on.

What is left alone, because breaking it proves nothing: annotations, docstrings, decorators, the
words of error messages and f-strings, imports, `__all__`, code that only a type checker reads, and
None in place of an empty value, which says the same to every `if`.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
TABLES = (ast.Tuple, ast.List, ast.Set, ast.Dict)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Breakage:
    """One change of one module: what is replaced, by what, and the line a test must execute to
    notice it.

    `name` is the constant of the module it belongs to, where it stands outside all functions.
    """

    operator: str
    line: int
    start: int
    end: int
    text: str
    shown: str
    name: str = ""

    def apply(self, source: bytes) -> bytes:
        """Return the module with this change."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def find_breakages(source: bytes) -> list[Breakage]:
    """Return every breakage of a module, in the order of its lines."""
    module = ast.parse(source)
    finder = _Finder(source)
    for statement in module.body:
        finder.visit_top(statement)
    return sorted(finder.found, key=lambda one: (one.line, one.start, one.operator, one.text))


def find_uses(source: bytes) -> dict[str, set[int]]:
    """Return the lines inside functions on which each name is read."""
    uses: dict[str, set[int]] = {}
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, Function):
            for node in _walk_body(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    uses.setdefault(node.id, set()).add(node.lineno)
    return uses


def find_body_lines(source: bytes) -> set[int]:
    """Return the lines inside functions: those that a call executes, and not an import."""
    lines: set[int] = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, Function):
            for statement in function.body:
                lines.update(
                    range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
                )
    return lines


def _walk_body(function: Function) -> Iterator[ast.AST]:
    for statement in function.body:
        yield from ast.walk(statement)


class _Finder:
    """Walks a module and collects its breakages."""

    def __init__(self, source: bytes) -> None:
        self.found: list[Breakage] = []
        self._source = source
        self._offsets = [0]
        for line in source.splitlines(keepends=True):
            self._offsets.append(self._offsets[-1] + len(line))

    def visit_top(self, statement: ast.stmt) -> None:
        """Visit a statement of the module or of a class."""
        if isinstance(statement, Function):
            self._visit_function(statement)
        elif isinstance(statement, ast.ClassDef):
            for inner in statement.body:
                self.visit_top(inner)
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            self._visit_constant(statement, statement.value)

    def _visit_constant(self, statement: ast.Assign | ast.AnnAssign, value: ast.expr) -> None:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        if not isinstance(target, ast.Name) or target.id.startswith("__"):
            return
        before = len(self.found)
        if isinstance(value, ast.Constant):
            self._change_constant(value, statement.lineno, text_too=True)
        else:
            self._visit_tables(value, statement.lineno)
        named = [_with_name(one, target.id) for one in self.found[before:]]
        self.found[before:] = named

    def _visit_tables(self, value: ast.expr, line: int) -> None:
        inner = list(ast.walk(value))
        # The arguments of a type, as in `field(default_factory=dict[str, int])`, are no table.
        types = [node.slice for node in inner if isinstance(node, ast.Subscript)]
        for node in inner:
            if isinstance(node, TABLES) and node not in types:
                self._drop_elements(node, line)
            elif isinstance(node, ast.Constant) and not isinstance(node.value, str):
                self._change_constant(node, line)

    def _visit_function(self, function: Function) -> None:
        body = function.body
        if _is_docstring(body[0]):
            body = body[1:]
        if not body or _is_stub(body):
            return
        if len(body) > 1 and not isinstance(
            body[0], Function | ast.ClassDef | ast.Global | ast.Nonlocal
        ):
            self._return_early(body[0])
        for statement in body:
            self._visit_statement(statement)

    def _return_early(self, first: ast.stmt) -> None:
        start = self._offset(first.lineno, first.col_offset)
        if isinstance(first, ast.Return | ast.Raise):
            return
        indent = " " * first.col_offset
        text = f"return\n{indent}"
        shown = (
            f"return before {_short(self._source[start : self._offsets[first.lineno]].decode())}"
        )
        self.found.append(Breakage("return early", first.lineno, start, start, text, shown))

    def _visit_statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, Function):
            self._visit_function(statement)
            return
        if isinstance(statement, ast.ClassDef):
            self.visit_top(statement)
            return
        if isinstance(statement, ast.Import | ast.ImportFrom | ast.Global | ast.Nonlocal):
            return
        if _is_for_checkers(statement):
            return
        self._break_statement(statement)
        for name, field in ast.iter_fields(statement):
            if isinstance(statement, ast.AnnAssign) and name == "annotation":
                continue
            if isinstance(statement, ast.Raise):
                continue
            self._visit_field(field)

    def _visit_field(self, field: object) -> None:
        for node in field if isinstance(field, list) else [field]:
            if isinstance(node, ast.stmt):
                self._visit_statement(node)
            elif isinstance(node, ast.ExceptHandler):
                self._visit_field(node.body)
            elif isinstance(node, ast.match_case):
                self._visit_case(node)
            elif isinstance(node, ast.withitem):
                self._visit_expression(node.context_expr)
            elif isinstance(node, ast.expr):
                self._visit_expression(node)

    def _visit_case(self, case: ast.match_case) -> None:
        if case.guard is not None:
            self._replace(case.guard, _negate(case.guard), "negate condition")
            self._visit_expression(case.guard)
        self._visit_field(case.body)

    def _break_statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Expr) and isinstance(_unawait(statement.value), ast.Call):
            self._replace(statement, ast.Pass(), "drop call")
        elif isinstance(statement, ast.Raise):
            self._replace(statement, ast.Pass(), "drop raise")
        elif isinstance(statement, ast.If | ast.While):
            self._replace(statement.test, _negate(statement.test), "negate condition")
        elif isinstance(statement, ast.Return) and not _is_no(statement.value):
            self._replace(statement, ast.Return(), "return None")
        elif isinstance(statement, ast.Assign) and isinstance(
            statement.targets[0], ast.Attribute | ast.Subscript
        ):
            self._replace(statement, ast.Pass(), "drop assignment")

    def _visit_expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.JoinedStr):
            return
        self._break_expression(node)
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._visit_expression(child)
            elif isinstance(child, ast.comprehension):
                for test in child.ifs:
                    self._replace(test, _negate(test), "negate condition")
                    self._visit_expression(test)
                self._visit_expression(child.iter)
            elif isinstance(child, ast.keyword):
                self._visit_expression(child.value)

    def _break_expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.IfExp):
            self._replace(node.test, _negate(node.test), "negate condition")
        elif isinstance(node, ast.BoolOp):
            self._swap_logic(node)
        elif isinstance(node, ast.Compare):
            self._swap_comparison(node)
            for side in (node.left, *node.comparators):
                self._change_text(side)
        elif isinstance(node, ast.Subscript):
            self._change_text(node.slice)
        elif isinstance(node, ast.Dict):
            for key in node.keys:
                self._change_text(key)
        elif isinstance(node, ast.Constant):
            self._change_constant(node, node.lineno)
        elif isinstance(node, ast.Set | ast.Tuple | ast.List) and all(
            isinstance(one, ast.Constant) for one in node.elts
        ):
            self._drop_elements(node, node.lineno)

    def _swap_logic(self, node: ast.BoolOp) -> None:
        swapped = copy.deepcopy(node)
        swapped.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._replace(node, swapped, "swap and/or")

    def _swap_comparison(self, node: ast.Compare) -> None:
        swapped = copy.deepcopy(node)
        swapped.ops = [SWAPPED[type(node.ops[0])](), *node.ops[1:]]
        self._replace(node, swapped, "swap comparison")

    def _change_text(self, node: ast.expr | None) -> None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            self._replace(node, ast.Constant(node.value + "~"), "change text")

    def _change_constant(self, node: ast.Constant, line: int, *, text_too: bool = False) -> None:
        value = node.value
        if isinstance(value, bool):
            self._replace(node, ast.Constant(not value), "flip", line)
        elif isinstance(value, int | float):
            self._replace(node, ast.Constant(value + 1), "change number", line)
        elif isinstance(value, str) and text_too:
            self._replace(node, ast.Constant(value + "~"), "change text", line)

    def _drop_elements(self, node: ast.Tuple | ast.List | ast.Set | ast.Dict, line: int) -> None:
        count = len(node.keys) if isinstance(node, ast.Dict) else len(node.elts)
        if count < 2 or isinstance(getattr(node, "ctx", None), ast.Store):
            return
        for index in range(count):
            shorter = copy.deepcopy(node)
            if isinstance(shorter, ast.Dict):
                del shorter.keys[index]
                del shorter.values[index]
            else:
                del shorter.elts[index]
            self._replace(node, shorter, "drop element", line)

    def _replace(
        self, old: ast.expr | ast.stmt, new: ast.AST, operator: str, line: int = 0
    ) -> None:
        start = self._offset(old.lineno, old.col_offset)
        end = self._offset(old.end_lineno or old.lineno, old.end_col_offset or old.col_offset)
        text = ast.unparse(ast.fix_missing_locations(new))
        if isinstance(old, ast.expr) and not isinstance(new, (ast.Constant, *TABLES)):
            text = f"({text})"
        was = self._source[start:end].decode()
        shown = f"{_short(was)} -> {_short(text)}"
        self.found.append(Breakage(operator, line or old.lineno, start, end, text, shown))

    def _offset(self, line: int, column: int) -> int:
        return self._offsets[line - 1] + column


def _with_name(one: Breakage, name: str) -> Breakage:
    return Breakage(one.operator, one.line, one.start, one.end, one.text, one.shown, name)


def _negate(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def _unawait(value: ast.expr) -> ast.expr:
    return value.value if isinstance(value, ast.Await) else value


def _is_no(value: ast.expr | None) -> bool:
    """Return whether None in its place says the same to every `if`: None, False (which is flipped
    instead), and an empty text, list, tuple or dict, for which the type checker takes no None.
    """
    if isinstance(value, ast.Constant):
        return value.value is None or value.value is False or value.value in ("", b"")
    if isinstance(value, ast.List | ast.Tuple):
        return not value.elts
    return value is None or (isinstance(value, ast.Dict) and not value.keys)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_stub(body: list[ast.stmt]) -> bool:
    return all(_is_docstring(one) or isinstance(one, ast.Pass) for one in body)


def _is_for_checkers(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test).endswith("TYPE_CHECKING")


def _short(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 70 else words[:67] + "..."
