"""A small path language over JSON values: the part of JSONPath (RFC 9535) that needs no functions.

    $.orders[0].id            members and elements; `[-1]` is the last
    $.orders[1:3]             slices, also with a step
    $['a name']["b"]          names in quotes
    $.orders[*].id            every element or member
    $..id                     at any depth, the value itself first
    $[0,2,'a']                several selectors
    $.orders[?@.total > 10 && @.state == "open"]
                              tests: == != < <= > >=, or that a path exists; `&&`

Results are in the order of RFC 9535: left to right, outer before inner. Comparisons are those of
the RFC: values of different types are unequal and neither is less. Not supported: `||`, `!`,
brackets and functions within tests. Work is bounded by `MAX_VISITED`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from ferrule.core.calls import ErrorType
from ferrule.core.errors import RetryCall, ToolFailed
from ferrule.core.value_class import frozen

MAX_PATH = 1_000
MAX_STEPS = 50
"""Segments of a path, including those of its tests: each is a level of Python's stack."""
MAX_VISITED = 200_000
"""Values that one query visits."""

Node = tuple[str, Any]
"""The place of a value, as JSON Pointer, and the value."""
Selector = Callable[["_Walk", Node], Iterator[Node]]

_NAME = re.compile(r"[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})", re.ASCII)
_LITERAL = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null", re.ASCII)
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_COMPARISON = re.compile(r"==|!=|<=|>=|<|>")


@dataclass(slots=True)
class _Walk:
    """One query in progress: how many values it may still visit."""

    left: int = MAX_VISITED

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ToolFailed(
                ErrorType.LIMIT,
                f"the path looks at more than {MAX_VISITED} values; name more members and "
                "use `..` and `*` less",
            )


def select_nodes(document: Any, path: str) -> Iterator[Node]:
    """Yield the values that `path` selects, with their places.

    Raises:
        RetryCall: It is not a path.
        ToolFailed: `limit` if it visits too many values.
    """
    if len(path) > MAX_PATH:
        raise RetryCall(f"`path` has {len(path)} characters; the most is {MAX_PATH}")
    segments = _Parser(path).path()
    return _follow(_Walk(), ("", document), segments)


def _follow(walk: _Walk, start: Node, segments: list[_Segment]) -> Iterator[Node]:
    nodes: Iterator[Node] = iter((start,))
    for segment in segments:
        nodes = segment.apply(walk, nodes)
    return nodes


@frozen
class _Segment:
    """One step of a path: what is selected from each value, or from everything within it."""

    selectors: tuple[Selector, ...]
    deep: bool = False

    def apply(self, walk: _Walk, nodes: Iterator[Node]) -> Iterator[Node]:
        for node in nodes:
            for start in _within(walk, node) if self.deep else (node,):
                yield from self._select(walk, start)

    def _select(self, walk: _Walk, node: Node) -> Iterator[Node]:
        for selector in self.selectors:
            for found in selector(walk, node):
                walk.step()
                yield found


def _within(walk: _Walk, node: Node) -> Iterator[Node]:
    """Yield the value and everything within it, outer before inner.

    Without recursion, since documents can be deep.
    """
    waiting = [node]
    while waiting:
        walk.step()
        current = waiting.pop()
        yield current
        waiting += reversed(list(_children(current)))


def _children(node: Node) -> Iterator[Node]:
    place, value = node
    if isinstance(value, dict):
        for name, item in cast("dict[str, Any]", value).items():
            yield f"{place}/{_escape(name)}", item
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            yield f"{place}/{index}", item


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _member(name: str) -> Selector:
    def select_member(walk: _Walk, node: Node) -> Iterator[Node]:
        if isinstance(node[1], dict) and name in node[1]:
            yield f"{node[0]}/{_escape(name)}", node[1][name]

    return select_member


def _element(index: int) -> Selector:
    def select_element(walk: _Walk, node: Node) -> Iterator[Node]:
        if isinstance(node[1], list):
            items = cast("list[Any]", node[1])
            position = index if index >= 0 else len(items) + index
            if 0 <= position < len(items):
                yield f"{node[0]}/{position}", items[position]

    return select_element


def _slice(bounds: slice) -> Selector:
    def select_slice(walk: _Walk, node: Node) -> Iterator[Node]:
        if isinstance(node[1], list) and bounds.step != 0:
            items = cast("list[Any]", node[1])
            for position in range(*bounds.indices(len(items))):
                yield f"{node[0]}/{position}", items[position]

    return select_slice


def _select_children(walk: _Walk, node: Node) -> Iterator[Node]:
    return _children(node)


def _filter(tests: list[_Test]) -> Selector:
    def select_filtered(walk: _Walk, node: Node) -> Iterator[Node]:
        for child in _children(node):
            walk.step()
            if all(test.is_met(walk, child[1]) for test in tests):
                yield child

    return select_filtered


