"""Which lines of the package each test executes, measured once for each test file.

What is kept names functions and the lines within them, so it stays true while the rest of a module
moves. Lines of a function that has changed since are not known any more; that a test executes it
still is. A test file that has changed is measured again, and nothing else.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .operators import Function

ENTRY = "{module}:{function}"
ROWS = 30
"""Of the rows of one test, how many are taken that execute the same lines of a function: each row
of a table is often proved by one of them.
"""


@dataclass(frozen=True, slots=True)
class Test:
    """A test: what it proves, how it ended, how long it took, what it executed."""

    __test__ = False

    name: str
    promises: tuple[str, ...]
    outcome: str
    seconds: float
    functions: Mapping[str, int]
    """By `module:function`: a bit for each line, counted from the first of the function."""

    @property
    def file(self) -> str:
        """The test file it stands in."""
        return self.name.partition("::")[0]


class Functions:
    """The functions of a module, by their qualified names: the second of a name has `#2` behind."""

    def __init__(self, source: bytes) -> None:
        self._source = source.splitlines()
        self._spans: dict[str, tuple[int, int]] = {}
        for name, node in _walk_functions(ast.parse(source).body, ""):
            number = 1
            place = name
            while place in self._spans:
                number += 1
                place = f"{name}#{number}"
            self._spans[place] = (node.lineno, node.end_lineno or node.lineno)

    @cached_property
    def _names(self) -> dict[int, str]:
        # Outer functions come first, so a line ends as that of the innermost.
        return {
            line: name
            for name, (first, last) in self._spans.items()
            for line in range(first, last + 1)
        }

    def find(self, line: int) -> str:
        """Return the innermost function around a line, "" outside of all."""
        return self._names.get(line, "")

    def digest(self, name: str) -> str:
        """Name what a function says, "" if there is no such function."""
        first, last = self._spans.get(name, (1, 0))
        text = b"\n".join(self._source[first - 1 : last])
        return hashlib.sha256(text).hexdigest()[:8] if text else ""

    def pack(self, lines: Iterable[int]) -> dict[str, int]:
        """Return a bit for each line, by function. Lines outside functions are left out."""
        packed: dict[str, int] = {}
        for line in lines:
            name = self.find(line)
            if name:
                packed[name] = packed.get(name, 0) | 1 << (line - self._spans[name][0])
        return packed

    def unpack(self, name: str, bits: int) -> Iterator[int]:
        """Return the lines that bits of a function stand for."""
        line = self._spans[name][0]
        while bits:
            if bits & 1:
                yield line
            bits >>= 1
            line += 1


def _walk_functions(
    body: Sequence[ast.AST], around: str
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in body:
        if isinstance(node, Function):
            yield around + node.name, node
            yield from _walk_functions(node.body, f"{around}{node.name}.")
        elif isinstance(node, ast.ClassDef):
            yield from _walk_functions(node.body, f"{around}{node.name}.")
        else:
            yield from _walk_functions(list(ast.iter_child_nodes(node)), around)


@dataclass
class Executed:
    """What tests execute, as far as it was measured, kept in a file."""

    package: Path
    kept: Path
    files: dict[str, tuple[str, list[Test]]] = field(default_factory=dict)
    """By test file: the digest of what it held, and its tests."""
    _modules: dict[str, Functions] = field(default_factory=dict)
    _digests: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of functions as they were when measured, by test file and `module:function`."""
    _now: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, package: Path, kept: Path) -> Executed:
        """Read what was measured before. The latest of each test file counts."""
        executed = cls(package, kept)
        if kept.is_file():
            with kept.open() as file:
                for line in file:
                    executed._take(json.loads(line))
        return executed

    def _take(self, entry: dict[str, Any]) -> None:
        names = [sys.intern(name) for name in entry["functions"]]
        tests = [
            Test(
                name,
                tuple(promises),
                outcome,
                seconds,
                {names[int(index)]: int(bits, 16) for index, bits in functions.items()},
            )
            for name, promises, outcome, seconds, functions in entry["tests"]
        ]
        self.files[entry["file"]] = (entry["digest"], tests)
        for name, digest in entry["functions"].items():
            self._digests[entry["file"], sys.intern(name)] = digest

    def add(self, file: str, digest: str, tests: Iterable[Mapping[str, Any]]) -> None:
        """Keep what was measured of a test file."""
        numbers: dict[str, int] = {}
        kept: list[Any] = []
        for test in tests:
            functions: dict[int, str] = {}
            for module, lines in test["lines"].items():
                for name, bits in self.module(module).pack(lines).items():
                    entry = ENTRY.format(module=module, function=name)
                    functions[numbers.setdefault(entry, len(numbers))] = f"{bits:x}"
            kept.append(
                [test["name"], test["promises"], test["outcome"], test["seconds"], functions]
            )
        text = json.dumps(
            {
                "file": file,
                "digest": digest,
                "functions": {name: self._digest(name) for name in numbers},
                "tests": kept,
            }
        )
        with self.kept.open("a") as out:
            out.write(text + "\n")
        self._take(json.loads(text))

    def module(self, name: str) -> Functions:
        """Return the functions of a module as it is now; of one that is gone, none."""
        if name not in self._modules:
            path = self.package / name
            self._modules[name] = Functions(path.read_bytes() if path.is_file() else b"")
        return self._modules[name]

    def _digest(self, entry: str) -> str:
        if entry not in self._now:
            module, _, function = entry.partition(":")
            self._now[entry] = self.module(module).digest(function)
        return self._now[entry]

    def find_lines(self, tests: Iterable[Test]) -> dict[str, list[int]]:
        """Return the lines that tests execute, by module. Functions that have changed since are
        left out.
        """
        together: dict[str, int] = {}
        for test in tests:
            for entry, bits in test.functions.items():
                if self._digests[test.file, entry] == self._digest(entry):
                    together[entry] = together.get(entry, 0) | bits
        lines: dict[str, list[int]] = {}
        for entry, bits in together.items():
            module, _, name = entry.partition(":")
            lines.setdefault(module, []).extend(self.module(module).unpack(name, bits))
        return lines

    def by_promise(self) -> dict[str, list[Test]]:
        """Return the tests that prove each promise."""
        found: dict[str, list[Test]] = {}
        for _, tests in self.files.values():
            for test in tests:
                for promise in test.promises:
                    found.setdefault(promise, []).append(test)
        return found

    def find_tests(self, module: str, lines: Iterable[int]) -> Iterator[Test]:
        """Return the tests that passed and execute one of the lines, the most specific first: those
        that execute the fewest functions, the quickest of them first. Of a function that has
        changed since, any line will do.
        """
        packed = self.module(module).pack(lines)
        wanted = {ENTRY.format(module=module, function=name): bits for name, bits in packed.items()}
        found = [
            test
            for _, tests in self.files.values()
            for test in tests
            if test.outcome == "passed" and self._executes(test, wanted)
        ]
        rows: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for test in sorted(found, key=lambda one: (len(one.functions), one.seconds)):
            way = tuple(test.functions.get(entry, 0) for entry in wanted)
            row = (test.name.partition("[")[0], way)
            rows[row] += 1
            if rows[row] <= ROWS:
                yield test

    def _executes(self, test: Test, wanted: Mapping[str, int]) -> bool:
        return any(
            test.functions[entry] & bits or self._digests[test.file, entry] != self._digest(entry)
            for entry, bits in wanted.items()
            if entry in test.functions
        )
