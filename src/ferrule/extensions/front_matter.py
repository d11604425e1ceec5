"""Split a Markdown file into YAML front matter and body, keeping the position of every value.

The file begins with a line `---` (a byte order mark and empty lines before it are skipped) and
has a second one, which closes the front matter. What follows is the body; fenced blocks in it are
ordinary text. The YAML is read by `storage.settings.yaml_tree`, which limits its size and keeps
the line and column of every value, counted in the whole file.
"""

from __future__ import annotations

from typing import Any, Literal, cast

from ferrule.core.errors import ConfigError
from ferrule.core.similar_names import suggest_names
from ferrule.core.value_class import frozen
from ferrule.storage.settings.yaml_tree import MAX_BYTES, Node, parse_front_matter, to_plain
from ferrule.tools.schema_notation import parse_schema_notation

_MARK = b"---"


@frozen
class Document:
    """A parsed file: `fields` is the front matter (a mapping), `body` the stripped text below."""

    file: str
    fields: Node
    body: str


@frozen
class FileWarning:
    """Something that is no error but was likely a mistake. `where` is `file:line:column`."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


@frozen
class InvalidFile:
    """A file that is left out because it is invalid.

    `name` is what it would have defined. `detail` begins with `file:line:column`.
    """

    kind: Literal["tool", "agent"]
    name: str
    detail: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.detail}{hint}. The {self.kind} `{self.name}` is left out"


def parse_document(data: bytes, file: str) -> Document:
    """Parse a file with front matter.

    Raises:
        ConfigError: The file is invalid. The message names the file, with line and column if known.
    """
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file}: {len(data)} bytes, the bound is {MAX_BYTES}")
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines[first].rstrip() != _MARK:
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
    # Empty lines replace what stands above, so that positions are those of the whole file.
    text = b"\n" * (first + 1) + b"\n".join(lines[first + 1 : last]) + b"\n"
    fields = parse_front_matter(text, file)
    if fields.pairs is None:
        raise fields.error("the front matter must be a mapping of keys to values")
    try:
        body = b"\n".join(lines[last + 1 :]).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file}:{last + 2}:1: the text after the front matter is not UTF-8"
        ) from error
    return Document(file, fields, body.strip())


def find_unknown_keys(node: Node, known: tuple[str, ...], what: str) -> list[FileWarning]:
    """Return a warning for each unknown key of a mapping, with the nearest known one."""
    warnings: list[FileWarning] = []
    for name, (key, _) in (node.pairs or {}).items():
        if name not in known:
            hint = suggest_names(name, known, f"known: {', '.join(known)}")
            message = f"`{name}` is not a key of {what} and was ignored; {hint}"
            warnings.append(FileWarning(key.where, message))
    return warnings


def read_output_schema(node: Node) -> dict[str, Any] | None:
    """Return the JSON Schema of `output`; None if the key is absent.

    It is written as a schema, or as text in the notation of `tools.schema_notation`.
    """
    place = get_field(node, "output")
    if place is None:
        return None
    schema = to_plain(place)
    if isinstance(schema, dict):
        return cast("dict[str, Any]", schema)
    try:
        return parse_schema_notation(schema if isinstance(schema, str) else "")
    except ConfigError as error:
        raise place.error(f"`output`: {error.detail}", hint=error.hint) from None


def get_field(node: Node, name: str) -> Node | None:
    """Return the value of a key, or None if it is absent or null."""
    pair = (node.pairs or {}).get(name)
    if pair is None or pair[1].value is None:
        return None
    return pair[1]


def get_text(node: Node, name: str, default: str = "") -> str:
    """Return the text of a key. Raises ConfigError, with its place, for any other type."""
    found = get_field(node, name)
    if found is None:
        return default
    if not isinstance(found.value, str):
        raise found.error(f"`{name}` must be text")
    return found.value


def locate_text(place: Node, data: bytes) -> tuple[int, int]:
    """Return the line and column where a text value begins.

    A block scalar (`|` or `>`) begins in the line after its sign. `data` is the whole file.
    """
    lines = data.split(b"\n")
    is_block = lines[place.line - 1][place.column - 1 :].startswith((b"|", b">"))
    if not is_block or len(lines) == place.line:
        return place.line, place.column
    next_line = lines[place.line]
    indentation = len(next_line) - len(next_line.lstrip())
    return place.line + 1, indentation + 1


def get_bool(node: Node, name: str, default: bool = False) -> bool:
    """Return the boolean of a key. Raises ConfigError, with its place, for any other type."""
    found = get_field(node, name)
    if found is None:
        return default
    if not isinstance(found.value, bool):
        raise found.error(f"`{name}` must be true or false")
    return found.value


def get_texts(node: Node, name: str) -> tuple[str, ...] | None:
    """Return the list of texts of a key, or None if it is absent.

    A single text counts as a list.
    """
    found = get_field(node, name)
    if found is None:
        return None
    items = [found] if isinstance(found.value, str) else found.items
    if items is None or not all(isinstance(item.value, str) for item in items):
        raise found.error(f"`{name}` must be a list of texts")
    return tuple(item.value for item in items)


def get_choice(node: Node, name: str, choices: tuple[str, ...]) -> str:
    """Return the text of a key, or "" if it is absent.

    Raises ConfigError, with its place, if it is none of `choices`.
    """
    choice = get_text(node, name)
    if choice and choice not in choices:
        place = get_field(node, name)
        assert place is not None
        raise place.error(f"`{name}` is `{choice}`", hint=f"use one of {', '.join(choices)}")
    return choice
