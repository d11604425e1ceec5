"""A number that a promise names is written in a test that proves it, and not imported from the code
that it is about.

`limits.turns` promises 200 rounds: a test that compares with `Limits().max_turns` passes whatever
the default is. So each number in a sentence of `tests/promises.yaml`, and in a place of
`tests/promise_sources`, must stand in the text of one of the tests that prove it or that the place
names, or in what that test uses of its own file: as a number, as an expression of numbers
(`10 * 1024`), or inside a string.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from source import ROOT

sys.path.insert(0, str(ROOT / "docs"))

from made_promises import claims, entries

TESTS = ROOT / "tests"

NAMES = re.compile(
    r"""
    ^[\d.§]+\s | ^[\w ]+,\s\d+(?:\sand\s\d+)?:     # the number of a section, at the beginning of a place
    | \b(?:systems\.md|requirement|design|section|§|RFC|ISO|OpenAPI|Swagger|A2A|version|pid|draft)\s*§?[\d.]+
    | \b(?:\d+\.)+\d+\b                           # versions
    | \b\d{4}-\d\d-\d\d\b
    | \b(?=\w*[A-Za-z])(?!\d+\s?(?:s|ms|KiB|MiB|GiB|KB|MB|GB|xx)\b)\w*\d\w*\b   # sha256, 5xx, task_1
    | \b[A-Za-z]+-\d+\b                           # UTF-8, SHA-256
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What has digits and is a name."""

WORDS = {
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "fifteen": 15,
    "sixteen": 16,
    "twenty": 20,
    "thirty": 30,
    "forty": 40,
    "fifty": 50,
    "sixty": 60,
    "hundred": 100,
    "thousand": 1000,
}
"""Numbers in words. What is said of one, two or a second thing is no figure."""

UNITS = {
    "ms": (1, 1e-3),
    "s": (1, 1e3),
    "seconds": (1, 1e3),
    "minutes": (1, 60, 60e3),
    "KiB": (1, 1024),
    "MiB": (1, 1024**2),
    "MB": (1, 1000**2, 1024**2),
    "GiB": (1, 1024**3),
}
"""What a test may write a number of the unit as: itself, or times one of these."""

FIGURE = re.compile(
    rf"(?<![\w.-])(\d[\d,]*|{'|'.join(WORDS)})(?:[ ]?({'|'.join(UNITS)}))?(?![\w-])"
)

PAIR = re.compile(rf"(\d+) and (\d+) ({'|'.join(UNITS)})\b")

EXCEPTIONS = {
    "every-id-answered": "the four calls are written one by one, and so are their results",
    "3.3.3 valid, bad, unknown and denied": "the four calls are written one by one, and so are their results",
    "join.worked-example": "the three branches are named, and so are their results",
    "2.3.3 budget: of three found tools": "the three tools are named, and so is the one that fits",
    "Tool Vault: our own search with three strategies": "a promise for each strategy, by its name",
    "6 policy: four attempts and 30 s": "30 s is what the requirement has; ours, 300 s, is in the same place and tested",
}
"""Sentences whose numbers no test can write down, by id or by the beginning of the place, each with
the reason.
"""


@dataclass(frozen=True)
class Sentence:
    """A promise or a place, and what answers for it: ids of promises, and tests (`file::test`)."""

    name: str
    text: str
    proofs: tuple[str, ...]

    @property
    def figures(self) -> dict[str, set[float]]:
        """The figures in the text, and what a test may write them as."""
        found: dict[str, set[float]] = {}
        text = PAIR.sub(r"\1 \3 and \2 \3", NAMES.sub(" ", self.text))
        for match in FIGURE.finditer(text):
            word, unit = match.groups()
            value = WORDS.get(word) or float(word.replace(",", ""))
            found[match[0]] = {value * factor for factor in UNITS.get(unit or "", (1,))}
        return found


@cache
def sentences() -> list[Sentence]:
    """Every sentence that names a figure."""
    found = [
        Sentence(entry["id"], entry["promise"], (entry["id"],))
        for entry in entries(TESTS / "promises.yaml")
    ]
    for path in sorted((TESTS / "promise_sources").glob("*.yaml")):
        for place in entries(path):
            if place.get("later"):
                continue
            proofs = (*(place.get("promises") or ()), *(place.get("tests") or ()))
            found.append(Sentence(place["place"], place["place"], proofs))
    return [one for one in found if one.proofs and one.figures]


def numbers(node: ast.AST) -> Iterator[float]:
    """The numbers that are written below a node, also as expressions and inside strings."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            for word in re.findall(r"\d[\d,_]*(?:\.\d+)?", inner.value):
                yield float(re.sub("[,_]", "", word))
        elif isinstance(inner, ast.Constant | ast.BinOp):
            value = evaluate(inner)
            if value is not None:
                yield value