@frozen
class _Test:
    """A test: `@.path` exists, or compares like this with a literal."""

    segments: list[_Segment]
    comparison: str = ""
    literal: Any = None

    def is_met(self, walk: _Walk, value: Any) -> bool:
        found = next(_follow(walk, ("", value), self.segments), None)
        if not self.comparison:
            return found is not None
        if found is None:
            return self.comparison == "!="
        return _compare(found[1], self.comparison, self.literal)


def _compare(left: Any, comparison: str, right: Any) -> bool:
    same_kind = _kind(left) == _kind(right)
    equal = same_kind and left == right
    if comparison == "==":
        return equal
    if comparison == "!=":
        return not equal
    if equal and comparison in ("<=", ">="):
        return True
    if not same_kind or _kind(left) not in ("number", "string"):
        return False
    return left < right if comparison in ("<", "<=") else left > right


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "number"
    if isinstance(value, str):
        return "string"
    return "null" if value is None else "structure"


class _Parser:
    """Reads a path, character by character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._position = 0
        self._steps = 0

    def path(self) -> list[_Segment]:
        self._expect("$", "it begins with `$`, the whole document")
        segments = self._segments()
        if self._position < len(self.text):
            raise self._error("here a `.` or `[` should follow")
        return segments

    def _segments(self) -> list[_Segment]:
        found: list[_Segment] = []
        while self._next_character() in (".", "["):
            self._steps += 1
            if self._steps > MAX_STEPS:
                raise self._error(
                    f"more than {MAX_STEPS} steps; ask for a part first and go on from there"
                )
            deep = self._take("..")
            if self._take("["):
                found.append(_Segment(self._bracket(), deep))
                continue
            if not deep:
                self._expect(".", "")
            found.append(_Segment((self._parse_dot_selector(),), deep))
        return found

    def _parse_dot_selector(self) -> Selector:
        if self._take("*"):
            return _select_children
        name = self._match(_NAME)
        if not name:
            raise self._error("a name or `*` is missing; write other names as `['a name']`")
        return _member(name)

    def _bracket(self) -> tuple[Selector, ...]:
        selectors = [self._selector()]
        while self._take(","):
            selectors.append(self._selector())
        self._expect("]", "`]` is missing")
        return tuple(selectors)

    def _selector(self) -> Selector:
        self._skip_blanks()
        if self._take("*"):
            return _select_children
        if self._take("?"):
            return _filter(self._tests())
        if self._next_character() in ("'", '"'):
            return _member(self._parse_quoted_name())
        return self._numbers()

    def _numbers(self) -> Selector:
        parts = [self._match(_NUMBER)]
        while len(parts) < 3 and self._take(":"):
            parts.append(self._match(_NUMBER))
        if len(parts) > 1:
            bounds = [int(part) if part else None for part in parts]
            return _slice(slice(*bounds))
        if not parts[0]:
            raise self._error(
                "a number, a name in quotes, `*`, a slice or a test `?@.…` is missing"
            )
        return _element(int(parts[0]))

    def _tests(self) -> list[_Test]:
        tests = [self._test()]
        while self._take("&&"):
            tests.append(self._test())
        return tests

    def _test(self) -> _Test:
        self._expect(
            "@",
            "a test begins with `@`, such as `?@.price < 10`; brackets, `||` and `!` are not known",
        )
        segments = self._segments()
        self._skip_blanks()
        comparison = self._match(_COMPARISON)
        if not comparison:
            return _Test(segments)
        return _Test(segments, comparison, self._literal())

    def _literal(self) -> Any:
        self._skip_blanks()
        if self._next_character() in ("'", '"'):
            return self._parse_quoted_name()
        written = self._match(_LITERAL)
        if not written:
            raise self._error("text in quotes, a number, true, false or null is missing")
        return json.loads(written)

    def _parse_quoted_name(self) -> str:
        written = self._match(_QUOTED)
        if written.startswith("'"):
            # The same text as JSON: single quotes need no escape there, double quotes do.
            inner = written[1:-1].replace("\\'", "'")
            written = '"' + re.sub(r'(\\.)|"', lambda found: found[1] or '\\"', inner) + '"'
        try:
            return json.loads(written, strict=False)
        except ValueError:
            raise self._error(
                "the text in quotes does not end, or has an escape that JSON does not know"
            ) from None

    def _skip_blanks(self) -> None:
        while self._next_character() in (" ", "\t", "\n"):
            self._position += 1

    def _next_character(self) -> str:
        return self.text[self._position : self._position + 1]

    def _take(self, sign: str) -> bool:
        before = self._position
        if sign not in ("..", ".", "["):
            self._skip_blanks()
        if self.text.startswith(sign, self._position):
            self._position += len(sign)
            return True
        self._position = before
        return False

    def _expect(self, sign: str, what: str) -> None:
        if not self._take(sign):
            raise self._error(what)

    def _match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self._position)
        if found is None:
            return ""
        self._position = found.end()
        return found[0]

    def _error(self, what: str) -> RetryCall:
        return RetryCall(f"`path` at character {self._position + 1}: {what}")
