"""Objects change themselves: no attribute is written outside the file of the class that has it.

A session is built in one go from frozen parts, and whoever wants an object to change calls a method
of it. So the class says what can change and when. Records that one file makes and changes
are that file's own, and records (classes marked `@mutable` or `@dataclass`) are their package's own.
What is read here is the source: a write is an assignment, an augmented assignment or a deletion on
anything but `self`, and a `setattr`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from source import LOCAL, PACKAGE

CHECKED = ("core", "tools", "permissions", "engine")
_NOT_WRITTEN = frozenset({"frozen", "Protocol"})
_RECORDS = frozenset({"mutable", "dataclass"})
_BUILDS_CLASSES = frozenset({"core/lazy_names.py", "core/value_class.py"})
"""Files that set attributes of modules and of classes that they make."""


def read_trees(folder: Path) -> dict[str, ast.Module]:
    """Return the syntax trees of the checked packages below a folder, by file."""
    return {
        str(path.relative_to(folder)): ast.parse(path.read_text(encoding="utf-8"))
        for name in CHECKED
        for path in sorted((folder / name).rglob("*.py"))
    }


def find_written_attributes(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement writes, in nested targets too."""
    match node:
        case ast.Assign(targets=targets) | ast.Delete(targets=targets):
            todo = list(targets)
        case (
            ast.AugAssign(target=target)
            | ast.AnnAssign(target=target)
            | ast.For(target=target)
            | ast.AsyncFor(target=target)
        ):
            todo = [target]
        case _:
            return
    while todo:
        target = todo.pop()
        if isinstance(target, ast.Attribute):
            yield target
        elif isinstance(target, ast.Tuple | ast.List):
            todo.extend(target.elts)
        elif isinstance(target, ast.Starred):
            todo.append(target.value)


def is_own(target: ast.Attribute) -> bool:
    """Return whether an attribute is written on `self` or `cls`."""
    return isinstance(target.value, ast.Name) and target.value.id in ("self", "cls")


def read_marks(cls: ast.ClassDef) -> set[str]:
    """Return the names of a class's decorators and bases, without their arguments."""
    marks = (*cls.decorator_list, *cls.bases)
    return {re.split(r"[\[(]", ast.unparse(one))[0] for one in marks}


def list_attributes(cls: ast.ClassDef) -> set[str]:
    """Return the attributes that a class has and that can be written: none of a frozen class."""
    if read_marks(cls) & _NOT_WRITTEN:
        return set()
    found = {
        one.target.id
        for one in cls.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    for node in ast.walk(cls):
        found |= {one.attr for one in find_written_attributes(node) if is_own(one)}
    return found


def find_foreign_writes(trees: dict[str, ast.Module]) -> list[str]:
    """Return the writes to attributes of other files' classes, as `file:line: target`."""
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                is_record = bool(read_marks(node) & _RECORDS)
                owner = str(Path(file).parent) if is_record else file
                for attribute in list_attributes(node):
                    owners[attribute].add(owner)
    return [
        f"{file}:{line}: {target}"
        for file, tree in trees.items()
        for line, target in _find_writes(file, tree, owners)
    ]


def _find_writes(
    file: str, tree: ast.Module, owners: Mapping[str, set[str]]
) -> Iterator[tuple[int, str]]:
    here = {file, str(Path(file).parent)}
    for node in ast.walk(tree):
        for target in find_written_attributes(node):
            # What no class here has is another library's, or a class's own `__doc__`.
            known = owners.get(target.attr, set())
            if known and not is_own(target) and not known & here:
                yield target.lineno, ast.unparse(target)
        if not isinstance(node, ast.Call) or file in _BUILDS_CLASSES:
            continue
        if ast.unparse(node.func) == "setattr":
            yield node.lineno, ast.unparse(node)


def test_no_attribute_is_written_outside_the_file_of_its_class() -> None:
    assert find_foreign_writes(read_trees(PACKAGE)) == []
    assert find_foreign_writes(read_trees(LOCAL)) == []


SESSION = """
class Session:
    limit = 1
    def __init__(self, driver):
        self.driver = driver
        self.driver.gate = None
    def copy(self):
        made = Session(self.driver)
        made.driver = None
        return made
"""
DRIVER = """
class Driver:
    def __init__(self):
        self.gate = self.hooks = None

@mutable
class Slot:
    state: str = ""
"""
ELSEWHERE = """
def build(driver, slot, library):
    driver.gate, (driver.hooks, library.timeout) = 1, (2, 3)
    slot.state = "open"
    setattr(driver, "gate", 2)

@frozen
class Gate:
    gate: object = None
"""


def test_each_write_to_an_object_of_another_file_is_found() -> None:
    trees = {
        "engine/session.py": ast.parse(SESSION),
        "engine/driver.py": ast.parse(DRIVER),
        "engine/slots.py": ast.parse("def close(slot):\n    slot.state = 'closed'"),
        "engine/deep/elsewhere.py": ast.parse(ELSEWHERE),
    }
    assert sorted(find_foreign_writes(trees)) == [
        "engine/deep/elsewhere.py:3: driver.gate",
        "engine/deep/elsewhere.py:3: driver.hooks",
        "engine/deep/elsewhere.py:4: slot.state",
        "engine/deep/elsewhere.py:5: setattr(driver, 'gate', 2)",
        "engine/session.py:6: self.driver.gate",
    ]
