"""YAML from files that others may have written, as a tree that knows the place of each value.

It is built from PyYAML's parser events: its loaders and `compose` recurse in C and crash (with a
segmentation fault, not an exception) on a file of 100,000 brackets. The limits are `MAX_BYTES` of
text, `MAX_DEPTH` levels, and `MAX_NODES` values, with aliases counted as often as they are used.
Duplicate keys, tags, keys that are not text, several documents and references to themselves are
errors.

Plain scalars: empty, `~`, `null`; `true false yes no on off`; decimal and 0x integers; decimal
fractions and exponents. Everything else is text, also dates, and numbers with a leading zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from ferrule.core.errors import ConfigError
from ferrule.core.extras import require
from ferrule.core.lazy_patterns import compile_lazily
from ferrule.core.value_class import frozen

MAX_BYTES = 1_048_576
MAX_DEPTH = 32
MAX_NODES = 20_000

_CONSTANTS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null")),
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}
_INTEGER = compile_lazily(r"[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F]+)")
_NUMBER = compile_lazily(r"[-+]?((0|[1-9][0-9_]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")


@frozen
class Node:
    """A value and its place.

    `value` is a scalar, a list of nodes, or a dict from text to `(key, value)` nodes. `line` and
    `column` count from 1; `size` is the number of values inside, this one included.
    """

    value: Any
    file: str
    line: int
    column: int
    size: int = 1

    @property
    def where(self) -> str:
        """`file:line:column`, with which error messages begin."""
        return f"{self.file}:{self.line}:{self.column}"

    @property
    def pairs(self) -> dict[str, tuple[Node, Node]] | None:
        """The `(key, value)` nodes of a mapping by key, or None."""
        value = self.value
        return cast(dict[str, tuple[Node, Node]], value) if isinstance(value, dict) else None

    @property
    def items(self) -> list[Node] | None:
        """The nodes of a list, or None."""
        value = self.value
        return cast(list[Node], value) if isinstance(value, list) else None

    def error(self, message: str, *, hint: str = "") -> ConfigError:
        """Return a ConfigError that names this place."""
        return ConfigError(f"{self.where}: {message}", hint=hint)


def to_plain(node: Node) -> Any:
    """Convert a node to plain values, without places."""
    if node.pairs is not None:
        return {name: to_plain(value) for name, (_, value) in node.pairs.items()}
    if node.items is not None:
        return [to_plain(item) for item in node.items]
    return node.value


def parse_yaml(data: bytes, file: str) -> Node:
    """Parse a file's bytes; an empty file is an empty mapping.

    A file named `.json` may have comments, as editors allow in settings.

    Raises:
        ConfigError: The text is not YAML, or over a limit. The message names file, line and column.
        ExtraMissing: There is no library for YAML.
    """
    require("yaml")
    import yaml

    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file}: {len(data)} bytes, the limit is {MAX_BYTES}")
    if file.endswith(".json") and data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[", b"/"):
        data = _blank_json_comments(data)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}:1: not UTF-8 at byte {error.start}") from error
    try:
        # PyYAML names a parser by a loader class; only its events are used, nothing is constructed.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        parse = cast(Callable[..., Iterator[Any]], yaml.parse)  # pyright: ignore[reportUnknownMemberType]
        return _Builder(file).build(parse(text, Loader=loader))
    except yaml.MarkedYAMLError as error:
        if file.endswith(".json"):
            parse_json(data, file)
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else file
        detail = f"{place}: not YAML: {error.problem or error.context}"
        hint = "look there and in the line above: indentation, a colon, a quote or a bracket"
        raise ConfigError(detail, hint=hint) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not YAML: {error}") from error


def parse_front_matter(data: bytes, file: str) -> Node:
    """Parse front matter that people wrote without thinking of YAML.

    If it cannot be parsed, a top-level line `name: text` whose text is plain words to a person and
    not to YAML is taken as it is written, as other programs do: `description: Use when: asked`.

    Raises:
        ConfigError: It is not YAML. The message names file, line and column.
    """
    try:
        return parse_yaml(data, file)
    except ConfigError as error:
        quoted = _quote_plain_texts(data, file)
        if quoted == data:
            raise
        try:
            return parse_yaml(quoted, file)
        except ConfigError:
            raise error from None


_PLAIN_LINE = compile_lazily(rb"([A-Za-z_][\w-]*:[ \t]+)(\S.*?)[ \t\r]*")
_PLAIN_WORDS = compile_lazily(rb"[`@%]|\*\*|\[[^\]]*\]\s*\w|\w.*?:(\s|$)")
"""How words begin that only YAML takes for syntax: code, a mention, bold, a tag, a clause."""


def _quote_plain_texts(data: bytes, file: str) -> bytes:
    lines = data.split(b"\n")
    for number, line in enumerate(lines):
        match = _PLAIN_LINE.fullmatch(line)
        is_continued = number + 1 < len(lines) and lines[number + 1].startswith((b" ", b"\t"))
        if match is None or is_continued or not _PLAIN_WORDS.match(match[2]):
            continue
        try:
            parse_yaml(line, file)
        except ConfigError:
            text = match[2].decode("utf-8", "surrogateescape")
            quoted = json.dumps(text, ensure_ascii=False)
            lines[number] = match[1] + quoted.encode("utf-8", "surrogateescape")
    return b"\n".join(lines)


_STRING_OR_COMMENT = compile_lazily(rb'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


def _blank_json_comments(data: bytes) -> bytes:
    """Replace comments by blanks, so that positions stay those of the file."""

    def blank(match: re.Match[bytes]) -> bytes:
        found = match[0]
        return found if found.startswith(b'"') else re.sub(rb"[^\n]", b" ", found)

    return _STRING_OR_COMMENT.sub(blank, data)


def parse_json(data: bytes, file: str) -> Any:
    """Parse the bytes of a JSON file.

    Raises:
        ConfigError: They are not JSON. The message names file, line and column.
    """
    try:
        return json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        reason = error.msg[:1].lower() + error.msg[1:]
        hint = "look there and in the line above: a comma, a quote, a colon or a bracket"
        raise ConfigError(f"{place}: not JSON: {reason}", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: not JSON: {error}") from error


_FRAME_EVENTS = (
    "StreamStartEvent",
    "DocumentStartEvent",
    "DocumentEndEvent",
    "StreamEndEvent",
)


class _Builder:
    def __init__(self, file: str) -> None:
        self._file = file
        self._anchors: dict[str, Node | None] = {}
        self._nodes = 0

    def build(self, events: Iterator[Any]) -> Node:
        root: Node | None = None
        for event in events:
            if type(event).__name__ in _FRAME_EVENTS:
                continue
            if root is not None:
                raise self._wrong(event, "a second document")
            root = self._node(event, events, 0)
        if root is None or root.value is None:
            return Node({}, self._file, 1, 1)
        return root

    def _node(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        name = type(event).__name__
        if name == "AliasEvent":
            return self._alias(event)
        self._count(event, 1)
        if depth > MAX_DEPTH:
            raise self._wrong(event, f"nested deeper than {MAX_DEPTH} levels")
        if event.tag not in (None, "!"):
            raise self._wrong(event, f"the tag `{event.tag}`; tags are not used here")
        if event.anchor:
            self._anchors[event.anchor] = None
        value: Any = None
        size = 1
        if name == "SequenceStartEvent":
            value, size = self._sequence(events, depth)
        elif name != "ScalarEvent":
            value, size = self._build_mapping(events, depth)
        elif event.implicit[0]:
            value = _scalar(event.value)
        else:
            value = event.value
        node = self._at(event, value, size)
        if event.anchor:
            self._anchors[event.anchor] = node
        return node

    def _sequence(self, events: Iterator[Any], depth: int) -> tuple[list[Node], int]:
        nodes: list[Node] = []
        while type(event := next(events)).__name__ != "SequenceEndEvent":
            nodes.append(self._node(event, events, depth + 1))
        return nodes, 1 + sum(node.size for node in nodes)

    def _build_mapping(
        self, events: Iterator[Any], depth: int
    ) -> tuple[dict[str, tuple[Node, Node]], int]:
        pairs: dict[str, tuple[Node, Node]] = {}
        while type(event := next(events)).__name__ != "MappingEndEvent":
            if type(event).__name__ != "ScalarEvent":
                raise self._wrong(event, "a key that is not text")
            # Keys are always text: `on: x` must not become True.
            key = self._at(event, event.value)
            if event.value in pairs:
                first, _ = pairs[event.value]
                raise self._wrong(
                    event, f"`{event.value}` a second time (first in line {first.line})"
                )
            pairs[event.value] = (key, self._node(next(events), events, depth + 1))
        return pairs, 1 + sum(value.size for _, value in pairs.values())

    def _at(self, event: Any, value: Any, size: int = 1) -> Node:
        mark = event.start_mark
        return Node(value, self._file, mark.line + 1, mark.column + 1, size)

    def _alias(self, event: Any) -> Node:
        if event.anchor not in self._anchors:
            raise self._wrong(event, f"`*{event.anchor}` refers to nothing")
        node = self._anchors[event.anchor]
        if node is None:
            raise self._wrong(event, f"`*{event.anchor}` refers to itself")
        self._count(event, node.size)
        return node

    def _count(self, event: Any, size: int) -> None:
        self._nodes += size
        if self._nodes > MAX_NODES:
            raise self._wrong(event, f"more than {MAX_NODES} values")

    def _wrong(self, event: Any, found: str) -> ConfigError:
        mark = event.start_mark
        return ConfigError(f"{self._file}:{mark.line + 1}:{mark.column + 1}: found {found}")


def _scalar(text: str) -> Any:
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    if _INTEGER.fullmatch(text) and len(text) < 40:
        integer = int(text.replace("_", ""), 16 if "x" in text else 10)
        if integer.bit_length() <= 64:
            return integer
    if _NUMBER.fullmatch(text) and len(text) < 40:
        return float(text.replace("_", ""))
    return text
