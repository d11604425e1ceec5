"""A Markdown file with YAML front matter: where the one ends and the other begins, with every place
kept.

The file begins with a line `---` (a byte order mark and empty lines before it are passed over) and
has a second one, which closes the front matter; what follows is the body. The YAML is read by
`storage.settings.yaml_tree`, which bounds it and keeps line and column of every value, counted in
the whole file. Fenced blocks of the body are text like the rest of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ferrule.core.errors import ConfigError
from ferrule.storage.settings.yaml_tree import MAX_BYTES, Node, parse_yaml

_MARK = b"---"


@dataclass(frozen=True, slots=True)
class Document:
    """`fields` is the front matter (a mapping), `body` the text after it without white space around
    it.
    """

    file: str
    fields: Node
    body: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that is no error and was likely not meant. `where` is `file:line:column`."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def parse_document(data: bytes, file: str) -> Document:
    """Raises ConfigError that names the file, and line and column where there is one."""
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file}: {len(data)} bytes, the bound is {MAX_BYTES}")
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if not lines[first].rstrip() == _MARK:
        raise ConfigError(
            f"{file}:{first + 1}:1: there is no front matter",
            hint="begin the file with a line `---`",
        )
    last = next((n for n in range(first + 1, len(lines)) if lines[n].rstrip() == _MARK), None)
    if last is None:
        raise ConfigError(
            f"{file}:{first + 1}:1: the front matter is not closed",
            hint="end it with a second line `---`",
        )
    # Empty lines take the place of what stands above, so that every place is one of the file.
    text = b"\n" * (first + 1) + b"\n".join(lines[first + 1 : last]) + b"\n"
    fields = parse_yaml(text, file)
    if fields.pairs is None:
        raise fields.error("the front matter must be a mapping of keys to values")
    try:
        body = b"\n".join(lines[last + 1 :]).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file}:{last + 2}:1: the text after the front matter is not UTF-8"
        ) from error
    return Document(file, fields, body.strip())


def unknown_keys(node: Node, known: tuple[str, ...], what: str) -> list[Warned]:
    """A warning for every key of a mapping that means nothing here, with the nearest that does."""
    found: list[Warned] = []
    for name, (key, _) in (node.pairs or {}).items():
        if name not in known:
            near = get_close_matches(name.lower(), known, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known)}"
            found.append(Warned(key.where, f"`{name}` is no key of {what} and was ignored; {hint}"))
    return found


def plain(node: Node) -> Any:
    """A node as plain values, without places."""
    if (pairs := node.pairs) is not None:
        return {name: plain(value) for name, (_, value) in pairs.items()}
    if (items := node.items) is not None:
        return [plain(item) for item in items]
    return node.value


def field(node: Node, name: str) -> Node | None:
    """The value of a key; None if it is not there, or empty."""
    found = (node.pairs or {}).get(name)
    return found[1] if found is not None and found[1].value is not None else None


def text_of(node: Node, name: str, default: str = "") -> str:
    """A key's text. Raises ConfigError for anything else, with its place."""
    found = field(node, name)
    if found is None:
        return default
    if not isinstance(found.value, str):
        raise found.error(f"`{name}` must be text")
    return found.value


def begins(place: Node, data: bytes) -> tuple[int, int]:
    """Line and column where a text begins: that of a block (`|`) in the line after its sign. `data`
    is the whole file.
    """
    lines = data.split(b"\n")
    if (
        not lines[place.line - 1][place.column - 1 :].startswith((b"|", b">"))
        or len(lines) == place.line
    ):
        return place.line, place.column
    below = lines[place.line]
    return place.line + 1, len(below) - len(below.lstrip()) + 1


def truth_of(node: Node, name: str, default: bool = False) -> bool:
    """A key's true or false. Raises ConfigError for anything else, with its place."""
    found = field(node, name)
    if found is None:
        return default
    if not isinstance(found.value, bool):
        raise found.error(f"`{name}` must be true or false")
    return found.value


def texts_of(node: Node, name: str) -> tuple[str, ...] | None:
    """A key's list of texts (one text counts as a list of one); None if it is not there."""
    found = field(node, name)
    if found is None:
        return None
    items = [found] if isinstance(found.value, str) else found.items
    if items is None or not all(isinstance(item.value, str) for item in items):
        raise found.error(f"`{name}` must be a list of texts")
    return tuple(item.value for item in items)


def choice_of(node: Node, name: str, choices: tuple[str, ...]) -> str:
    """A key's text if it is one of `choices`; empty if it is not there. Raises ConfigError, with
    its place.
    """
    found = text_of(node, name)
    if found and found not in choices:
        place = field(node, name)
        assert place is not None
        raise place.error(f"`{name}` is `{found}`", hint=f"use one of {', '.join(choices)}")
    return found
