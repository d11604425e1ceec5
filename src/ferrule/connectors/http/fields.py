"""Typed access to a YAML mapping, collecting every problem. Recurses no deeper than the file."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.storage.settings.yaml_tree import Node

from .templates import TemplateError

MAX_REPORTED = 50
"""Problems of a file that are reported."""
T = TypeVar("T", bound=str)


class Problems:
    """What is wrong with a file, in the order it was found."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._hint = ""

    def __len__(self) -> int:
        return len(self._found)

    def add(self, node: Node, message: str, hint: str = "") -> None:
        line = f"{node.where}: {message}" if node.line else f"{node.file}: {message}"
        if line not in self._found:
            self._found.append(line)
            self._hint = hint

    @contextmanager
    def collect(self, node: Node) -> Generator[None]:
        """Record what is raised inside as a problem of this node."""
        try:
            yield
        except ConfigError as error:
            self.add(node, error.detail.replace("\n", "; "), error.hint)
        except (TemplateError, ValueError) as error:
            self.add(node, str(error))

    def raise_all(self) -> None:
        """Raise ConfigError with a line for each problem, if there are any."""
        if not self._found:
            return
        lines = self._found[:MAX_REPORTED]
        more = len(self._found) - MAX_REPORTED
        if more > 0:
            lines.append(f"and {more} more")
        raise ConfigError(
            "\n".join(lines), code="http_manifest", hint=self._hint if len(lines) == 1 else ""
        )


class Fields:
    """A mapping with known keys. A value of the wrong type is a problem and counts as not given."""

    def __init__(self, node: Node, known: Sequence[str], what: str, problems: Problems) -> None:
        self.node = node
        self._pairs = node.pairs or {}
        self._problems = problems
        if node.pairs is None:
            problems.add(node, f"{what} must hold `key: value` pairs")
        for name, (key, _) in self._pairs.items():
            if name not in known:
                hint = suggest_names(name, known, f"known: {', '.join(known)}")
                problems.add(key, f"`{name}` is not a key of {what}; {hint}")

    def is_given(self, name: str) -> bool:
        return name in self._pairs and self._pairs[name][1].value is not None

    def get(self, name: str) -> Node:
        """Return the value of a key that is given, else the mapping itself."""
        return self._pairs[name][1] if name in self._pairs else self.node

    def text(self, name: str, *, required: bool = False) -> str:
        node = self.get(name)
        if not self.is_given(name):
            if required and self.node.pairs is not None:
                self._problems.add(self.node, f"`{name}` is missing")
            return ""
        if isinstance(node.value, str) and node.value.strip():
            return node.value
        self._problems.add(node, f"`{name}` must be text")
        return ""

    def flag(self, name: str, default: bool) -> bool:
        node = self.get(name)
        if not self.is_given(name):
            return default
        if not isinstance(node.value, bool):
            self._problems.add(node, f"`{name}` must be true or false")
            return default
        return node.value

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        value = self.get(name).value
        if not self.is_given(name):
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self._problems.add(
                self.get(name), f"`{name}` must be a whole number from {least} to {most}"
            )
            return default
        return value

    def choice(self, name: str, choices: Sequence[T], default: T) -> T:
        found = self.text(name)
        for choice in choices:
            if found == choice:
                return choice
        if found:
            self._problems.add(
                self.get(name), f"`{name}` is `{found}`; use one of {', '.join(choices)}"
            )
        return default

    def items(self, name: str) -> list[Node]:
        if not self.is_given(name):
            return []
        found = self.get(name).items
        if found is None:
            self._problems.add(self.get(name), f"`{name}` must be a list")
        return found or []

    def texts(self, name: str) -> list[Node]:
        """Return the nodes of a list of texts."""
        nodes: list[Node] = []
        for node in self.items(name):
            if isinstance(node.value, str) and node.value.strip():
                nodes.append(node)
            else:
                self._problems.add(node, f"`{name}` must be a list of texts")
        return nodes

    def get_pairs(self, name: str) -> list[tuple[str, Node]]:
        """Return keys and values of a mapping."""
        if not self.is_given(name):
            return []
        pairs = self.get(name).pairs
        if pairs is None:
            self._problems.add(self.get(name), f"`{name}` must be a mapping")
            return []
        return [(key, value) for key, (_, value) in pairs.items()]


def to_node(value: Any, file: str) -> Node:
    """Return plain values as a node without positions."""
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value)
        pairs = {
            str(name): (Node(str(name), file, 0, 0), to_node(field, file))
            for name, field in fields.items()
        }
        return Node(pairs, file, 0, 0)
    if isinstance(value, (list, tuple)):
        return Node([to_node(item, file) for item in cast("list[Any]", value)], file, 0, 0)
    return Node(value, file, 0, 0)
