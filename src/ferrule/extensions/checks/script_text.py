"""Analyse the text of a script: its entry point, the arguments it reads, the built-ins it names.

Starlark's grammar lies within Python's, so Python's parser reads it and nothing is run. What that
parser cannot read is left to the library (`checks.render_tool_file.compiled`). An argument is
followed through the script's own functions. Where it can no longer be followed (`for name in args`,
`args[name]`, a call of something else), nothing is said about what is never read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ferrule.core.similar_names import suggest_names
from ferrule.extensions.starlark.inside.names import list_namespaces

Function = ast.FunctionDef | ast.Lambda


@dataclass(slots=True)
class ArgumentUse:
    """How a script uses one object. Names are mapped to the first line (from 1) that reads them.

    `required` are read as `args["x"]`, which fails if `x` is missing, and `optional` as
    `args.get("x")`. `tested` are tested (`"x" in args`), `assigned` are assigned. `escapes` is true
    if the object is also used where it cannot be followed.
    """

    required: dict[str, int] = field(default_factory=dict[str, int])
    optional: dict[str, int] = field(default_factory=dict[str, int])
    tested: set[str] = field(default_factory=set[str])
    assigned: set[str] = field(default_factory=set[str])
    escapes: bool = False

    @property
    def read(self) -> dict[str, int]:
        """Every name that is read and not assigned by the script itself, with its line."""
        both = {**self.optional, **self.required}
        return {name: line for name, line in both.items() if name not in self.assigned}


class ScriptText:
    """The text of a script, parsed once.

    `is_readable` is false if Python's parser does not understand it.
    """

    def __init__(self, source: str) -> None:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = None
        self.is_readable = tree is not None
        self._tree = tree or ast.Module([], [])
        self._functions = dict(_functions(self._tree))
        self._bound: set[str] = set()
        for node in self._tree.body:
            self._bound.update(_bound_names(node))

    def check_entry_point(self, name: str, parameters: Sequence[str]) -> tuple[int, str] | None:
        """Check the function that is called from outside.

        Returns:
            The line of a problem and its message, or None.
        """
        if not self.is_readable:
            return None
        shape = f"`{name}({', '.join(parameters)})`"
        if name not in self._bound:
            return 1, f"the script defines no function {shape}"
        function = self._functions.get(name)
        if function is None:
            return None  # `run = other`: its parameters are not known here.
        if _accepts(function, len(parameters)):
            return None
        count = "one argument" if len(parameters) == 1 else f"{len(parameters)} arguments"
        return (
            function.lineno,
            f"`{name}` must take {count}: write `def {name}({', '.join(parameters)}):`",
        )

    def trace_argument(self, name: str, position: int) -> ArgumentUse | None:
        """Return how the function `name` uses the argument at `position`, or None if unknown."""
        if not self.is_readable or name not in self._functions:
            return None
        use = ArgumentUse()
        self._follow(name, position, use, set())
        return use

    def find_unknown_builtins(self) -> Iterator[tuple[int, str, str]]:
        """Yield members that no built-in has (`fs.raed`).

        Each has its line, its name, and the nearest known member or "".
        """
        bound = self._find_all_bound()
        known = {
            space: members
            for space, members in list_namespaces().items()
            if space and space not in bound
        }
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            space = node.value.id
            members = known.get(space)
            if members is not None and node.attr not in members:
                written = f"{space}.{node.attr}"
                offered = [f"{space}.{member}" for member in members]
                yield (
                    node.lineno,
                    written,
                    suggest_names(written, offered, f"there are: {', '.join(offered)}", cutoff=0.7),
                )

    def _find_all_bound(self) -> set[str]:
        bound: set[str] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.arg):
                bound.add(node.arg)
            elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                bound.add(node.id)
        return bound

    def _follow(
        self, name: str, position: int, use: ArgumentUse, seen: set[tuple[str, int]]
    ) -> None:
        if (name, position) in seen:
            return
        seen.add((name, position))
        function = self._functions[name]
        parameters = [*function.args.posonlyargs, *function.args.args]
        if position >= len(parameters):
            use.escapes = True
            return
        reader = _Reader(parameters[position].arg, use)
        body = function.body if isinstance(function.body, list) else [function.body]
        for part in body:
            reader.visit(part)
        for called, called_position in reader.passed:
            if called in self._functions:
                self._follow(called, called_position, use, seen)
            else:
                use.escapes = True


class _Reader(ast.NodeVisitor):
    """Goes through a function's body and records how the object called `name` is used."""

    def __init__(self, name: str, use: ArgumentUse) -> None:
        self._name = name
        self._use = use
        self.passed: list[tuple[str, int]] = []
        """Functions that the object is passed to, and as which argument."""

    def visit_Subscript(self, node: ast.Subscript) -> None:
        key = _constant_text(node.slice)
        if key is None or not self._is_object(node.value):
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load):
            self._use.required.setdefault(key, node.lineno)
        else:
            self._use.assigned.add(key)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        if (
            isinstance(called, ast.Attribute)
            and called.attr in ("get", "pop", "setdefault")
            and self._is_object(called.value)
        ):
            self._visit_getter(node, called.attr)
            return
        for position, argument in enumerate(node.args):
            if self._is_object(argument) and isinstance(called, ast.Name):
                self.passed.append((called.id, position))
            else:
                self.visit(argument)
        self.visit(called)
        for keyword in node.keywords:
            self.visit(keyword.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        is_membership = isinstance(node.ops[0], (ast.In, ast.NotIn))
        key = _constant_text(node.left)
        if is_membership and key is not None and self._is_object(node.comparators[0]):
            self._use.tested.add(key)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_inner_function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_inner_function(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id == self._name:
            self._use.escapes = True

    def _visit_inner_function(self, node: Function) -> None:
        parameters = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if all(parameter.arg != self._name for parameter in parameters):
            self.generic_visit(node)

    def _visit_getter(self, node: ast.Call, method: str) -> None:
        key = _constant_text(node.args[0]) if node.args else None
        if key is None:
            self._use.escapes = True
        elif method == "pop" and len(node.args) == 1:
            self._use.required.setdefault(key, node.lineno)
        else:
            self._use.optional.setdefault(key, node.lineno)
        for argument in node.args[1:]:
            self.visit(argument)

    def _is_object(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self._name


def _constant_text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _accepts(function: Function, count: int) -> bool:
    """Whether a function can be called with this many positional arguments."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = len(positional) - len(arguments.defaults)
    has_required_keyword = any(default is None for default in arguments.kw_defaults)
    if has_required_keyword or required > count:
        return False
    return arguments.vararg is not None or len(positional) >= count


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value


def _bound_names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a top-level statement binds."""
    if isinstance(node, ast.FunctionDef):
        yield node.name
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
