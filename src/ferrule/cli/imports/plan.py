"""What an import would write, what works in place, and what has no counterpart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ferrule.cli.new_files import find_existing, write_new_files
from ferrule.core.errors import ConfigError
from ferrule.core.value_class import frozen
from ferrule.storage import paths
from ferrule.storage.settings.settings import USER_FILE_NAME
from ferrule.storage.settings.values import read_tree
from ferrule.storage.settings.yaml_tree import parse_yaml


@frozen
class NewFile:
    """A file to write: below which folder, under which name, and what it was made from."""

    root: Path
    name: str
    text: str
    source: str

    @property
    def path(self) -> Path:
        """Where it goes."""
        return self.root / self.name


@frozen
class LeftOut:
    """What is not taken over, and why."""

    what: str
    reason: str


@dataclass(slots=True)
class Plan:
    """A plan for an import.

    Attributes:
        files: Files to write. None of them replaces another.
        settings: Settings to add to the person's own file, by key.
        servers: MCP servers to add to the person's own file.
        in_place: What works where it is.
        left_out: What has no counterpart, or must be done by hand.
    """

    files: list[NewFile] = field(default_factory=list[NewFile])
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    servers: dict[str, Any] = field(default_factory=dict[str, Any])
    in_place: list[str] = field(default_factory=list[str])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.files or self.settings or self.servers)

    def leave(self, what: str, reason: str) -> None:
        """Note what is not taken over."""
        self.left_out.append(LeftOut(what, reason))

    def add_file(self, file: NewFile) -> None:
        """Add a file, unless one of that name exists or is planned already."""
        if any(file.path == one.path for one in self.files):
            self.leave(file.source, f"`{file.path}` is made from another file already")
        elif find_existing(file.root, [file.name]):
            self.leave(file.source, f"`{file.path}` exists, and nothing is overwritten")
        else:
            self.files.append(file)

    def drop_known_settings(self) -> None:
        """Leave out the settings that the person's file has already."""
        known = _read_own_keys(_own_file())
        for key in [key for key in self.settings if key in known]:
            line = format_settings({key: self.settings.pop(key)}).strip()
            self.leave(f"`{key}`", f"`{_own_file()}` has it already; merge by hand:\n{line}")

    def write(self) -> None:
        """Write everything. Raises ConfigError."""
        for root in dict.fromkeys(file.root for file in self.files):
            write_new_files(root, {one.name: one.text for one in self.files if one.root == root})
        if self.settings:
            _append_settings(_own_file(), format_settings(self.settings))


def _own_file() -> Path:
    return paths.config() / USER_FILE_NAME


def _read_own_keys(file: Path) -> set[str]:
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise ConfigError(f"cannot read `{file}`: {error.strerror}") from error
    return set(parse_yaml(data, str(file)).pairs or ())


def _append_settings(file: Path, lines: str) -> None:
    before = file.read_text("utf-8") if file.exists() else ""
    text = f"{before.rstrip()}\n{lines}".lstrip("\n")
    # What could not be read back would end every later command.
    read_tree(parse_yaml(text.encode(), str(file)))
    paths.write_private(file, text)


def format_settings(settings: Mapping[str, Any]) -> str:
    """Return settings as YAML: a key at the top level, and lists one item a line."""
    return "\n".join(_format_entries(settings, "")) + "\n"


def _format_entries(entries: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in entries.items():
        if isinstance(value, Mapping):
            yield f"{indent}{key}:"
            yield from _format_entries(value, indent + "  ")  # pyright: ignore[reportUnknownArgumentType]  our own mappings
        elif isinstance(value, list):
            yield f"{indent}{key}:"
            yield from (f"{indent}  - {json.dumps(one, ensure_ascii=False)}" for one in value)  # pyright: ignore[reportUnknownVariableType]  lists of texts
        else:
            yield f"{indent}{key}: {json.dumps(value, ensure_ascii=False)}"
