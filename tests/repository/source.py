"""Where the sources are and how they are read: shared by the tests about the repository itself and
by the scripts in `docs` that draw it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "ferrule"
LOCAL = ROOT / "packages" / "ferrule-local" / "src" / "ferrule_local"
"""The package of the distribution beside it."""


@dataclass(frozen=True)
class Module:
    """One file of a package. `name` is dotted and begins with the package's."""

    path: Path
    name: str
    is_package: bool

    @property
    def shown(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def tree(self) -> ast.Module:
        return _parse(self.path)


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def modules(root: Path = PACKAGE) -> list[Module]:
    """Every module below `root`, sorted by name."""
    found: list[Module] = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        found.append(Module(path, ".".join(parts[:-1] if is_package else parts), is_package))
    return found


MODULES = [*modules(), *modules(LOCAL)]
NAMES = frozenset(module.name for module in MODULES)


@cache
def imports(module: Module) -> tuple[tuple[int, str, bool], ...]:
    """Return every import anywhere in a file: its line, its dotted target, and whether it runs when
    the module itself is imported.
    """
    return tuple(_imports(module))


def _imports(module: Module) -> Iterator[tuple[int, str, bool]]:
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for node, eager in _statements(module.tree, True):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")
            base = ".".join(up[: len(up) - node.level + 1]) if node.level else ""
            target = ".".join(part for part in (base, node.module or "") if part)
            for alias in node.names:
                deeper = f"{target}.{alias.name}"
                yield node.lineno, deeper if deeper in NAMES else target, eager


def _statements(node: ast.AST, eager: bool) -> Iterator[tuple[ast.stmt, bool]]:
    """Every statement below a node, and whether it runs when the module is imported."""
    eager = eager and not _deferred(node)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, eager
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _statements(child, eager)


def _deferred(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
