"""What a script says about itself, read from its text: its entry point, the arguments it looks at,
the built-ins it names.

Starlark's grammar lies within Python's, so Python's parser reads it and nothing is run; what that
parser cannot read is left to the library (`checking.compiled`). An argument is followed through the
script's own functions. Where it goes out of sight (`for name in args`, `args[name]`, a call of
something else), nothing is said about what is never read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from ferrule.extensions.starlark.inside.names import namespaces

Function = ast.FunctionDef | ast.Lambda


@dataclass(slots=True)
class Looked:
    """What a script does with one object. Names go to the first line (from 1, of the script) where
    they are read.

    `needed` are read as `args["x"]`, which fails where `x` is missing; `wanted` as `args.get("x")`.
    `asked` are looked for (`"x" in args`).
    `hidden`: the object also goes where it cannot be followed.
    """

    needed: dict[str, int] = field(default_factory=dict[str, int])
    wanted: dict[str, int] = field(default_factory=dict[str, int])
    asked: set[str] = field(default_factory=set[str])
    made: set[str] = field(default_factory=set[str])
    hidden: bool = False

    @property
    def read(self) -> dict[str, int]:
        """Every name that is read and not made by the script itself, with its line."""
        both = {**self.wanted, **self.needed}
        return {name: line for name, line in both.items() if name not in self.made}


class Text:
    """A script's text, parsed once. `readable` is False where it is no text that Python's parser
    knows.
    """

    def __init__(self, source: str) -> None:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = None
        self.readable = tree is not None
        self._tree = tree or ast.Module([], [])
        self._functions = dict(_functions(self._tree))
        self._bound = {name for node in self._tree.body for name in _binds(node)}

    def entry(self, name: str, parameters: Sequence[str]) -> tuple[int, str] | None:
        """What is wrong with the function that is called from outside, and its line; None if it is
        as it should be.
        """
        if not self.readable:
            return None
        shape = f"`{name}({', '.join(parameters)})`"
        if name not in self._bound:
            return 1, f"the script defines no function {shape}"
        function = self._functions.get(name)
        if function is None:
            return None  # `run = other`: what it takes is seen when it is called.
        taken = function.args
        given = [*taken.posonlyargs, *taken.args]
        required = len(given) - len(taken.defaults)
        forced = [
            one
            for one, default in zip(taken.kwonlyargs, taken.kw_defaults, strict=True)
            if default is None
        ]
        fits = required <= len(parameters) and (taken.vararg or len(given) >= len(parameters))
        if fits and not forced:
            return None
        count = "one argument" if len(parameters) == 1 else f"{len(parameters)} arguments"
        return (
            function.lineno,
            f"`{name}` must take {count}: write `def {name}({', '.join(parameters)}):`",
        )

    def looks(self, name: str, position: int) -> Looked | None:
        """What the function `name` does with the argument at `position`; None where that cannot be
        seen.
        """
        found = Looked()
        if not self.readable or name not in self._functions:
            return None
        self._follow(name, position, found, set())
        return found

    def strangers(self) -> Iterator[tuple[int, str, str]]:
        """Members that no built-in has (`fs.raed`): line, what was written, and the nearest there
        is or nothing.
        """
        known = {
            space: members
            for space, members in namespaces().items()
            if space and space not in self._all_bound()
        }
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
                continue
            members = known.get(node.value.id)
            if members is not None and node.attr not in members:
                near = get_close_matches(node.attr, members, 1)
                yield (
                    node.lineno,
                    f"{node.value.id}.{node.attr}",
                    f"{node.value.id}.{near[0]}" if near else "",
                )

    def _all_bound(self) -> set[str]:
        stored = {
            n.id
            for n in ast.walk(self._tree)
            if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
        }
        return stored | {n.arg for n in ast.walk(self._tree) if isinstance(n, ast.arg)}

    def _follow(self, name: str, position: int, found: Looked, seen: set[tuple[str, int]]) -> None:
        if (name, position) in seen:
            return
        seen.add((name, position))
        function = self._functions[name]
        given = [*function.args.posonlyargs, *function.args.args]
        if position >= len(given):
            found.hidden = True
            return
        reader = _Reader(given[position].arg, found)
        for part in function.body if isinstance(function.body, list) else [function.body]:
            reader.visit(part)
        for called, at in reader.passed:
            if called in self._functions:
                self._follow(called, at, found, seen)
            else:
                found.hidden = True


class _Reader(ast.NodeVisitor):
    """Goes through a function's body and notes what is done with the object called `name`."""

    def __init__(self, name: str, found: Looked) -> None:
        self._name, self._found = name, found
        self.passed: list[tuple[str, int]] = []
        """Functions that get the object, and as which argument."""

    def visit_Subscript(self, node: ast.Subscript) -> None:
        key = node.slice
        if (
            not self._is_it(node.value)
            or not isinstance(key, ast.Constant)
            or not isinstance(key.value, str)
        ):
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load):
            self._found.needed.setdefault(key.value, node.lineno)
        else:
            self._found.made.add(key.value)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func
        if (
            isinstance(called, ast.Attribute)
            and self._is_it(called.value)
            and called.attr in ("get", "pop", "setdefault")
        ):
            self._got(node, called.attr)
            return
        for at, argument in enumerate(node.args):
            if self._is_it(argument) and isinstance(called, ast.Name):
                self.passed.append((called.id, at))
            else:
                self.visit(argument)
        self.visit(called)
        for keyword in node.keywords:
            self.visit(keyword.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        left, *_ = node.left, *node.comparators
        looked_for = isinstance(node.ops[0], (ast.In, ast.NotIn)) and self._is_it(
            node.comparators[0]
        )
        if looked_for and isinstance(left, ast.Constant) and isinstance(left.value, str):
            self._found.asked.add(left.value)
        else:
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._inner(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inner(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id == self._name:
            self._found.hidden = True

    def _inner(self, node: Function) -> None:
        taken = node.args
        names = {one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)}
        if self._name not in names:
            self.generic_visit(node)

    def _got(self, node: ast.Call, method: str) -> None:
        key = node.args[0] if node.args else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            sure = method == "pop" and len(node.args) == 1
            (self._found.needed if sure else self._found.wanted).setdefault(key.value, node.lineno)
        else:
            self._found.hidden = True
        for further in node.args[1:]:
            self.visit(further)

    def _is_it(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self._name


def _functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda):
            yield from (
                (target.id, node.value) for target in node.targets if isinstance(target, ast.Name)
            )


def _binds(node: ast.stmt) -> Iterator[str]:
    """Names that a statement of the top level makes."""
    if isinstance(node, ast.FunctionDef):
        yield node.name
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            yield part.id