def evaluate(node: ast.AST) -> float | None:
    """The value of a number or of an expression of numbers."""
    if isinstance(node, ast.Constant):
        plain = isinstance(node.value, int | float) and not isinstance(node.value, bool)
        return float(node.value) if plain else None
    if not isinstance(node, ast.BinOp):
        return None
    left = evaluate(node.left)
    right = evaluate(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    if isinstance(node.op, ast.Pow) and 0 <= right <= 64:
        return left**right
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    return None


@dataclass
class TestFile:
    """A test file: its functions and classes by name, and the statements that give names a value."""

    __test__ = False

    tree: ast.Module
    definitions: dict[str, ast.stmt] = field(default_factory=dict[str, ast.stmt])
    parts: dict[str, list[ast.stmt]] = field(default_factory=dict[str, list[ast.stmt]])
    _read: dict[int, tuple[frozenset[float], frozenset[str]]] = field(default_factory=dict)

    def find_written(self, test: str) -> frozenset[float]:
        """Return the numbers of a test: its own, and those of what it uses of the file, in turn.
        `""`: all of the file.
        """
        found: set[float] = set()
        seen: set[int] = set()
        waiting: list[ast.AST] = [self.definitions[test] if test else self.tree]
        while waiting:
            part = waiting.pop()
            if id(part) not in seen:
                seen.add(id(part))
                values, names = self._read_part(part)
                found |= values
                waiting += [other for name in names for other in self.parts.get(name, ())]
        return frozenset(found)

    def _read_part(self, part: ast.AST) -> tuple[frozenset[float], frozenset[str]]:
        """Return the numbers in a statement, and the names it uses. Arguments name fixtures."""
        if id(part) not in self._read:
            names: set[str] = set()
            for node in ast.walk(part):
                if isinstance(node, ast.Name):
                    names.add(node.id)
                elif isinstance(node, ast.arg):
                    names.add(node.arg)
            self._read[id(part)] = frozenset(numbers(part)), frozenset(names)
        return self._read[id(part)]


@cache
def read_test_file(file: str) -> TestFile:
    """Read a test file, by its name from `tests/`."""
    found = TestFile(ast.parse((TESTS / file).read_text(encoding="utf-8")))
    for node in ast.walk(found.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.definitions[node.name] = node
    for statement in found.tree.body:
        for name in defined(statement):
            found.parts.setdefault(name, []).append(statement)
    return found


def defined(statement: ast.stmt) -> list[str]:
    """The names that a statement of a module gives a value."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Assign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return [
            node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)
        ]
    return []


@cache
def proved() -> dict[str, frozenset[float]]:
    """The numbers that the tests of each promise and each named test write, where a sentence asks
    for them.
    """
    asked = {name for sentence in sentences() for name in sentence.proofs}
    found: dict[str, frozenset[float]] = {}
    for name in asked:
        if "::" in name:
            file, _, test = name.partition("::")
            found[name] = read_test_file(file).find_written(test)
    for claim in claims():
        if claim.promise in asked:
            written = read_test_file(claim.file).find_written(claim.test)
            found[claim.promise] = found.get(claim.promise, frozenset()) | written
    return found


def test_a_number_that_a_promise_names_is_written_in_a_test_that_proves_it() -> None:
    wrong: list[str] = []
    for sentence in sentences():
        there = frozenset[float]().union(
            *(proved().get(name, frozenset()) for name in sentence.proofs)
        )
        missing = [figure for figure, values in sentence.figures.items() if not values & there]
        excepted = any(sentence.name.startswith(beginning) for beginning in EXCEPTIONS)
        if excepted and not missing:
            wrong.append(f"`{sentence.name}` is proved: take it out of the exceptions")
        elif missing and not excepted:
            wrong.append(
                f"no test of {', '.join(sentence.proofs)} writes {', '.join(missing)}: "
                f"{sentence.text}"
            )
    assert not wrong, "\n".join(wrong)


def test_an_exception_is_about_a_sentence_and_has_a_reason() -> None:
    names = [one.name for one in sentences()]
    lost = [one for one in EXCEPTIONS if not any(name.startswith(one) for name in names)]
    assert not lost
    assert all(len(reason) > 20 for reason in EXCEPTIONS.values())


def is_constant(name: str) -> bool:
    """Return whether a name is written as those of constants are."""
    return name.strip("_").isupper()


def imported_constants(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the constants that a test file imports from the package: module and name."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("ferrule"):
            for alias in node.names:
                if is_constant(alias.name):
                    yield str(node.module), alias.name


def package_numbers(module: str) -> frozenset[str]:
    """Return the constants of a module of the package that are numbers, by its text."""
    path = (ROOT / "src" / module.replace(".", "/")).with_suffix(".py")
    if not path.is_file():
        return frozenset()
    found: set[str] = set()
    for statement in ast.parse(path.read_bytes()).body:
        if isinstance(statement, ast.Assign) and is_number(statement.value):
            found |= {name.id for name in statement.targets if isinstance(name, ast.Name)}
        elif isinstance(statement, ast.AnnAssign) and is_number(statement.value):
            found |= {statement.target.id} if isinstance(statement.target, ast.Name) else set()
    return frozenset(found)


def is_number(value: ast.expr | None) -> bool:
    """Return whether an expression is made of numbers alone: `64`, `-1`, `10 * 1024`."""
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)


def test_a_test_writes_the_bounds_it_compares_with() -> None:
    wrong: list[str] = []
    for path in sorted(TESTS.rglob("*.py")):
        for module, name in imported_constants(path):
            if name in package_numbers(module):
                wrong.append(f"{path.relative_to(ROOT)} imports `{name}`: write its value")
    assert not wrong, "\n".join(wrong)
