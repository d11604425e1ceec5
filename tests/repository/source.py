"""Where the sources are and how they are read: shared by the tests about the repository itself."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "ferrule"


@dataclass(frozen=True)
class Module:
    """One file of the package. `name` is dotted and begins with `ferrule`."""

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
