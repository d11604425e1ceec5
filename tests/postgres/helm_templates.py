"""Renders the templates of our Helm chart: as much of Go's templates and Helm's functions as it uses.

Anything else is an error, so a template that uses more is noticed. `helm` itself comes from no
package registry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

_ACTION = re.compile(
    r"(?:(?P<left>\s*)\{\{-|\{\{) (?P<text>.*?) (?:-\}\}(?P<right>\s*)|\}\})", re.S
)
_WORD = re.compile(r'"[^"]*"|\S+')
Node = tuple[str, str, list[Any]]


class Chart:
    """The templates of a folder, and its values."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self._folder = folder
        self._blocks: dict[str, list[Any]] = {}
        given = yaml.safe_load((folder / "values.yaml").read_text(encoding="utf-8"))
        self._top: dict[str, Any] = {"Values": _merge(given, values), "Release": {"Name": "shop"}}

    def render(self) -> list[dict[str, Any]]:
        """Return the objects of all templates."""
        texts: list[str] = []
        for file in sorted((self._folder / "templates").iterdir()):
            nodes = self._parse(file.read_text(encoding="utf-8"))
            texts.append(self._write(nodes, self._top, {}))
        return [one for text in texts for one in yaml.safe_load_all(text) if one]

    def _parse(self, text: str) -> list[Any]:
        parts: list[Any] = []
        at = 0
        for found in _ACTION.finditer(text):
            parts += [text[at : found.start()], (found["text"],)]
            at = found.end()
        parts.append(text[at:])
        return self._nest(iter(parts))

    def _nest(self, parts: Iterator[Any]) -> list[Any]:
        nodes: list[Any] = []
        for part in parts:
            if isinstance(part, str):
                nodes.append(part)
                continue
            word, _, rest = part[0].partition(" ")
            if word == "end":
                break
            if word == "define":
                self._blocks[rest.strip('"')] = self._nest(parts)
            elif word in ("if", "range", "with"):
                nodes.append((word, rest, self._nest(parts)))
            else:
                nodes.append(("value", part[0], []))
        return nodes

    def _write(self, nodes: list[Any], dot: Any, names: dict[str, Any]) -> str:
        return "".join(one if isinstance(one, str) else self._act(one, dot, names) for one in nodes)

    def _act(self, node: Node, dot: Any, names: dict[str, Any]) -> str:
        kind, text, inner = node
        if kind == "value":
            value = self._evaluate(text, dot, names)
            return str(value).lower() if isinstance(value, bool) else str(value)
        bound, _, source = text.rpartition(" := ")
        value = self._evaluate(source, dot, names)
        if kind == "if":
            return self._write(inner, dot, names) if value else ""
        if kind == "with":
            return self._write(inner, value, names) if value else ""
        if not bound:
            return "".join(self._write(inner, one, names) for one in value)
        key, item = bound.split(", ")
        return "".join(
            self._write(inner, one, {**names, key: name, item: one}) for name, one in value.items()
        )

    def _evaluate(self, text: str, dot: Any, names: dict[str, Any]) -> Any:
        value: list[Any] = []
        for stage in text.split(" | "):
            words = _WORD.findall(stage)
            given = [self._read(word, dot, names) for word in words[1:]] + value
            make = self._functions.get(words[0])
            value = [make(*given) if make else self._read(words[0], dot, names)]
        return value[0]

    def _read(self, word: str, dot: Any, names: dict[str, Any]) -> Any:
        if word.startswith('"'):
            return word[1:-1]
        if word.isdecimal():
            return int(word)
        if word in names:
            return names[word]
        assert word.startswith("."), f"`{word}` is not understood"
        for name in filter(None, word.split(".")):
            dot = dot[name]
        return dot

    @property
    def _functions(self) -> dict[str, Callable[..., Any]]:
        return {
            "include": lambda name, dot: self._write(self._blocks[name], dot, {}),
            "nindent": lambda count, text: "".join(
                f"\n{' ' * count}{line}" for line in text.splitlines()
            ),
            "quote": lambda value: json.dumps(str(value)),
            "toYaml": lambda value: yaml.safe_dump(value).rstrip(),
            "not": lambda value: not value,
            ".Files.Get": lambda name: (self._folder / name).read_text(encoding="utf-8"),
        }


def _merge(given: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    merged = dict(given)
    for name, value in more.items():
        assert name in given, f"the chart has no value `{name}`"
        old = given[name]
        is_table = isinstance(old, dict) and isinstance(value, dict) and old
        merged[name] = _merge(old, value) if is_table else value
    return merged
